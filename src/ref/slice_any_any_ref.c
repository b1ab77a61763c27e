#include "ops/axis.h"
#include "ops/slice.h"
#include "ref/move.h"

static void run(const opsnn_call *call, uint32_t task) {
    const opsnn_slice_params *p = call->node->params;
    const opsnn_value *x = call->node->inputs[0];
    ptrdiff_t steps[OPSNN_MAX_RANK] = {0}, origin = 0;
    opsnn_dense_steps(x, steps);
    for (int32_t i = 0; i < p->n_starts; i++) {
        const uint32_t axis = p->n_axes ? opsnn_axis(p->axes[i], x->rank) : (uint32_t)i;
        const opsnn_slice_range r = opsnn_slice_resolve(x->dims[axis], p->starts[i], p->ends[i], p->n_steps ? p->steps[i] : 1);
        origin += (ptrdiff_t)r.first * steps[axis];
        /* A range of one element makes no step, and a huge one might overflow. */
        steps[axis] = r.count > 1 ? (ptrdiff_t)r.step * steps[axis] : 0;
    }
    opsnn_move_strided(call, task, origin, steps);
}

const opsnn_kernel opsnn_k_slice_any_any_ref = {
    .name = "slice_any_any_ref",
    .op = OPSNN_OP_SLICE,
    .flags = OPSNN_KERNEL_TAIL,
    .plan = opsnn_ref_plan_elements,
    .run = run,
};
