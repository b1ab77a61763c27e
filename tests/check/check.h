/* A harness for kernels, in the spirit of checkasm: every kernel of the library's table that is not itself a reference is compared
   with the portable reference over generated cases. Each tensor ends (or begins) at a page that must not be touched, what is left
   unwritten is noticed, tasks run in two orders, and a signal is a named failure of one kernel, not the end of the run. */
#ifndef CHECK_H
#define CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core.h"

enum { CHECK_MAX_INPUTS = 6, CHECK_MAX_TAIL = 2 };

/* What a tensor is filled with. Random numbers alone miss overflow, NaN handling and contaminated lanes. */
typedef enum check_fill {
    FILL_UNIFORM,  /* [-1, 1] */
    FILL_INTEGERS, /* small integers: sums are exact, so a fast kernel must give the very bits of the reference */
    FILL_LARGE,    /* up to 1e18, positive: products near the end of the range */
    FILL_SPECIAL,  /* uniform in [-100, 100] with NaN, infinities, signed zeros and huge values strewn in (activations only) */
    FILL_TINY,     /* around the smallest normal number */
    N_FILLS
} check_fill;

typedef struct check_rng {
    uint64_t state;
} check_rng;
uint32_t check_random(check_rng *rng);
int32_t check_range(check_rng *rng, int32_t lo, int32_t hi); /* lo <= result <= hi */
int32_t check_dim(check_rng *rng, int32_t most);             /* vector tails and their neighbours, at most `most` */
bool check_chance(check_rng *rng, uint32_t percent);

/* One node to run. The generator fills everything but the outputs. */
typedef struct check_case {
    union {
        unsigned char bytes[OPSNN_MAX_PARAMS_BYTES];
        uint32_t align;
    } params;
    opsnn_value in[CHECK_MAX_INPUTS];
    bool absent[CHECK_MAX_INPUTS];
    bool constant[CHECK_MAX_INPUTS];
    bool plain[CHECK_MAX_INPUTS]; /* never holds special values: a weight (padding times infinity is not defined), a variance */
    uint16_t n_inputs, layout;
    uint32_t depth; /* products that are summed into one element: tolerance grows with its root */
} check_case;

/* How the nodes of one rule (src/ops/<rule>.c) are made and compared. */
typedef struct check_family {
    const opsnn_rule *rule;
    void (*generate)(check_rng *rng, const opsnn_op_entry *op, uint16_t dtype, check_case *c);
    float ulps;         /* allowed difference, in units of the last place of the result */
    float absolute;     /* or in absolute terms, times the root of depth; whichever is larger */
    bool exact_integers; /* bit-equal on FILL_INTEGERS */
} check_family;
extern const check_family check_families[];
extern const uint32_t n_check_families;

/* Kernels that are wrong on purpose, one a fault that the harness must see (broken.c). */
typedef struct check_broken {
    const char *what;
    const opsnn_kernel *kernel;
} check_broken;
extern const check_broken check_brokens[];
extern const uint32_t n_check_brokens;

#endif
