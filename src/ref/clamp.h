/* The clamp that many operators end with. NaN stays NaN. */
#ifndef OPSNN_REF_CLAMP_H
#define OPSNN_REF_CLAMP_H

static inline float opsnn_clamp(float v, float lo, float hi) {
    return v < lo ? lo : v > hi ? hi : v;
}

#endif
