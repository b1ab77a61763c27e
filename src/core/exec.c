/* Running a plan. Everything is prepared when the executor is made: a run walks over the nodes and hands out tasks. */
#define _POSIX_C_SOURCE 200809L /* clock_gettime */
#include <time.h>

#include "plan.h"

struct opsnn_exec {
    opsnn_plan *plan;
    opsnn_pool *pool;
    unsigned char *arena, *own_arena;
    unsigned char *scratch; /* scratch_bytes of the plan for each thread */
    opsnn_call *calls;      /* one per node; unused for views */
    const void **pointers;  /* what the calls point to */
    double *times;
};

static void *data_of(const opsnn_exec *exec, const opsnn_value *v) {
    if (!v) return NULL;
    if (v->data) return (void *)(uintptr_t)v->data; /* kernels do not write to inputs, nor nodes to constants */
    return exec->arena + exec->plan->offsets[v - exec->plan->values];
}

/* The plan may have been made for another machine. */
static opsnn_status check_cpu(const opsnn_plan *plan, opsnn_error *err) {
    const uint32_t cpu = opsnn_cpu_features();
    for (uint32_t k = 0; k < plan->info.n_nodes; k++) {
        const opsnn_step *step = &plan->steps[k];
        uint32_t needs = step->kernel ? step->kernel->cpu : 0;
        for (uint32_t t = 0; t < step->node.n_tail; t++) needs |= step->node.tail[t].kernel->cpu;
        if (needs & ~cpu)
            return opsnn_fail(err, OPSNN_E_CPU, (int32_t)k,
                              "the plan was made for '%s': node '%.80s' needs %s, which this CPU lacks", plan->target.name,
                              step->node.name, opsnn_cpu_names(needs & ~cpu).s);
    }
    return OPSNN_OK;
}

static opsnn_status prepare(opsnn_exec *exec, void *arena, size_t arena_bytes, opsnn_error *err) {
    const opsnn_plan *plan = exec->plan;
    const size_t scratch = (size_t)plan->info.scratch_bytes, n_threads = opsnn_pool_n_threads(exec->pool);
    if (arena && (arena_bytes < plan->info.arena_bytes || (uintptr_t)arena % OPSNN_ALIGN))
        return opsnn_fail(err, OPSNN_E_ARGUMENT, -1,
                          "the arena of %zu bytes at %p must have at least %zu bytes and lie at a multiple of %d", arena_bytes,
                          arena, (size_t)plan->info.arena_bytes, OPSNN_ALIGN);
    size_t n_pointers = 0;
    for (uint32_t k = 0; k < plan->info.n_nodes; k++) {
        const opsnn_node *node = &plan->steps[k].node;
        n_pointers += (size_t)node->n_inputs + node->n_outputs + node->n_tail;
    }
    exec->arena = arena ? arena : (exec->own_arena = opsnn_alloc((size_t)plan->info.arena_bytes));
    exec->calls = opsnn_alloc(plan->info.n_nodes * sizeof *exec->calls); /* a plan's steps, which exist, are larger */
    exec->pointers = opsnn_alloc(n_pointers * sizeof *exec->pointers);   /* so do that many operands and tails */
    if (scratch) exec->scratch = n_threads > PTRDIFF_MAX / scratch ? NULL : opsnn_alloc(n_threads * scratch);
    if (!exec->arena || !exec->calls || !exec->pointers || (scratch && !exec->scratch))
        return opsnn_fail(err, OPSNN_E_MEMORY, -1,
                          "no memory to run the plan: its arena takes %zu bytes, and each of %zu threads %zu bytes",
                          (size_t)plan->info.arena_bytes, n_threads, scratch);
    const void **next = exec->pointers;
    for (uint32_t k = 0; k < plan->info.n_nodes; k++) {
        const opsnn_step *step = &plan->steps[k];
        const opsnn_node *node = &step->node;
        const void **in = next, **tail_in = in + node->n_inputs;
        void **out = (void **)(void *)(tail_in + node->n_tail);
        next = tail_in + node->n_tail + node->n_outputs;
        for (uint32_t i = 0; i < node->n_inputs; i++) in[i] = data_of(exec, node->inputs[i]);
        for (uint32_t t = 0; t < node->n_tail; t++) tail_in[t] = data_of(exec, node->tail[t].other);
        for (uint32_t i = 0; i < node->n_outputs; i++) out[i] = data_of(exec, node->outputs[i]);
        exec->calls[k] = (opsnn_call){node, &step->fit, step->packed, in, out, tail_in, NULL};
    }
    return OPSNN_OK;
}

