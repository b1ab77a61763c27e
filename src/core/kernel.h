/* The contract between the core, the operators (src/ops) and the kernels (src/ref, src/neon, ...).

   A kernel file defines exactly one constant, `const opsnn_kernel opsnn_k_<file stem>`, and nothing else that is global. The
   build finds it by its file name:  <op>_<dtype>_<layout>[_<algo>]_<isa>.c

   Memory: activations are dense, row-major, in the order of their dims (nhwc nodes: [N, H, W, C]), aligned to 64 bytes. A
   kernel touches exactly the bytes of its tensors: reading past an end "because it is harmless" is a fault. Constants may be
   blocked (see opsnn_value.block); kernels see blocked ones only where they set OPSNN_KERNEL_BLOCKED. */
#ifndef OPSNN_CORE_KERNEL_H
#define OPSNN_CORE_KERNEL_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "ops_nn.h"
#include "opsnn_ops.h" /* generated: enum opsnn_op, enum opsnn_dtype, OPSNN_CPU_*, parameter structs */

/* A tensor at plan time. */
typedef struct opsnn_value {
    int32_t dims[OPSNN_MAX_RANK];
    uint32_t rank;
    uint16_t dtype; /* opsnn_dtype */
    uint16_t block; /* 0, 1: plain. b: the first dimension D is stored as [ceil(D/b)][other dimensions...][b], the last block
                       filled up with zeros. dims stay the logical ones. Constants only. */
    const void *data; /* a constant's bytes, else NULL */
    size_t bytes;     /* storage, block padding included */
} opsnn_value;

struct opsnn_kernel;

/* A fused element-wise step: acc = op(acc, other), or op(other, acc) where other_first; unary where other is NULL. other has
   the output's shape (OPSNN_TAIL_SAME), one element (OPSNN_TAIL_SCALAR), or as many elements as the output's last dimension,
   its own leading dimensions all being 1 (OPSNN_TAIL_CHANNEL). */
typedef enum opsnn_tail_kind { OPSNN_TAIL_UNARY, OPSNN_TAIL_SAME, OPSNN_TAIL_SCALAR, OPSNN_TAIL_CHANNEL } opsnn_tail_kind;
typedef struct opsnn_tail {
    const struct opsnn_kernel *kernel; /* an element-wise kernel: its map function does the step */
    const void *params;
    const opsnn_value *other;
    uint16_t op;
    uint8_t kind; /* opsnn_tail_kind */
    uint8_t other_first;
} opsnn_tail;

/* A node at plan time. */
typedef struct opsnn_node {
    uint16_t op;     /* opsnn_op */
    uint16_t dtype;  /* of the first input */
    uint16_t layout; /* opsnn_layout: any, or nchw/nhwc for spatial operators */
    uint16_t n_inputs;
    uint16_t n_outputs;
    uint16_t n_tail;
    const void *params;                 /* opsnn_<op>_params */
    const opsnn_value *const *inputs;   /* NULL: optional input not given */
    const opsnn_value *const *outputs;
    const opsnn_tail *tail;
    const char *name;
    uint64_t macs;        /* multiply-adds, from the operator's rule */
    uint64_t moved_bytes; /* inputs, constants and outputs, each once */
} opsnn_node;

/* A kernel's answer to "can you run this node, how, and how long will it take?" Zeroed by the caller. */
typedef struct opsnn_fit {
    const char *why;      /* on refusal: the rule that excludes the kernel, a constant string */
    double predicted_ns;  /* one thread of the target */
    uint32_t n_tasks;     /* independent parts of the output, at least 1; results do not depend on who runs them */
    uint32_t reserved;
    size_t scratch_bytes; /* per thread, 64-byte aligned, contents undefined at the start of each task */
    size_t packed_bytes;  /* weights in the kernel's own form; 0: as stored */
    int32_t tile[6];      /* the kernel's own notes from plan to pack and run */
} opsnn_fit;

/* One node of a running plan. */
typedef struct opsnn_call {
    const opsnn_node *node;
    const opsnn_fit *fit;
    const void *packed;
    const void *const *in; /* data of node->inputs; NULL: not given */
    void *const *out;
    const void *const *tail_in; /* data of node->tail[i].other */
    void *scratch;              /* the running thread's own */
} opsnn_call;

/* Element-wise step over n contiguous elements: out[i] = f(a[i * a_step], b[i * b_step]), steps being 0 or 1 (0: one value for
   all). Unary kernels ignore b. out may be a or b. */
typedef void (*opsnn_map_fn)(const void *params, const void *a, size_t a_step, const void *b, size_t b_step, void *out, size_t n);

enum {
    OPSNN_KERNEL_BLOCKED = 1, /* understands blocked constants */
    OPSNN_KERNEL_TAIL = 2     /* applies node->tail (by opsnn_tail_apply, after its own result incl. clamp) */
};

