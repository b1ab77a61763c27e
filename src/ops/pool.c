/* Maximum and mean over windows, in either layout. */
#include "ops/rule.h"

/* The parameters that both operators have; average_pool has one more. */
static opsnn_max_pool_params shared(const opsnn_node *node) {
    if (node->op == OPSNN_OP_MAX_POOL) return *(const opsnn_max_pool_params *)node->params;
    const opsnn_average_pool_params *p = node->params;
    opsnn_max_pool_params s = {.auto_pad = p->auto_pad, .ceil_mode = p->ceil_mode, .lo = p->lo, .hi = p->hi};
    memcpy(s.kernel_shape, p->kernel_shape, sizeof s.kernel_shape);
    memcpy(s.strides, p->strides, sizeof s.strides);
    memcpy(s.dilations, p->dilations, sizeof s.dilations);
    memcpy(s.pads, p->pads, sizeof s.pads);
    return s;
}

static opsnn_status infer(const opsnn_node *node, opsnn_value *const *outputs, opsnn_error *err) {
    const opsnn_max_pool_params p = shared(node);
    const opsnn_dtype_class allowed = node->op == OPSNN_OP_MAX_POOL ? OPSNN_CLASS_NUMERIC : OPSNN_CLASS_FLOAT;
    if (opsnn_check_inputs(node, 1, allowed, OPSNN_BLOCKED_NONE, err) || opsnn_check_clamp(p.lo, p.hi, err) ||
        opsnn_check_bool("ceil_mode", p.ceil_mode, err))
        return OPSNN_E_SHAPE;
    if (node->op == OPSNN_OP_AVERAGE_POOL) {
        const opsnn_average_pool_params *average = node->params;
        if (opsnn_check_bool("count_include_pad", average->count_include_pad, err)) return OPSNN_E_SHAPE;
    }
    const opsnn_value *x = node->inputs[0];
    if (x->rank != 4) return opsnn_bad(err, "x is %s, but must have 4 dimensions", opsnn_shape(x).s);
    opsnn_value *y = outputs[0];
    opsnn_set_like(y, x);
    for (int axis = 0; axis < 2; axis++) {
        const int spatial = axis + (node->layout == OPSNN_LAYOUT_NHWC ? 1 : 2);
        opsnn_window win;
        const char *why = opsnn_window_resolve(axis, x->dims[spatial], p.kernel_shape[axis], p.strides, p.dilations, p.pads,
                                               p.auto_pad, p.ceil_mode, &win);
        if (why) return opsnn_bad_window(err, axis, why, &win);
        y->dims[spatial] = win.out;
    }
    return OPSNN_OK;
}

/* Every tap counts, also those that fall on padding. */
static uint64_t macs(const opsnn_node *node) {
    const opsnn_max_pool_params p = shared(node);
    return (uint64_t)opsnn_mul_sat((int64_t)opsnn_macs_elements(node), (int64_t)p.kernel_shape[0] * p.kernel_shape[1]);
}

const opsnn_rule opsnn_rule_pool = {infer, macs};
