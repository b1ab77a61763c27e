#include "ref/binary.h"

static float f(float a, float b) {
    return a - b;
}
OPSNN_BINARY_MAP(f, opsnn_sub_params)
static void run(const opsnn_call *call, uint32_t task) {
    opsnn_binary_run(call, task, map);
}

const opsnn_kernel opsnn_k_sub_f32_any_ref = {
    .name = "sub_f32_any_ref",
    .op = OPSNN_OP_SUB,
    .dtype = OPSNN_DTYPE_F32,
    .flags = OPSNN_KERNEL_TAIL,
    .plan = opsnn_ref_plan_elements,
    .run = run,
    .map = map,
};
