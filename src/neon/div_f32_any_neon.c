#include "neon/binary.h"

OPSNN_INLINE float32x4_t apply(float32x4_t a, float32x4_t b) { return opsnn_div(a, b); }
OPSNN_NEON_BINARY(DIV, div)
