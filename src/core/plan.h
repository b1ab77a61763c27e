/* The inside of a plan and the steps that lead to one: infer.c finds shapes, choose.c kernels, place.c places in the
   arena, plan.c puts them together, exec.c runs them, describe.c tells about them. */
#ifndef OPSNN_CORE_PLAN_H
#define OPSNN_CORE_PLAN_H

#include "core.h"

typedef struct opsnn_step {
    opsnn_node node;
    opsnn_fit fit;
    const opsnn_op_entry *entry;
    const opsnn_kernel *kernel; /* NULL: a view, nothing is computed */
    const void *packed;
    double predicted_ns; /* with all threads of the target */
} opsnn_step;

/* Read-only once made. Every pointer inside leads into the model or into memory of the plan's own. */
struct opsnn_plan {
    uint32_t refs; /* atomic */
    uint32_t flags;
    opsnn_model *model;
    opsnn_target target;
    opsnn_plan_info info;
    opsnn_value *values; /* one per tensor of the model; those with data are constants, or views of constants */
    size_t *offsets;     /* of each other tensor in the arena */
    opsnn_step *steps;   /* one per node */
    const opsnn_value **operands;
    opsnn_tail *tails;
    unsigned char *params;
    unsigned char *packed;
};
void opsnn_plan_retain(opsnn_plan *plan); /* opsnn_plan_free gives one reference back */

/* --- infer.c --- */
/* Bytes of a tensor's storage (v->block included) into *bytes; 0 when they, or a product of some of its dimensions, pass limit.
 */
int opsnn_value_bytes(const opsnn_value *v, size_t limit, size_t *bytes);
/* "[1, 224, ?, 3]" */
typedef struct opsnn_dims_text {
    char s[112];
} opsnn_dims_text;
opsnn_dims_text opsnn_format_dims(const int32_t *dims, uint32_t rank);
/* Lets the operator's rule fill in the outputs, and adds their bytes. err->text names neither operator nor node: the caller
   puts both before it. */
opsnn_status opsnn_infer_node(const opsnn_op_entry *entry, const opsnn_node *node, opsnn_value *const *outputs, size_t limit,
                              opsnn_error *err);

static inline int opsnn_same_shape(const opsnn_value *a, const opsnn_value *b) {
    return a->rank == b->rank && memcmp(a->dims, b->dims, a->rank * sizeof *a->dims) == 0;
}

/* --- place.c --- */
/* Fills plan->offsets, info.arena_bytes and info.const_bytes; all steps have their kernels. */
opsnn_status opsnn_place_tensors(opsnn_plan *plan, size_t limit, opsnn_error *err);

/* --- choose.c --- */
#define OPSNN_CHOOSE_MAP 0x10000u /* beside OPSNN_PLAN_*: the kernel is to have a map function */
/* NULL: the kernel can run the node and *fit tells how; else the rule that excludes it, a constant string. */
const char *opsnn_try(const opsnn_kernel *kernel, const opsnn_node *node, const opsnn_target *target, uint32_t flags,
                      opsnn_fit *fit);
/* Time with all threads of the target, tasks being equally long. */
double opsnn_parallel_ns(const opsnn_fit *fit, const opsnn_target *target);
/* The fastest kernel that can, the first of equals. index: the node's, for err. */
opsnn_status opsnn_choose(const opsnn_op_entry *entry, const opsnn_node *node, uint32_t index, const opsnn_target *target,
                          uint32_t flags, const opsnn_kernel **kernel, opsnn_fit *fit, opsnn_error *err);
/* "neon, fma" */
typedef struct opsnn_cpu_text {
    char s[64];
} opsnn_cpu_text;
opsnn_cpu_text opsnn_cpu_names(uint32_t mask);

#endif
