/* ops-nn: run neural networks on small boards.

   A model is opened once and read in place; a plan is computed from model, target and input shapes; an executor runs the plan:

       opsnn_error err;
       opsnn_model *model; opsnn_plan *plan; opsnn_exec *exec;
       if (opsnn_model_open("net.opsnn", &model, &err) || opsnn_plan_create(model, NULL, NULL, 0, &plan, &err) ||
           opsnn_exec_create(plan, NULL, NULL, 0, &exec, &err)) { puts(err.text); return 1; }
       memcpy(opsnn_exec_input(exec, 0), pixels, n_bytes);
       if (opsnn_exec_run(exec, &err)) { puts(err.text); return 1; }
       const float *scores = opsnn_exec_output(exec, 0);

   Objects may be freed in any order: what still needs another one keeps it alive. Models and plans are immutable and may be
   shared between threads; an executor belongs to one thread at a time. The library never prints, aborts or exits, and nothing
   is allocated during opsnn_exec_run. Every function that can fail returns an opsnn_status and fills the caller's opsnn_error
   (err may be NULL). Free functions accept NULL. */
#ifndef OPS_NN_H
#define OPS_NN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#if defined(__GNUC__)
#pragma GCC visibility push(default)
#endif

/* cdef begin: up to "cdef end" this text is read by C compilers and by cffi alike */

#define OPSNN_MAX_RANK 8
#define OPSNN_MAX_TAIL 4

typedef enum opsnn_status {
    OPSNN_OK = 0,
    OPSNN_E_ARGUMENT = 1,    /* a call makes no sense: NULL, an index out of range, a buffer that is too small */
    OPSNN_E_MEMORY = 2,      /* memory could not be had */
    OPSNN_E_IO = 3,          /* a file could not be read */
    OPSNN_E_FORMAT = 4,      /* the bytes are not a sound model */
    OPSNN_E_VERSION = 5,     /* the model or the caller was made for another version of the library */
    OPSNN_E_UNSUPPORTED = 6, /* this library has no kernel for a node */
    OPSNN_E_SHAPE = 7,       /* shapes, types or attributes do not fit an operator */
    OPSNN_E_CPU = 8,         /* this CPU lacks what the library was built for */
    OPSNN_E_LIMIT = 9        /* a size is beyond what this machine can address */
} opsnn_status;

/* Why a call failed. text is one line: the operator, the node, the numbers, and the remedy where there is one. */
typedef struct opsnn_error {
    int32_t code; /* opsnn_status */
    int32_t node; /* index of the node at fault, or -1 */
    char text[504];
} opsnn_error;

typedef struct opsnn_model opsnn_model;
typedef struct opsnn_plan opsnn_plan;
typedef struct opsnn_pool opsnn_pool;
typedef struct opsnn_exec opsnn_exec;

/* What library and caller must agree on; checked by language bindings at load. */
typedef struct opsnn_abi {
    uint32_t version; /* major << 16 | minor << 8 | patch */
    uint32_t n_sizes;
    uint64_t schema;   /* fingerprint of schema.py */
    uint32_t sizes[8]; /* sizeof opsnn_error, tensor_info, target, plan_info, node_info, candidate, and of the largest params */
} opsnn_abi;

/* A tensor as seen from outside. Strings belong to the object that was asked. */
typedef struct opsnn_tensor_info {
    const char *name;
    uint32_t dtype; /* opsnn_dtype */
    uint32_t rank;
    int32_t dims[OPSNN_MAX_RANK]; /* -1: open until a plan is made */
    uint32_t block;               /* constants: 0 or 1 plain; b: the first dimension is stored in blocks of b (model-format.md) */
    uint32_t reserved;
    uint64_t bytes; /* 0 while a dimension is open */
} opsnn_tensor_info;

/* The machine that a plan is made for: it need not be this one. */
typedef struct opsnn_target {
    char name[32];
    uint32_t arch;       /* opsnn_arch */
    uint32_t cpu;        /* mask of OPSNN_CPU_* */
    uint32_t n_threads;  /* cores that work together */
    float gflops;        /* float32 peak of one core, 1e9 operations per second (a multiply-add counts two) */
    float gbytes_per_s;  /* memory bandwidth */
} opsnn_target;

typedef enum opsnn_arch { OPSNN_ARCH_ANY = 0, OPSNN_ARCH_ARM = 1, OPSNN_ARCH_AARCH64 = 2, OPSNN_ARCH_X86_64 = 3 } opsnn_arch;

typedef struct opsnn_plan_info {
    uint32_t n_nodes;
    uint32_t n_inputs;
    uint32_t n_outputs;
    uint32_t n_tasks_max;  /* the widest node: more threads than this are of no use */
    uint64_t arena_bytes;  /* activations, inputs and outputs included */
    uint64_t scratch_bytes; /* per thread */
    uint64_t packed_bytes; /* weights that kernels wanted in another form than the model's */
    uint64_t const_bytes;  /* weights read in place */
    uint64_t macs;         /* multiply-adds of one run */
    uint64_t moved_bytes;  /* bytes read and written by one run, weights included */
    double predicted_ns;
} opsnn_plan_info;

typedef struct opsnn_node_info {
    const char *name;
    const char *op;
    const char *kernel; /* "view" where nothing is computed */
    uint32_t n_inputs;
    uint32_t n_outputs;
    uint32_t n_tail; /* fused element-wise steps */
    uint32_t n_tasks;
    uint64_t macs;
    uint64_t moved_bytes;
    double predicted_ns;
    const char *tail_kernels[OPSNN_MAX_TAIL]; /* whose map functions do the fused steps; NULL behind the last */
} opsnn_node_info;

