#include <math.h>

#include "ref/unary.h"

/* As the formula says, -inf gives NaN: inf times zero. */
static float f(const void *params, float x) {
    const opsnn_silu_params *p = params;
    const float z = p->alpha * x;
    if (z >= 0.0f) return x / (1.0f + expf(-z));
    const float e = expf(z);
    return x * (e / (1.0f + e));
}
OPSNN_UNARY_MAP(f)
static void run(const opsnn_call *call, uint32_t task) {
    opsnn_unary_run(call, task, map);
}

const opsnn_kernel opsnn_k_silu_f32_any_ref = {
    .name = "silu_f32_any_ref",
    .op = OPSNN_OP_SILU,
    .dtype = OPSNN_DTYPE_F32,
    .flags = OPSNN_KERNEL_TAIL,
    .plan = opsnn_ref_plan_libm,
    .run = run,
    .map = map,
};
