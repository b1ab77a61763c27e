/* From a verified model, a target and input shapes to a plan: a kernel for every node, a place for every tensor. */
#include <float.h>

#include "plan.h"

static const float default_gflops = 8, default_gbytes_per_s = 4; /* a small 64-bit core of about 1.2 GHz */

/* What is only needed while a plan is made. */
typedef struct builder {
    opsnn_plan *plan;
    opsnn_error *err;
    size_t limit;                /* bytes that the target can address in one piece */
    const opsnn_value **operand; /* the next free ones of the plan's arrays */
    opsnn_tail *tail;
    unsigned char *params;
} builder;

static opsnn_status no_memory(opsnn_error *err, const char *what) {
    return opsnn_fail(err, OPSNN_E_MEMORY, -1, "no memory for %s", what);
}

static opsnn_status fail_node(const builder *b, opsnn_status status, uint32_t index, const opsnn_op_entry *entry,
                              const char *text) {
    const opsnn_model *m = b->plan->model;
    const char *name = opsnn_model_string(m, opsnn_model_node(m, index)->name);
    return opsnn_fail(b->err, status, (int32_t)index, "node '%.80s' (%s): %s", name, entry->name, text);
}

/* --- target --- */
static float positive_or(float x, float otherwise) {
    return x > 0 && x <= FLT_MAX ? x : otherwise;
}

static opsnn_status set_target(builder *b, const opsnn_target *target) {
    opsnn_target *t = &b->plan->target;
    if (target) {
        *t = *target;
    } else {
        const opsnn_status status = opsnn_target_detect(t, b->err);
        if (status != OPSNN_OK) return status;
    }
    t->name[sizeof t->name - 1] = '\0';
    if (t->n_threads == 0) t->n_threads = 1;
    t->gflops = positive_or(t->gflops, default_gflops);
    t->gbytes_per_s = positive_or(t->gbytes_per_s, default_gbytes_per_s);
    b->limit = t->arch == OPSNN_ARCH_ARM && INT32_MAX < PTRDIFF_MAX ? INT32_MAX : PTRDIFF_MAX;
    return OPSNN_OK;
}

/* --- memory --- */
static int uses(const opsnn_model *m, uint32_t op) {
    for (uint32_t i = 0; i < m->nodes.count; i++) {
        const opsnn_file_node *node = opsnn_model_node(m, i);
        if (node->op == op) return 1;
        for (uint32_t t = 0; t < node->n_tail; t++)
            if (opsnn_model_tail(m, node->tails + t)->op == op) return 1;
    }
    return 0;
}

/* An operator that the library lacks: the remedy names all that this model lacks, so that one new build is enough. */
static opsnn_status fail_missing(const builder *b, uint32_t index, uint32_t op) {
    const opsnn_model *m = b->plan->model;
    const opsnn_op_entry *entry = opsnn_op_find(op);
    const char *name = opsnn_model_string(m, opsnn_model_node(m, index)->name);
    char others[320] = "";
    size_t n = 0;
    for (uint32_t i = 0; i < opsnn_ops_count; i++) {
        const opsnn_op_entry *other = &opsnn_ops_table[i];
        const size_t length = strlen(other->name);
        if (other == entry || other->rule || n + length + 2 > sizeof others || !uses(m, other->id)) continue;
        others[n++] = ',';
        memcpy(others + n, other->name, length + 1);
        n += length;
    }
    return opsnn_fail(b->err, OPSNN_E_UNSUPPORTED, (int32_t)index,
                      "node '%.80s' needs %s, which this library was built without: configure.py --ops=+%s%s", name,
                      entry->name, entry->name, others);
}

