#include <math.h>

#include "ref/unary.h"

static float f(const void *params, float x) {
    const opsnn_celu_params *p = params;
    const float below = p->alpha * expm1f(x / p->alpha);
    return (x > 0.0f ? x : 0.0f) + (below > 0.0f ? 0.0f : below);
}
OPSNN_UNARY_MAP(f)
static void run(const opsnn_call *call, uint32_t task) {
    opsnn_unary_run(call, task, map);
}

const opsnn_kernel opsnn_k_celu_f32_any_ref = {
    .name = "celu_f32_any_ref",
    .op = OPSNN_OP_CELU,
    .dtype = OPSNN_DTYPE_F32,
    .flags = OPSNN_KERNEL_TAIL,
    .plan = opsnn_ref_plan_libm,
    .run = run,
    .map = map,
};
