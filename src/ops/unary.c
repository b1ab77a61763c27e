/* Element-wise operators of one input. */
#include "ops/rule.h"

static opsnn_status infer(const opsnn_node *node, opsnn_value *const *outputs, opsnn_error *err) {
    if (opsnn_check_inputs(node, 1, OPSNN_CLASS_NUMERIC, OPSNN_BLOCKED_NONE, err)) return OPSNN_E_SHAPE;
    if (node->op == OPSNN_OP_CLIP) {
        const opsnn_clip_params *p = node->params;
        if (opsnn_check_clamp(p->lo, p->hi, err)) return OPSNN_E_SHAPE;
    } else if (node->op == OPSNN_OP_GELU) {
        const opsnn_gelu_params *p = node->params;
        if (p->approximate != OPSNN_GELU_APPROXIMATE_NONE && p->approximate != OPSNN_GELU_APPROXIMATE_TANH)
            return opsnn_bad(err, "approximate %d is neither none nor tanh", (int)p->approximate);
    }
    opsnn_set_like(outputs[0], node->inputs[0]);
    return OPSNN_OK;
}

const opsnn_rule opsnn_rule_unary = {infer, opsnn_macs_elements};
