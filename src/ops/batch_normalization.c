/* Batch normalisation in its inference form, in either layout; any number of spatial dimensions. */
#include "ops/rule.h"

static opsnn_status infer(const opsnn_node *node, opsnn_value *const *outputs, opsnn_error *err) {
    static const char *const names[] = {"x", "scale", "bias", "mean", "var"};
    if (opsnn_check_inputs(node, 5, OPSNN_CLASS_FLOAT, OPSNN_BLOCKED_NONE, err)) return OPSNN_E_SHAPE;
    const opsnn_value *x = node->inputs[0];
    if (x->rank < 2) return opsnn_bad(err, "x is %s, but must have at least 2 dimensions", opsnn_shape(x).s);
    const int32_t channels = x->dims[node->layout == OPSNN_LAYOUT_NHWC ? x->rank - 1 : 1];
    for (uint32_t i = 1; i < 5; i++) {
        const opsnn_value *v = node->inputs[i];
        if (v->rank != 1 || v->dims[0] != channels)
            return opsnn_bad(err, "%s is %s, but x %s has %d channels", names[i], opsnn_shape(v).s, opsnn_shape(x).s,
                             (int)channels);
    }
    opsnn_set_like(outputs[0], x);
    return OPSNN_OK;
}

const opsnn_rule opsnn_rule_batch_normalization = {infer, opsnn_macs_elements};
