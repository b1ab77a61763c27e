#include "neon/unary.h"

typedef struct step {
    float32x4_t lo, hi;
} step;
OPSNN_INLINE step prepare(const void *params) {
    const opsnn_clip_params *p = params;
    return (step){vdupq_n_f32(p->lo), vdupq_n_f32(p->hi)};
}
OPSNN_INLINE float32x4_t apply(const step *s, float32x4_t x) { return opsnn_clampq(x, s->lo, s->hi); }
OPSNN_NEON_UNARY(CLIP, clip, 1)
