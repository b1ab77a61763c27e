/* Below 0.625 an odd minimax polynomial (relative error 4e-9), above it 1 - 2 / (e^2x + 1): the split of Cephes' tanhf. */
#define OPSNN_NO_STEP
#include "neon/exp_f32.h"
#include "neon/unary.h"

OPSNN_INLINE float32x4_t apply(const step *s, float32x4_t x) {
    (void)s;
    const float32x4_t magnitude = vabsq_f32(x), z = vmulq_f32(x, x), one = vdupq_n_f32(1.0f);
    float32x4_t p = opsnn_fma(vdupq_n_f32(0.020650588f), z, vdupq_n_f32(-0.00571704516f));
    p = opsnn_fma(vdupq_n_f32(-0.0537434965f), p, z);
    p = opsnn_fma(vdupq_n_f32(0.133314908f), p, z);
    p = opsnn_fma(vdupq_n_f32(-0.333332837f), p, z);
    const float32x4_t small = opsnn_fma(x, vmulq_f32(p, z), x);
    const float32x4_t e = vaddq_f32(opsnn_exp(vaddq_f32(magnitude, magnitude)), one);
    const float32x4_t large = vsubq_f32(one, vmulq_f32(vdupq_n_f32(2.0f), opsnn_reciprocal(e)));
    const uint32x4_t sign = vdupq_n_u32(UINT32_C(0x80000000));
    return vbslq_f32(vcltq_f32(magnitude, vdupq_n_f32(0.625f)), small, vbslq_f32(sign, x, large));
}
OPSNN_NEON_UNARY(TANH, tanh, 30)
