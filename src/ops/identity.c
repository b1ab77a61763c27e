/* The input itself. */
#include "ops/rule.h"

static opsnn_status infer(const opsnn_node *node, opsnn_value *const *outputs, opsnn_error *err) {
    if (opsnn_check_inputs(node, 1, OPSNN_CLASS_ANY, OPSNN_BLOCKED_NONE, err)) return OPSNN_E_SHAPE;
    opsnn_set_like(outputs[0], node->inputs[0]);
    return OPSNN_OK;
}

const opsnn_rule opsnn_rule_identity = {infer, opsnn_macs_none};