static opsnn_status allocate(builder *b) {
    opsnn_plan *p = b->plan;
    const opsnn_model *m = p->model;
    uint64_t n_operands = 0, n_tails = 0, params_bytes = 0;
    for (uint32_t i = 0; i < m->nodes.count; i++) {
        const opsnn_file_node *node = opsnn_model_node(m, i);
        const opsnn_op_entry *entry = opsnn_op_find(node->op);
        if (!entry->rule) return fail_missing(b, i, node->op);
        n_operands += (uint64_t)node->n_inputs + node->n_outputs;
        n_tails += node->n_tail;
        params_bytes += entry->params_bytes;
        for (uint32_t t = 0; t < node->n_tail; t++) {
            const uint32_t op = opsnn_model_tail(m, node->tails + t)->op;
            const opsnn_op_entry *step = opsnn_op_find(op);
            if (!step->rule) return fail_missing(b, i, op);
            params_bytes += step->params_bytes;
        }
    }
    p->values = opsnn_alloc_array(m->tensors.count, sizeof *p->values);
    p->offsets = opsnn_alloc_array(m->tensors.count, sizeof *p->offsets);
    p->steps = opsnn_alloc_array(m->nodes.count, sizeof *p->steps);
    b->operand = p->operands = opsnn_alloc_array(n_operands, sizeof *p->operands);
    b->tail = p->tails = opsnn_alloc_array(n_tails, sizeof *p->tails);
    b->params = p->params = opsnn_alloc_array(params_bytes, 1);
    if (!p->values || !p->offsets || !p->steps || !p->operands || !p->tails || !p->params) return no_memory(b->err, "a plan");
    return OPSNN_OK;
}

/* The plan's own copy of parameters, all there and aligned. */
static const void *copy_params(builder *b, const opsnn_op_entry *entry, uint32_t offset, uint32_t bytes) {
    unsigned char *params = b->params;
    b->params += entry->params_bytes;
    memcpy(params, b->plan->model->params.base + offset, bytes < entry->params_bytes ? bytes : entry->params_bytes);
    return params;
}

/* --- tensors that the model brings along --- */
static opsnn_status bind_constants(builder *b) {
    const opsnn_model *m = b->plan->model;
    for (uint32_t i = 0; i < m->tensors.count; i++) {
        const opsnn_file_tensor *t = opsnn_model_tensor(m, i);
        opsnn_value *v = &b->plan->values[i];
        if (t->kind != OPSNN_TENSOR_CONST) continue;
        v->dtype = t->dtype;
        v->rank = t->rank;
        v->block = t->block;
        memcpy(v->dims, t->dims, t->rank * sizeof *v->dims);
        v->data = opsnn_model_data(m, t);
        if (!opsnn_value_bytes(v, b->limit, &v->bytes))
            return opsnn_fail(b->err, OPSNN_E_LIMIT, -1, "constant '%.80s', %s, is larger than memory can be",
                              opsnn_model_string(m, t->name), opsnn_format_dims(v->dims, v->rank).s);
    }
    return OPSNN_OK;
}

static opsnn_status bind_input(builder *b, uint32_t index, const opsnn_tensor_info *given) {
    const opsnn_model *m = b->plan->model;
    const uint32_t tensor = opsnn_model_index(&m->inputs, index);
    const opsnn_file_tensor *t = opsnn_model_tensor(m, tensor);
    const char *name = opsnn_model_string(m, t->name);
    const opsnn_dims_text declared = opsnn_format_dims(t->dims, t->rank);
    opsnn_value *v = &b->plan->values[tensor];
    v->dtype = t->dtype;
    v->rank = t->rank;
    memcpy(v->dims, given ? given->dims : t->dims, t->rank * sizeof *v->dims);
    if (given && given->rank != t->rank)
        return opsnn_fail(b->err, OPSNN_E_SHAPE, -1, "input '%.80s' has %u dimensions, %s, but a shape of %u was given", name,
                          t->rank, declared.s, given->rank);
    for (uint32_t d = 0; d < v->rank; d++) {
        if (v->dims[d] < 0)
            return opsnn_fail(b->err, OPSNN_E_ARGUMENT, -1,
                              "input '%.80s' is %s and dimension %u is open: give its shape when the plan is made", name,
                              opsnn_format_dims(v->dims, v->rank).s, d);
        if (t->dims[d] >= 0 && v->dims[d] != t->dims[d])
            return opsnn_fail(b->err, OPSNN_E_SHAPE, -1,
                              "input '%.80s' is %s, but %s was given: dimension %u is fixed in the model", name, declared.s,
                              opsnn_format_dims(v->dims, v->rank).s, d);
    }
    if (!opsnn_value_bytes(v, b->limit, &v->bytes))
        return opsnn_fail(b->err, OPSNN_E_LIMIT, -1, "input '%.80s', %s, is larger than memory can be", name,
                          opsnn_format_dims(v->dims, v->rank).s);
    return OPSNN_OK;
}

