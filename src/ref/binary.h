/* What element-wise reference kernels of two inputs share. A kernel file defines `static float f(float a, float b)`, makes a
   map function of it by OPSNN_BINARY_MAP(f, its parameters' type), and names opsnn_ref_plan_elements or opsnn_ref_plan_libm as
   its plan. */
#ifndef OPSNN_REF_BINARY_H
#define OPSNN_REF_BINARY_H

#include "ops/broadcast.h"
#include "ref/clamp.h"
#include "ref/split.h"

#define OPSNN_BINARY_MAP(f, params_type)                                                                                   \
    static void map(const void *params, const void *a, size_t a_step, const void *b, size_t b_step, void *out, size_t n) { \
        const params_type *p = params;                                                                                     \
        const float *u = a, *v = b;                                                                                        \
        float *y = out;                                                                                                    \
        for (size_t i = 0; i < n; i++) y[i] = opsnn_clamp(f(u[i * a_step], v[i * b_step]), p->lo, p->hi);                  \
    }

/* Two broadcast operands seen as rows: dimensions through which both step evenly are one, so equal shapes are a single row. */
typedef struct opsnn_broadcast_rows {
    uint32_t rank; /* at least 1 */
    int64_t dims[OPSNN_MAX_RANK], a_steps[OPSNN_MAX_RANK], b_steps[OPSNN_MAX_RANK];
} opsnn_broadcast_rows;

static inline opsnn_broadcast_rows opsnn_broadcast_merge(const opsnn_value *a, const opsnn_value *b, const opsnn_value *y) {
    opsnn_broadcast_rows r = {1, {1}, {0}, {0}};
    int64_t a_steps[OPSNN_MAX_RANK], b_steps[OPSNN_MAX_RANK];
    opsnn_broadcast_steps(a->dims, a->rank, y->rank, a_steps);
    opsnn_broadcast_steps(b->dims, b->rank, y->rank, b_steps);
    for (uint32_t i = 0; i < y->rank; i++) {
        const int64_t d = y->dims[i];
        if (d == 1) continue;
        const uint32_t last = r.rank - 1;
        if (r.dims[last] == 1) { /* nothing there yet */
            r.dims[last] = d;
        } else if (r.a_steps[last] == a_steps[i] * d && r.b_steps[last] == b_steps[i] * d) {
            r.dims[last] *= d;
        } else {
            r.dims[r.rank++] = d;
        }
        r.a_steps[r.rank - 1] = a_steps[i];
        r.b_steps[r.rank - 1] = b_steps[i];
    }
    return r;
}

static inline void opsnn_binary_run(const opsnn_call *call, uint32_t task, opsnn_map_fn map) {
    const opsnn_node *node = call->node;
    const size_t n = opsnn_elements(node->outputs[0]);
    const opsnn_ref_range range = opsnn_ref_part(call, task, n);
    const opsnn_broadcast_rows r = opsnn_broadcast_merge(node->inputs[0], node->inputs[1], node->outputs[0]);
    const uint32_t last = r.rank - 1;
    /* Innermost steps are 0 or 1: dense tensors, whose dimensions of 1 repeat. */
    const size_t a_step = (size_t)r.a_steps[last], b_step = (size_t)r.b_steps[last];
    const float *a = call->in[0], *b = call->in[1];
    float *y = call->out[0];
    for (size_t at = range.first; at < range.end;) {
        size_t row = at / (size_t)r.dims[last];
        const size_t column = at % (size_t)r.dims[last];
        size_t part = (size_t)r.dims[last] - column;
        if (part > range.end - at) part = range.end - at;
        size_t a_at = column * a_step, b_at = column * b_step;
        for (uint32_t i = last; i-- > 0; row /= (size_t)r.dims[i]) {
            const size_t index = row % (size_t)r.dims[i];
            a_at += index * (size_t)r.a_steps[i];
            b_at += index * (size_t)r.b_steps[i];
        }
        map(node->params, a + a_at, a_step, b + b_at, b_step, y + at, part);
        at += part;
    }
    opsnn_tail_apply(call, range.first, range.end - range.first);
}

#endif
