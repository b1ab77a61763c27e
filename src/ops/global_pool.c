/* Maximum and mean over a whole image, in either layout. */
#include "ops/rule.h"

static opsnn_status infer(const opsnn_node *node, opsnn_value *const *outputs, opsnn_error *err) {
    const opsnn_dtype_class allowed = node->op == OPSNN_OP_GLOBAL_MAX_POOL ? OPSNN_CLASS_NUMERIC : OPSNN_CLASS_FLOAT;
    if (opsnn_check_inputs(node, 1, allowed, OPSNN_BLOCKED_NONE, err)) return OPSNN_E_SHAPE;
    const opsnn_value *x = node->inputs[0];
    if (x->rank != 4) return opsnn_bad(err, "x is %s, but must have 4 dimensions", opsnn_shape(x).s);
    const int spatial = node->layout == OPSNN_LAYOUT_NHWC ? 1 : 2;
    if (x->dims[spatial] == 0 || x->dims[spatial + 1] == 0) return opsnn_bad(err, "x %s has no pixels", opsnn_shape(x).s);
    opsnn_set_like(outputs[0], x);
    outputs[0]->dims[spatial] = outputs[0]->dims[spatial + 1] = 1;
    return OPSNN_OK;
}

static uint64_t macs(const opsnn_node *node) {
    return (uint64_t)opsnn_count_sat(node->inputs[0]->dims, node->inputs[0]->rank);
}

const opsnn_rule opsnn_rule_global_pool = {infer, macs};
