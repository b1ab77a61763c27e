/* exp(x - max) / sum, so that nothing overflows; the sum is in double. A NaN anywhere along the axis makes all of it NaN, and
   so do +inf and an axis of nothing but -inf: there is no distribution to return. */
#include <math.h>

#include "ops/axis.h"
#include "ref/split.h"

/* The tensor as [outer, axis, inner]; a task is a range of the outer ones, each of which lies in one piece. */
typedef struct shape {
    size_t outer, axis, inner;
} shape;

static shape shape_of(const opsnn_node *node) {
    const opsnn_softmax_params *p = node->params;
    const opsnn_value *x = node->inputs[0];
    const uint32_t axis = opsnn_axis(p->axis, x->rank);
    const shape s = {(size_t)opsnn_count(x->dims, axis), (size_t)x->dims[axis],
                     (size_t)opsnn_count(x->dims + axis + 1, x->rank - axis - 1)};
    return s;
}

static int plan(const opsnn_node *node, const opsnn_target *target, opsnn_fit *fit) {
    return opsnn_ref_fit(node, target, OPSNN_REF_EFFICIENCY_LIBM, opsnn_ref_tasks(shape_of(node).outer, 1), fit);
}

/* n elements, step apart; y may be x. */
static void distribution(const float *x, float *y, size_t n, size_t step) {
    float top = -INFINITY;
    for (size_t i = 0; i < n; i++)
        if (x[i * step] > top || x[i * step] != x[i * step]) top = x[i * step];
    double sum = 0.0;
    for (size_t i = 0; i < n; i++) {
        const double e = exp((double)x[i * step] - (double)top);
        y[i * step] = (float)e;
        sum += e;
    }
    for (size_t i = 0; i < n; i++) y[i * step] = (float)((double)y[i * step] / sum);
}

static void run(const opsnn_call *call, uint32_t task) {
    const shape s = shape_of(call->node);
    const opsnn_ref_range part = opsnn_ref_part(call, task, s.outer);
    const float *x = call->in[0];
    float *y = call->out[0];
    for (size_t o = part.first; o < part.end; o++)
        for (size_t i = 0; i < s.inner; i++)
            distribution(x + o * s.axis * s.inner + i, y + o * s.axis * s.inner + i, s.axis, s.inner);
    opsnn_tail_apply(call, part.first * s.axis * s.inner, (part.end - part.first) * s.axis * s.inner);
}

const opsnn_kernel opsnn_k_softmax_f32_any_ref = {
    .name = "softmax_f32_any_ref",
    .op = OPSNN_OP_SOFTMAX,
    .dtype = OPSNN_DTYPE_F32,
    .flags = OPSNN_KERNEL_TAIL,
    .plan = plan,
    .run = run,
};
