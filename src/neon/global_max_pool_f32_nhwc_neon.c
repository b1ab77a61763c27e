#include "neon/pool.h"

static void run(const opsnn_call *call, uint32_t task) { opsnn_neon_global_pool_run(1, call, task); }
static int plan(const opsnn_node *node, const opsnn_target *target, opsnn_fit *fit) {
    return opsnn_neon_global_pool_plan(node, target, fit);
}

const opsnn_kernel opsnn_k_global_max_pool_f32_nhwc_neon = {
    .name = "global_max_pool_f32_nhwc_neon",
    .op = OPSNN_OP_GLOBAL_MAX_POOL,
    .dtype = OPSNN_DTYPE_F32,
    .layout = OPSNN_LAYOUT_NHWC,
    .flags = OPSNN_KERNEL_TAIL,
    .cpu = OPSNN_NEON_CPU,
    .plan = plan,
    .run = run,
};
