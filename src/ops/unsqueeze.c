/* Inserts dimensions of 1. */
#include "ops/rule.h"

static opsnn_status infer(const opsnn_node *node, opsnn_value *const *outputs, opsnn_error *err) {
    const opsnn_unsqueeze_params *p = node->params;
    if (opsnn_check_inputs(node, 1, OPSNN_CLASS_ANY, OPSNN_BLOCKED_NONE, err) || opsnn_check_list("axes", p->n_axes, err))
        return OPSNN_E_SHAPE;
    const opsnn_value *x = node->inputs[0];
    opsnn_value *y = outputs[0];
    const uint32_t rank = x->rank + (uint32_t)p->n_axes;
    if (rank > OPSNN_MAX_RANK)
        return opsnn_bad(err, "x %s and %d more dimensions are beyond rank %d", opsnn_shape(x).s, (int)p->n_axes,
                         OPSNN_MAX_RANK);
    uint32_t fresh; /* axes are those of the result */
    if (opsnn_check_axes(p->n_axes, p->axes, rank, &fresh, err)) return OPSNN_E_SHAPE;
    y->dtype = x->dtype;
    y->rank = rank;
    for (uint32_t i = 0, from = 0; i < rank; i++) y->dims[i] = fresh >> i & 1 ? 1 : x->dims[from++];
    return OPSNN_OK;
}

const opsnn_rule opsnn_rule_unsqueeze = {infer, opsnn_macs_none};
