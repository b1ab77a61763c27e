/* Exponentials of a vector. */
#ifndef OPSNN_NEON_EXP_F32_H
#define OPSNN_NEON_EXP_F32_H

#include "neon/simd.h"

/* e to the power x, within 2 units in the last place. Infinity beyond 88.72, zero below -103.97 (ARMv7: below -87.33, where
   results are denormal), NaN for NaN. x = n ln2 + r, |r| <= ln2 / 2; ln2 is split (Cody and Waite), e^r = 1 + r + r^2 p(r) with
   a minimax p of degree 4 (relative error 3e-9), and 2^n is multiplied in two steps, so that neither over- nor underflows. */
OPSNN_INLINE float32x4_t opsnn_exp(float32x4_t x) {
    const float32x4_t shift = vdupq_n_f32(12582912.0f); /* 1.5 * 2^23: adding it rounds to an integer */
    x = opsnn_clampq(x, vdupq_n_f32(-104.0f), vdupq_n_f32(89.0f));
    const float32x4_t shifted = opsnn_fma(shift, x, vdupq_n_f32(1.44269504f)), n = vsubq_f32(shifted, shift);
    float32x4_t r = opsnn_fma(x, n, vdupq_n_f32(-0.693145752f));
    r = opsnn_fma(r, n, vdupq_n_f32(-1.42860677e-6f));
    float32x4_t p = opsnn_fma(vdupq_n_f32(0.00836871658f), r, vdupq_n_f32(0.00138145988f));
    p = opsnn_fma(vdupq_n_f32(0.041668389f), p, r);
    p = opsnn_fma(vdupq_n_f32(0.166665211f), p, r);
    p = opsnn_fma(vdupq_n_f32(0.49999994f), p, r);
    p = opsnn_fma(vaddq_f32(r, vdupq_n_f32(1.0f)), p, vmulq_f32(r, r));
    const int32x4_t whole = vsubq_s32(vreinterpretq_s32_f32(shifted), vreinterpretq_s32_f32(shift));
    const int32x4_t half = vshrq_n_s32(whole, 1), bias = vdupq_n_s32(127);
    p = vmulq_f32(p, vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(half, bias), 23)));
    return vmulq_f32(p, vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(vsubq_s32(whole, half), bias), 23)));
}

/* 1 / (1 + e^-x) */
OPSNN_INLINE float32x4_t opsnn_sigmoid(float32x4_t x) {
    return opsnn_reciprocal(vaddq_f32(opsnn_exp(vnegq_f32(x)), vdupq_n_f32(1.0f)));
}

#endif
