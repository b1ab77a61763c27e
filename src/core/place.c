/* Where the tensors of a plan lie in its arena.

   Step k is node k; inputs are alive from step 0 on, outputs up to the step behind the last node. A view shares the storage of
   what it is a view of, its root; an in-place output takes over the storage of an input. */
#include "plan.h"

typedef struct span {
    uint32_t root; /* tensor whose storage this tensor shares: itself unless it is a view */
    uint32_t last; /* of roots: the last step that needs it */
    uint32_t slot; /* of roots in the arena: index of the interval */
} span;

typedef struct layout {
    const opsnn_plan *plan;
    span *spans;
    opsnn_interval *slots;
    uint32_t n_slots;
} layout;

static span *root_of(const layout *l, const opsnn_value *v) {
    return &l->spans[l->spans[v - l->plan->values].root];
}

static void use(const layout *l, const opsnn_value *v, uint32_t step) {
    if (v) root_of(l, v)->last = step;
}

static void trace(const layout *l) {
    const opsnn_plan *p = l->plan;
    for (uint32_t i = 0; i < p->model->tensors.count; i++) l->spans[i] = (span){i, 0, OPSNN_NONE};
    for (uint32_t k = 0; k < p->info.n_nodes; k++) {
        const opsnn_node *node = &p->steps[k].node;
        if (!p->steps[k].kernel) { /* a view */
            l->spans[node->outputs[0] - p->values].root = (uint32_t)(root_of(l, node->inputs[0]) - l->spans);
            continue;
        }
        for (uint32_t i = 0; i < node->n_inputs; i++) use(l, node->inputs[i], k);
        for (uint32_t t = 0; t < node->n_tail; t++) use(l, node->tail[t].other, k);
        for (uint32_t i = 0; i < node->n_outputs; i++) use(l, node->outputs[i], k);
    }
    for (uint32_t i = 0; i < p->info.n_outputs; i++)
        use(l, &p->values[opsnn_model_index(&p->model->outputs, i)], p->info.n_nodes);
}

/* An element-wise kernel may write over an input of the output's shape that nobody needs afterwards: each element is read just
   before it is written. Its fused steps come later, so their operands must lie elsewhere. */
static uint32_t slot_in_place(const layout *l, const opsnn_step *step, uint32_t k) {
    const opsnn_node *node = &step->node;
    const opsnn_value *y = node->outputs[0];
    if (!(step->entry->flags & OPSNN_OP_INPLACE)) return OPSNN_NONE;
    const uint32_t n = step->entry->flags & OPSNN_OP_MAP ? node->n_inputs : 1;
    for (uint32_t i = 0; i < n; i++) {
        const opsnn_value *x = node->inputs[i];
        if (!x || x->data || x->bytes != y->bytes || !opsnn_same_shape(x, y)) continue;
        const uint32_t slot = root_of(l, x)->slot;
        int free = l->slots[slot].last == k;
        for (uint32_t j = 0; j < node->n_inputs; j++) {
            const opsnn_value *other = node->inputs[j];
            if (j != i && other && root_of(l, other)->slot == slot && (j >= n || !opsnn_same_shape(other, y))) free = 0;
        }
        for (uint32_t t = 0; t < node->n_tail; t++)
            if (node->tail[t].other && root_of(l, node->tail[t].other)->slot == slot) free = 0;
        if (free) return slot;
    }
    return OPSNN_NONE;
}

static void new_slot(layout *l, const opsnn_value *v, uint32_t first) {
    span *s = root_of(l, v);
    const int keep = (l->plan->flags & OPSNN_PLAN_NO_REUSE) != 0;
    s->slot = l->n_slots;
    l->slots[l->n_slots++] = (opsnn_interval){v->bytes, keep ? 0 : first, keep ? l->plan->info.n_nodes : s->last, 0};
}

/* Gives every storage an interval of steps. */
static void make_slots(layout *l) {
    const opsnn_plan *p = l->plan;
    trace(l);
    for (uint32_t i = 0; i < p->info.n_inputs; i++) new_slot(l, &p->values[opsnn_model_index(&p->model->inputs, i)], 0);
    for (uint32_t k = 0; k < p->info.n_nodes; k++) {
        const opsnn_step *step = &p->steps[k];
        for (uint32_t i = 0; step->kernel && i < step->node.n_outputs; i++) {
            const opsnn_value *y = step->node.outputs[i];
            const uint32_t slot = i == 0 ? slot_in_place(l, step, k) : OPSNN_NONE;
            if (slot == OPSNN_NONE) {
                new_slot(l, y, k);
            } else {
                root_of(l, y)->slot = slot;
                l->slots[slot].last = root_of(l, y)->last;
            }
        }
    }
}

/* Constants that are read where they lie: those of kernels that pack nothing, each once. */
static uint64_t count_constants(const layout *l) {
    const opsnn_plan *p = l->plan;
    uint64_t bytes = 0;
    for (uint32_t k = 0; k < p->info.n_nodes; k++) {
        const opsnn_node *node = &p->steps[k].node;
        if (!p->steps[k].kernel) continue;
        for (uint32_t i = p->steps[k].fit.packed_bytes ? node->n_inputs : 0; i < (uint32_t)node->n_inputs + node->n_tail; i++) {
            const opsnn_value *v = i < node->n_inputs ? node->inputs[i] : node->tail[i - node->n_inputs].other;
            if (!v || !v->data || root_of(l, v)->slot != OPSNN_NONE) continue;
            root_of(l, v)->slot = 0; /* counted */
            bytes += v->bytes;
        }
    }
    return bytes;
}

opsnn_status opsnn_place_tensors(opsnn_plan *plan, size_t limit, opsnn_error *err) {
    const uint32_t n = plan->model->tensors.count;
    layout l = {plan, opsnn_alloc_array(n, sizeof *l.spans), opsnn_alloc_array(n, sizeof *l.slots), 0};
    opsnn_status status = OPSNN_OK;
    size_t arena = 0;
    if (!l.spans || !l.slots) {
        status = opsnn_fail(err, OPSNN_E_MEMORY, -1, "no memory to lay out %u tensors", n);
    } else {
        make_slots(&l);
        status = opsnn_arena_layout(l.slots, l.n_slots, &arena, err);
    }
    if (status == OPSNN_OK && arena > limit)
        status = opsnn_fail(err, OPSNN_E_LIMIT, -1, "the tensors need %zu bytes, more than '%s' can address", arena,
                            plan->target.name);
    if (status == OPSNN_OK) {
        for (uint32_t i = 0; i < n; i++) {
            const uint32_t slot = l.spans[l.spans[i].root].slot;
            if (slot != OPSNN_NONE) plan->offsets[i] = l.slots[slot].offset;
        }
        plan->info.arena_bytes = arena;
        plan->info.const_bytes = count_constants(&l);
    }
    opsnn_release(l.spans);
    opsnn_release(l.slots);
    return status;
}
