/* The walk over windows that max_pool and average_pool share. There are nhwc pools only: graphs are turned to nhwc before they
   are compiled. */
#ifndef OPSNN_REF_POOL_H
#define OPSNN_REF_POOL_H

#include "ops/window.h"
#include "ref/clamp.h"
#include "ref/split.h"

/* A task is a range of the N * OH output rows. */
static inline int opsnn_pool_plan(const opsnn_node *node, const opsnn_target *target, opsnn_fit *fit) {
    const size_t rows = (size_t)opsnn_count(node->outputs[0]->dims, 2);
    return opsnn_ref_fit(node, target, OPSNN_REF_EFFICIENCY, opsnn_ref_tasks(rows, 1), fit);
}

/* Writes the n channels of one output pixel, whose window is at (oy, ox) of image. */
typedef void (*opsnn_pool_pixel)(const void *params, const opsnn_window *h, const opsnn_window *w, const float *image,
                                 int32_t oy, int32_t ox, float *y, size_t n);

static inline void opsnn_pool_run(const opsnn_call *call, uint32_t task, const opsnn_window *h, const opsnn_window *w,
                                  opsnn_pool_pixel pixel) {
    const size_t n = (size_t)call->node->outputs[0]->dims[3], width = (size_t)w->out, height = (size_t)h->out;
    const size_t image = (size_t)h->in * (size_t)w->in * n;
    const float *x = call->in[0];
    float *y = call->out[0];
    const opsnn_ref_range part = opsnn_ref_part(call, task, (size_t)call->node->outputs[0]->dims[0] * height);
    for (size_t row = part.first; row < part.end; row++)
        for (size_t ox = 0; ox < width; ox++)
            pixel(call->node->params, h, w, x + row / height * image, (int32_t)(row % height), (int32_t)ox,
                  y + (row * width + ox) * n, n);
    opsnn_tail_apply(call, part.first * width * n, (part.end - part.first) * width * n);
}

#endif
