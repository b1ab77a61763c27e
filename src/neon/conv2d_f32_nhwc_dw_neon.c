/* Depthwise convolution, channel multiplier 1: a vector holds channels.

   3x3 and 5x5 windows of stride 1 and 2 slide along a row with their weights in registers: each pixel is loaded once per row of
   the window and added to all the results it belongs to. Other windows, and channels that are left over, are computed one result
   at a time from the taps that lie inside the image. */
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

/* The channels of a row from c on. */
static void singly(const depthwise *d, const float *image, int32_t oy, int32_t n, size_t c, float *y) {
    for (int32_t ox = 0; ox < n; ox++, y += d->c) {
        size_t i = c;
        for (; i + 4 <= d->c; i += 4) single(d, image, oy, ox, i, 4, y + i);
        if (i < d->c) single(d, image, oy, ox, i, d->c - i, y + i);
    }
}

/* A row of windows for the sliding kernels. */
typedef struct slide_row {
    const float *x[SLIDE_MOST]; /* the window's rows in the image, at column 0; zeros outside of it */
    size_t step[SLIDE_MOST];    /* from a column to the next; 0 for zeros */
    int32_t first;              /* column of the first window, at most 0 */
    int32_t in, out;            /* columns of the image, results */
    int32_t left, right;        /* results [left, right) add columns that all lie inside the image */
    size_t c;
    float lo, hi;
} slide_row;

/* What a pass over a row does: all rows of the window, beginning with the bias and ending with the clamp, or, where the weights
   are more than there are registers, some of them: added to what lies at `sum` (the bias, or the results so far). */
typedef enum slide_part { SLIDE_ALL, SLIDE_SOME, SLIDE_LAST } slide_part;

/* The next column, number k of the oldest live result's window; each pixel is loaded one step ahead of its use.
   acc[(i + turn) % live] belongs to the i-th oldest. */
#define SLIDE_LOAD(r)                                                                             \
    OPSNN_UNROLL for (int v = 0; v < vectors; v++) pixel[(r) % 2][v] = vld1q_f32(row[r] + 4 * v); \
    row[r] += step[r];                                                                            \
    OPSNN_OWN_REGISTER(row[r]);
#define SLIDE_COLUMN(k, turn)                                                                            \
    {                                                                                                    \
        float32x4_t pixel[2][2];                                                                         \
        SLIDE_LOAD(0)                                                                                    \
        OPSNN_UNROLL for (int r = 0; r < rows; r++) {                                                    \
            if (r + 1 < rows) { SLIDE_LOAD(r + 1) }                                                      \
            OPSNN_UNROLL for (int i = 0; i < live; i++) if ((k) >= i * stride)                           \
                OPSNN_UNROLL for (int v = 0; v < vectors; v++)                                           \
                    opsnn_fma_to(acc[(i + (turn)) % live][v], pixel[r % 2][v], w[r][(k)-i * stride][v]); \
        }                                                                                                \
    }
/* The oldest result is done, and its accumulators begin a new one. */
#define SLIDE_STORE(turn)                                                                          \
    OPSNN_UNROLL for (int v = 0; v < vectors; v++) {                                               \
        if (part != SLIDE_ALL) acc[(turn)][v] = vaddq_f32(acc[(turn)][v], vld1q_f32(sum + 4 * v)); \
        if (part != SLIDE_SOME) acc[(turn)][v] = opsnn_clampq(acc[(turn)][v], lo, hi);             \
    }                                                                                              \
    OPSNN_UNROLL for (int v = 0; v < vectors; v++) vst1q_f32(y + 4 * v, acc[(turn)][v]);           \
    OPSNN_UNROLL for (int v = 0; v < vectors; v++)                                                 \
        acc[(turn)][v] = part == SLIDE_ALL ? vld1q_f32(sum + 4 * v) : vdupq_n_f32(0);              \
    y += y_step;                                                                                   \
    OPSNN_OWN_REGISTER(y);                                                                         \
    if (part != SLIDE_ALL) sum += sum_step;
/* The same with columns that may lie outside. */
#define SLIDE_CHECKED(k)                           \
    {                                              \
        if (ix >= 0 && ix < in) SLIDE_COLUMN(k, 0) \
        ix++;                                      \
    }