/* --- nodes --- */
/* How the operand of a fused step lies on the output y that it broadcasts to; 0: as no kernel applies it. */
static int find_tail_kind(const opsnn_value *y, const opsnn_value *other, uint8_t *kind) {
    const uint32_t n = other->rank, lead = y->rank - n;
    int same = 1, ones = 1;
    for (uint32_t i = 0; i < lead; i++) same &= y->dims[i] == 1;
    for (uint32_t i = 0; i < n; i++) {
        same &= y->dims[lead + i] == other->dims[i];
        ones &= i + 1 == n || other->dims[i] == 1;
    }
    if (same)
        *kind = OPSNN_TAIL_SAME;
    else if (ones && (n == 0 || other->dims[n - 1] == 1))
        *kind = OPSNN_TAIL_SCALAR;
    else if (ones && other->dims[n - 1] == y->dims[y->rank - 1])
        *kind = OPSNN_TAIL_CHANNEL;
    else
        return 0;
    return 1;
}

/* A fused step is checked by the rule of its operator, as a node of its own would be. */
static opsnn_status make_tail(builder *b, uint32_t index, const opsnn_file_tail *file, opsnn_step *step, opsnn_tail *tail) {
    const opsnn_op_entry *entry = opsnn_op_find(file->op);
    const opsnn_value *y = step->node.outputs[0];
    opsnn_value result = {0};
    opsnn_value *const results[] = {&result};
    const opsnn_value *const outputs[] = {&result}, *inputs[] = {y, NULL};
    opsnn_node node = {0};
    opsnn_error why = {0};
    tail->op = file->op;
    tail->params = copy_params(b, entry, file->params, file->params_bytes);
    if (file->other != OPSNN_NONE) {
        tail->other = &b->plan->values[file->other];
        tail->other_first = file->other_first != 0;
        inputs[tail->other_first ? 0 : 1] = tail->other;
        inputs[tail->other_first ? 1 : 0] = y;
    }
    node.op = entry->id;
    node.dtype = inputs[0]->dtype;
    node.layout = OPSNN_LAYOUT_ANY;
    node.n_inputs = tail->other ? 2 : 1;
    node.n_outputs = 1;
    node.params = tail->params;
    node.inputs = inputs;
    node.outputs = outputs;
    node.name = step->node.name;
    opsnn_status status = opsnn_infer_node(entry, &node, results, b->limit, &why);
    if (status == OPSNN_OK && (result.dtype != y->dtype || !opsnn_same_shape(&result, y) ||
                               (tail->other && !find_tail_kind(y, tail->other, &tail->kind))))
        status =
            opsnn_fail(&why, OPSNN_E_SHAPE, -1,
                       "its operand %s is neither like the output %s, nor one element, nor one per channel (the last axis)",
                       tail->other ? opsnn_format_dims(tail->other->dims, tail->other->rank).s : "",
                       opsnn_format_dims(y->dims, y->rank).s);
    if (status != OPSNN_OK) {
        opsnn_error whole = {0};
        opsnn_fail(&whole, status, -1, "fused step %s: %s", entry->name, why.text);
        return fail_node(b, status, index, step->entry, whole.text);
    }
    step->node.macs += entry->rule->macs(&node);
    /* map takes whole runs of equal length, whatever the operand's shape: so a kernel is chosen for like shapes. */
    inputs[0] = y;
    if (tail->other) inputs[1] = y;
    opsnn_fit fit;
    return opsnn_choose(entry, &node, index, &b->plan->target, b->plan->flags | OPSNN_CHOOSE_MAP, &tail->kernel, &fit, b->err);
}

/* Inputs, constants, outputs and operands of fused steps, each once. */
static uint64_t moved_bytes(const opsnn_node *node) {
    uint64_t bytes = 0;
    const uint32_t n = (uint32_t)node->n_inputs + node->n_outputs + node->n_tail;
    const opsnn_value *all[OPSNN_MAX_INPUTS + OPSNN_MAX_OUTPUTS + OPSNN_MAX_TAIL];
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t t = i - node->n_inputs; /* inputs and outputs, then fused steps */
        all[i] = i < node->n_inputs    ? node->inputs[i]
                 : t < node->n_outputs ? node->outputs[t]
                                       : node->tail[t - node->n_outputs].other;
        int again = all[i] == NULL;
        for (uint32_t j = 0; j < i && !again; j++) again = all[j] == all[i];
        if (!again) bytes += all[i]->bytes;
    }
    return bytes;
}

