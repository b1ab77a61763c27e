#define OPSNN_NO_STEP
#include "neon/unary.h"

OPSNN_INLINE float32x4_t apply(const step *s, float32x4_t x) {
    (void)s;
    const float32x4_t gate = opsnn_fma(vdupq_n_f32(0.5f), x, vdupq_n_f32(1.0f / 6.0f));
    return vmulq_f32(x, opsnn_clampq(gate, vdupq_n_f32(0), vdupq_n_f32(1.0f)));
}
OPSNN_NEON_UNARY(HARD_SWISH, hard_swish, 3)
