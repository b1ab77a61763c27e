/* Softmax along one axis. */
#include "ops/rule.h"

static opsnn_status infer(const opsnn_node *node, opsnn_value *const *outputs, opsnn_error *err) {
    const opsnn_softmax_params *p = node->params;
    if (opsnn_check_inputs(node, 1, OPSNN_CLASS_FLOAT, OPSNN_BLOCKED_NONE, err) ||
        opsnn_check_axis("axis", p->axis, node->inputs[0]->rank, err))
        return OPSNN_E_SHAPE;
    opsnn_set_like(outputs[0], node->inputs[0]);
    return OPSNN_OK;
}

const opsnn_rule opsnn_rule_softmax = {infer, opsnn_macs_elements};
