/* What the global pools share: a task is a range of the N * C results. nhwc only, as all pools. */
#ifndef OPSNN_REF_GLOBAL_POOL_H
#define OPSNN_REF_GLOBAL_POOL_H

#include "ref/split.h"

static inline int opsnn_global_pool_plan(const opsnn_node *node, const opsnn_target *target, opsnn_fit *fit) {
    const size_t n = opsnn_elements(node->outputs[0]);
    return opsnn_ref_fit(node, target, OPSNN_REF_EFFICIENCY, opsnn_ref_tasks(n, 16), fit); /* 16 channels: a cache line */
}

/* The result of n pixels whose values are step apart. */
typedef float (*opsnn_global_pool_channel)(const float *x, size_t n, size_t step);

static inline void opsnn_global_pool_run(const opsnn_call *call, uint32_t task, opsnn_global_pool_channel channel) {
    const int32_t *x = call->node->inputs[0]->dims;
    const size_t pixels = (size_t)opsnn_count(x + 1, 2), channels = (size_t)x[3];
    const opsnn_ref_range part = opsnn_ref_part(call, task, (size_t)x[0] * channels);
    for (size_t i = part.first; i < part.end; i++) {
        const float *image = (const float *)call->in[0] + i / channels * pixels * channels;
        ((float *)call->out[0])[i] = channel(image + i % channels, pixels, channels);
    }
    opsnn_tail_apply(call, part.first, part.end - part.first);
}

#endif
