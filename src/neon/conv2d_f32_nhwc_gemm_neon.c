/* Convolution as an indirect matrix product (gemm_f32.h): any kernel, stride, dilation and padding; groups of whole blocks. */
#include "neon/gemm_f32.h"
#include "ops/window.h"

/* Where C is small, a run holds a whole row of the window: KW * C floats that lie together in the image. At the left and right
   border, where they do not, they are put together in scratch. */
enum { MERGED_MOST = 64 };

typedef struct conv {
    opsnn_window h, w;
    size_t group, c, c_group, o; /* channels: all and a group's inputs, all outputs */
    size_t n_taps, length;       /* runs of a window, floats of a run */
    int merged, pointwise;       /* pointwise: pixels of the input are the output's */
    size_t pixels, panel; /* of the whole output; at a time */
} conv;

/* Bytes of activations a panel may touch: a share of a small second-level cache. */
enum { PANEL_BYTES = 96 * 1024, PANEL_MOST = 128 };

static conv shape(const opsnn_node *node) {
    const opsnn_conv2d_params *p = node->params;
    const int32_t *x = node->inputs[0]->dims, *w = node->inputs[1]->dims, *y = node->outputs[0]->dims;
    conv s = {.group = (size_t)p->group, .c = (size_t)x[3], .c_group = (size_t)w[3], .o = (size_t)w[0]};
    opsnn_window_resolve(0, x[1], w[1], p->strides, p->dilations, p->pads, p->auto_pad, 0, &s.h);
    opsnn_window_resolve(1, x[2], w[2], p->strides, p->dilations, p->pads, p->auto_pad, 0, &s.w);
    s.merged = s.w.dilation == 1 && s.w.kernel > 1 && s.group == 1 && (size_t)w[2] * s.c <= MERGED_MOST;
    s.pointwise = s.h.kernel == 1 && s.w.kernel == 1 && s.h.stride == 1 && s.w.stride == 1;
    s.pointwise = s.pointwise && s.h.out == s.h.in && s.w.out == s.w.in; /* no padding */
    s.n_taps = (size_t)w[1] * (s.merged ? 1 : (size_t)w[2]);
    s.length = s.c_group * (s.merged ? (size_t)w[2] : 1);
    s.pixels = (size_t)opsnn_count(y, 3);
    const size_t fit = PANEL_BYTES / ((s.c + s.o + s.n_taps) * sizeof(float));
    s.panel = fit < OPSNN_GEMM_ROWS ? OPSNN_GEMM_ROWS : fit > PANEL_MOST ? PANEL_MOST : fit / OPSNN_GEMM_ROWS * OPSNN_GEMM_ROWS;
    return s;
}

/* Scratch: the runs of a panel, zeros for runs outside the image, and merged runs that had to be put together. */
static size_t runs_bytes(const conv *s) { return s->panel * s->n_taps * sizeof(float *); }
static size_t zeros_of(const conv *s) { return s->merged ? s->length : s->c; }

static int plan(const opsnn_node *node, const opsnn_target *target, opsnn_fit *fit) {
    const opsnn_value *w = node->inputs[1];
    const opsnn_conv2d_params *p = node->params;
    if (w->block != OPSNN_GEMM_BLOCK) {
        fit->why = "weights are not stored in blocks of 8";
        return 0;
    }
    if (p->group != 1 && w->dims[0] / p->group % OPSNN_GEMM_BLOCK) {
        fit->why = "groups are not whole blocks of 8 outputs";
        return 0;
    }
    const conv s = shape(node);
    const uint64_t tiles = s.pixels == 1 ? (s.o + 7) / 8 : (s.pixels + OPSNN_GEMM_ROWS - 1) / OPSNN_GEMM_ROWS;
    /* Each task reads all weights: no more tasks than threads where they do not fit into a cache. */
    uint64_t most = tiles;
    if (s.pixels > 1 && w->bytes > 256 * 1024 && target->n_threads && target->n_threads < tiles) most = target->n_threads;
    fit->n_tasks = opsnn_tasks(node->macs, 50000, most);
    fit->scratch_bytes = runs_bytes(&s) + (zeros_of(&s) + (s.merged ? s.panel * s.n_taps * s.length : 0)) * sizeof(float);
    fit->predicted_ns = opsnn_predict(node, target, 0.6);
    return 1;
}

/* A merged run of which a part lies outside the image. */
static void put_together(const conv *s, const float *row, int32_t ix, float *run) {
    for (int32_t kx = 0; kx < s->w.kernel; kx++, ix++)
        for (size_t c = 0; c < s->c; c++) *run++ = ix >= 0 && ix < s->w.in ? row[(size_t)ix * s->c + c] : 0.0f;
}

