#include "neon/pool.h"

static void run(const opsnn_call *call, uint32_t task) {
    const opsnn_max_pool_params *p = call->node->params;
    const int32_t *x = call->node->inputs[0]->dims;
    opsnn_window h, w;
    opsnn_window_resolve(0, x[1], p->kernel_shape[0], p->strides, p->dilations, p->pads, p->auto_pad, p->ceil_mode, &h);
    opsnn_window_resolve(1, x[2], p->kernel_shape[1], p->strides, p->dilations, p->pads, p->auto_pad, p->ceil_mode, &w);
    opsnn_neon_pool_run(1, call, task, &h, &w, 0, p->lo, p->hi);
}
static int plan(const opsnn_node *node, const opsnn_target *target, opsnn_fit *fit) {
    return opsnn_neon_pool_plan(node, target, fit);
}

const opsnn_kernel opsnn_k_max_pool_f32_nhwc_neon = {
    .name = "max_pool_f32_nhwc_neon",
    .op = OPSNN_OP_MAX_POOL,
    .dtype = OPSNN_DTYPE_F32,
    .layout = OPSNN_LAYOUT_NHWC,
    .flags = OPSNN_KERNEL_TAIL,
    .cpu = OPSNN_NEON_CPU,
    .plan = plan,
    .run = run,
};
