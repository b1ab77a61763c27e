/* Permutes the axes. */
#include "ops/rule.h"

static opsnn_status infer(const opsnn_node *node, opsnn_value *const *outputs, opsnn_error *err) {
    const opsnn_transpose_params *p = node->params;
    if (opsnn_check_inputs(node, 1, OPSNN_CLASS_ANY, OPSNN_BLOCKED_NONE, err)) return OPSNN_E_SHAPE;
    const opsnn_value *x = node->inputs[0];
    opsnn_value *y = outputs[0];
    if (p->n_perm != 0 && (int64_t)p->n_perm != (int64_t)x->rank)
        return opsnn_bad(err, "perm has %d entries, but x %s has rank %u", (int)p->n_perm, opsnn_shape(x).s, (unsigned)x->rank);
    uint32_t seen = 0;
    for (uint32_t i = 0; i < x->rank; i++) {
        const int32_t from = p->n_perm ? p->perm[i] : (int32_t)(x->rank - 1 - i);
        if (from < 0 || (uint32_t)from >= x->rank || (seen >> from & 1))
            return opsnn_bad(err, "perm is no permutation: entry %u is %d", (unsigned)i, (int)from);
        seen |= 1u << from;
        y->dims[i] = x->dims[from];
    }
    y->rank = x->rank;
    y->dtype = x->dtype;
    return OPSNN_OK;
}

const opsnn_rule opsnn_rule_transpose = {infer, opsnn_macs_none};
