/* What kernels that only move elements share. They know an element's size, not its type. */
#ifndef OPSNN_REF_MOVE_H
#define OPSNN_REF_MOVE_H

#include "ref/split.h"

/* Copies n elements of size bytes, from_step elements apart (it may be negative), to consecutive places. */
static inline void opsnn_move(const void *from, ptrdiff_t from_step, void *to, size_t n, size_t size) {
    const unsigned char *f = from;
    unsigned char *t = to;
    if (from_step == 1) {
        memcpy(t, f, n * size);
        return;
    }
    for (size_t i = 0; i < n; i++) memcpy(t + i * size, f + (ptrdiff_t)i * from_step * (ptrdiff_t)size, size);
}

/* A task's elements of y, each dimension of which steps evenly through x: steps[i] elements, from element `origin` on. */
static inline void opsnn_move_strided(const opsnn_call *call, uint32_t task, ptrdiff_t origin, const ptrdiff_t *steps) {
    const opsnn_value *y = call->node->outputs[0];
    const size_t size = opsnn_dtype_bytes(y->dtype), width = y->rank ? (size_t)y->dims[y->rank - 1] : 1;
    const opsnn_ref_range range = opsnn_ref_part(call, task, opsnn_elements(y));
    const unsigned char *x = call->in[0];
    unsigned char *out = call->out[0];
    for (size_t at = range.first; at < range.end;) {
        const size_t column = at % width;
        size_t row = at / width, part = width - column;
        if (part > range.end - at) part = range.end - at;
        const ptrdiff_t step = y->rank ? steps[y->rank - 1] : 1;
        ptrdiff_t from = origin + (ptrdiff_t)column * step;
        for (uint32_t i = y->rank ? y->rank - 1 : 0; i-- > 0; row /= (size_t)y->dims[i])
            from += (ptrdiff_t)(row % (size_t)y->dims[i]) * steps[i];
        opsnn_move(x + from * (ptrdiff_t)size, step, out + at * size, part, size);
        at += part;
    }
    opsnn_tail_apply(call, range.first, range.end - range.first);
}

/* As opsnn_ref_plan_elements: an element that is moved by itself takes about as long as one that is computed. */
static inline int opsnn_ref_plan_moves(const opsnn_node *node, const opsnn_target *target, opsnn_fit *fit) {
    opsnn_ref_plan_elements(node, target, fit);
    const double elements = (double)opsnn_elements(node->outputs[0]);
    fit->predicted_ns += 2.0 * elements / ((double)target->gflops * OPSNN_REF_EFFICIENCY);
    return 1;
}

/* Steps, in elements, through a dense tensor. */
static inline void opsnn_dense_steps(const opsnn_value *v, ptrdiff_t *steps) {
    ptrdiff_t step = 1;
    for (uint32_t i = v->rank; i-- > 0;) {
        steps[i] = step;
        step *= v->dims[i];
    }
}

#endif
