/* One intrinsics source for ARMv7 (16 vector registers), AArch64 (32) and, through SIMDe, any other machine: the few things that
   differ are named here.

   ARMv7's NEON always flushes denormals to zero and rounds to nearest; AArch64's does what the mode register says. Results near
   the smallest normal number may therefore differ between the two. No kernel reads or writes outside its tensors: what is left of
   a row that is no multiple of four goes through opsnn_load_part and opsnn_store_part. */
#ifndef OPSNN_NEON_SIMD_H
#define OPSNN_NEON_SIMD_H

#include "kernel.h"

#if defined(__ARM_NEON)
#include <arm_neon.h>
#else
#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/arm/neon.h>
#endif

/* What kernels compiled with these flags need of a CPU: Cortex-A8 and A9 have NEON, but no fused multiply-add. AArch64's NEON
   includes it, and SIMDe's stand-in is said to be NEON with it by cpu.c. */
#if defined(__ARM_NEON) && !defined(__aarch64__) && !defined(__ARM_FEATURE_FMA)
#define OPSNN_NEON_CPU OPSNN_CPU_NEON
#else
#define OPSNN_NEON_CPU (OPSNN_CPU_NEON | OPSNN_CPU_FMA)
#endif

/* Vector registers for accumulators: kernels choose their tiles by it. */
#if defined(__aarch64__)
#define OPSNN_NEON_REGISTERS 32
#else
#define OPSNN_NEON_REGISTERS 16
#endif

#define OPSNN_INLINE static inline __attribute__((always_inline))
/* Before a loop of constant length that must become straight code: its arrays are registers then. */
#define OPSNN_UNROLL _Pragma("GCC unroll 16")
/* Keeps a pointer in a register of its own that is advanced in place. Compilers like to make base plus index of pointers that
   advance together, which ARMv7 cannot load vectors from, and which keeps AArch64 from loading and storing pairs. */
#define OPSNN_OWN_REGISTER(p) __asm__("" : "+r"(p))

/* acc + a * b, rounded once where the hardware can. */
OPSNN_INLINE float32x4_t opsnn_fma(float32x4_t acc, float32x4_t a, float32x4_t b) {
#if defined(__aarch64__) || defined(__ARM_FEATURE_FMA)
    return vfmaq_f32(acc, a, b);
#else
    return vmlaq_f32(acc, a, b);
#endif
}

/* acc += a * b, for loops with many accumulators: see opsnn_fma_lane. */
#if defined(__clang__) || !(defined(__arm__) || defined(__aarch64__))
#define opsnn_fma_to(acc, a, b) ((acc) = opsnn_fma(acc, a, b))
#elif defined(__aarch64__)
#define opsnn_fma_to(acc, a, b) __asm__ volatile("fmla %0.4s, %1.4s, %2.4s" : "+w"(acc) : "w"(a), "w"(b))
#elif defined(__ARM_FEATURE_FMA)
#define opsnn_fma_to(acc, a, b) __asm__ volatile("vfma.f32 %q0, %q1, %q2" : "+w"(acc) : "w"(a), "w"(b))
#else
#define opsnn_fma_to(acc, a, b) __asm__ volatile("vmla.f32 %q0, %q1, %q2" : "+w"(acc) : "w"(a), "w"(b))
#endif

/* acc += a * v[lane]. ARMv7 fuses only whole vectors: vmla by lane rounds twice, but vfma would want a vdup before each, which
   doubles the instructions of a matrix product.

   In assembly for GCC, which else (version 12, 16 accumulators) gives some accumulators a second register and copies them to and
   fro in the innermost loop: 64 multiply-adds then take 87 instructions instead of 78. Volatile, which keeps them in the order
   written: GCC knows no latency of assembly, and would put sums that wait for each other side by side. */
#if defined(__clang__) || !(defined(__arm__) || defined(__aarch64__))
#if defined(__aarch64__)
#define opsnn_fma_lane(acc, a, v, lane) ((acc) = vfmaq_laneq_f32(acc, a, v, lane))
#elif defined(__arm__)
#define opsnn_fma_lane(acc, a, v, lane) \
    ((acc) = vmlaq_lane_f32(acc, a, (lane) < 2 ? vget_low_f32(v) : vget_high_f32(v), (lane)&1))