static opsnn_status make_step(builder *b, uint32_t index) {
    opsnn_plan *p = b->plan;
    const opsnn_model *m = p->model;
    const opsnn_file_node *file = opsnn_model_node(m, index);
    opsnn_step *step = &p->steps[index];
    opsnn_node *node = &step->node;
    const opsnn_op_entry *entry = step->entry = opsnn_op_find(file->op);
    opsnn_value *outputs[OPSNN_MAX_OUTPUTS];
    const opsnn_value **operands = b->operand;
    b->operand += (size_t)file->n_inputs + file->n_outputs;
    node->op = file->op;
    node->layout = file->layout;
    node->n_inputs = file->n_inputs;
    node->n_outputs = file->n_outputs;
    node->inputs = operands;
    node->outputs = operands + file->n_inputs;
    node->name = opsnn_model_string(m, file->name);
    node->params = copy_params(b, entry, file->params, file->params_bytes);
    for (uint32_t i = 0; i < (uint32_t)file->n_inputs + file->n_outputs; i++) {
        const uint32_t tensor = opsnn_model_index(&m->operands, file->operands + i);
        if (tensor == OPSNN_NONE) continue;
        operands[i] = &p->values[tensor];
        if (i >= file->n_inputs) outputs[i - file->n_inputs] = &p->values[tensor];
    }
    node->dtype = node->inputs[0]->dtype;
    opsnn_error why = {0};
    opsnn_status status = opsnn_infer_node(entry, node, outputs, b->limit, &why);
    if (status != OPSNN_OK) return fail_node(b, status, index, entry, why.text);
    for (uint32_t i = 0; i < node->n_outputs; i++) {
        const uint32_t declared = opsnn_model_tensor(m, (uint32_t)(outputs[i] - p->values))->dtype;
        if (declared == outputs[i]->dtype) continue;
        opsnn_fail(&why, OPSNN_E_SHAPE, -1, "output %u is %s, but the model says %s", i, opsnn_dtype_name(outputs[i]->dtype),
                   opsnn_dtype_name(declared));
        return fail_node(b, OPSNN_E_SHAPE, index, entry, why.text);
    }
    if (entry->flags & OPSNN_OP_VIEW) {
        if (outputs[0]->bytes != node->inputs[0]->bytes)
            return fail_node(b, OPSNN_E_SHAPE, index, entry, "its output is not as large as its input");
        outputs[0]->data = node->inputs[0]->data;
        return OPSNN_OK;
    }
    node->macs = entry->rule->macs(node);
    opsnn_tail *tails = b->tail;
    b->tail += file->n_tail;
    node->tail = tails;
    for (uint32_t t = 0; t < file->n_tail; t++) {
        status = make_tail(b, index, opsnn_model_tail(m, file->tails + t), step, &tails[t]);
        if (status != OPSNN_OK) return status;
    }
    node->n_tail = file->n_tail;
    node->moved_bytes = moved_bytes(node);
    status = opsnn_choose(entry, node, index, &p->target, p->flags, &step->kernel, &step->fit, b->err);
    if (status != OPSNN_OK) return status;
    step->predicted_ns = opsnn_parallel_ns(&step->fit, &p->target);
    return OPSNN_OK;
}

