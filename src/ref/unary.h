/* What element-wise reference kernels of one input share. A kernel file defines `static float f(const void *params, float x)`,
   makes a map function of it by OPSNN_UNARY_MAP(f), and names opsnn_ref_plan_elements or opsnn_ref_plan_libm as its plan. */
#ifndef OPSNN_REF_UNARY_H
#define OPSNN_REF_UNARY_H

#include "ref/split.h"

#define OPSNN_UNARY_MAP(f)                                                                                                 \
    static void map(const void *params, const void *a, size_t a_step, const void *b, size_t b_step, void *out, size_t n) { \
        const float *x = a;                                                                                                \
        float *y = out;                                                                                                    \
        (void)b;                                                                                                           \
        (void)b_step;                                                                                                      \
        for (size_t i = 0; i < n; i++) y[i] = f(params, x[i * a_step]);                                                    \
    }

static inline void opsnn_unary_run(const opsnn_call *call, uint32_t task, opsnn_map_fn map) {
    const size_t n = opsnn_elements(call->node->outputs[0]);
    const opsnn_ref_range part = opsnn_ref_part(call, task, n);
    const float *x = call->in[0];
    float *y = call->out[0];
    map(call->node->params, x + part.first, 1, NULL, 0, y + part.first, part.end - part.first);
    opsnn_tail_apply(call, part.first, part.end - part.first);
}

#endif
