/* A strided part of a tensor. */
#include "ops/slice.h"

#include "ops/rule.h"

static opsnn_status infer(const opsnn_node *node, opsnn_value *const *outputs, opsnn_error *err) {
    const opsnn_slice_params *p = node->params;
    if (opsnn_check_inputs(node, 1, OPSNN_CLASS_ANY, OPSNN_BLOCKED_NONE, err)) return OPSNN_E_SHAPE;
    const opsnn_value *x = node->inputs[0];
    const int32_t n = p->n_starts;
    if (n < 0 || (int64_t)n > (int64_t)x->rank) return opsnn_bad(err, "there are %d starts for x %s", (int)n, opsnn_shape(x).s);
    if (p->n_ends != n) return opsnn_bad(err, "there are %d starts, but %d ends", (int)n, (int)p->n_ends);
    if (p->n_axes != 0 && p->n_axes != n) return opsnn_bad(err, "there are %d starts, but %d axes", (int)n, (int)p->n_axes);
    if (p->n_steps != 0 && p->n_steps != n) return opsnn_bad(err, "there are %d starts, but %d steps", (int)n, (int)p->n_steps);
    uint32_t mask;
    if (opsnn_check_axes(p->n_axes, p->axes, x->rank, &mask, err)) return OPSNN_E_SHAPE;
    opsnn_set_like(outputs[0], x);
    for (int32_t i = 0; i < n; i++) {
        const uint32_t axis = p->n_axes ? opsnn_axis(p->axes[i], x->rank) : (uint32_t)i;
        const int32_t step = p->n_steps ? p->steps[i] : 1;
        if (step == 0) return opsnn_bad(err, "step %d of the slice is 0", (int)i);
        outputs[0]->dims[axis] = (int32_t)opsnn_slice_resolve(x->dims[axis], p->starts[i], p->ends[i], step).count;
    }
    return OPSNN_OK;
}

const opsnn_rule opsnn_rule_slice = {infer, opsnn_macs_none};
