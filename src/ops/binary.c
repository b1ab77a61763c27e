/* Element-wise operators of two inputs, which broadcast as in numpy. */
#include "ops/broadcast.h"
#include "ops/rule.h"

static opsnn_status infer(const opsnn_node *node, opsnn_value *const *outputs, opsnn_error *err) {
    const opsnn_add_params *p = node->params; /* all of them are lo, hi */
    if (opsnn_check_inputs(node, 2, OPSNN_CLASS_NUMERIC, OPSNN_BLOCKED_NONE, err) || opsnn_check_clamp(p->lo, p->hi, err))
        return OPSNN_E_SHAPE;
    const opsnn_value *a = node->inputs[0], *b = node->inputs[1];
    opsnn_value *y = outputs[0];
    y->dtype = a->dtype;
    y->rank = a->rank > b->rank ? a->rank : b->rank;
    if (!opsnn_broadcast(a->dims, a->rank, b->dims, b->rank, y->dims))
        return opsnn_bad(err, "shapes %s and %s do not broadcast", opsnn_shape(a).s, opsnn_shape(b).s);
    if (node->op == OPSNN_OP_PRELU && (y->rank != a->rank || memcmp(y->dims, a->dims, a->rank * sizeof *a->dims) != 0))
        return opsnn_bad(err, "slope %s does not broadcast to x %s", opsnn_shape(b).s, opsnn_shape(a).s);
    return OPSNN_OK;
}

const opsnn_rule opsnn_rule_binary = {infer, opsnn_macs_elements};
