/* Which kernel runs a node: every rule that can exclude one is here or in the kernel's own plan function. */
#include <float.h>
#include <stdio.h>

#include "plan.h"

/* Room for a list in an error's text; what does not fit is cut off. */
typedef struct list_text {
    char s[320];
    size_t n;
} list_text;

static void append(list_text *list, const char *separator, const char *a, const char *b, const char *c) {
    const int n = snprintf(list->s + list->n, sizeof list->s - list->n, "%s%s%s%s", list->n ? separator : "", a, b, c);
    list->n += (size_t)n;
    if (list->n >= sizeof list->s) list->n = sizeof list->s - 1;
}

opsnn_cpu_text opsnn_cpu_names(uint32_t mask) {
    static const struct {
        const char *name;
        uint32_t bit;
    } features[] = {
#define X(name, bit) {#name, bit},
        OPSNN_CPU_FEATURES(X)
#undef X
    };
    opsnn_cpu_text text = {""};
    for (size_t i = 0, n = 0; i < sizeof features / sizeof *features; i++)
        if (mask & features[i].bit)
            n += (size_t)snprintf(text.s + n, sizeof text.s - n, "%s%s", n ? ", " : "", features[i].name);
    return text;
}

static const char *why_dtype(uint32_t dtype) {
    switch (dtype) {
#define X(name, id, bytes) \
    case id:               \
        return "the node's type is " #name;
        OPSNN_DTYPES(X)
#undef X
    default:
        return "the node has no type";
    }
}

static const char *why_layout(uint32_t layout) {
    switch (layout) {
#define X(name, id) \
    case id:        \
        return "the node's layout is " #name;
        OPSNN_LAYOUTS(X)
#undef X
    default:
        return "the node has no layout";
    }
}

static const char *why_cpu(uint32_t lacking) {
#define X(name, bit) \
    if (lacking & bit) return "needs cpu feature " #name;
    OPSNN_CPU_FEATURES(X)
#undef X
    return "needs an unknown cpu feature";
}

static int is_reference(const opsnn_kernel *kernel) {
    const size_t n = strlen(kernel->name);
    return n > 4 && strcmp(kernel->name + n - 4, "_ref") == 0;
}

static int has_blocked_input(const opsnn_node *node) {
    for (uint32_t i = 0; i < node->n_inputs; i++)
        if (node->inputs[i] && node->inputs[i]->block > 1) return 1;
    return 0;
}

/* Rules that do not ask the CPU or the kernel. */
static const char *exclude(const opsnn_kernel *kernel, const opsnn_node *node, uint32_t flags) {
    if (kernel->dtype != 0 && kernel->dtype != node->dtype) return why_dtype(node->dtype);
    if (kernel->layout != OPSNN_LAYOUT_ANY && kernel->layout != node->layout) return why_layout(node->layout);
    if ((flags & OPSNN_PLAN_REF) && !is_reference(kernel)) return "only reference kernels are asked for";
    if ((flags & OPSNN_CHOOSE_MAP) && !kernel->map) return "cannot be a fused step";
    if (!(kernel->flags & OPSNN_KERNEL_BLOCKED) && has_blocked_input(node)) return "does not read blocked weights";
    if (!(kernel->flags & OPSNN_KERNEL_TAIL) && node->n_tail) return "does not apply fused steps";
    return NULL;
}

const char *opsnn_try(const opsnn_kernel *kernel, const opsnn_node *node, const opsnn_target *target, uint32_t flags,
                      opsnn_fit *fit) {
    memset(fit, 0, sizeof *fit);
    const char *why = exclude(kernel, node, flags);
    if (why) return why;
    if (kernel->cpu & ~target->cpu) return why_cpu(kernel->cpu & ~target->cpu);
    if (!kernel->plan(node, target, fit)) return fit->why ? fit->why : "cannot run this node";
    if (fit->n_tasks == 0) fit->n_tasks = 1;
    if (!(fit->predicted_ns >= 0 && fit->predicted_ns <= DBL_MAX)) fit->predicted_ns = DBL_MAX; /* NaN too */
    if (!kernel->pack) fit->packed_bytes = 0;
    return NULL;
}

double opsnn_parallel_ns(const opsnn_fit *fit, const opsnn_target *target) {
    const uint32_t rounds = (fit->n_tasks - 1) / target->n_threads + 1;
    return fit->predicted_ns * ((double)rounds / (double)fit->n_tasks);
}

/* Says which of the reasons is the one to act on: no kernel for the type or layout, the CPU, or the node's own properties. */
static opsnn_status explain_none(const opsnn_op_entry *entry, const opsnn_node *node, int32_t index, const opsnn_target *target,
                                 uint32_t flags, opsnn_error *err) {
    list_text cpu = {"", 0}, other = {"", 0};
    for (const opsnn_kernel *const *k = entry->kernels; *k; k++) {
        opsnn_fit fit;
        const char *why = opsnn_try(*k, node, target, flags, &fit);
        const uint32_t lacking = (*k)->cpu & ~target->cpu;
        const int right_kind = ((*k)->dtype == 0 || (*k)->dtype == node->dtype) &&
                               ((*k)->layout == OPSNN_LAYOUT_ANY || (*k)->layout == node->layout);
        if (lacking && !exclude(*k, node, flags))
            append(&cpu, "; ", (*k)->name, " needs ", opsnn_cpu_names(lacking).s);
        else if (right_kind && why)
            append(&other, "; ", (*k)->name, ": ", why);
    }
    const char *dtype = opsnn_dtype_name(node->dtype);
    const char *layout = node->layout == OPSNN_LAYOUT_NHWC ? "/nhwc" : node->layout == OPSNN_LAYOUT_NCHW ? "/nchw" : "";
    if (cpu.n)
        return opsnn_fail(err, OPSNN_E_CPU, index,
                          "node '%.80s' needs %s/%s%s, and '%.32s' lacks what its kernels need (%s): build the library for it, "
                          "with configure.py --board or --target",
                          node->name, entry->name, dtype, layout, target->name, cpu.s);
    if (other.n)
        return opsnn_fail(err, OPSNN_E_UNSUPPORTED, index,
                          "node '%.80s' needs %s/%s%s%s, which no kernel of this library can do (%s)", node->name, entry->name,
                          dtype, layout, node->n_tail ? " with fused steps" : "", other.s);
    return opsnn_fail(err, OPSNN_E_UNSUPPORTED, index,
                      "node '%.80s' needs %s/%s%s, which this library was built without: configure.py --ops=+%s", node->name,
                      entry->name, dtype, layout, entry->name);
}

opsnn_status opsnn_choose(const opsnn_op_entry *entry, const opsnn_node *node, uint32_t index, const opsnn_target *target,
                          uint32_t flags, const opsnn_kernel **kernel, opsnn_fit *fit, opsnn_error *err) {
    const opsnn_kernel *best = NULL;
    double best_ns = 0;
    memset(fit, 0, sizeof *fit);
    for (const opsnn_kernel *const *k = entry->kernels; *k; k++) {
        opsnn_fit candidate;
        if (opsnn_try(*k, node, target, flags, &candidate)) continue;
        const double ns = opsnn_parallel_ns(&candidate, target);
        if (best && ns >= best_ns) continue;
        best = *k;
        best_ns = ns;
        *fit = candidate;
    }
    *kernel = best;
    return best ? OPSNN_OK : explain_none(entry, node, (int32_t)index, target, flags, err);
}
