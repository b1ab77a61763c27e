/* Mean over height and width, summed in double. */
#include "ref/global_pool.h"

static float channel(const float *x, size_t n, size_t step) {
    double sum = 0.0;
    for (size_t i = 0; i < n; i++) sum += (double)x[i * step];
    return (float)(sum / (double)n);
}

static void run(const opsnn_call *call, uint32_t task) {
    opsnn_global_pool_run(call, task, channel);
}

const opsnn_kernel opsnn_k_global_average_pool_f32_nhwc_ref = {
    .name = "global_average_pool_f32_nhwc_ref",
    .op = OPSNN_OP_GLOBAL_AVERAGE_POOL,
    .dtype = OPSNN_DTYPE_F32,
    .layout = OPSNN_LAYOUT_NHWC,
    .flags = OPSNN_KERNEL_TAIL,
    .plan = opsnn_global_pool_plan,
    .run = run,
};
