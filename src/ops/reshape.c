/* The same elements under another shape. */
#include "ops/rule.h"

static opsnn_status infer(const opsnn_node *node, opsnn_value *const *outputs, opsnn_error *err) {
    const opsnn_reshape_params *p = node->params;
    if (opsnn_check_inputs(node, 1, OPSNN_CLASS_ANY, OPSNN_BLOCKED_NONE, err) ||
        opsnn_check_bool("allowzero", p->allowzero, err))
        return OPSNN_E_SHAPE;
    const opsnn_value *x = node->inputs[0];
    opsnn_value *y = outputs[0];
    if (p->n_shape < 0 || p->n_shape > OPSNN_MAX_RANK)
        return opsnn_bad(err, "the shape has %d dimensions, not 0 to %d", (int)p->n_shape, OPSNN_MAX_RANK);
    y->dtype = x->dtype;
    y->rank = (uint32_t)p->n_shape;
    int open = -1; /* the dimension that is -1 */
    for (int i = 0; i < p->n_shape; i++) {
        int32_t d = p->shape[i];
        if (d < -1) return opsnn_bad(err, "dimension %d of the shape is %d", i, (int)d);
        if (d == -1 && open >= 0) return opsnn_bad(err, "dimensions %d and %d of the shape are both -1", open, i);
        if (d == -1) {
            open = i;
            d = 1; /* until the others are known */
        } else if (d == 0 && !p->allowzero) {
            if ((uint32_t)i >= x->rank)
                return opsnn_bad(err, "dimension %d of the shape is 0, but x %s has none to copy", i, opsnn_shape(x).s);
            d = x->dims[i];
        }
        y->dims[i] = d;
    }
    const int64_t from = opsnn_count_sat(x->dims, x->rank), to = opsnn_count_sat(y->dims, y->rank);
    if (open >= 0) {
        if (to == 0) return opsnn_bad(err, "-1 in the shape is not determined, since another dimension is 0");
        if (from % to)
            return opsnn_bad(err, "x %s has %lld elements, no multiple of the %lld of the shape's other dimensions",
                             opsnn_shape(x).s, (long long)from, (long long)to);
        return opsnn_set_dim(y, (uint32_t)open, from / to, err);
    }
    if (from != to || from == INT64_MAX)
        return opsnn_bad(err, "x %s has %lld elements, the shape %s has %lld", opsnn_shape(x).s, (long long)from,
                         opsnn_shape(y).s, (long long)to);
    return OPSNN_OK;
}

const opsnn_rule opsnn_rule_reshape = {infer, opsnn_macs_none};