#else
#define opsnn_fma_lane(acc, a, v, lane) ((acc) = vaddq_f32(acc, vmulq_n_f32(a, vgetq_lane_f32(v, lane))))
#endif
#elif defined(__aarch64__)
#define opsnn_fma_lane(acc, a, v, lane) __asm__ volatile("fmla %0.4s, %1.4s, %2.s[" #lane "]" : "+w"(acc) : "w"(a), "w"(v))
#else /* lanes of d0 to d15: constraint t; %e and %f are a vector's halves */
#define opsnn_fma_lane(acc, a, v, lane) OPSNN_VMLA_LANE_##lane(acc, a, v)
#define OPSNN_VMLA_LANE_0(acc, a, v) __asm__ volatile("vmla.f32 %q0, %q1, %e2[0]" : "+w"(acc) : "w"(a), "t"(v))
#define OPSNN_VMLA_LANE_1(acc, a, v) __asm__ volatile("vmla.f32 %q0, %q1, %e2[1]" : "+w"(acc) : "w"(a), "t"(v))
#define OPSNN_VMLA_LANE_2(acc, a, v) __asm__ volatile("vmla.f32 %q0, %q1, %f2[0]" : "+w"(acc) : "w"(a), "t"(v))
#define OPSNN_VMLA_LANE_3(acc, a, v) __asm__ volatile("vmla.f32 %q0, %q1, %f2[1]" : "+w"(acc) : "w"(a), "t"(v))
#endif

/* acc += a * one, one being a single element that was loaded by opsnn_load_one: where it lies in a register differs. */
#if defined(__arm__)
typedef float32x4_t opsnn_one;
#define opsnn_load_one(p) vld1q_dup_f32(p)
#define opsnn_fma_one(acc, a, one) opsnn_fma_lane(acc, a, one, 0)
#else
typedef float opsnn_one;
#define opsnn_load_one(p) (*(p))
#if defined(__aarch64__) && !defined(__clang__)
#define opsnn_fma_one(acc, a, one) opsnn_fma_lane(acc, a, one, 0)
#elif defined(__aarch64__)
#define opsnn_fma_one(acc, a, one) ((acc) = vfmaq_n_f32(acc, a, one))
#else
#define opsnn_fma_one(acc, a, one) ((acc) = vaddq_f32(acc, vmulq_n_f32(a, one)))
#endif
#endif

/* x limited to [lo, hi], lo <= hi; NaN stays NaN. */
OPSNN_INLINE float32x4_t opsnn_clampq(float32x4_t x, float32x4_t lo, float32x4_t hi) { return vminq_f32(vmaxq_f32(x, lo), hi); }

/* a / b, rounded as the hardware divides. ARMv7 has no vector division (and SIMDe none of its own): the scalar unit does it. */
OPSNN_INLINE float32x4_t opsnn_div(float32x4_t a, float32x4_t b) {
#if defined(__aarch64__)
    return vdivq_f32(a, b);
#else
    float u[4], v[4];
    vst1q_f32(u, a);
    vst1q_f32(v, b);
    for (int i = 0; i < 4; i++) u[i] /= v[i];
    return vld1q_f32(u);
#endif
}
/* 1 / x for x >= 1, within 2 units in the last place; 0 for infinity. */
OPSNN_INLINE float32x4_t opsnn_reciprocal(float32x4_t x) {
#if defined(__arm__)
    float32x4_t r = vrecpeq_f32(x);
    r = vmulq_f32(r, vrecpsq_f32(x, r));
    return vmulq_f32(r, vrecpsq_f32(x, r));
#else
    return opsnn_div(vdupq_n_f32(1.0f), x);
#endif
}

/* The first n (1 to 3) elements, zeros above. */
static inline float32x4_t opsnn_load_part(const float *p, size_t n) {
    float32x4_t v = vld1q_lane_f32(p, vdupq_n_f32(0), 0);
    if (n > 1) v = vld1q_lane_f32(p + 1, v, 1);
    if (n > 2) v = vld1q_lane_f32(p + 2, v, 2);
    return v;
}
static inline void opsnn_store_part(float *p, float32x4_t v, size_t n) {
    vst1q_lane_f32(p, v, 0);
    if (n > 1) vst1q_lane_f32(p + 1, v, 1);
    if (n > 2) vst1q_lane_f32(p + 2, v, 2);
}

/* Shares of n units for a task; results never depend on the number of tasks. */
static inline size_t opsnn_first(size_t n, uint32_t n_tasks, uint32_t task) {
    return n / n_tasks * task + (task < n % n_tasks ? task : n % n_tasks);
}
/* As many tasks as keep each at `least` of `work` or more, at most `most` and OPSNN_TASKS. */
enum { OPSNN_TASKS = 64 };
static inline uint32_t opsnn_tasks(uint64_t work, uint64_t least, uint64_t most) {
    uint64_t n = work / least;
    if (n > most) n = most;
    return n < 1 ? 1 : n > OPSNN_TASKS ? OPSNN_TASKS : (uint32_t)n;
}

#endif
