/* Where a sliding window lies: output size and padding of convolutions and pools, as ONNX defines them. */
#ifndef OPSNN_OPS_WINDOW_H
#define OPSNN_OPS_WINDOW_H

#include <stdint.h>

#include "opsnn_ops.h"

/* One spatial axis. Output position o sees the input at o * stride - pad + t * dilation for taps t in [0, kernel), and padding
   where that lies outside [0, in). Padding counts as such in [-pad, in + pad_end): with ceil_mode the last window may reach
   beyond. Every number here, and every such position, fits int32_t once opsnn_window_resolve has returned NULL. */
typedef struct opsnn_window {
    int32_t in, out;
    int32_t kernel, stride, dilation;
    int32_t pad, pad_end;
} opsnn_window;

/* Resolves one axis (0: height, 1: width) of in elements. Returns NULL, or what is wrong; then *w holds the numbers as far as
   they are known. pads is {top, left, bottom, right} and only counts where auto_pad is notset. With auto_pad, ceil_mode changes
   nothing: ONNX's formulas give one size. Where the stride is larger than the window, the same_ ones pad nothing, and windows
   start at 0: TensorFlow's meaning, from which such models come; ONNX's runtimes differ among themselves there. */
static inline const char *opsnn_window_resolve(int axis, int32_t in, int32_t kernel, const int32_t *strides,
                                               const int32_t *dilations, const int32_t *pads, int32_t auto_pad,
                                               int32_t ceil_mode, opsnn_window *w) {
    const int64_t stride = strides[axis], dilation = dilations[axis];
    int64_t before = 0, after = 0, out;
    w->in = in;
    w->out = 0;
    w->kernel = kernel;
    w->stride = strides[axis];
    w->dilation = dilations[axis];
    w->pad = w->pad_end = 0;
    if (kernel < 1) return "the kernel is not positive";
    if (stride < 1) return "the stride is not positive";
    if (dilation < 1) return "the dilation is not positive";
    const int64_t extent = dilation * (kernel - 1) + 1; /* of a dilated window */
    if (extent > INT32_MAX) return "the dilated kernel is too large";
    switch (auto_pad) {
    case OPSNN_AUTO_PAD_NOTSET: {
        before = w->pad = pads[axis];
        after = w->pad_end = pads[axis + 2];
        if (before < 0 || after < 0) return "padding is negative";
        const int64_t room = in + before + after - extent; /* may be negative: then only rounding up can make a window of it */
        const int64_t rounded = room + (ceil_mode ? stride - 1 : 0);
        out = rounded < 0 ? 0 : rounded / stride + 1;
        /* A last window that would start in the padding behind the input is dropped (ONNX since opset 19; PyTorch always). */
        if (ceil_mode && out > 0 && (out - 1) * stride >= in + before) out--;
        break;
    }
    case OPSNN_AUTO_PAD_VALID:
        out = in < extent ? 0 : (in - extent) / stride + 1;
        break;
    case OPSNN_AUTO_PAD_SAME_UPPER:
    case OPSNN_AUTO_PAD_SAME_LOWER: {
        out = ((int64_t)in + stride - 1) / stride;
        int64_t total = (out - 1) * stride + extent - in;
        if (total < 0) total = 0;
        before = auto_pad == OPSNN_AUTO_PAD_SAME_UPPER ? total / 2 : total - total / 2; /* upper: the odd one is at the end */
        after = total - before;
        break;
    }
    default:
        return "auto_pad is none of notset, same_upper, same_lower, valid";
    }
    if (out < 1) return "the window does not fit into the padded input";
    /* The last position any tap looks at, and the end of the padding: both below INT32_MAX. */
    if (in + before + after > INT32_MAX || (out - 1) * stride + extent > INT32_MAX) return "the padded input is too large";
    w->out = (int32_t)out;
    w->pad = (int32_t)before;
    w->pad_end = (int32_t)after;
    return (const char *)0;
}

/* The taps [*first, *end) of output position o that lie on the input; none: *first == *end. Walking these only takes no longer
   than the input is large, whatever the kernel's size. */
static inline void opsnn_window_taps(const opsnn_window *w, int32_t o, int32_t *first, int32_t *end) {
    const int32_t at = o * w->stride - w->pad; /* of the first tap */
    const int32_t before = at < 0 ? (-at - 1) / w->dilation + 1 : 0,
                  until = at < w->in ? (w->in - 1 - at) / w->dilation + 1 : 0;
    *end = until < w->kernel ? until : w->kernel;
    *first = before < *end ? before : *end;
}

/* How many taps of output position o lie on the input and its padding, [-pad, in + pad_end): at least one. */
static inline int32_t opsnn_window_padded_taps(const opsnn_window *w, int32_t o) {
    const int32_t taps = (w->in + w->pad_end - 1 - (o * w->stride - w->pad)) / w->dilation + 1;
    return taps < w->kernel ? taps : w->kernel;
}

#endif
