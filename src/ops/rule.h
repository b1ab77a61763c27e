/* What the rules share: one-line errors and the checks that many operators need. Parameters come from a file, so each check
   takes any value; sizes are computed in int64_t. Checks return OPSNN_OK or OPSNN_E_SHAPE, so that they chain with ||. */
#ifndef OPSNN_OPS_RULE_H
#define OPSNN_OPS_RULE_H

#include <stdarg.h>
#include <stdio.h>

#include "kernel.h"
#include "ops/axis.h"
#include "ops/window.h"

#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
static inline opsnn_status opsnn_bad(opsnn_error *err, const char *format, ...) {
    if (err) {
        va_list args;
        va_start(args, format);
        vsnprintf(err->text, sizeof err->text, format, args);
        va_end(args);
        err->code = OPSNN_E_SHAPE;
    }
    return OPSNN_E_SHAPE;
}

/* "[1, 224, 224, 3]", for error texts. */
typedef struct opsnn_shape_text {
    char s[2 + 13 * OPSNN_MAX_RANK + 1];
} opsnn_shape_text;
static inline opsnn_shape_text opsnn_shape(const opsnn_value *v) {
    opsnn_shape_text t = {"["};
    size_t n = 1;
    for (uint32_t i = 0; i < v->rank && i < OPSNN_MAX_RANK; i++)
        n += (size_t)snprintf(t.s + n, sizeof t.s - n, "%s%d", i ? ", " : "", (int)v->dims[i]);
    t.s[n] = ']';
    t.s[n + 1] = 0;
    return t;
}

static inline int opsnn_is_float(uint32_t dtype) {
    return dtype == OPSNN_DTYPE_F32 || dtype == OPSNN_DTYPE_F16 || dtype == OPSNN_DTYPE_BF16 || dtype == OPSNN_DTYPE_F64;
}

/* Inputs given, of one dtype (its class is the operator's choice) and plain: blocks are for the weights at index `blocked`. */
typedef enum opsnn_dtype_class { OPSNN_CLASS_ANY, OPSNN_CLASS_NUMERIC, OPSNN_CLASS_FLOAT } opsnn_dtype_class;
enum { OPSNN_BLOCKED_NONE = -1 };
static inline opsnn_status opsnn_check_inputs(const opsnn_node *node, uint32_t n_needed, opsnn_dtype_class allowed, int blocked,
                                              opsnn_error *err) {
    for (uint32_t i = 0; i < n_needed; i++)
        if (!opsnn_input(node, i)) return opsnn_bad(err, "input %u is missing", (unsigned)i);
    const uint32_t dtype = node->inputs[0]->dtype;
    const char *name = opsnn_dtype_name(dtype);
    if (opsnn_dtype_bytes(dtype) == 0) return opsnn_bad(err, "input 0 has unknown dtype %u", (unsigned)dtype);
    if (allowed == OPSNN_CLASS_FLOAT && !opsnn_is_float(dtype)) return opsnn_bad(err, "input is %s, not a float type", name);
    if (allowed == OPSNN_CLASS_NUMERIC && dtype == OPSNN_DTYPE_BOOL) return opsnn_bad(err, "input is bool, not a number");
    for (uint32_t i = 0; i < node->n_inputs; i++) {
        const opsnn_value *v = node->inputs[i];
        if (!v) continue;
        if (v->dtype != dtype)
            return opsnn_bad(err, "input %u is %s, but input 0 is %s", (unsigned)i, opsnn_dtype_name(v->dtype), name);
        if (v->block > 1 && (int)i != blocked)
            return opsnn_bad(err, "input %u is stored in blocks of %u, which is for weights of conv2d and matmul", (unsigned)i,
                             (unsigned)v->block);
    }
    return OPSNN_OK;
}

static inline opsnn_status opsnn_check_clamp(float lo, float hi, opsnn_error *err) {
    if (!(lo <= hi)) return opsnn_bad(err, "lo %g and hi %g are no range", (double)lo, (double)hi);
    return OPSNN_OK;
}

