/* Axes as ONNX counts them. */
#ifndef OPSNN_OPS_AXIS_H
#define OPSNN_OPS_AXIS_H

#include <stdint.h>

/* A valid axis of a tensor of this rank, negative ones counted from the end. */
static inline uint32_t opsnn_axis(int32_t axis, uint32_t rank) {
    return (uint32_t)(axis < 0 ? axis + (int32_t)rank : axis);
}

#endif
