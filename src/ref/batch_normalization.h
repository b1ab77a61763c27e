/* Batch normalisation over [outer, C, inner]: nhwc has inner 1, nchw outer N. Computed in double, rounded once. */
#ifndef OPSNN_REF_BATCH_NORMALIZATION_H
#define OPSNN_REF_BATCH_NORMALIZATION_H

#include <math.h>

#include "ref/split.h"

static inline void opsnn_batch_normalization_run(const opsnn_call *call, uint32_t task, size_t channels, size_t inner) {
    const opsnn_batch_normalization_params *p = call->node->params;
    const size_t n = opsnn_elements(call->node->outputs[0]);
    const opsnn_ref_range part = opsnn_ref_part(call, task, n);
    const float *x = call->in[0], *scale = call->in[1], *bias = call->in[2], *mean = call->in[3], *var = call->in[4];
    float *y = call->out[0];
    for (size_t i = part.first; i < part.end; i++) {
        const size_t c = i / inner % channels;
        const double factor = (double)scale[c] / sqrt((double)var[c] + (double)p->epsilon);
        y[i] = (float)(((double)x[i] - (double)mean[c]) * factor + (double)bias[c]);
    }
    opsnn_tail_apply(call, part.first, part.end - part.first);
}

#endif