/* --- sums and packed weights --- */
static opsnn_status pack_weights(builder *b) {
    opsnn_plan *p = b->plan;
    uint64_t packed = 0, scratch = 0;
    p->info.n_tasks_max = 1;
    for (uint32_t k = 0; k < p->info.n_nodes; k++) {
        opsnn_step *step = &p->steps[k];
        if (!step->kernel) continue;
        if (step->fit.packed_bytes > b->limit - OPSNN_ALIGN || step->fit.scratch_bytes > b->limit - OPSNN_ALIGN ||
            (packed += opsnn_align_up(step->fit.packed_bytes)) > b->limit)
            return fail_node(b, OPSNN_E_LIMIT, k, step->entry,
                             "its packed weights or scratch memory are larger than memory can be");
        if (opsnn_align_up(step->fit.scratch_bytes) > scratch) scratch = opsnn_align_up(step->fit.scratch_bytes);
        if (step->fit.n_tasks > p->info.n_tasks_max) p->info.n_tasks_max = step->fit.n_tasks;
        p->info.macs += step->node.macs;
        p->info.moved_bytes += step->node.moved_bytes;
        p->info.predicted_ns += step->predicted_ns;
    }
    p->info.packed_bytes = packed;
    p->info.scratch_bytes = scratch;
    if ((p->flags & OPSNN_PLAN_NO_PACK) || packed == 0) return OPSNN_OK;
    p->packed = opsnn_alloc((size_t)packed);
    if (!p->packed) return no_memory(b->err, "packed weights");
    unsigned char *at = p->packed;
    for (uint32_t k = 0; k < p->info.n_nodes; k++) {
        opsnn_step *step = &p->steps[k];
        if (!step->kernel || step->fit.packed_bytes == 0) continue;
        step->kernel->pack(&step->node, &step->fit, at);
        step->packed = at;
        at += opsnn_align_up(step->fit.packed_bytes);
    }
    return OPSNN_OK;
}

/* --- whole plans --- */
static opsnn_status build(builder *b, const opsnn_target *target, const opsnn_tensor_info *inputs) {
    const opsnn_model *m = b->plan->model;
    opsnn_plan_info *info = &b->plan->info;
    info->n_nodes = m->nodes.count;
    info->n_inputs = m->inputs.count;
    info->n_outputs = m->outputs.count;
    opsnn_status status = set_target(b, target);
    if (status == OPSNN_OK) status = allocate(b);
    if (status == OPSNN_OK) status = bind_constants(b);
    for (uint32_t i = 0; status == OPSNN_OK && i < info->n_inputs; i++) status = bind_input(b, i, inputs ? &inputs[i] : NULL);
    for (uint32_t k = 0; status == OPSNN_OK && k < info->n_nodes; k++) status = make_step(b, k);
    if (status == OPSNN_OK) status = opsnn_place_tensors(b->plan, b->limit, b->err);
    if (status == OPSNN_OK) status = pack_weights(b);
    return status;
}

opsnn_status opsnn_plan_create(opsnn_model *model, const opsnn_target *target, const opsnn_tensor_info *inputs, uint32_t flags,
                               opsnn_plan **plan, opsnn_error *err) {
    if (plan) *plan = NULL;
    if (!model || !plan) return opsnn_fail(err, OPSNN_E_ARGUMENT, -1, "opsnn_plan_create: model and plan must not be NULL");
    if (flags & ~(uint32_t)(OPSNN_PLAN_REF | OPSNN_PLAN_NO_REUSE | OPSNN_PLAN_NO_PACK))
        return opsnn_fail(err, OPSNN_E_ARGUMENT, -1, "opsnn_plan_create: unknown flags %#x", flags);
    builder b = {0};
    b.plan = opsnn_alloc(sizeof *b.plan);
    b.err = err;
    if (!b.plan) return no_memory(err, "a plan");
    b.plan->refs = 1;
    b.plan->flags = flags;
    b.plan->model = model;
    opsnn_model_retain(model);
    const opsnn_status status = build(&b, target, inputs);
    if (status == OPSNN_OK)
        *plan = b.plan;
    else
        opsnn_plan_free(b.plan);
    return status;
}

void opsnn_plan_retain(opsnn_plan *plan) {
    __atomic_add_fetch(&plan->refs, 1, __ATOMIC_RELAXED);
}

void opsnn_plan_free(opsnn_plan *plan) {
    if (!plan || __atomic_sub_fetch(&plan->refs, 1, __ATOMIC_ACQ_REL) != 0) return;
    opsnn_release(plan->packed);
    opsnn_release(plan->params);
    opsnn_release(plan->tails);
    opsnn_release(plan->operands);
    opsnn_release(plan->steps);
    opsnn_release(plan->offsets);
    opsnn_release(plan->values);
    opsnn_model_free(plan->model);
    opsnn_release(plan);
}