/* The runs of pixels [first, first + n) for a group. */
static void find_runs(const conv *s, const float *x, size_t group, size_t first, size_t n, const float **runs, const float *zeros,
                      float *merged) {
    if (s->pointwise) {
        x += first * s->c + group * s->c_group;
        for (size_t i = 0; i < n; i++, x += s->c) runs[i] = x;
        return;
    }
    const size_t row = first / (size_t)s->w.out;
    int32_t ox = (int32_t)(first % (size_t)s->w.out), oy = (int32_t)(row % (size_t)s->h.out);
    const float *image = x + row / (size_t)s->h.out * (size_t)s->h.in * (size_t)s->w.in * s->c + group * s->c_group;
    for (size_t i = 0; i < n; i++) {
        const float **run = runs + i / OPSNN_GEMM_ROWS * OPSNN_GEMM_ROWS * s->n_taps + i % OPSNN_GEMM_ROWS;
        const int32_t x0 = ox * s->w.stride - s->w.pad;
        int32_t iy = oy * s->h.stride - s->h.pad;
        for (int32_t ky = 0; ky < s->h.kernel; ky++, iy += s->h.dilation) {
            const float *from = iy >= 0 && iy < s->h.in ? image + (size_t)iy * (size_t)s->w.in * s->c : NULL;
            if (s->merged) {
                if (!from) {
                    *run = zeros;
                } else if (x0 >= 0 && x0 + s->w.kernel <= s->w.in) {
                    *run = from + (size_t)x0 * s->c;
                } else {
                    put_together(s, from, x0, merged);
                    *run = merged;
                    merged += s->length;
                }
                run += OPSNN_GEMM_ROWS;
                continue;
            }
            int32_t ix = x0;
            for (int32_t kx = 0; kx < s->w.kernel; kx++, ix += s->w.dilation, run += OPSNN_GEMM_ROWS)
                *run = from && ix >= 0 && ix < s->w.in ? from + (size_t)ix * s->c : zeros;
        }
        if (++ox == s->w.out) {
            ox = 0;
            if (++oy == s->h.out) {
                oy = 0;
                image += (size_t)s->h.in * (size_t)s->w.in * s->c;
            }
        }
    }
}

static void run(const opsnn_call *call, uint32_t task) {
    const opsnn_node *node = call->node;
    const opsnn_conv2d_params *p = node->params;
    const conv s = shape(node);
    const float **runs = call->scratch;
    float *zeros = (float *)(void *)((unsigned char *)call->scratch + runs_bytes(&s)), *merged = zeros + zeros_of(&s);
    memset(zeros, 0, zeros_of(&s) * sizeof(float));
    opsnn_gemm g = {
        .n_taps = s.n_taps, .length = s.length, .n = s.o, .row_step = s.o, .w = call->in[1],
        .bias = opsnn_input(node, 2) ? call->in[2] : NULL,
        .lo = p->lo, .hi = p->hi,
    };
    opsnn_gemm_prepare(&g);
    const size_t blocks = (s.o + OPSNN_GEMM_BLOCK - 1) / OPSNN_GEMM_BLOCK, group_blocks = blocks / s.group;
    const uint32_t n_tasks = call->fit->n_tasks;
    /* Tasks are whole tiles of pixels; a single pixel's channels are shared out instead. */
    size_t first = 0, end = s.pixels, block_first = 0, block_end = blocks;
    if (s.pixels == 1) {
        block_first = opsnn_first(blocks, n_tasks, task);
        block_end = opsnn_first(blocks, n_tasks, task + 1);
    } else {
        const size_t tiles = (s.pixels + OPSNN_GEMM_ROWS - 1) / OPSNN_GEMM_ROWS;
        first = opsnn_first(tiles, n_tasks, task) * OPSNN_GEMM_ROWS;
        end = opsnn_first(tiles, n_tasks, task + 1) * OPSNN_GEMM_ROWS;
        if (end > s.pixels) end = s.pixels;
    }
    for (size_t at = first; at < end; at += s.panel) {
        const size_t n = end - at < s.panel ? end - at : s.panel;
        float *y = (float *)call->out[0] + at * s.o;
        for (size_t group = block_first / group_blocks; group * group_blocks < block_end; group++) {
            const size_t from = group * group_blocks, to = from + group_blocks;
            find_runs(&s, call->in[0], group, at, n, runs, zeros, merged);
            opsnn_gemm_panel(&g, runs, n, from > block_first ? from : block_first, to < block_end ? to : block_end, y);
        }
        if (s.pixels > 1) opsnn_tail_apply(call, at * s.o, n * s.o);
    }
    if (s.pixels == 1) {
        const size_t last = block_end * OPSNN_GEMM_BLOCK < s.o ? block_end * OPSNN_GEMM_BLOCK : s.o;
        opsnn_tail_apply(call, block_first * OPSNN_GEMM_BLOCK, last - block_first * OPSNN_GEMM_BLOCK);
    }
}

const opsnn_kernel opsnn_k_conv2d_f32_nhwc_gemm_neon = {
    .name = "conv2d_f32_nhwc_gemm_neon",
    .op = OPSNN_OP_CONV2D,
    .dtype = OPSNN_DTYPE_F32,
    .layout = OPSNN_LAYOUT_NHWC,
    .flags = OPSNN_KERNEL_BLOCKED | OPSNN_KERNEL_TAIL,
    .cpu = OPSNN_NEON_CPU,
    .plan = plan,
    .run = run,
};
