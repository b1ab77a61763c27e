/* What the pools share: the largest value or the mean of a rectangle of pixels, a vector holding channels. */
#ifndef OPSNN_NEON_POOL_H
#define OPSNN_NEON_POOL_H

#include <math.h>

#include "neon/simd.h"
#include "ops/window.h"

typedef struct opsnn_pool_area {
    size_t rows, columns;         /* of pixels; the area may be empty */
    size_t row_step, column_step; /* in elements */
    float start;                  /* -INFINITY for the largest value, 0 for the mean */
    float scale;                  /* of the sum: one over the number of pixels */
    float lo, hi;
} opsnn_pool_area;

/* 4 * vectors channels, or n (1 to 3). Each row is summed by itself: a long sum of floats loses digits. */
OPSNN_INLINE void opsnn_pool_channels(const int largest, const int vectors, const opsnn_pool_area *a, const float *x, float *y,
                                      size_t n) {
    float32x4_t acc[4];
    OPSNN_UNROLL for (int v = 0; v < vectors; v++) acc[v] = vdupq_n_f32(a->start);
    for (size_t row = a->rows; row; row--, x += a->row_step) {
        const float *p = x;
        float32x4_t sum[4];
        OPSNN_UNROLL for (int v = 0; v < vectors; v++) sum[v] = vdupq_n_f32(0);
        for (size_t column = a->columns; column; column--, p += a->column_step) {
            OPSNN_UNROLL for (int v = 0; v < vectors; v++) {
                const float32x4_t value = n < 4 ? opsnn_load_part(p, n) : vld1q_f32(p + 4 * v);
                if (largest) acc[v] = vmaxq_f32(acc[v], value);
                else sum[v] = vaddq_f32(sum[v], value);
            }
        }
        if (!largest) OPSNN_UNROLL for (int v = 0; v < vectors; v++) acc[v] = vaddq_f32(acc[v], sum[v]);
    }
    OPSNN_UNROLL for (int v = 0; v < vectors; v++) {
        if (!largest) acc[v] = vmulq_f32(acc[v], vdupq_n_f32(a->scale));
        acc[v] = opsnn_clampq(acc[v], vdupq_n_f32(a->lo), vdupq_n_f32(a->hi));
        if (n < 4) opsnn_store_part(y, acc[v], n);
        else vst1q_f32(y + 4 * v, acc[v]);
    }
}

/* n channels: 16 at a time share a line of the cache. */
OPSNN_INLINE void opsnn_pool_pixel(const int largest, const opsnn_pool_area *a, const float *x, float *y, size_t n) {
    for (; n >= 16; n -= 16, x += 16, y += 16) opsnn_pool_channels(largest, 4, a, x, y, 16);
    for (; n >= 4; n -= 4, x += 4, y += 4) opsnn_pool_channels(largest, 1, a, x, y, 4);
    if (n) opsnn_pool_channels(largest, 1, a, x, y, n);
}

/* A task of max_pool and average_pool is a range of the N * OH output rows. */
OPSNN_INLINE int opsnn_neon_pool_plan(const opsnn_node *node, const opsnn_target *target, opsnn_fit *fit) {
    fit->n_tasks = opsnn_tasks(node->macs, 4096, (uint64_t)opsnn_count(node->outputs[0]->dims, 2));
    fit->predicted_ns = opsnn_predict(node, target, 0.2);
    return 1;
}

/* include_pad: the mean counts padding as zeros. A window wholly in the padding gives -INFINITY or 0, clamped. */
OPSNN_INLINE void opsnn_neon_pool_run(const int largest, const opsnn_call *call, uint32_t task, const opsnn_window *h,
                                      const opsnn_window *w, int include_pad, float lo, float hi) {
    const size_t c = (size_t)call->node->inputs[0]->dims[3], line = (size_t)w->in * c, row_elements = (size_t)w->out * c;
    const size_t rows = (size_t)opsnn_count(call->node->outputs[0]->dims, 2);
    const size_t end = opsnn_first(rows, call->fit->n_tasks, task + 1);
    for (size_t row = opsnn_first(rows, call->fit->n_tasks, task); row < end; row++) {
        const int32_t oy = (int32_t)(row % (size_t)h->out);
        int32_t y_first, y_end;
        opsnn_window_taps(h, oy, &y_first, &y_end);
        const float *image = (const float *)call->in[0] + row / (size_t)h->out * (size_t)h->in * line;
        float *y = (float *)call->out[0] + row * row_elements;
        for (int32_t ox = 0; ox < w->out; ox++, y += c) {
            int32_t x_first, x_end;
            opsnn_window_taps(w, ox, &x_first, &x_end);
            opsnn_pool_area a = {.rows = (size_t)(y_end - y_first), .columns = (size_t)(x_end - x_first), .lo = lo, .hi = hi};
            const float *x = image;
            if (a.columns == 0) a.rows = 0;
            if (a.rows) {
                x += (size_t)(oy * h->stride - h->pad + y_first * h->dilation) * line;
                x += (size_t)(ox * w->stride - w->pad + x_first * w->dilation) * c;
            }
            a.row_step = (size_t)h->dilation * line;
            a.column_step = (size_t)w->dilation * c;
            a.start = largest ? -INFINITY : 0.0f;
            const float inside = (float)a.rows * (float)a.columns;
            a.scale = 1.0f / (include_pad ? (float)opsnn_window_padded_taps(h, oy) * (float)opsnn_window_padded_taps(w, ox)
                                          : inside > 0.0f ? inside : 1.0f);
            opsnn_pool_pixel(largest, &a, x, y, c);
        }
        opsnn_tail_apply(call, row * row_elements, row_elements);
    }
}

/* A task of the global pools is a range of the N * C results. */
OPSNN_INLINE int opsnn_neon_global_pool_plan(const opsnn_node *node, const opsnn_target *target, opsnn_fit *fit) {
    fit->n_tasks = opsnn_tasks(node->macs, 4096, (opsnn_elements(node->outputs[0]) + 15) / 16);
    fit->predicted_ns = opsnn_predict(node, target, 0.2);
    return 1;
}

OPSNN_INLINE void opsnn_neon_global_pool_run(const int largest, const opsnn_call *call, uint32_t task) {
    const int32_t *dims = call->node->inputs[0]->dims;
    const size_t c = (size_t)dims[3], lines = ((size_t)dims[0] * c + 15) / 16, pixels = (size_t)opsnn_count(dims + 1, 2);
    const size_t first = opsnn_first(lines, call->fit->n_tasks, task) * 16;
    size_t end = opsnn_first(lines, call->fit->n_tasks, task + 1) * 16;
    if (end > (size_t)dims[0] * c) end = (size_t)dims[0] * c;
    const opsnn_pool_area a = {
        .rows = (size_t)dims[1], .columns = (size_t)dims[2], .row_step = (size_t)dims[2] * c, .column_step = c,
        .start = largest ? -INFINITY : 0.0f, .scale = 1.0f / (float)pixels, .lo = -INFINITY, .hi = INFINITY,
    };
    for (size_t at = first; at < end;) {
        const size_t channel = at % c, n = c - channel < end - at ? c - channel : end - at;
        opsnn_pool_pixel(largest, &a, (const float *)call->in[0] + at / c * pixels * c + channel, (float *)call->out[0] + at, n);
        at += n;
    }
    if (end > first) opsnn_tail_apply(call, first, end - first);
}

#endif
