/* What a library, a plan and its nodes can tell about themselves. */
#include "plan.h"

const opsnn_abi *opsnn_abi_info(void) {
    static const opsnn_abi abi = {
        OPSNN_VERSION_NUMBER,
        7,
        OPSNN_SCHEMA,
        {sizeof(opsnn_error), sizeof(opsnn_tensor_info), sizeof(opsnn_target), sizeof(opsnn_plan_info), sizeof(opsnn_node_info),
         sizeof(opsnn_candidate), OPSNN_MAX_PARAMS_BYTES, 0},
    };
    return &abi;
}

const char *opsnn_build_info(void) {
    return opsnn_build_info_json;
}

const char *opsnn_kernel_name(uint32_t index) {
    for (uint32_t i = 0; i < opsnn_ops_count; i++)
        for (const opsnn_kernel *const *k = opsnn_ops_table[i].kernels; *k; k++)
            if (index-- == 0) return (*k)->name;
    return NULL;
}

void opsnn_plan_get_info(const opsnn_plan *plan, opsnn_plan_info *info) {
    *info = plan->info;
}

static opsnn_status tensor_info(const opsnn_plan *plan, const opsnn_section *list, uint32_t index, opsnn_tensor_info *info) {
    if (!plan || !info || index >= list->count) return OPSNN_E_ARGUMENT;
    const uint32_t tensor = opsnn_model_index(list, index);
    const opsnn_value *v = &plan->values[tensor];
    memset(info, 0, sizeof *info);
    info->name = opsnn_model_string(plan->model, opsnn_model_tensor(plan->model, tensor)->name);
    info->dtype = v->dtype;
    info->rank = v->rank;
    info->block = v->block;
    info->bytes = v->bytes;
    memcpy(info->dims, v->dims, sizeof v->dims);
    return OPSNN_OK;
}

opsnn_status opsnn_plan_input(const opsnn_plan *plan, uint32_t index, opsnn_tensor_info *info) {
    return plan ? tensor_info(plan, &plan->model->inputs, index, info) : OPSNN_E_ARGUMENT;
}

opsnn_status opsnn_plan_output(const opsnn_plan *plan, uint32_t index, opsnn_tensor_info *info) {
    return plan ? tensor_info(plan, &plan->model->outputs, index, info) : OPSNN_E_ARGUMENT;
}

opsnn_status opsnn_plan_node(const opsnn_plan *plan, uint32_t node, opsnn_node_info *info) {
    if (!plan || !info || node >= plan->info.n_nodes) return OPSNN_E_ARGUMENT;
    const opsnn_step *step = &plan->steps[node];
    memset(info, 0, sizeof *info);
    info->name = step->node.name;
    info->op = step->entry->name;
    info->kernel = step->kernel ? step->kernel->name : "view";
    info->n_inputs = step->node.n_inputs;
    info->n_outputs = step->node.n_outputs;
    info->n_tail = step->node.n_tail;
    info->n_tasks = step->fit.n_tasks;
    info->macs = step->node.macs;
    info->moved_bytes = step->node.moved_bytes;
    info->predicted_ns = step->predicted_ns;
    for (uint32_t t = 0; t < step->node.n_tail; t++) info->tail_kernels[t] = step->node.tail[t].kernel->name;
    return OPSNN_OK;
}

uint32_t opsnn_plan_candidates(const opsnn_plan *plan, uint32_t node, opsnn_candidate *candidates, uint32_t capacity) {
    if (!plan || node >= plan->info.n_nodes) return 0;
    const opsnn_step *step = &plan->steps[node];
    uint32_t n = 0;
    if (!step->kernel) return 0; /* a view: nothing to choose */
    for (const opsnn_kernel *const *k = step->entry->kernels; *k; k++, n++) {
        if (!candidates || n >= capacity) continue;
        opsnn_fit fit;
        opsnn_candidate *c = &candidates[n];
        memset(c, 0, sizeof *c);
        c->kernel = (*k)->name;
        c->why = opsnn_try(*k, &step->node, &plan->target, plan->flags, &fit);
        if (!c->why) c->predicted_ns = opsnn_parallel_ns(&fit, &plan->target);
        c->chosen = *k == step->kernel;
    }
    return n;
}
