#include <math.h>

#include "ref/binary.h"

static float f(float a, float b) {
    return powf(a, b);
}
OPSNN_BINARY_MAP(f, opsnn_pow_params)
static void run(const opsnn_call *call, uint32_t task) {
    opsnn_binary_run(call, task, map);
}

const opsnn_kernel opsnn_k_pow_f32_any_ref = {
    .name = "pow_f32_any_ref",
    .op = OPSNN_OP_POW,
    .dtype = OPSNN_DTYPE_F32,
    .flags = OPSNN_KERNEL_TAIL,
    .plan = opsnn_ref_plan_libm,
    .run = run,
    .map = map,
};
