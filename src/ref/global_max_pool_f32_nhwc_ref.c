/* Maximum over height and width; a NaN wins, as in max_pool. */
#include <math.h>

#include "ref/global_pool.h"

static float channel(const float *x, size_t n, size_t step) {
    float best = -INFINITY;
    for (size_t i = 0; i < n; i++) {
        const float v = x[i * step];
        if (v > best || v != v) best = v;
    }
    return best;
}

static void run(const opsnn_call *call, uint32_t task) {
    opsnn_global_pool_run(call, task, channel);
}

const opsnn_kernel opsnn_k_global_max_pool_f32_nhwc_ref = {
    .name = "global_max_pool_f32_nhwc_ref",
    .op = OPSNN_OP_GLOBAL_MAX_POOL,
    .dtype = OPSNN_DTYPE_F32,
    .layout = OPSNN_LAYOUT_NHWC,
    .flags = OPSNN_KERNEL_TAIL,
    .plan = opsnn_global_pool_plan,
    .run = run,
};
