#include "neon/unary.h"

typedef struct step {
    float32x4_t alpha, beta;
} step;
OPSNN_INLINE step prepare(const void *params) {
    const opsnn_hard_sigmoid_params *p = params;
    return (step){vdupq_n_f32(p->alpha), vdupq_n_f32(p->beta)};
}
OPSNN_INLINE float32x4_t apply(const step *s, float32x4_t x) {
    return opsnn_clampq(opsnn_fma(s->beta, x, s->alpha), vdupq_n_f32(0), vdupq_n_f32(1.0f));
}
OPSNN_NEON_UNARY(HARD_SIGMOID, hard_sigmoid, 2)
