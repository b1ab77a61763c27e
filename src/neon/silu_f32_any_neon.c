#include "neon/exp_f32.h"
#include "neon/unary.h"

typedef struct step {
    float32x4_t alpha;
} step;
OPSNN_INLINE step prepare(const void *params) {
    const opsnn_silu_params *p = params;
    return (step){vdupq_n_f32(p->alpha)};
}
OPSNN_INLINE float32x4_t apply(const step *s, float32x4_t x) { return vmulq_f32(x, opsnn_sigmoid(vmulq_f32(x, s->alpha))); }
OPSNN_NEON_UNARY(SILU, silu, 20)
