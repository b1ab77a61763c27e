#include <math.h>

#include "ref/unary.h"

/* In the rounding mode that every program starts with: halves to even. */
static float f(const void *params, float x) {
    (void)params;
    return rintf(x);
}
OPSNN_UNARY_MAP(f)
static void run(const opsnn_call *call, uint32_t task) {
    opsnn_unary_run(call, task, map);
}

const opsnn_kernel opsnn_k_round_f32_any_ref = {
    .name = "round_f32_any_ref",
    .op = OPSNN_OP_ROUND,
    .dtype = OPSNN_DTYPE_F32,
    .flags = OPSNN_KERNEL_TAIL,
    .plan = opsnn_ref_plan_elements,
    .run = run,
    .map = map,
};
