#include <math.h>

#include "ref/unary.h"

/* The exponential of a negative number only: it cannot overflow, and small results keep their precision. */
static float f(const void *params, float x) {
    (void)params;
    if (x >= 0.0f) return 1.0f / (1.0f + expf(-x));
    const float e = expf(x);
    return e / (1.0f + e);
}
OPSNN_UNARY_MAP(f)
static void run(const opsnn_call *call, uint32_t task) {
    opsnn_unary_run(call, task, map);
}

const opsnn_kernel opsnn_k_sigmoid_f32_any_ref = {
    .name = "sigmoid_f32_any_ref",
    .op = OPSNN_OP_SIGMOID,
    .dtype = OPSNN_DTYPE_F32,
    .flags = OPSNN_KERNEL_TAIL,
    .plan = opsnn_ref_plan_libm,
    .run = run,
    .map = map,
};
