#define OPSNN_NO_STEP
#include "neon/unary.h"

OPSNN_INLINE float32x4_t apply(const step *s, float32x4_t x) {
    (void)s;
    return vabsq_f32(x);
}
OPSNN_NEON_UNARY(ABS, abs, 1)
