/* exp(x - max) / sum along the last axis that is longer than one. NaN and infinities as in softmax_f32_any_ref.c: there is no
   distribution to return. */
#include "neon/exp_f32.h"
#include "ops/axis.h"

static size_t length_of(const opsnn_node *node) {
    const opsnn_softmax_params *p = node->params;
    const opsnn_value *x = node->inputs[0];
    return (size_t)x->dims[opsnn_axis(p->axis, x->rank)];
}

static int plan(const opsnn_node *node, const opsnn_target *target, opsnn_fit *fit) {
    const opsnn_softmax_params *p = node->params;
    const opsnn_value *x = node->inputs[0];
    const uint32_t axis = opsnn_axis(p->axis, x->rank);
    if (opsnn_count(x->dims + axis, x->rank - axis) != x->dims[axis] || opsnn_elements(x) == 0) {
        fit->why = "the axis is not the last one";
        return 0;
    }
    fit->n_tasks = opsnn_tasks(opsnn_elements(x), 4096, opsnn_elements(x) / (size_t)x->dims[axis]);
    fit->predicted_ns = opsnn_predict(node, target, 0.03);
    return 1;
}

static float lanes_sum(float32x4_t v) {
    return (vgetq_lane_f32(v, 0) + vgetq_lane_f32(v, 2)) + (vgetq_lane_f32(v, 1) + vgetq_lane_f32(v, 3));
}

static void distribution(const float *x, float *y, size_t n) {
    float32x4_t tops = vdupq_n_f32(x[0]), sums = vdupq_n_f32(0);
    size_t i = 0;
    for (; i + 4 <= n; i += 4) tops = vmaxq_f32(tops, vld1q_f32(x + i));
    for (; i < n; i++) tops = vmaxq_f32(tops, vdupq_n_f32(x[i]));
    tops = vmaxq_f32(tops, vextq_f32(tops, tops, 2));
    tops = vmaxq_f32(tops, vextq_f32(tops, tops, 1));
    for (i = 0; i + 4 <= n; i += 4) {
        const float32x4_t e = opsnn_exp(vsubq_f32(vld1q_f32(x + i), tops));
        vst1q_f32(y + i, e);
        sums = vaddq_f32(sums, e);
    }
    float sum = lanes_sum(sums);
    if (i < n) {
        opsnn_store_part(y + i, opsnn_exp(vsubq_f32(opsnn_load_part(x + i, n - i), tops)), n - i);
        for (; i < n; i++) sum += y[i];
    }
    const float scale = 1.0f / sum;
    for (i = 0; i + 4 <= n; i += 4) vst1q_f32(y + i, vmulq_n_f32(vld1q_f32(y + i), scale));
    for (; i < n; i++) y[i] *= scale;
}

static void run(const opsnn_call *call, uint32_t task) {
    const size_t n = length_of(call->node), rows = opsnn_elements(call->node->inputs[0]) / n;
    const size_t first = opsnn_first(rows, call->fit->n_tasks, task), end = opsnn_first(rows, call->fit->n_tasks, task + 1);
    for (size_t row = first; row < end; row++)
        distribution((const float *)call->in[0] + row * n, (float *)call->out[0] + row * n, n);
    opsnn_tail_apply(call, first * n, (end - first) * n);
}

const opsnn_kernel opsnn_k_softmax_f32_any_neon = {
    .name = "softmax_f32_any_neon",
    .op = OPSNN_OP_SOFTMAX,
    .dtype = OPSNN_DTYPE_F32,
    .flags = OPSNN_KERNEL_TAIL,
    .cpu = OPSNN_NEON_CPU,
    .plan = plan,
    .run = run,
};
