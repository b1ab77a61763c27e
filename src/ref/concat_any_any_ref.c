/* A task is a range of the outer dimensions, before the axis: for each of them every input gives one piece. */
#include "ops/axis.h"
#include "ref/split.h"

static size_t outer_of(const opsnn_node *node) {
    const opsnn_concat_params *p = node->params;
    return (size_t)opsnn_count(node->outputs[0]->dims, opsnn_axis(p->axis, node->outputs[0]->rank));
}

static int plan(const opsnn_node *node, const opsnn_target *target, opsnn_fit *fit) {
    return opsnn_ref_fit(node, target, OPSNN_REF_EFFICIENCY, opsnn_ref_tasks(outer_of(node), 1), fit);
}

static void run(const opsnn_call *call, uint32_t task) {
    const opsnn_concat_params *p = call->node->params;
    const opsnn_value *y = call->node->outputs[0];
    const uint32_t axis = opsnn_axis(p->axis, y->rank);
    const size_t size = opsnn_dtype_bytes(y->dtype), row = (size_t)opsnn_count(y->dims + axis, y->rank - axis);
    const opsnn_ref_range part = opsnn_ref_part(call, task, outer_of(call->node));
    for (size_t outer = part.first; outer < part.end; outer++) {
        unsigned char *to = (unsigned char *)call->out[0] + outer * row * size;
        for (uint32_t i = 0; i < call->node->n_inputs; i++) {
            const opsnn_value *x = call->node->inputs[i];
            const size_t piece = (size_t)opsnn_count(x->dims + axis, x->rank - axis) * size;
            if (piece) memcpy(to, (const unsigned char *)call->in[i] + outer * piece, piece);
            to += piece;
        }
    }
    opsnn_tail_apply(call, part.first * row, (part.end - part.first) * row);
}

const opsnn_kernel opsnn_k_concat_any_any_ref = {
    .name = "concat_any_any_ref",
    .op = OPSNN_OP_CONCAT,
    .flags = OPSNN_KERNEL_TAIL,
    .plan = plan,
    .run = run,
};
