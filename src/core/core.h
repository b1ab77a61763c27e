/* What the core's files share: memory, errors, the verified model, threads. Nothing here is public. */
#ifndef OPSNN_CORE_CORE_H
#define OPSNN_CORE_CORE_H

#include "format.h"
#include "kernel.h"

/* --- status.c: memory and errors --- */
/* Zeroed memory at a 64-byte boundary through the user's allocator, counted by opsnn_memory_usage. NULL on failure (of 0 bytes too:
   one byte is had instead). */
void *opsnn_alloc(size_t bytes);
void opsnn_release(void *p);
static inline void *opsnn_alloc_array(uint64_t n, size_t size) {
    return n > PTRDIFF_MAX / size ? NULL : opsnn_alloc((size_t)n * size);
}
static inline size_t opsnn_align_up(size_t bytes) { return (bytes + OPSNN_ALIGN - 1) / OPSNN_ALIGN * OPSNN_ALIGN; }
/* Fills err (where given) with one line and returns code. node: its index or -1. */
#if defined(__GNUC__)
__attribute__((format(printf, 4, 5)))
#endif
opsnn_status opsnn_fail(opsnn_error *err, opsnn_status code, int32_t node, const char *format, ...);

/* --- model.c, verify.c --- */
typedef struct opsnn_section {
    const unsigned char *base;
    uint32_t count, stride;
    size_t bytes;
} opsnn_section;

/* A model whose every byte has been checked: the accessors below need no checks. */
struct opsnn_model {
    uint32_t refs; /* atomic */
    const unsigned char *base;
    size_t bytes;
    void *mapping, *copy; /* what is to be given back: a mapping, or memory of ours, or neither */
    opsnn_section strings, tensors, nodes, operands, tails, params, inputs, outputs, meta, data;
};
void opsnn_model_retain(opsnn_model *model); /* opsnn_model_free gives one reference back */

/* The only reader of unchecked bytes: on success every section of *model (base and bytes being set) is filled in. */
opsnn_status opsnn_verify(opsnn_model *model, opsnn_error *err);

static inline const char *opsnn_model_string(const opsnn_model *m, uint32_t offset) { return (const char *)m->strings.base + offset; }
static inline const opsnn_file_tensor *opsnn_model_tensor(const opsnn_model *m, uint32_t i) {
    return (const opsnn_file_tensor *)(const void *)(m->tensors.base + (size_t)i * m->tensors.stride);
}
static inline const opsnn_file_node *opsnn_model_node(const opsnn_model *m, uint32_t i) {
    return (const opsnn_file_node *)(const void *)(m->nodes.base + (size_t)i * m->nodes.stride);
}
static inline const opsnn_file_tail *opsnn_model_tail(const opsnn_model *m, uint32_t i) {
    return (const opsnn_file_tail *)(const void *)(m->tails.base + (size_t)i * m->tails.stride);
}
static inline uint32_t opsnn_model_index(const opsnn_section *s, uint32_t i) { /* operands, inputs, outputs */
    return *(const uint32_t *)(const void *)(s->base + (size_t)i * s->stride);
}
static inline const void *opsnn_model_data(const opsnn_model *m, const opsnn_file_tensor *t) { return m->data.base + t->data_offset; }

/* --- cpu.c --- */
uint32_t opsnn_cpu_features(void); /* mask of OPSNN_CPU_*: those of this machine that OPSNN_CPU_MASK (if set) has as well */
uint32_t opsnn_cpu_count(void);    /* CPUs that this process may run on */

/* --- threads.c --- */
typedef void (*opsnn_task_fn)(void *arg, uint32_t task, uint32_t thread);
uint32_t opsnn_pool_n_threads(const opsnn_pool *pool); /* 1 for NULL */
/* Runs fn for every task in [0, n_tasks), thread < opsnn_pool_n_threads; returns when all are done. pool may be NULL, and may be
   shared: while it is at work for another caller, this one does its tasks alone (as thread 0). */
void opsnn_pool_run(opsnn_pool *pool, uint32_t n_tasks, opsnn_task_fn fn, void *arg);
void opsnn_pool_retain(opsnn_pool *pool);

/* --- arena.c: a pure function from lifetimes to offsets --- */
typedef struct opsnn_interval {
    size_t bytes;
    uint32_t first, last; /* steps at which it is alive, both inclusive */
    size_t offset;        /* result, a multiple of OPSNN_ALIGN */
} opsnn_interval;
/* Greedy by size, best fit (Pisarchyk and Lee, 2020, arXiv:2001.03288). *arena_bytes becomes the sum's size. Intervals of 0 bytes get
   offset 0. Fails with OPSNN_E_LIMIT when the arena would pass PTRDIFF_MAX, OPSNN_E_MEMORY without working memory. */
opsnn_status opsnn_arena_layout(opsnn_interval *intervals, uint32_t n, size_t *arena_bytes, opsnn_error *err);

#endif
