/* Kernels made for the planner's tests: each shows one behaviour that the chooser or the executor must deal with. They stand
   in for real ones in a library that the tests build (library.py); their names decide what the generated table makes of them. */
#include "kernel.h"

extern const opsnn_kernel opsnn_k_add_f32_any_ref, opsnn_k_conv2d_f32_nhwc_ref, opsnn_k_softmax_f32_any_ref;

/* Can what the reference does, at a price. */
static int cheap(const opsnn_node *node, const opsnn_target *target, opsnn_fit *fit) {
    (void)node;
    (void)target;
    fit->predicted_ns = 1;
    fit->n_tasks = 1;
    return 1;
}

/* --- add: very fast, but for newer CPUs only, for equal shapes only, and without fused steps --- */
static int plan_add(const opsnn_node *node, const opsnn_target *target, opsnn_fit *fit) {
    if (opsnn_elements(node->inputs[0]) != opsnn_elements(node->inputs[1])) {
        fit->why = "equal shapes only";
        return 0;
    }
    return cheap(node, target, fit);
}
static void run_add(const opsnn_call *call, uint32_t task) { opsnn_k_add_f32_any_ref.run(call, task); }
const opsnn_kernel opsnn_k_add_f32_any_equal_neondot = {
    .name = "add_f32_any_equal_neondot",
    .op = OPSNN_OP_ADD,
    .dtype = OPSNN_DTYPE_F32,
    .cpu = OPSNN_CPU_NEON | OPSNN_CPU_FMA | OPSNN_CPU_DOTPROD,
    .plan = plan_add,
    .run = run_add,
};

/* --- tanh: there is no other kernel for it here --- */
static void run_nothing(const opsnn_call *call, uint32_t task) {
    (void)call;
    (void)task;
}
const opsnn_kernel opsnn_k_tanh_f32_any_neonfp16 = {
    .name = "tanh_f32_any_neonfp16",
    .op = OPSNN_OP_TANH,
    .dtype = OPSNN_DTYPE_F32,
    .cpu = OPSNN_CPU_NEON | OPSNN_CPU_FMA | OPSNN_CPU_FP16,
    .plan = cheap,
    .run = run_nothing,
};

/* --- sqrt: claims nonsense, and one task less than there can be --- */
static int plan_nonsense(const opsnn_node *node, const opsnn_target *target, opsnn_fit *fit) {
    (void)node;
    (void)target;
    const volatile double zero = 0;
    fit->predicted_ns = zero / zero;
    fit->n_tasks = 0;
    return 1;
}
const opsnn_kernel opsnn_k_sqrt_f32_any_nan_neon = {
    .name = "sqrt_f32_any_nan_neon",
    .op = OPSNN_OP_SQRT,
    .dtype = OPSNN_DTYPE_F32,
    .plan = plan_nonsense,
    .run = run_nothing,
};

/* --- conv2d with packed weights: the form is "negated", so that a kernel that reads the wrong bytes shows --- */
static size_t n_weights(const opsnn_node *node) { return opsnn_elements(node->inputs[1]); }
static int plan_conv(const opsnn_node *node, const opsnn_target *target, opsnn_fit *fit) {
    if (!node->inputs[1]->data) {
        fit->why = "the weights are no constant";
        return 0;
    }
    opsnn_k_conv2d_f32_nhwc_ref.plan(node, target, fit);
    fit->predicted_ns /= 2;
    fit->packed_bytes = n_weights(node) * sizeof(float);
    fit->scratch_bytes = n_weights(node) * sizeof(float);
    fit->tile[3] = 4711;
    return 1;
}
static void pack_conv(const opsnn_node *node, const opsnn_fit *fit, void *packed) {
    const float *w = node->inputs[1]->data;
    float *to = packed;
    for (size_t i = 0; i < n_weights(node); i++) to[i] = fit->tile[3] == 4711 ? -w[i] : 0.0f;
}
static void run_conv(const opsnn_call *call, uint32_t task) {
    const float *packed = call->packed;
    float *weights = call->scratch;
    for (size_t i = 0; i < n_weights(call->node); i++) weights[i] = -packed[i];
    const void *in[3] = {call->in[0], weights, call->node->n_inputs > 2 ? call->in[2] : NULL};
    opsnn_call changed = *call;
    changed.in = in;
    opsnn_k_conv2d_f32_nhwc_ref.run(&changed, task);
}
const opsnn_kernel opsnn_k_conv2d_f32_nhwc_pack_neon = {
    .name = "conv2d_f32_nhwc_pack_neon",
    .op = OPSNN_OP_CONV2D,
    .dtype = OPSNN_DTYPE_F32,
    .layout = OPSNN_LAYOUT_NHWC,
    .flags = OPSNN_KERNEL_TAIL,
    .cpu = OPSNN_CPU_NEON,
    .plan = plan_conv,
    .pack = pack_conv,
    .run = run_conv,
};

/* --- softmax that would spoil its result if two threads shared scratch memory, or if it were too small or unaligned --- */
enum { SCRATCH = 1000 };
static int plan_softmax(const opsnn_node *node, const opsnn_target *target, opsnn_fit *fit) {
    opsnn_k_softmax_f32_any_ref.plan(node, target, fit);
    fit->predicted_ns /= 2;
    fit->scratch_bytes = SCRATCH;
    return 1;
}
static void run_softmax(const opsnn_call *call, uint32_t task) {
    volatile unsigned char *scratch = call->scratch;
    for (uint32_t round = 0; round < 20; round++) {
        for (size_t i = 0; i < SCRATCH; i++) scratch[i] = (unsigned char)(task + round);
        for (size_t i = 0; i < SCRATCH; i++)
            if (scratch[i] != (unsigned char)(task + round) || (uintptr_t)scratch % 64) return;
    }
    opsnn_k_softmax_f32_any_ref.run(call, task);
}
const opsnn_kernel opsnn_k_softmax_f32_any_scratch_neon = {
    .name = "softmax_f32_any_scratch_neon",
    .op = OPSNN_OP_SOFTMAX,
    .dtype = OPSNN_DTYPE_F32,
    .flags = OPSNN_KERNEL_TAIL,
    .cpu = OPSNN_CPU_NEON,
    .plan = plan_softmax,
    .run = run_softmax,
};
