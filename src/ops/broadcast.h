/* Numpy's broadcasting: shapes are aligned at their last dimensions, and a dimension of 1 repeats. */
#ifndef OPSNN_OPS_BROADCAST_H
#define OPSNN_OPS_BROADCAST_H

#include <stdint.h>

/* The dims of a and b together, `rank` being the larger of their ranks. Returns 0 if they do not fit. */
static inline int opsnn_broadcast(const int32_t *a, uint32_t a_rank, const int32_t *b, uint32_t b_rank, int32_t *dims) {
    const uint32_t rank = a_rank > b_rank ? a_rank : b_rank;
    for (uint32_t i = 0; i < rank; i++) {
        const int32_t da = i + a_rank < rank ? 1 : a[i + a_rank - rank];
        const int32_t db = i + b_rank < rank ? 1 : b[i + b_rank - rank];
        if (da != db && da != 1 && db != 1) return 0;
        dims[i] = da == 1 ? db : da;
    }
    return 1;
}

/* Steps, in elements, through a dense tensor v as its dims are broadcast to `rank` dimensions: 0 where it repeats. */
static inline void opsnn_broadcast_steps(const int32_t *v, uint32_t v_rank, uint32_t rank, int64_t *steps) {
    int64_t step = 1;
    for (uint32_t i = rank; i-- > 0;) {
        const int32_t d = i + v_rank < rank ? 1 : v[i + v_rank - rank];
        steps[i] = d == 1 ? 0 : step;
        step *= d;
    }
}

#endif
