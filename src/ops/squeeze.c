/* Removes dimensions of 1. */
#include "ops/rule.h"

static opsnn_status infer(const opsnn_node *node, opsnn_value *const *outputs, opsnn_error *err) {
    const opsnn_squeeze_params *p = node->params;
    uint32_t gone;
    if (opsnn_check_inputs(node, 1, OPSNN_CLASS_ANY, OPSNN_BLOCKED_NONE, err) ||
        opsnn_check_axes(p->n_axes, p->axes, node->inputs[0]->rank, &gone, err))
        return OPSNN_E_SHAPE;
    const opsnn_value *x = node->inputs[0];
    opsnn_value *y = outputs[0];
    y->dtype = x->dtype;
    y->rank = 0;
    for (uint32_t i = 0; i < x->rank; i++) {
        const int remove = p->n_axes == 0 ? x->dims[i] == 1 : (gone >> i & 1) != 0;
        if (remove && x->dims[i] != 1)
            return opsnn_bad(err, "dimension %u of x %s is not 1 and cannot be removed", (unsigned)i, opsnn_shape(x).s);
        if (!remove) y->dims[y->rank++] = x->dims[i];
    }
    return OPSNN_OK;
}

const opsnn_rule opsnn_rule_squeeze = {infer, opsnn_macs_none};
