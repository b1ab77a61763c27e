/* Kernels that are wrong on purpose: the harness must see each fault (check --self-test). */
#include <math.h>
#include <signal.h>
#include <string.h>

#include "check.h"

static int plan_any(const opsnn_node *node, const opsnn_target *target, opsnn_fit *fit) {
    (void)target;
    if (node->inputs[0]->bytes != node->outputs[0]->bytes || node->inputs[1]->bytes != node->outputs[0]->bytes) {
        fit->why = "operands of unequal shape";
        return 0;
    }
    fit->n_tasks = 2;
    return 1;
}

static float bounded(const opsnn_add_params *p, float x) { return x < p->lo ? p->lo : x > p->hi ? p->hi : x; }

/* The right sum over one of two halves. */
static void add_half(const opsnn_call *call, uint32_t task) {
    const opsnn_add_params *p = call->node->params;
    const float *a = call->in[0], *b = call->in[1];
    float *y = call->out[0];
    const size_t n = opsnn_elements(call->node->outputs[0]), half = n / 2;
    for (size_t i = task ? half : 0; i < (task ? n : half); i++) y[i] = bounded(p, a[i] + b[i]);
}

static void over_read(const opsnn_call *call, uint32_t task) {
    add_half(call, task);
    volatile const float *a = call->in[0];
    (void)a[opsnn_elements(call->node->outputs[0])];
}

static void under_write(const opsnn_call *call, uint32_t task) {
    add_half(call, task);
    float *y = call->out[0];
    const float keep = y[-1];
    ((volatile float *)y)[-1] = keep;
}

static void leaves_last(const opsnn_call *call, uint32_t task) {
    float *y = call->out[0];
    const size_t n = opsnn_elements(call->node->outputs[0]);
    if (n == 0) return;
    float keep;
    memcpy(&keep, &y[n - 1], sizeof keep);
    add_half(call, task);
    memcpy(&y[n - 1], &keep, sizeof keep);
}

static void order_matters(const opsnn_call *call, uint32_t task) {
    add_half(call, task);
    float *y = call->out[0];
    if (task == 0 && opsnn_elements(call->node->outputs[0]) > 1) y[0] = nextafterf(y[0], y[opsnn_elements(call->node->outputs[0]) - 1]);
}

static void loses_nan(const opsnn_call *call, uint32_t task) {
    add_half(call, task);
    float *y = call->out[0];
    for (size_t i = 0; i < opsnn_elements(call->node->outputs[0]); i++)
        if (isnan(y[i])) y[i] = 0;
}

static void writes_input(const opsnn_call *call, uint32_t task) {
    add_half(call, task);
    if (opsnn_elements(call->node->outputs[0])) *(volatile float *)(uintptr_t)call->in[1] = 0;
}

static void illegal(const opsnn_call *call, uint32_t task) {
    (void)call;
    (void)task;
    raise(SIGILL);
}

#define BROKEN(fn) \
    static const opsnn_kernel k_##fn = {.name = "add_" #fn, .op = OPSNN_OP_ADD, .dtype = OPSNN_DTYPE_F32, .plan = plan_any, .run = fn}
BROKEN(over_read);
BROKEN(under_write);
BROKEN(leaves_last);
BROKEN(order_matters);
BROKEN(loses_nan);
BROKEN(writes_input);
BROKEN(illegal);

const check_broken check_brokens[] = {
    {"reads past the end", &k_over_read},
    {"writes before the start", &k_under_write},
    {"leaves the last element", &k_leaves_last},
    {"depends on the order of tasks", &k_order_matters},
    {"loses NaN", &k_loses_nan},
    {"writes an input", &k_writes_input},
    {"raises a signal", &k_illegal},
};
const uint32_t n_check_brokens = sizeof check_brokens / sizeof *check_brokens;
