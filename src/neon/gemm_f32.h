/* The matrix product in the middle of convolutions and matrix products: a tile of rows times weights in blocks of 8 outputs.

   A row (a pixel of a convolution, a row of a matrix) is the concatenation of n_taps runs of `length` floats, each found through
   a pointer: a window is read where it lies in the image, and nothing is copied (the indirect convolution of Dukhan, 2019,
   arXiv:1907.02129). Weights are stored [ceil(n / 8)][n_taps * length][8]: read once, in order. Products are summed in the order
   of the weights, whatever the tile, so a row's result does not depend on its neighbours.

   Four steps of k load one vector of each row and eight of weights for 4 * 2 * rows multiply-adds by lane. */
#ifndef OPSNN_NEON_GEMM_F32_H
#define OPSNN_NEON_GEMM_F32_H

#include <math.h>

#include "neon/simd.h"

/* Rows of a tile: two accumulators each, and room for one vector of each row and for the weights. */
enum { OPSNN_GEMM_ROWS = OPSNN_NEON_REGISTERS / 4, OPSNN_GEMM_BLOCK = 8 };

typedef struct opsnn_gemm {
    size_t n_taps, length;
    size_t n;           /* outputs of a row */
    size_t row_step;    /* from a row's results to the next one's, in elements */
    const float *w;
    const float *bias;  /* n floats, or NULL */
    float lo, hi;
    int clamp;          /* lo or hi is finite */
    float last_bias[OPSNN_GEMM_BLOCK]; /* of a last block that is not whole, or zeros where there is no bias */
} opsnn_gemm;

/* Fills in what follows from the rest. */
static void opsnn_gemm_prepare(opsnn_gemm *g) {
    g->clamp = g->lo > -INFINITY || g->hi < INFINITY;
    const size_t whole = g->n / OPSNN_GEMM_BLOCK * OPSNN_GEMM_BLOCK;
    for (size_t i = 0; i < OPSNN_GEMM_BLOCK; i++) g->last_bias[i] = g->bias && whole + i < g->n ? g->bias[whole + i] : 0.0f;
}

/* The last block's results, where they are fewer than 8. */
static __attribute__((noinline)) void opsnn_gemm_store_part(const opsnn_gemm *g, size_t count, const float *part, float *y) {
    for (size_t m = 0; m < count; m++)
        for (size_t i = 0; i < g->n % OPSNN_GEMM_BLOCK; i++) y[m * g->row_step + i] = part[m * OPSNN_GEMM_BLOCK + i];
}

/* Elements of a run: with post-increment where the machine has it for vectors, else all pointers share an index, in bytes. */
#if defined(__arm__)
#define OPSNN_GEMM_OWN(p) OPSNN_OWN_REGISTER(p)
#define OPSNN_GEMM_LOAD(v, load, n, p, k) \
    do {                                  \
        (v) = load(p);                    \
        (p) += (n);                       \
        OPSNN_OWN_REGISTER(p);            \
    } while (0)
#else
#define OPSNN_GEMM_OWN(p) ((void)0)
#define OPSNN_GEMM_LOAD(v, load, n, p, k) ((v) = load((const float *)(const void *)((const char *)(p) + (k))))
#endif
/* The weights of a step of k, loaded one step ahead of their use; a step. */
#define OPSNN_GEMM_WEIGHTS(to) \
    (to)[0] = vld1q_f32(w);    \
    w += 4;                    \
    OPSNN_GEMM_OWN(w);         \
    (to)[1] = vld1q_f32(w);    \
    w += 4;                    \
    OPSNN_GEMM_OWN(w);
#define OPSNN_GEMM_STEP(weights, lane)                       \
    OPSNN_UNROLL for (int m = 0; m < count; m++) {           \
        opsnn_fma_lane(acc[m][0], (weights)[0], v[m], lane); \
        opsnn_fma_lane(acc[m][1], (weights)[1], v[m], lane); \
    }

/* `count` (a constant) rows times blocks [first, end). y: the first row's results, all n of them.
   runs: [n_taps][OPSNN_GEMM_ROWS]. */