/* A row of results for 4 * vectors channels from `rows` rows of the window. All but s and what follows it are constants. */
OPSNN_INLINE void slide(const int rows, const int kernel, const int stride, const int vectors, const slide_part part,
                        const slide_row *s, int first_row, size_t c, const float *weights, const float *sum, size_t sum_step,
                        float *y) {
    const int live = (kernel + stride - 1) / stride; /* results a column may belong to */
    const int32_t in = s->in, out = s->out;
    const size_t y_step = s->c;
    const float32x4_t lo = vdupq_n_f32(s->lo), hi = vdupq_n_f32(s->hi);
    float32x4_t w[SLIDE_MOST][SLIDE_MOST][2], acc[SLIDE_MOST][2];
    const float *row[SLIDE_MOST];
    size_t step[SLIDE_MOST];
    weights += first_row * kernel * BLOCK;
    OPSNN_UNROLL for (int r = 0; r < rows; r++) {
        step[r] = s->step[first_row + r];
        row[r] = s->x[first_row + r] + (step[r] ? c : 0);
        OPSNN_UNROLL for (int k = 0; k < kernel; k++)
            OPSNN_UNROLL for (int v = 0; v < vectors; v++) w[r][k][v] = vld1q_f32(weights + (r * kernel + k) * BLOCK + 4 * v);
    }
    OPSNN_UNROLL for (int i = 0; i < live; i++)
        OPSNN_UNROLL for (int v = 0; v < vectors; v++) acc[i][v] = part == SLIDE_ALL ? vld1q_f32(sum + 4 * v) : vdupq_n_f32(0);
    int32_t ix = s->first, ox = 0, checked_end = s->left;
    OPSNN_UNROLL for (int k = 0; k < kernel - stride; k++) SLIDE_CHECKED(k)
    for (;;) {
        for (; ox < checked_end; ox++) {
            OPSNN_UNROLL for (int k = kernel - stride; k < kernel; k++) SLIDE_CHECKED(k)
            SLIDE_STORE(0)
            OPSNN_UNROLL for (int v = 0; v < vectors; v++) {
                const float32x4_t begun = acc[0][v];
                OPSNN_UNROLL for (int i = 0; i + 1 < live; i++) acc[i][v] = acc[i + 1][v];
                acc[live - 1][v] = begun;
            }
        }
        if (ox == out) return;
        for (int32_t turns = (s->right - ox) / live; turns; turns--, ox += live, ix += live * stride) {
            OPSNN_UNROLL for (int turn = 0; turn < live; turn++) {
                OPSNN_UNROLL for (int k = kernel - stride; k < kernel; k++) SLIDE_COLUMN(k, turn)
                SLIDE_STORE(turn)
            }
        }
        checked_end = out;
    }
}

typedef void slide_fn(const slide_row *s, size_t c, const float *weights, const float *bias, float *y);
#define SLIDE(kernel, stride, vectors)                                                                                       \
    static void slide_##kernel##_##stride(const slide_row *s, size_t c, const float *weights, const float *bias, float *y) { \
        slide(kernel, kernel, stride, vectors, SLIDE_ALL, s, 0, c, weights, bias, 0, y);                                     \
    }
/* Vectors at a time: as many as leave the weights in registers. */
enum { SLIDE_3 = OPSNN_NEON_REGISTERS / 16, SLIDE_5 = 1 };
SLIDE(3, 1, SLIDE_3)
SLIDE(3, 2, SLIDE_3)
#if OPSNN_NEON_REGISTERS == 32
SLIDE(5, 1, SLIDE_5)
SLIDE(5, 2, SLIDE_5)
#else
#define SLIDE_IN_PARTS(kernel, stride)                                                                                           \
    static __attribute__((noinline)) void slide_some_##stride(const slide_row *s, int first_row, size_t c, const float *weights, \
                                                              const float *sum, size_t sum_step, float *y) {                     \
        slide(2, kernel, stride, 1, SLIDE_SOME, s, first_row, c, weights, sum, sum_step, y);                                     \
    }                                                                                                                            \
    static void slide_##kernel##_##stride(const slide_row *s, size_t c, const float *weights, const float *bias, float *y) {     \
        slide_some_##stride(s, 0, c, weights, bias, 0, y);                                                                       \
        slide_some_##stride(s, 2, c, weights, y, s->c, y);                                                                       \
        slide(1, kernel, stride, 1, SLIDE_LAST, s, 4, c, weights, y, s->c, y);                                                   \
    }
SLIDE_IN_PARTS(5, 1)
SLIDE_IN_PARTS(5, 2)
#endif

static slide_fn *find_slide(const depthwise *d) {
    if (d->h.kernel != d->w.kernel || d->h.dilation != 1 || d->w.dilation != 1) return NULL;
    if (d->w.kernel == 3) return d->w.stride == 1 ? slide_3_1 : d->w.stride == 2 ? slide_3_2 : NULL;
    if (d->w.kernel == 5) return d->w.stride == 1 ? slide_5_1 : d->w.stride == 2 ? slide_5_2 : NULL;
    return NULL;
}

static int32_t between(int32_t low, int32_t x, int32_t high) { return x < low ? low : x > high ? high : x; }

static void one_row(const depthwise *d, const float *image, int32_t oy, float *y) {
    slide_fn *fn = find_slide(d);
    const int32_t kernel = d->w.kernel, stride = d->w.stride, pad = d->w.pad, out = d->w.out;
    const size_t width = fn ? 4 * (size_t)(kernel == 3 ? SLIDE_3 : SLIDE_5) : d->c + 1, slid = d->c / width * width;
    if (fn) {
        slide_row s = {.first = -pad, .in = d->w.in, .out = out, .c = d->c, .lo = d->lo, .hi = d->hi};
        s.left = between(0, (pad - (kernel - stride) + stride - 1) / stride, out);
        s.right = between(s.left, d->w.in + pad < kernel ? 0 : (d->w.in + pad - kernel) / stride + 1, out);
        for (int32_t r = 0; r < kernel; r++) {
            const int32_t iy = oy * d->h.stride - d->h.pad + r;
            const int inside = iy >= 0 && iy < d->h.in;
            s.step[r] = inside ? d->c : 0;
            s.x[r] = inside ? image + (size_t)iy * (size_t)d->w.in * d->c : zeros;
        }
        for (size_t c = 0; c < slid; c += width)
            fn(&s, c, d->weights + c / BLOCK * d->n_taps * BLOCK + c % BLOCK, d->bias ? d->bias + c : zeros, y + c);
    }
    if (slid < d->c) singly(d, image, oy, out, slid, y);
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