typedef struct opsnn_kernel {
    const char *name; /* the file stem */
    uint16_t op, dtype, layout; /* dtype 0: any type, elements only moved; layout any: every layout */
    uint16_t flags;
    uint32_t cpu; /* features that must all be present */
    /* 1: it can, *fit is filled; 0: it cannot, fit->why says the rule. Knows nothing but its arguments. */
    int (*plan)(const opsnn_node *node, const opsnn_target *target, opsnn_fit *fit);
    void (*pack)(const opsnn_node *node, const opsnn_fit *fit, void *packed); /* NULL: weights as stored */
    /* No malloc, no threads, no errors. Not called where the output has no elements. */
    void (*run)(const opsnn_call *call, uint32_t task);
    opsnn_map_fn map;                                                         /* element-wise kernels, else NULL */
} opsnn_kernel;

/* --- operators: src/ops/<rule>.c defines one constant `const opsnn_rule opsnn_rule_<rule>` --- */
typedef struct opsnn_rule {
    /* Checks parameters against inputs, fills outputs' dims, rank and dtype (data and bytes are the caller's). On failure
       returns OPSNN_E_SHAPE with err->text "<what is wrong with which numbers>"; the caller puts operator and node before it.
       Inputs are sound values: rank <= OPSNN_MAX_RANK, dims >= 0 (no product of them overflows), and the schema's number of
       inputs. The rule checks their types and blocks. It must survive any parameter values: they come from a file. */
    opsnn_status (*infer)(const opsnn_node *node, opsnn_value *const *outputs, opsnn_error *err);
    /* Multiply-adds (or element operations) of one run, shapes being known and valid. */
    uint64_t (*macs)(const opsnn_node *node);
} opsnn_rule;

/* The generated table (build/<target>/gen/opsnn_table.c). */
typedef struct opsnn_op_entry {
    const char *name;
    const opsnn_rule *rule;              /* NULL: the library was built without this operator */
    const opsnn_kernel *const *kernels;  /* ends with NULL */
    uint16_t id, params_bytes;
    uint16_t min_inputs, max_inputs, n_outputs;
    uint16_t flags; /* OPSNN_OP_* */
} opsnn_op_entry;
/* INPLACE: out[0] may be the memory of input 0 (of any input where MAP is set, too) if that has the output's shape, so kernels
   read what belongs to an element, or a row, before they write it. A tail's operands never lie there. */
enum { OPSNN_OP_VIEW = 1, OPSNN_OP_INPLACE = 2, OPSNN_OP_MAP = 4, OPSNN_OP_LAYOUT = 8 };
extern const opsnn_op_entry opsnn_ops_table[]; /* every operator of the schema, ids ascending */
extern const uint32_t opsnn_ops_count;
extern const char opsnn_build_info_json[];
const opsnn_op_entry *opsnn_op_find(uint32_t id); /* NULL: no such operator (generated table, binary search in core) */

/* --- small helpers for operators and kernels --- */
static inline int64_t opsnn_count(const int32_t *dims, uint32_t n) {
    int64_t c = 1;
    for (uint32_t i = 0; i < n; i++) c *= dims[i];
    return c;
}
static inline size_t opsnn_elements(const opsnn_value *v) { return (size_t)opsnn_count(v->dims, v->rank); }
/* Input i, NULL where it is not given: a node may have fewer inputs than its operator allows. */
static inline const opsnn_value *opsnn_input(const opsnn_node *node, uint32_t i) {
    return i < node->n_inputs ? node->inputs[i] : NULL;
}

/* The usual estimate: arithmetic at `efficiency` of the core's peak plus memory traffic, in ns. The sum rather than the larger
   of the two: small in-order cores overlap little. */
static inline double opsnn_predict(const opsnn_node *node, const opsnn_target *target, double efficiency) {
    return 2.0 * (double)node->macs / ((double)target->gflops * efficiency) + (double)node->moved_bytes / (double)target->gbytes_per_s;
}

/* Applies the node's fused steps to elements [first, first + n) of output 0, which lie contiguously at its place in call->out[0].
   Kernels call it on what they have just written, while it is in cache. */
static inline void opsnn_tail_apply(const opsnn_call *call, size_t first, size_t n) {
    const opsnn_node *node = call->node;
    if (node->n_tail == 0) return;
    const opsnn_value *y = node->outputs[0];
    const size_t size = opsnn_dtype_bytes(y->dtype), channels = y->rank ? (size_t)y->dims[y->rank - 1] : 1;
    unsigned char *acc = (unsigned char *)call->out[0] + first * size;
    for (uint32_t t = 0; t < node->n_tail; t++) {
        const opsnn_tail *tail = &node->tail[t];
        const unsigned char *other = (const unsigned char *)call->tail_in[t];
        const size_t step = tail->kind == OPSNN_TAIL_SCALAR ? 0 : 1;
        if (tail->kind == OPSNN_TAIL_SAME) other += first * size;
        size_t done = 0;
        while (done < n) {
            size_t part = n - done;
            const unsigned char *o = other;
            if (tail->kind == OPSNN_TAIL_CHANNEL) { /* one pass per row of channels */
                const size_t c = (first + done) % channels;
                if (part > channels - c) part = channels - c;
                o += c * size;
            } else if (tail->kind == OPSNN_TAIL_SAME) {
                o += done * size;
            }
            unsigned char *a = acc + done * size;
            if (tail->other_first) tail->kernel->map(tail->params, o, step, a, 1, a, part);
            else tail->kernel->map(tail->params, a, 1, o, step, a, part);
            done += part;
        }
    }
}

#endif
