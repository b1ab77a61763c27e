#include "neon/unary.h"

typedef struct step {
    float32x4_t alpha;
} step;
OPSNN_INLINE step prepare(const void *params) {
    const opsnn_leaky_relu_params *p = params;
    return (step){vdupq_n_f32(p->alpha)};
}
OPSNN_INLINE float32x4_t apply(const step *s, float32x4_t x) {
    return vbslq_f32(vcgeq_f32(x, vdupq_n_f32(0)), x, vmulq_f32(x, s->alpha));
}
OPSNN_NEON_UNARY(LEAKY_RELU, leaky_relu, 1)
