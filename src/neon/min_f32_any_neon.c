/* ARM's minimum is NaN if either operand is. */
#include "neon/binary.h"

OPSNN_INLINE float32x4_t apply(float32x4_t a, float32x4_t b) { return vminq_f32(a, b); }
OPSNN_NEON_BINARY(MIN, min)
