/* Which elements of an axis a slice takes, as numpy and ONNX define it. */
#ifndef OPSNN_OPS_SLICE_H
#define OPSNN_OPS_SLICE_H

#include <stdint.h>

/* Elements first, first + step, ...: `count` of them, all inside the axis. */
typedef struct opsnn_slice_range {
    int64_t first, step, count;
} opsnn_slice_range;

/* dim: size of the axis; start and end may be negative or far outside; step is not 0. */
static inline opsnn_slice_range opsnn_slice_resolve(int32_t dim, int32_t start, int32_t end, int32_t step) {
    /* A backward slice starts at the last element at most, and ends before the first at least. */
    const int64_t low = step < 0 ? -1 : 0, high = (int64_t)dim + low;
    int64_t from = start < 0 ? (int64_t)start + dim : start, to = end < 0 ? (int64_t)end + dim : end;
    from = from < low ? low : from > high ? high : from;
    to = to < low ? low : to > high ? high : to;
    const int64_t length = step < 0 ? from - to : to - from, stride = step < 0 ? -(int64_t)step : step;
    const opsnn_slice_range range = {from, step, length > 0 ? (length - 1) / stride + 1 : 0};
    return range;
}

#endif
