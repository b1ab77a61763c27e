/* Depthwise convolution, channel multiplier 1: a vector holds channels.

   3x3 and 5x5 windows of stride 1 and 2 slide along a row with their weights in registers: each pixel is loaded once per row of
   the window and added to all the results it belongs to. Other windows, and the results at the left and right border, are made
   one by one from the taps that lie inside the image. */
#include "neon/simd.h"
#include "ops/window.h"

enum { BLOCK = 8, SLIDE_MOST = 5 };

static const float zeros[BLOCK];

typedef struct depthwise {
    opsnn_window h, w;
    size_t c, n_taps;
    const float *weights, *bias;
    float lo, hi;
} depthwise;

static int plan(const opsnn_node *node, const opsnn_target *target, opsnn_fit *fit) {
    const opsnn_value *w = node->inputs[1];
    const opsnn_conv2d_params *p = node->params;
    if (w->dims[3] != 1 || w->dims[0] != p->group) {
        fit->why = "not a depthwise convolution with one output a channel";
        return 0;
    }
    if (w->block != BLOCK) {
        fit->why = "weights are not stored in blocks of 8";
        return 0;
    }
    fit->n_tasks = opsnn_tasks(node->macs, 50000, (uint64_t)opsnn_count(node->outputs[0]->dims, 2));
    fit->predicted_ns = opsnn_predict(node, target, 0.25);
    return 1;
}

/* Result (oy, ox) for `n` channels (4, or 1 to 3 at the end) from channel c. image: this image's channel 0. */
OPSNN_INLINE void single(const depthwise *d, const float *image, int32_t oy, int32_t ox, size_t c, size_t n, float *y) {
    const float *w = d->weights + c / BLOCK * d->n_taps * BLOCK + c % BLOCK;
    float32x4_t acc = vdupq_n_f32(0);
    if (d->bias) acc = n == 4 ? vld1q_f32(d->bias + c) : opsnn_load_part(d->bias + c, n);
    int32_t iy = oy * d->h.stride - d->h.pad;
    for (int32_t ky = 0; ky < d->h.kernel; ky++, iy += d->h.dilation) {
        if (iy < 0 || iy >= d->h.in) {
            w += (size_t)d->w.kernel * BLOCK;
            continue;
        }
        const float *row = image + (size_t)iy * (size_t)d->w.in * d->c + c;
        int32_t ix = ox * d->w.stride - d->w.pad;
        for (int32_t kx = 0; kx < d->w.kernel; kx++, ix += d->w.dilation, w += BLOCK) {
            if (ix < 0 || ix >= d->w.in) continue;
            const float *x = row + (size_t)ix * d->c;
            acc = opsnn_fma(acc, n == 4 ? vld1q_f32(x) : opsnn_load_part(x, n), vld1q_f32(w));
        }
    }
    acc = opsnn_clampq(acc, vdupq_n_f32(d->lo), vdupq_n_f32(d->hi));
    if (n == 4) vst1q_f32(y, acc);
    else opsnn_store_part(y, acc, n);
}

/* Results [first, end) of a row for channels [c, c_end). */
static void singly(const depthwise *d, const float *image, int32_t oy, int32_t first, int32_t end, size_t c, size_t c_end, float *y) {
    for (int32_t ox = first; ox < end; ox++) {
        float *out = y + (size_t)ox * d->c;
        size_t i = c;
        for (; i + 4 <= c_end; i += 4) single(d, image, oy, ox, i, 4, out + i);
        if (i < c_end) single(d, image, oy, ox, i, c_end - i, out + i);
    }
}

/* n results of a row for 4 * vectors channels, all columns of their windows lying inside the image. x: the window's rows at its
   first column; step: from a column to the next, 0 for a row of zeros. kernel, stride and vectors are constants. */
OPSNN_INLINE void slide(const int kernel, const int stride, const int vectors, const float *const *x, const size_t *step,
                        const float *weights, const float *bias, float lo_, float hi_, float *y, size_t y_step, size_t n) {
    const int live = (kernel + stride - 1) / stride; /* results a column may belong to */
    const float32x4_t lo = vdupq_n_f32(lo_), hi = vdupq_n_f32(hi_);
    float32x4_t w[SLIDE_MOST][SLIDE_MOST][2], acc[SLIDE_MOST][2], first[2];
    const float *row[SLIDE_MOST];
    OPSNN_UNROLL for (int r = 0; r < kernel; r++) {
        row[r] = x[r];
        OPSNN_UNROLL for (int k = 0; k < kernel; k++)
            OPSNN_UNROLL for (int v = 0; v < vectors; v++) w[r][k][v] = vld1q_f32(weights + (r * kernel + k) * BLOCK + 4 * v);
    }
    OPSNN_UNROLL for (int v = 0; v < vectors; v++) {
        first[v] = vld1q_f32(bias + 4 * v);
        OPSNN_UNROLL for (int i = 0; i < live; i++) acc[i][v] = first[v];
    }
/* Column k of the oldest live result's window. */
#define SLIDE_COLUMN(k)                                                                                    \
    OPSNN_UNROLL for (int r = 0; r < kernel; r++) {                                                        \
        OPSNN_UNROLL for (int v = 0; v < vectors; v++) {                                                   \
            const float32x4_t pixel = vld1q_f32(row[r] + 4 * v);                                           \
            OPSNN_UNROLL for (int i = 0; i < live; i++)                                                    \
                if (k >= i * stride) acc[i][v] = opsnn_fma(acc[i][v], pixel, w[r][k - i * stride][v]);     \
        }                                                                                                  \
        row[r] += step[r];                                                                                 \
    }
    OPSNN_UNROLL for (int k = 0; k < kernel - stride; k++) SLIDE_COLUMN(k)
    for (; n; n--, y += y_step) {
        OPSNN_UNROLL for (int k = kernel - stride; k < kernel; k++) SLIDE_COLUMN(k)
        OPSNN_UNROLL for (int v = 0; v < vectors; v++) {
            vst1q_f32(y + 4 * v, opsnn_clampq(acc[0][v], lo, hi));
            OPSNN_UNROLL for (int i = 0; i < live; i++) acc[i][v] = i + 1 < live ? acc[i + 1][v] : first[v];
        }
    }
#undef SLIDE_COLUMN
}

