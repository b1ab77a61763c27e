#include <math.h>

#include "ref/unary.h"

/* softplus as softplus_f32_any_ref.c has it. */
static float f(const void *params, float x) {
    (void)params;
    return x * tanhf(x > 0.0f ? x + log1pf(expf(-x)) : log1pf(expf(x)));
}
OPSNN_UNARY_MAP(f)
static void run(const opsnn_call *call, uint32_t task) {
    opsnn_unary_run(call, task, map);
}

const opsnn_kernel opsnn_k_mish_f32_any_ref = {
    .name = "mish_f32_any_ref",
    .op = OPSNN_OP_MISH,
    .dtype = OPSNN_DTYPE_F32,
    .flags = OPSNN_KERNEL_TAIL,
    .plan = opsnn_ref_plan_libm,
    .run = run,
    .map = map,
};
