#include <math.h>

#include "ref/unary.h"

static float f(const void *params, float x) {
    (void)params;
    return expf(x);
}
OPSNN_UNARY_MAP(f)
static void run(const opsnn_call *call, uint32_t task) {
    opsnn_unary_run(call, task, map);
}

const opsnn_kernel opsnn_k_exp_f32_any_ref = {
    .name = "exp_f32_any_ref",
    .op = OPSNN_OP_EXP,
    .dtype = OPSNN_DTYPE_F32,
    .flags = OPSNN_KERNEL_TAIL,
    .plan = opsnn_ref_plan_libm,
    .run = run,
    .map = map,
};
