/* Matrix product, as numpy.matmul: one-dimensional operands lose their added dimension again, leading dimensions broadcast. */
#include "ops/broadcast.h"
#include "ops/rule.h"

static opsnn_status infer(const opsnn_node *node, opsnn_value *const *outputs, opsnn_error *err) {
    const opsnn_matmul_params *p = node->params;
    if (opsnn_check_inputs(node, 2, OPSNN_CLASS_FLOAT, 1, err) || opsnn_check_clamp(p->lo, p->hi, err) ||
        opsnn_check_bool("trans_b", p->trans_b, err))
        return OPSNN_E_SHAPE;
    const opsnn_value *a = node->inputs[0], *b = node->inputs[1], *c = opsnn_input(node, 2);
    if (a->rank == 0 || b->rank == 0)
        return opsnn_bad(err, "a is %s and b %s, but both need a dimension", opsnn_shape(a).s, opsnn_shape(b).s);
    if (p->trans_b && b->rank < 2) return opsnn_bad(err, "b is %s, which cannot be transposed", opsnn_shape(b).s);
    if (b->block > 1 && !(p->trans_b && b->rank == 2))
        return opsnn_bad(err, "b is stored in blocks of %u, so it must be [N, K] with trans_b 1", (unsigned)b->block);
    const int b_row = b->rank >= 2; /* b has a dimension N, a one M */
    const int a_row = a->rank >= 2;
    const int32_t k = a->dims[a->rank - 1];
    const int32_t b_k = b->dims[b->rank - (b_row && !p->trans_b ? 2 : 1)];
    if (k != b_k)
        return opsnn_bad(err, "a %s and b %s%s cannot be multiplied: rows of %d, columns of %d", opsnn_shape(a).s,
                         opsnn_shape(b).s, p->trans_b ? " transposed" : "", (int)k, (int)b_k);
    opsnn_value *y = outputs[0];
    y->dtype = a->dtype;
    const uint32_t a_batch = a_row ? a->rank - 2 : 0, b_batch = b_row ? b->rank - 2 : 0;
    if (!opsnn_broadcast(a->dims, a_batch, b->dims, b_batch, y->dims))
        return opsnn_bad(err, "leading dimensions of a %s and b %s do not broadcast", opsnn_shape(a).s, opsnn_shape(b).s);
    y->rank = a_batch > b_batch ? a_batch : b_batch;
    if (a_row) y->dims[y->rank++] = a->dims[a->rank - 2];
    if (b_row) y->dims[y->rank++] = b->dims[b->rank - (p->trans_b ? 2 : 1)];
    if (c && !(b_row && c->rank == 1 && c->dims[0] == y->dims[y->rank - 1]))
        return opsnn_bad(err, "c is %s, but must be one number for each column of b %s%s", opsnn_shape(c).s, opsnn_shape(b).s,
                         p->trans_b ? " transposed" : "");
    return OPSNN_OK;
}

static uint64_t macs(const opsnn_node *node) {
    const opsnn_value *a = node->inputs[0], *y = node->outputs[0];
    return (uint64_t)opsnn_mul_sat(opsnn_count_sat(y->dims, y->rank), a->dims[a->rank - 1]);
}

const opsnn_rule opsnn_rule_matmul = {infer, macs};
