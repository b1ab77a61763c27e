/* Joins tensors along an axis. */
#include "ops/rule.h"

static opsnn_status infer(const opsnn_node *node, opsnn_value *const *outputs, opsnn_error *err) {
    const opsnn_concat_params *p = node->params;
    if (opsnn_check_inputs(node, node->n_inputs, OPSNN_CLASS_ANY, OPSNN_BLOCKED_NONE, err) ||
        opsnn_check_axis("axis", p->axis, node->inputs[0]->rank, err))
        return OPSNN_E_SHAPE;
    const opsnn_value *first = node->inputs[0];
    const uint32_t axis = opsnn_axis(p->axis, first->rank);
    int64_t joined = 0; /* at most 32 dims of int32: no overflow */
    for (uint32_t i = 0; i < node->n_inputs; i++) {
        const opsnn_value *v = node->inputs[i];
        int same = v->rank == first->rank;
        for (uint32_t d = 0; same && d < first->rank; d++) same = d == axis || v->dims[d] == first->dims[d];
        if (!same)
            return opsnn_bad(err, "input %u is %s, which cannot be joined to %s along axis %u", (unsigned)i, opsnn_shape(v).s,
                             opsnn_shape(first).s, (unsigned)axis);
        joined += v->dims[axis];
    }
    opsnn_set_like(outputs[0], first);
    return opsnn_set_dim(outputs[0], axis, joined, err);
}

const opsnn_rule opsnn_rule_concat = {infer, opsnn_macs_none};
