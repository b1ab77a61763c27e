/* What element-wise reference kernels of one input share. A kernel file defines `static float f(const void *params, float x)`,
   makes a map function of it by OPSNN_UNARY_MAP(f), and names both below in its constant. */
#ifndef OPSNN_REF_UNARY_H
#define OPSNN_REF_UNARY_H

#include "ref/split.h"

#define OPSNN_UNARY_MAP(f)                                                                                                       \
    static void map(const void *params, const void *a, size_t a_step, const void *b, size_t b_step, void *out, size_t n) {       \
        const float *x = a;                                                                                                      \
        float *y = out;                                                                                                          \
        (void)b;                                                                                                                 \
        (void)b_step;                                                                                                            \
        for (size_t i = 0; i < n; i++) y[i] = f(params, x[i * a_step]);                                                          \
    }

enum { OPSNN_UNARY_LEAST = 4096 }; /* elements of a task */

static inline int opsnn_unary_plan(const opsnn_node *node, const opsnn_target *target, opsnn_fit *fit) {
    return opsnn_ref_fit(node, target, OPSNN_REF_EFFICIENCY, opsnn_ref_tasks(opsnn_elements(node->outputs[0]), OPSNN_UNARY_LEAST), fit);
}
/* The same for functions of libm. */
static inline int opsnn_unary_plan_libm(const opsnn_node *node, const opsnn_target *target, opsnn_fit *fit) {
    return opsnn_ref_fit(node, target, OPSNN_REF_EFFICIENCY_LIBM, opsnn_ref_tasks(opsnn_elements(node->outputs[0]), OPSNN_UNARY_LEAST),
                         fit);
}

static inline void opsnn_unary_run(const opsnn_call *call, uint32_t task, opsnn_map_fn map) {
    const size_t n = opsnn_elements(call->node->outputs[0]);
    const size_t first = opsnn_ref_first(n, call->fit->n_tasks, task), end = opsnn_ref_first(n, call->fit->n_tasks, task + 1);
    map(call->node->params, (const float *)call->in[0] + first, 1, NULL, 0, (float *)call->out[0] + first, end - first);
    opsnn_tail_apply(call, first, end - first);
}

#endif
