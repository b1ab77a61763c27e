/* How reference kernels divide their work: n equal units into tasks that follow one another. Results never depend on it. */
#ifndef OPSNN_REF_SPLIT_H
#define OPSNN_REF_SPLIT_H

#include "kernel.h"

enum { OPSNN_REF_TASKS = 64 }; /* at most: enough for any pool, and cheap to hand out */

/* Tasks for n units, no task being less than `least` of them. */
static inline uint32_t opsnn_ref_tasks(size_t n, size_t least) {
    const size_t tasks = least ? n / least : n;
    return tasks < 1 ? 1 : tasks > OPSNN_REF_TASKS ? OPSNN_REF_TASKS : (uint32_t)tasks;
}

/* The first unit of a task, for task == n_tasks the end: without products that could overflow. */
static inline size_t opsnn_ref_first(size_t n, uint32_t n_tasks, uint32_t task) {
    const size_t part = n / n_tasks, rest = n % n_tasks;
    return part * task + (task < rest ? task : rest);
}

/* What portable C reaches of a core's float32 peak, in scalar code and in calls of libm. Rough: better kernels need only win.
 */
#define OPSNN_REF_EFFICIENCY 0.04
#define OPSNN_REF_EFFICIENCY_LIBM 0.005

/* The usual end of a plan. */
static inline int opsnn_ref_fit(const opsnn_node *node, const opsnn_target *target, double efficiency, uint32_t n_tasks,
                                opsnn_fit *fit) {
    fit->predicted_ns = opsnn_predict(node, target, efficiency);
    fit->n_tasks = n_tasks;
    return 1;
}

/* Plans of element-wise kernels: a task is a range of the output's elements, never a tiny one. */
enum { OPSNN_REF_LEAST_ELEMENTS = 4096 };
static inline int opsnn_ref_plan_elements(const opsnn_node *node, const opsnn_target *target, opsnn_fit *fit) {
    const size_t n = opsnn_elements(node->outputs[0]);
    return opsnn_ref_fit(node, target, OPSNN_REF_EFFICIENCY, opsnn_ref_tasks(n, OPSNN_REF_LEAST_ELEMENTS), fit);
}
static inline int opsnn_ref_plan_libm(const opsnn_node *node, const opsnn_target *target, opsnn_fit *fit) {
    const size_t n = opsnn_elements(node->outputs[0]);
    return opsnn_ref_fit(node, target, OPSNN_REF_EFFICIENCY_LIBM, opsnn_ref_tasks(n, OPSNN_REF_LEAST_ELEMENTS), fit);
}

/* A task's units, [first, end). */
typedef struct opsnn_ref_range {
    size_t first, end;
} opsnn_ref_range;
static inline opsnn_ref_range opsnn_ref_part(const opsnn_call *call, uint32_t task, size_t n) {
    const opsnn_ref_range r = {opsnn_ref_first(n, call->fit->n_tasks, task), opsnn_ref_first(n, call->fit->n_tasks, task + 1)};
    return r;
}

#endif
