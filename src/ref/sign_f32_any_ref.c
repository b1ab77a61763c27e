#include "ref/unary.h"

static float f(const void *params, float x) {
    (void)params;
    return x > 0.0f ? 1.0f : x < 0.0f ? -1.0f : x != x ? x : 0.0f;
}
OPSNN_UNARY_MAP(f)
static void run(const opsnn_call *call, uint32_t task) {
    opsnn_unary_run(call, task, map);
}

const opsnn_kernel opsnn_k_sign_f32_any_ref = {
    .name = "sign_f32_any_ref",
    .op = OPSNN_OP_SIGN,
    .dtype = OPSNN_DTYPE_F32,
    .flags = OPSNN_KERNEL_TAIL,
    .plan = opsnn_ref_plan_elements,
    .run = run,
    .map = map,
};