opsnn_status opsnn_exec_create(opsnn_plan *plan, opsnn_pool *pool, void *arena, size_t arena_bytes, opsnn_exec **exec,
                               opsnn_error *err) {
    if (exec) *exec = NULL;
    if (!plan || !exec) return opsnn_fail(err, OPSNN_E_ARGUMENT, -1, "opsnn_exec_create: plan and exec must not be NULL");
    if (plan->flags & OPSNN_PLAN_NO_PACK)
        return opsnn_fail(err, OPSNN_E_ARGUMENT, -1, "the plan was made with OPSNN_PLAN_NO_PACK: it can be looked at, not run");
    opsnn_status status = check_cpu(plan, err);
    if (status != OPSNN_OK) return status;
    opsnn_exec *e = opsnn_alloc(sizeof *e);
    if (!e) return opsnn_fail(err, OPSNN_E_MEMORY, -1, "no memory for an executor");
    e->plan = plan;
    e->pool = pool;
    opsnn_plan_retain(plan);
    if (pool) opsnn_pool_retain(pool);
    status = prepare(e, arena, arena_bytes, err);
    if (status == OPSNN_OK)
        *exec = e;
    else
        opsnn_exec_free(e);
    return status;
}

void opsnn_exec_free(opsnn_exec *exec) {
    if (!exec) return;
    opsnn_release(exec->scratch);
    opsnn_release(exec->pointers);
    opsnn_release(exec->calls);
    opsnn_release(exec->own_arena);
    opsnn_pool_free(exec->pool);
    opsnn_plan_free(exec->plan);
    opsnn_release(exec);
}

void *opsnn_exec_input(opsnn_exec *exec, uint32_t index) {
    if (!exec || index >= exec->plan->info.n_inputs) return NULL;
    return data_of(exec, &exec->plan->values[opsnn_model_index(&exec->plan->model->inputs, index)]);
}

const void *opsnn_exec_output(const opsnn_exec *exec, uint32_t index) {
    if (!exec || index >= exec->plan->info.n_outputs) return NULL;
    return data_of(exec, &exec->plan->values[opsnn_model_index(&exec->plan->model->outputs, index)]);
}

void opsnn_exec_set_times(opsnn_exec *exec, double *times) {
    if (exec) exec->times = times;
}

typedef struct running {
    const opsnn_exec *exec;
    uint32_t node;
} running;

static void run_task(void *arg, uint32_t task, uint32_t thread) {
    const running *r = arg;
    const opsnn_plan *plan = r->exec->plan;
    opsnn_call call = r->exec->calls[r->node];
    if (r->exec->scratch) call.scratch = r->exec->scratch + thread * (size_t)plan->info.scratch_bytes;
    plan->steps[r->node].kernel->run(&call, task);
}

static double now_ns(void) {
    struct timespec t = {0, 0};
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

opsnn_status opsnn_exec_run(opsnn_exec *exec, opsnn_error *err) {
    if (!exec) return opsnn_fail(err, OPSNN_E_ARGUMENT, -1, "opsnn_exec_run: exec must not be NULL");
    const opsnn_plan *plan = exec->plan;
    for (uint32_t k = 0; k < plan->info.n_nodes; k++) {
        const double start = exec->times ? now_ns() : 0;
        running r = {exec, k};
        /* A result without elements is no work, however large its other dimensions are. */
        const int has_work = plan->steps[k].kernel && plan->steps[k].node.outputs[0]->bytes != 0;
        if (has_work) opsnn_pool_run(exec->pool, plan->steps[k].fit.n_tasks, run_task, &r);
        if (exec->times) exec->times[k] = now_ns() - start;
    }
    return OPSNN_OK;
}
