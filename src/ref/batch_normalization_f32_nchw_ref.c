#include "ref/batch_normalization.h"

static void run(const opsnn_call *call, uint32_t task) {
    const opsnn_value *x = call->node->inputs[0];
    opsnn_batch_normalization_run(call, task, (size_t)x->dims[1], (size_t)opsnn_count(x->dims + 2, x->rank - 2));
}

const opsnn_kernel opsnn_k_batch_normalization_f32_nchw_ref = {
    .name = "batch_normalization_f32_nchw_ref",
    .op = OPSNN_OP_BATCH_NORMALIZATION,
    .dtype = OPSNN_DTYPE_F32,
    .layout = OPSNN_LAYOUT_NCHW,
    .flags = OPSNN_KERNEL_TAIL,
    .plan = opsnn_ref_plan_elements,
    .run = run,
};