static inline opsnn_status opsnn_check_bool(const char *name, int32_t value, opsnn_error *err) {
    if (value != 0 && value != 1) return opsnn_bad(err, "%s is %d, not 0 or 1", name, (int)value);
    return OPSNN_OK;
}

/* An attribute that is a list: the number of its entries. */
static inline opsnn_status opsnn_check_list(const char *name, int32_t n, opsnn_error *err) {
    if (n < 0 || n > OPSNN_LIST_CAPACITY)
        return opsnn_bad(err, "%s has %d entries, not 0 to %d", name, (int)n, OPSNN_LIST_CAPACITY);
    return OPSNN_OK;
}

/* An axis of a tensor of this rank, negative ones counted from the end. */
static inline opsnn_status opsnn_check_axis(const char *name, int32_t axis, uint32_t rank, opsnn_error *err) {
    if ((int64_t)axis < -(int64_t)rank || (int64_t)axis >= (int64_t)rank)
        return opsnn_bad(err, "%s %d is outside a tensor of rank %u", name, (int)axis, (unsigned)rank);
    return OPSNN_OK;
}

/* A list of axes, each at most once; bit i of *mask: axis i is in the list. */
static inline opsnn_status opsnn_check_axes(int32_t n, const int32_t *axes, uint32_t rank, uint32_t *mask, opsnn_error *err) {
    *mask = 0;
    if (opsnn_check_list("axes", n, err)) return OPSNN_E_SHAPE;
    for (int32_t i = 0; i < n; i++) {
        if (opsnn_check_axis("axis", axes[i], rank, err)) return OPSNN_E_SHAPE;
        const uint32_t bit = 1u << opsnn_axis(axes[i], rank);
        if (*mask & bit) return opsnn_bad(err, "axis %d is given twice", (int)axes[i]);
        *mask |= bit;
    }
    return OPSNN_OK;
}

static inline opsnn_status opsnn_set_dim(opsnn_value *y, uint32_t i, int64_t dim, opsnn_error *err) {
    if (dim < 0 || dim > INT32_MAX)
        return opsnn_bad(err, "dimension %u of the result would be %lld", (unsigned)i, (long long)dim);
    y->dims[i] = (int32_t)dim;
    return OPSNN_OK;
}

static inline void opsnn_set_like(opsnn_value *y, const opsnn_value *x) {
    y->rank = x->rank;
    y->dtype = x->dtype;
    memcpy(y->dims, x->dims, sizeof y->dims);
}

/* What opsnn_window_resolve said about axis 0 (height) or 1. */
static inline opsnn_status opsnn_bad_window(opsnn_error *err, int axis, const char *why, const opsnn_window *w) {
    return opsnn_bad(err, "%s: %s %d, kernel %d, stride %d, dilation %d, pads %d and %d", why, axis ? "width" : "height",
                     (int)w->in, (int)w->kernel, (int)w->stride, (int)w->dilation, (int)w->pad, (int)w->pad_end);
}

/* Product of sizes that stops at INT64_MAX. */
static inline int64_t opsnn_mul_sat(int64_t a, int64_t b) {
    return a != 0 && b > INT64_MAX / a ? INT64_MAX : a * b;
}
static inline int64_t opsnn_count_sat(const int32_t *dims, uint32_t n) {
    int64_t c = 1;
    for (uint32_t i = 0; i < n; i++)
        if (dims[i] == 0) return 0; /* before a product of the others could stop early */
    for (uint32_t i = 0; i < n; i++) c = opsnn_mul_sat(c, dims[i]);
    return c;
}

/* The usual counts of work: one operation for each element of the result; none. */
static inline uint64_t opsnn_macs_elements(const opsnn_node *node) {
    return (uint64_t)opsnn_count_sat(node->outputs[0]->dims, node->outputs[0]->rank);
}
static inline uint64_t opsnn_macs_none(const opsnn_node *node) {
    (void)node;
    return 0;
}

#endif
