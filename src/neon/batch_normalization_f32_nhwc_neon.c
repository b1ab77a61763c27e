/* (x - mean) * factor + bias, factor = scale / sqrt(var + epsilon) being made once for each task. */
#include <math.h>

#include "neon/simd.h"

/* Rows of C channels; a task is a range of them. */
static int plan(const opsnn_node *node, const opsnn_target *target, opsnn_fit *fit) {
    const opsnn_value *x = node->inputs[0];
    const size_t rows = (size_t)opsnn_count(x->dims, x->rank - 1), c = (size_t)x->dims[x->rank - 1];
    fit->n_tasks = opsnn_tasks(node->macs, 16384 + 8 * (uint64_t)c, rows);
    fit->scratch_bytes = c * sizeof(float);
    fit->predicted_ns = opsnn_predict(node, target, 0.2);
    return 1;
}

static void run(const opsnn_call *call, uint32_t task) {
    const opsnn_batch_normalization_params *p = call->node->params;
    const opsnn_value *value = call->node->inputs[0];
    const size_t rows = (size_t)opsnn_count(value->dims, value->rank - 1), c = (size_t)value->dims[value->rank - 1];
    const size_t first = opsnn_first(rows, call->fit->n_tasks, task), end = opsnn_first(rows, call->fit->n_tasks, task + 1);
    const float *scale = call->in[1], *bias = call->in[2], *mean = call->in[3], *var = call->in[4];
    float *factor = call->scratch;
    for (size_t i = 0; i < c; i++) factor[i] = scale[i] / sqrtf(var[i] + p->epsilon);
    for (size_t row = first; row < end; row++) {
        const float *x = (const float *)call->in[0] + row * c;
        float *y = (float *)call->out[0] + row * c;
        size_t i = 0;
        for (; i + 4 <= c; i += 4) {
            const float32x4_t centred = vsubq_f32(vld1q_f32(x + i), vld1q_f32(mean + i));
            vst1q_f32(y + i, opsnn_fma(vld1q_f32(bias + i), centred, vld1q_f32(factor + i)));
        }
        for (; i < c; i++) y[i] = (x[i] - mean[i]) * factor[i] + bias[i];
    }
    opsnn_tail_apply(call, first * c, (end - first) * c);
}

const opsnn_kernel opsnn_k_batch_normalization_f32_nhwc_neon = {
    .name = "batch_normalization_f32_nhwc_neon",
    .op = OPSNN_OP_BATCH_NORMALIZATION,
    .dtype = OPSNN_DTYPE_F32,
    .layout = OPSNN_LAYOUT_NHWC,
    .flags = OPSNN_KERNEL_TAIL,
    .cpu = OPSNN_NEON_CPU,
    .plan = plan,
    .run = run,
};
