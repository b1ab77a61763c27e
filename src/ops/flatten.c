/* A matrix: the dimensions before an axis make its rows, those from it on its columns. */
#include "ops/rule.h"

static opsnn_status infer(const opsnn_node *node, opsnn_value *const *outputs, opsnn_error *err) {
    const opsnn_flatten_params *p = node->params;
    if (opsnn_check_inputs(node, 1, OPSNN_CLASS_ANY, OPSNN_BLOCKED_NONE, err)) return OPSNN_E_SHAPE;
    const opsnn_value *x = node->inputs[0];
    opsnn_value *y = outputs[0];
    /* Unlike other axes, this one may stand behind the last dimension. */
    if ((int64_t)p->axis < -(int64_t)x->rank || (int64_t)p->axis > (int64_t)x->rank)
        return opsnn_bad(err, "axis %d is outside a tensor of rank %u", (int)p->axis, (unsigned)x->rank);
    const uint32_t axis = opsnn_axis(p->axis, x->rank);
    y->rank = 2;
    y->dtype = x->dtype;
    if (opsnn_set_dim(y, 0, opsnn_count_sat(x->dims, axis), err) ||
        opsnn_set_dim(y, 1, opsnn_count_sat(x->dims + axis, x->rank - axis), err))
        return OPSNN_E_SHAPE;
    return OPSNN_OK;
}

const opsnn_rule opsnn_rule_flatten = {infer, opsnn_macs_none};
