/* What element-wise NEON kernels of two inputs share. A kernel file defines

       static inline float32x4_t apply(float32x4_t a, float32x4_t b);

   and OPSNN_NEON_BINARY(OP, op) makes the kernel opsnn_k_<op>_f32_any_neon of it, clamp and broadcasting included. */
#ifndef OPSNN_NEON_BINARY_H
#define OPSNN_NEON_BINARY_H

#include "neon/unary.h"
#include "ref/binary.h"

/* An operand of step 0 is a vector of equal elements that the pointer never leaves. */
#define OPSNN_NEON_BINARY(OP, op_)                                                                                         \
    static void map(const void *params, const void *a, size_t a_step, const void *b, size_t b_step, void *out, size_t n) { \
        const opsnn_##op_##_params *p = params;                                                                            \
        const float32x4_t lo = vdupq_n_f32(p->lo), hi = vdupq_n_f32(p->hi);                                                \
        const float *u = a, *v = b;                                                                                        \
        float *y = out, all_a[4], all_b[4];                                                                                \
        if (n == 0) return;                                                                                                \
        if (!a_step) {                                                                                                     \
            vst1q_f32(all_a, vdupq_n_f32(u[0]));                                                                           \
            u = all_a;                                                                                                     \
        }                                                                                                                  \
        if (!b_step) {                                                                                                     \
            vst1q_f32(all_b, vdupq_n_f32(v[0]));                                                                           \
            v = all_b;                                                                                                     \
        }                                                                                                                  \
        for (; n >= 4; n -= 4, u += 4 * a_step, v += 4 * b_step, y += 4)                                                   \
            vst1q_f32(y, opsnn_clampq(apply(vld1q_f32(u), vld1q_f32(v)), lo, hi));                                         \
        if (n) opsnn_store_part(y, opsnn_clampq(apply(opsnn_load_part(u, n), opsnn_load_part(v, n)), lo, hi), n);          \
    }                                                                                                                      \
    static int plan(const opsnn_node *node, const opsnn_target *target, opsnn_fit *fit) {                                  \
        return opsnn_neon_elementwise_plan(node, target, 1, fit);                                                          \
    }                                                                                                                      \
    static void run(const opsnn_call *call, uint32_t task) { opsnn_binary_run(call, task, map); }                          \
    const opsnn_kernel opsnn_k_##op_##_f32_any_neon = {                                                                    \
        .name = #op_ "_f32_any_neon",                                                                                      \
        .op = OPSNN_OP_##OP,                                                                                               \
        .dtype = OPSNN_DTYPE_F32,                                                                                          \
        .flags = OPSNN_KERNEL_TAIL,                                                                                        \
        .cpu = OPSNN_NEON_CPU,                                                                                             \
        .plan = plan,                                                                                                      \
        .run = run,                                                                                                        \
        .map = map,                                                                                                        \
    };

#endif
