#include "neon/binary.h"

OPSNN_INLINE float32x4_t apply(float32x4_t a, float32x4_t b) {
    return vbslq_f32(vcgeq_f32(a, vdupq_n_f32(0)), a, vmulq_f32(a, b));
}
OPSNN_NEON_BINARY(PRELU, prelu)
