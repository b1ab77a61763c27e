#include "ref/move.h"

static void run(const opsnn_call *call, uint32_t task) {
    const opsnn_transpose_params *p = call->node->params;
    const opsnn_value *x = call->node->inputs[0];
    ptrdiff_t from[OPSNN_MAX_RANK], steps[OPSNN_MAX_RANK] = {0};
    opsnn_dense_steps(x, from);
    for (uint32_t i = 0; i < x->rank; i++) steps[i] = from[p->n_perm ? (uint32_t)p->perm[i] : x->rank - 1 - i];
    opsnn_move_strided(call, task, 0, steps);
}

const opsnn_kernel opsnn_k_transpose_any_any_ref = {
    .name = "transpose_any_any_ref",
    .op = OPSNN_OP_TRANSPOSE,
    .flags = OPSNN_KERNEL_TAIL,
    .plan = opsnn_ref_plan_moves,
    .run = run,
};