typedef void slide_fn(const float *const *x, const size_t *step, const float *weights, const float *bias, float lo, float hi, float *y,
                      size_t y_step, size_t n);
#define SLIDE(kernel, stride, vectors)                                                                                           \
    static void slide_##kernel##_##stride(const float *const *x, const size_t *step, const float *weights, const float *bias,    \
                                          float lo, float hi, float *y, size_t y_step, size_t n) {                               \
        slide(kernel, stride, vectors, x, step, weights, bias, lo, hi, y, y_step, n);                                            \
    }
/* Channels at a time: as many as leave the weights of a 3x3 window in registers. */
enum { SLIDE_3 = OPSNN_NEON_REGISTERS / 16, SLIDE_5 = 1 };
SLIDE(3, 1, SLIDE_3)
SLIDE(3, 2, SLIDE_3)
SLIDE(5, 1, SLIDE_5)
SLIDE(5, 2, SLIDE_5)

static void one_row(const depthwise *d, const float *image, int32_t oy, float *y) {
    const int32_t kernel = d->w.kernel, stride = d->w.stride, out = d->w.out;
    slide_fn *fn = NULL;
    if (kernel == d->h.kernel && d->w.dilation == 1 && d->h.dilation == 1) {
        if (kernel == 3) fn = stride == 1 ? slide_3_1 : stride == 2 ? slide_3_2 : NULL;
        if (kernel == 5) fn = stride == 1 ? slide_5_1 : stride == 2 ? slide_5_2 : NULL;
    }
    /* Results [left, right) have all their columns inside the image. */
    int32_t left = (d->w.pad + stride - 1) / stride, right = d->w.in + d->w.pad - kernel;
    right = right < 0 ? 0 : right / stride + 1;
    if (right > out) right = out;
    if (!fn || left >= right) {
        singly(d, image, oy, 0, out, 0, d->c, y);
        return;
    }
    const size_t width = kernel == 3 ? 4 * SLIDE_3 : 4 * SLIDE_5, slid = d->c / width * width;
    size_t step[SLIDE_MOST];
    const float *row[SLIDE_MOST];
    for (int32_t r = 0; r < kernel; r++) {
        const int32_t iy = oy * d->h.stride - d->h.pad + r;
        const int inside = iy >= 0 && iy < d->h.in;
        step[r] = inside ? d->c : 0;
        row[r] = inside ? image + ((size_t)iy * (size_t)d->w.in + (size_t)(left * stride - d->w.pad)) * d->c : zeros;
    }
    singly(d, image, oy, 0, left, 0, slid, y);
    for (size_t c = 0; c < slid; c += width) {
        fn(row, step, d->weights + c / BLOCK * d->n_taps * BLOCK + c % BLOCK, d->bias ? d->bias + c : zeros, d->lo, d->hi,
           y + (size_t)left * d->c + c, d->c, (size_t)(right - left));
        for (int32_t r = 0; r < kernel; r++)
            if (step[r]) row[r] += width;
    }
    singly(d, image, oy, right, out, 0, slid, y);
    if (slid < d->c) singly(d, image, oy, 0, out, slid, d->c, y);
}

static void run(const opsnn_call *call, uint32_t task) {
    const opsnn_node *node = call->node;
    const opsnn_conv2d_params *p = node->params;
    const int32_t *x = node->inputs[0]->dims, *w = node->inputs[1]->dims, *y = node->outputs[0]->dims;
    depthwise d = {.c = (size_t)x[3], .n_taps = (size_t)w[1] * (size_t)w[2], .weights = call->in[1],
                   .bias = opsnn_input(node, 2) ? call->in[2] : NULL, .lo = p->lo, .hi = p->hi};
    opsnn_window_resolve(0, x[1], w[1], p->strides, p->dilations, p->pads, p->auto_pad, 0, &d.h);
    opsnn_window_resolve(1, x[2], w[2], p->strides, p->dilations, p->pads, p->auto_pad, 0, &d.w);
    const size_t rows = (size_t)opsnn_count(y, 2), row_elements = (size_t)d.w.out * d.c;
    const size_t end = opsnn_first(rows, call->fit->n_tasks, task + 1);
    for (size_t row = opsnn_first(rows, call->fit->n_tasks, task); row < end; row++) {
        const float *image = (const float *)call->in[0] + row / (size_t)d.h.out * (size_t)d.h.in * (size_t)d.w.in * d.c;
        one_row(&d, image, (int32_t)(row % (size_t)d.h.out), (float *)call->out[0] + row * row_elements);
        opsnn_tail_apply(call, row * row_elements, row_elements);
    }
}

const opsnn_kernel opsnn_k_conv2d_f32_nhwc_dw_neon = {
    .name = "conv2d_f32_nhwc_dw_neon",
    .op = OPSNN_OP_CONV2D,
    .dtype = OPSNN_DTYPE_F32,
    .layout = OPSNN_LAYOUT_NHWC,
    .flags = OPSNN_KERNEL_BLOCKED | OPSNN_KERNEL_TAIL,
    .cpu = OPSNN_NEON_CPU,
    .plan = plan,
    .run = run,
};
