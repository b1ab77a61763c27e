#include "ref/binary.h"

/* A NaN wins from either side: the comparison is false if b is one. */
static float f(float a, float b) {
    return a > b || a != a ? a : b;
}
OPSNN_BINARY_MAP(f, opsnn_max_params)
static void run(const opsnn_call *call, uint32_t task) {
    opsnn_binary_run(call, task, map);
}

const opsnn_kernel opsnn_k_max_f32_any_ref = {
    .name = "max_f32_any_ref",
    .op = OPSNN_OP_MAX,
    .dtype = OPSNN_DTYPE_F32,
    .flags = OPSNN_KERNEL_TAIL,
    .plan = opsnn_ref_plan_elements,
    .run = run,
    .map = map,
};
