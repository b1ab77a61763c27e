#include <math.h>

#include "ref/unary.h"

/* Phi(x) is erfc(-x / sqrt(2)) / 2: unlike 1 + erf, exact where it is tiny. */
static float f(const void *params, float x) {
    const opsnn_gelu_params *p = params;
    if (p->approximate == OPSNN_GELU_APPROXIMATE_TANH)
        return 0.5f * x * (1.0f + tanhf(0.7978845608028654f * (x + 0.044715f * x * x * x))); /* sqrt(2 / pi) */
    return 0.5f * x * erfcf(-0.7071067811865476f * x);                                       /* sqrt(1 / 2) */
}
OPSNN_UNARY_MAP(f)
static void run(const opsnn_call *call, uint32_t task) {
    opsnn_unary_run(call, task, map);
}

const opsnn_kernel opsnn_k_gelu_f32_any_ref = {
    .name = "gelu_f32_any_ref",
    .op = OPSNN_OP_GELU,
    .dtype = OPSNN_DTYPE_F32,
    .flags = OPSNN_KERNEL_TAIL,
    .plan = opsnn_ref_plan_libm,
    .run = run,
    .map = map,
};
