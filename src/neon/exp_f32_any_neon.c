#include "neon/exp_f32.h"
#define OPSNN_NO_STEP
#include "neon/unary.h"

OPSNN_INLINE float32x4_t apply(const step *s, float32x4_t x) {
    (void)s;
    return opsnn_exp(x);
}
OPSNN_NEON_UNARY(EXP, exp, 16)
