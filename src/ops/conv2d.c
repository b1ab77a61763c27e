/* Two-dimensional convolution, in either layout. */
#include "ops/rule.h"

static opsnn_status infer(const opsnn_node *node, opsnn_value *const *outputs, opsnn_error *err) {
    const opsnn_conv2d_params *p = node->params;
    const int nhwc = node->layout == OPSNN_LAYOUT_NHWC;
    const int blocked = nhwc ? 1 : OPSNN_BLOCKED_NONE;
    if (opsnn_check_inputs(node, 2, OPSNN_CLASS_FLOAT, blocked, err) || opsnn_check_clamp(p->lo, p->hi, err))
        return OPSNN_E_SHAPE;
    const opsnn_value *x = node->inputs[0], *w = node->inputs[1], *b = opsnn_input(node, 2);
    if (x->rank != 4) return opsnn_bad(err, "x is %s, but must have 4 dimensions", opsnn_shape(x).s);
    if (w->rank != 4) return opsnn_bad(err, "w is %s, but must have 4 dimensions", opsnn_shape(w).s);
    const int32_t n_out = w->dims[0], per_group = w->dims[nhwc ? 3 : 1];
    const int32_t n_in = x->dims[nhwc ? 3 : 1];
    if (p->group < 1) return opsnn_bad(err, "group %d is not positive", (int)p->group);
    if ((int64_t)per_group * p->group != n_in)
        return opsnn_bad(err, "x has %d channels, but w %s with group %d needs %lld", (int)n_in, opsnn_shape(w).s,
                         (int)p->group, (long long)per_group * p->group);
    if (n_out % p->group) return opsnn_bad(err, "%d output channels do not divide into %d groups", (int)n_out, (int)p->group);
    if (b && (b->rank != 1 || b->dims[0] != n_out))
        return opsnn_bad(err, "b is %s, but w makes %d channels", opsnn_shape(b).s, (int)n_out);

    opsnn_value *y = outputs[0];
    opsnn_set_like(y, x);
    y->dims[nhwc ? 3 : 1] = n_out;
    for (int axis = 0; axis < 2; axis++) {
        const int spatial = axis + (nhwc ? 1 : 2);
        opsnn_window win;
        const char *why = opsnn_window_resolve(axis, x->dims[spatial], w->dims[spatial], p->strides, p->dilations, p->pads,
                                               p->auto_pad, 0, &win);
        if (why) return opsnn_bad_window(err, axis, why, &win);
        y->dims[spatial] = win.out;
    }
    return OPSNN_OK;
}

/* Every tap counts, also those that fall on padding. */
static uint64_t macs(const opsnn_node *node) {
    const opsnn_value *w = node->inputs[1], *y = node->outputs[0];
    return (uint64_t)opsnn_mul_sat(opsnn_count_sat(y->dims, y->rank), opsnn_count_sat(w->dims + 1, 3));
}

const opsnn_rule opsnn_rule_conv2d = {infer, macs};
