/* What element-wise NEON kernels of one input share. A kernel file defines

       typedef struct step {...} step;                              what the step needs, in registers
       static inline step prepare(const void *params);
       static inline float32x4_t apply(const step *s, float32x4_t x);

   (or, having nothing to keep, OPSNN_NO_STEP before it includes this) and OPSNN_NEON_UNARY(OP, op, weight) makes the kernel
   opsnn_k_<op>_f32_any_neon of them. weight: operations an element, which is what predictions go by. */
#ifndef OPSNN_NEON_UNARY_H
#define OPSNN_NEON_UNARY_H

#include "neon/simd.h"
#include "ref/unary.h"

#if defined(OPSNN_NO_STEP)
typedef struct step {
    char nothing;
} step;
OPSNN_INLINE step prepare(const void *params) {
    (void)params;
    return (step){0};
}
#endif

OPSNN_INLINE int opsnn_neon_elementwise_plan(const opsnn_node *node, const opsnn_target *target, double weight, opsnn_fit *fit) {
    const size_t n = opsnn_elements(node->outputs[0]);
    fit->n_tasks = opsnn_tasks(n, 4096, OPSNN_TASKS);
    fit->predicted_ns = opsnn_predict(node, target, 0.5 / weight);
    return 1;
}

/* What is left behind the last whole vector goes through the same loop by way of a buffer: one copy of the step, no over-read. */
#define OPSNN_NEON_UNARY(OP, op_, weight)                                                                                  \
    static void map(const void *params, const void *a, size_t a_step, const void *b, size_t b_step, void *out, size_t n) { \
        const step s = prepare(params);                                                                                    \
        const float *x = a;                                                                                                \
        float *y = out;                                                                                                    \
        (void)b;                                                                                                           \
        (void)b_step;                                                                                                      \
        if (!a_step && n) { /* one value for all */                                                                        \
            float same[4];                                                                                                 \
            vst1q_f32(same, apply(&s, vdupq_n_f32(x[0])));                                                                 \
            for (size_t i = 0; i < n; i++) y[i] = same[0];                                                                 \
            return;                                                                                                        \
        }                                                                                                                  \
        for (size_t left = n / 4; left; left--, x += 4, y += 4) vst1q_f32(y, apply(&s, vld1q_f32(x)));                     \
        if (n % 4) opsnn_store_part(y, apply(&s, opsnn_load_part(x, n % 4)), n % 4);                                       \
    }                                                                                                                      \
    static int plan(const opsnn_node *node, const opsnn_target *target, opsnn_fit *fit) {                                  \
        return opsnn_neon_elementwise_plan(node, target, weight, fit);                                                     \
    }                                                                                                                      \
    static void run(const opsnn_call *call, uint32_t task) { opsnn_unary_run(call, task, map); }                           \
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
