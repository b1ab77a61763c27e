/* Adds a border, or crops: axes with negative pads are cropped first, and the border is made from what is left. */
#include <math.h>

#include "ops/rule.h"

/* The constant must be a value of the type: 0.5 in an integer tensor is a mistake. */
static int representable(float value, uint32_t dtype) {
    double lo, hi; /* hi is the first integer above the range */
    /* clang-format off */
    switch (dtype) {
    case OPSNN_DTYPE_S8: lo = -0x1p7, hi = 0x1p7; break;
    case OPSNN_DTYPE_S16: lo = -0x1p15, hi = 0x1p15; break;
    case OPSNN_DTYPE_S32: lo = -0x1p31, hi = 0x1p31; break;
    case OPSNN_DTYPE_S64: lo = -0x1p63, hi = 0x1p63; break;
    case OPSNN_DTYPE_U8: lo = 0, hi = 0x1p8; break;
    case OPSNN_DTYPE_U16: lo = 0, hi = 0x1p16; break;
    case OPSNN_DTYPE_U32: lo = 0, hi = 0x1p32; break;
    case OPSNN_DTYPE_U64: lo = 0, hi = 0x1p64; break;
    case OPSNN_DTYPE_BOOL: lo = 0, hi = 2; break;
    default: return 1;
    }
    /* clang-format on */
    return (double)value >= lo && (double)value < hi && floorf(value) >= value;
}

static opsnn_status infer(const opsnn_node *node, opsnn_value *const *outputs, opsnn_error *err) {
    const opsnn_pad_params *p = node->params;
    if (opsnn_check_inputs(node, 1, OPSNN_CLASS_ANY, OPSNN_BLOCKED_NONE, err)) return OPSNN_E_SHAPE;
    const opsnn_value *x = node->inputs[0];
    opsnn_value *y = outputs[0];
    if (p->n_pads < 0 || (uint32_t)p->n_pads != 2 * x->rank)
        return opsnn_bad(err, "there are %d pads, but x %s needs %u", (int)p->n_pads, opsnn_shape(x).s, 2 * (unsigned)x->rank);
    if (p->mode < OPSNN_PAD_MODE_CONSTANT || p->mode > OPSNN_PAD_MODE_WRAP)
        return opsnn_bad(err, "mode %d is none of constant, reflect, edge, wrap", (int)p->mode);
    if (p->mode == OPSNN_PAD_MODE_CONSTANT && !representable(p->value, x->dtype))
        return opsnn_bad(err, "the value %g is no %s", (double)p->value, opsnn_dtype_name(x->dtype));
    y->rank = x->rank;
    y->dtype = x->dtype;
    for (uint32_t i = 0; i < x->rank; i++) {
        const int64_t d = x->dims[i], begin = p->pads[i], end = p->pads[i + x->rank];
        const int64_t left = d + (begin < 0 ? begin : 0) + (end < 0 ? end : 0);
        if (left < 0)
            return opsnn_bad(err, "dimension %u of x %s cannot be cropped by pads %lld and %lld", (unsigned)i, opsnn_shape(x).s,
                             (long long)begin, (long long)end);
        if (left == 0 && (begin > 0 || end > 0) && p->mode != OPSNN_PAD_MODE_CONSTANT)
            return opsnn_bad(err, "dimension %u of x %s has nothing to make a border from with pads %lld and %lld", (unsigned)i,
                             opsnn_shape(x).s, (long long)begin, (long long)end);
        if (opsnn_set_dim(y, i, d + begin + end, err)) return OPSNN_E_SHAPE;
    }
    return OPSNN_OK;
}

const opsnn_rule opsnn_rule_pad = {infer, opsnn_macs_none};