/* A kernel that was considered for a node. */
typedef struct opsnn_candidate {
    const char *kernel;
    const char *why; /* NULL: it can; else the rule that excluded it */
    double predicted_ns;
    uint32_t chosen;
    uint32_t reserved;
} opsnn_candidate;

/* --- library --- */
const opsnn_abi *opsnn_abi_info(void);
/* One line of JSON: version, target triple, flags, operators and kernels inside, how it was configured. */
const char *opsnn_build_info(void);
const char *opsnn_status_name(int32_t status);
/* Every allocation goes through these; realloc(p, 0) never happens. Call before anything else, NULLs restore malloc and free. */
void opsnn_set_allocator(void *(*alloc)(size_t bytes, void *user), void (*release)(void *p, void *user), void *user);
/* Bytes now allocated and the highest they have been, and whether to start that peak anew. */
void opsnn_memory_usage(uint64_t *now, uint64_t *peak, int32_t reset_peak);
/* The machine this runs on; gflops and gbytes_per_s are coarse guesses. For tests, OPSNN_CPU_MASK in the environment (a number
   as in C: 5, 0x5) names the OPSNN_CPU_* features to keep: those of the machine that are not in it are hidden, 0 hides all. */
opsnn_status opsnn_target_detect(opsnn_target *target, opsnn_error *err);

/* --- models --- */
/* The file is mapped and read in place: while the model lives it may be replaced (renamed over), but not written to. */
opsnn_status opsnn_model_open(const char *path, opsnn_model **model, opsnn_error *err);
/* The bytes are used in place and must outlive the model and its plans; any alignment will do (a copy is made if it is below 64). */
opsnn_status opsnn_model_open_memory(const void *data, size_t bytes, opsnn_model **model, opsnn_error *err);
void opsnn_model_free(opsnn_model *model);
uint32_t opsnn_model_n_inputs(const opsnn_model *model);
uint32_t opsnn_model_n_outputs(const opsnn_model *model);
uint32_t opsnn_model_n_nodes(const opsnn_model *model);
/* An output that a node makes has rank 0 and 0 bytes here: its shape is known to plans. */
opsnn_status opsnn_model_input(const opsnn_model *model, uint32_t index, opsnn_tensor_info *info);
opsnn_status opsnn_model_output(const opsnn_model *model, uint32_t index, opsnn_tensor_info *info);
/* Value of a metadata key, or NULL. */
const char *opsnn_model_meta(const opsnn_model *model, const char *key);
/* Compares the model's stored hash with its bytes: not done by open. */
opsnn_status opsnn_model_check_hash(const opsnn_model *model, opsnn_error *err);

/* --- plans --- */
/* target NULL: this machine. inputs NULL: the shapes the model declares; else n_inputs infos whose rank and dims are used.
   flags: OPSNN_PLAN_*. */
#define OPSNN_PLAN_REF 1      /* only the portable reference kernels */
#define OPSNN_PLAN_NO_REUSE 2 /* every tensor gets memory of its own, for debugging */
#define OPSNN_PLAN_NO_PACK 4  /* plan only: weights are not packed, the plan cannot be executed */
opsnn_status opsnn_plan_create(opsnn_model *model, const opsnn_target *target, const opsnn_tensor_info *inputs, uint32_t flags,
                               opsnn_plan **plan, opsnn_error *err);
void opsnn_plan_free(opsnn_plan *plan);
void opsnn_plan_get_info(const opsnn_plan *plan, opsnn_plan_info *info);
opsnn_status opsnn_plan_input(const opsnn_plan *plan, uint32_t index, opsnn_tensor_info *info);
opsnn_status opsnn_plan_output(const opsnn_plan *plan, uint32_t index, opsnn_tensor_info *info);
opsnn_status opsnn_plan_node(const opsnn_plan *plan, uint32_t node, opsnn_node_info *info);
/* Fills up to capacity candidates of a node and returns how many there are. */
uint32_t opsnn_plan_candidates(const opsnn_plan *plan, uint32_t node, opsnn_candidate *candidates, uint32_t capacity);

/* --- running --- */
/* n_threads counts the caller; 0: the big cores of this machine. */
opsnn_status opsnn_pool_create(uint32_t n_threads, opsnn_pool **pool, opsnn_error *err);
void opsnn_pool_free(opsnn_pool *pool);
/* pool NULL: the calling thread alone. arena NULL: allocated; else at least arena_bytes of plan_info at a 64-byte boundary,
   kept by the caller until the executor is freed. */
opsnn_status opsnn_exec_create(opsnn_plan *plan, opsnn_pool *pool, void *arena, size_t arena_bytes, opsnn_exec **exec,
                               opsnn_error *err);
void opsnn_exec_free(opsnn_exec *exec);
/* Where to write an input before, and read an output after, each run: inputs are not preserved by a run. NULL: no such index. */
void *opsnn_exec_input(opsnn_exec *exec, uint32_t index);
const void *opsnn_exec_output(const opsnn_exec *exec, uint32_t index);
opsnn_status opsnn_exec_run(opsnn_exec *exec, opsnn_error *err);
/* With times (one number a node, nanoseconds) each run fills it; NULL stops that. */
void opsnn_exec_set_times(opsnn_exec *exec, double *times);

/* --- for compilers of models --- */
/* Shape and type of a node's outputs, by the very rules that plans use. Only dtype, rank and dims of the inputs are read; rank
   UINT32_MAX: an optional input that is not given. */
opsnn_status opsnn_infer(uint32_t op, uint32_t layout, const void *params, size_t params_bytes, const opsnn_tensor_info *inputs,
                         uint32_t n_inputs, opsnn_tensor_info *outputs, uint32_t n_outputs, opsnn_error *err);
/* Name of the index-th kernel of this library, NULL behind the last. */
const char *opsnn_kernel_name(uint32_t index);

/* cdef end */

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif
#endif