OPSNN_INLINE void opsnn_gemm_tile(const int count, const opsnn_gemm *g, const float *const *runs, size_t first, size_t end,
                                  float *y) {
    const size_t bytes = g->length * sizeof(float), quads = bytes / 16 * 16, whole = g->n / OPSNN_GEMM_BLOCK;
    const float *w = g->w + first * g->n_taps * g->length * OPSNN_GEMM_BLOCK;
    const float *bias = g->bias ? g->bias + first * OPSNN_GEMM_BLOCK : g->last_bias;
    y += first * OPSNN_GEMM_BLOCK;
    for (size_t block = first; block < end; block++, y += OPSNN_GEMM_BLOCK) {
        if (block == whole) bias = g->last_bias;
        float32x4_t acc[OPSNN_GEMM_ROWS][2];
        OPSNN_UNROLL for (int m = 0; m < count; m++) {
            acc[m][0] = vld1q_f32(bias);
            acc[m][1] = vld1q_f32(bias + 4);
        }
        if (g->bias) bias += OPSNN_GEMM_BLOCK;
        const float *const *run = runs;
        for (size_t t = g->n_taps; t; t--, run += OPSNN_GEMM_ROWS) {
            const float *a[OPSNN_GEMM_ROWS];
            OPSNN_UNROLL for (int m = 0; m < count; m++) a[m] = run[m];
            size_t k = 0;
            for (; k < quads; k += 16) {
                float32x4_t v[OPSNN_GEMM_ROWS], even[2], odd[2];
                OPSNN_GEMM_WEIGHTS(even)
                OPSNN_UNROLL for (int m = 0; m < count; m++) OPSNN_GEMM_LOAD(v[m], vld1q_f32, 4, a[m], k);
                OPSNN_GEMM_WEIGHTS(odd)
                OPSNN_GEMM_STEP(even, 0)
                OPSNN_GEMM_WEIGHTS(even)
                OPSNN_GEMM_STEP(odd, 1)
                OPSNN_GEMM_WEIGHTS(odd)
                OPSNN_GEMM_STEP(even, 2)
                OPSNN_GEMM_STEP(odd, 3)
            }
            for (; k < bytes; k += 4) {
                opsnn_one v[OPSNN_GEMM_ROWS];
                float32x4_t even[2];
                OPSNN_GEMM_WEIGHTS(even)
                OPSNN_UNROLL for (int m = 0; m < count; m++) OPSNN_GEMM_LOAD(v[m], opsnn_load_one, 1, a[m], k);
                OPSNN_UNROLL for (int m = 0; m < count; m++) {
                    opsnn_fma_one(acc[m][0], even[0], v[m]);
                    opsnn_fma_one(acc[m][1], even[1], v[m]);
                }
            }
        }
        if (g->clamp) {
            const float32x4_t lo = vdupq_n_f32(g->lo), hi = vdupq_n_f32(g->hi);
            OPSNN_UNROLL for (int m = 0; m < count; m++) {
                acc[m][0] = opsnn_clampq(acc[m][0], lo, hi);
                acc[m][1] = opsnn_clampq(acc[m][1], lo, hi);
            }
        }
        if (block == whole) {
            float part[OPSNN_GEMM_ROWS * OPSNN_GEMM_BLOCK];
            OPSNN_UNROLL for (int m = 0; m < count; m++) {
                vst1q_f32(part + m * OPSNN_GEMM_BLOCK, acc[m][0]);
                vst1q_f32(part + m * OPSNN_GEMM_BLOCK + 4, acc[m][1]);
            }
            opsnn_gemm_store_part(g, (size_t)count, part, y);
            return;
        }
        float *out = y;
        OPSNN_UNROLL for (int m = 0; m < count; m++) {
            vst1q_f32(out, acc[m][0]);
            vst1q_f32(out + 4, acc[m][1]);
            out += g->row_step;
            OPSNN_OWN_REGISTER(out);
        }
    }
}

#define OPSNN_GEMM_TILE(count)                                                                                           \
    static __attribute__((noinline)) void gemm_tile_##count(const opsnn_gemm *g, const float *const *runs, size_t first, \
                                                            size_t end, float *y) {                                      \
        opsnn_gemm_tile(count, g, runs, first, end, y);                                                                  \
    }
#if OPSNN_NEON_REGISTERS == 32
OPSNN_GEMM_TILE(8)
#endif
OPSNN_GEMM_TILE(4)
OPSNN_GEMM_TILE(2)
OPSNN_GEMM_TILE(1)

/* All of a panel: n_rows rows times blocks [first, end). runs: [ceil(n_rows / OPSNN_GEMM_ROWS)][n_taps][OPSNN_GEMM_ROWS].
   Blocks are taken in groups whose weights stay in the first-level cache while all tiles pass. */
enum { OPSNN_GEMM_CACHED = 16384 };
static void opsnn_gemm_panel(const opsnn_gemm *g, const float *const *runs, size_t n_rows, size_t first, size_t end, float *y) {
    const size_t block_bytes = g->n_taps * g->length * OPSNN_GEMM_BLOCK * sizeof(float);
    const size_t group = block_bytes < OPSNN_GEMM_CACHED ? OPSNN_GEMM_CACHED / (block_bytes ? block_bytes : 1) : 1;
    for (size_t from = first; from < end; from += group) {
        const size_t to = end - from < group ? end : from + group;
        const float *const *run = runs;
        float *out = y;
        size_t left = n_rows;
        for (; left >= OPSNN_GEMM_ROWS; left -= OPSNN_GEMM_ROWS) {
#if OPSNN_NEON_REGISTERS == 32
            gemm_tile_8(g, run, from, to, out);
#else
            gemm_tile_4(g, run, from, to, out);
#endif
            run += g->n_taps * OPSNN_GEMM_ROWS;
            out += OPSNN_GEMM_ROWS * g->row_step;
        }
#if OPSNN_NEON_REGISTERS == 32
        if (left & 4) {
            gemm_tile_4(g, run, from, to, out);
            run += 4;
            out += 4 * g->row_step;
        }
#endif
        if (left & 2) {
            gemm_tile_2(g, run, from, to, out);
            run += 2;
            out += 2 * g->row_step;
        }
        if (left & 1) gemm_tile_1(g, run, from, to, out);
    }
}

#endif
