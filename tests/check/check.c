/* See check.h.  check [--cases N] [--seed N] [--only TEXT] [--bench] [--list] [--self-test] */
#define _GNU_SOURCE
#include <errno.h>
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

/* --- random numbers: PCG (O'Neill, 2014), the same on every machine --- */

uint32_t check_random(check_rng *rng) {
    const uint64_t s = rng->state;
    rng->state = s * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    const uint32_t x = (uint32_t)(((s >> 18) ^ s) >> 27), r = (uint32_t)(s >> 59);
    return (x >> r) | (x << ((32 - r) & 31));
}

int32_t check_range(check_rng *rng, int32_t lo, int32_t hi) {
    return hi <= lo ? lo : lo + (int32_t)(check_random(rng) % ((uint32_t)(hi - lo) + 1));
}

bool check_chance(check_rng *rng, uint32_t percent) { return check_random(rng) % 100 < percent; }

int32_t check_dim(check_rng *rng, int32_t most) {
    static const int32_t dims[] = {1, 2, 3, 4, 5, 7, 8, 9, 12, 13, 15, 16, 17, 23, 24, 25, 31, 32, 33, 40, 48, 64, 65};
    int32_t n = 0;
    while (n < (int32_t)(sizeof dims / sizeof *dims) && dims[n] <= most) n++;
    return n ? dims[check_range(rng, 0, n - 1)] : 1;
}

/* --- memory between two pages that must not be touched --- */

typedef struct guarded {
    unsigned char *map, *data;
    size_t map_bytes;
} guarded;

static size_t page_bytes(void) { return (size_t)sysconf(_SC_PAGESIZE); }

/* at_end: the last byte lies before the forbidden page, wherever that puts the first; else the first byte lies behind one. */
static guarded guard(size_t bytes, bool at_end) {
    const size_t page = page_bytes(), room = (bytes + page - 1) / page * page;
    guarded g = {0};
    g.map_bytes = room + 2 * page;
    g.map = mmap(NULL, g.map_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (g.map == MAP_FAILED || (room && mprotect(g.map + page, room, PROT_READ | PROT_WRITE))) {
        fprintf(stderr, "check: no memory for a buffer of %zu bytes: %s\n", bytes, strerror(errno));
        exit(2);
    }
    g.data = g.map + page + (at_end ? room - bytes : 0);
    return g;
}

static void forbid_writes(const guarded *g) {
    const size_t page = page_bytes();
    if (g->map_bytes > 2 * page) mprotect(g->map + page, g->map_bytes - 2 * page, PROT_READ);
}

static void unguard(guarded *g) {
    if (g->map) munmap(g->map, g->map_bytes);
    memset(g, 0, sizeof *g);
}

/* --- signals --- */

static sigjmp_buf escape;
static volatile sig_atomic_t guarded_call;

static void on_signal(int number) {
    if (guarded_call) siglongjmp(escape, number);
    signal(number, SIG_DFL);
    raise(number);
}

static void catch_signals(void) {
    struct sigaction action = {0};
    action.sa_handler = on_signal;
    action.sa_flags = SA_NODEFER;
    const int numbers[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) sigaction(numbers[i], &action, NULL);
}

/* --- filling --- */

/* summed: the order of additions is the kernel's own, so that sums near the end of the range may overflow in one order only. */
static float fill_float(check_rng *rng, check_fill fill, bool plain, bool summed) {
    const float unit = (float)(check_random(rng) >> 8) / 8388608.0F - 1.0F;
    switch (fill) {
    case FILL_INTEGERS: return (float)check_range(rng, -4, 4);
    case FILL_LARGE: return plain ? fabsf(unit) + 0.01F : (fabsf(unit) + 0.1F) * 1e18F;
    case FILL_TINY: return unit * FLT_MIN * 4;
    case FILL_SPECIAL: {
#if defined(__arm__)
        const float small = FLT_MIN; /* NEON of ARMv7 flushes what is smaller: times infinity it would be NaN there */
#else
        const float small = 1e-40F;
#endif
        const float special[] = {NAN, INFINITY, -INFINITY, 0.0F, -0.0F, FLT_MAX, -FLT_MAX, small, 88.8F, -104.0F, 0.5F, 2.5F};
        if (plain) return unit;
        if (check_chance(rng, 3)) {
            const float x = special[check_range(rng, 0, (int32_t)(sizeof special / sizeof *special) - 1)];
            return summed && fabsf(x) == FLT_MAX ? unit : x;
        }
        return unit * 100.0F;
    }
    case FILL_UNIFORM:
    case N_FILLS: break;
    }
    return unit;
}

static void fill_value(check_rng *rng, check_fill fill, const opsnn_value *v, bool plain, bool summed, unsigned char *data) {
    if (v->dtype != OPSNN_DTYPE_F32) {
        for (size_t i = 0; i < v->bytes; i++) data[i] = (unsigned char)check_random(rng);
        return;
    }
    for (size_t i = 0; i < v->bytes / sizeof(float); i++) {
        float x = fill_float(rng, fill, plain, summed);
        if (plain && v->rank == 1) x = fabsf(x); /* variances; it does not hurt other parameters */
        memcpy(data + i * sizeof x, &x, sizeof x);
    }
    if (v->block > 1) { /* what fills up the last block is zero */
        const size_t b = v->block, d = (size_t)v->dims[0], n = (size_t)opsnn_count(v->dims + 1, v->rank - 1);
        for (size_t o = d; o < (d + b - 1) / b * b; o++)
            for (size_t i = 0; i < n; i++) memset(data + (((o / b) * n + i) * b + o % b) * sizeof(float), 0, sizeof(float));
    }
}

/* --- comparing --- */

static int64_t ordered(float x) { /* neighbouring floats have neighbouring numbers */
    int32_t i;
    memcpy(&i, &x, sizeof i);
    return i < 0 ? (int64_t)INT32_MIN - i : i;
}

static bool close_enough(float a, float b, float ulps, float absolute) {
    if (isnan(a) || isnan(b)) return isnan(a) && isnan(b);
    if (a == b) return true;
    if (isinf(a) || isinf(b)) return false;
    if (fabsf(a) < 1e-36F && fabsf(b) < 1e-36F) return true; /* NEON of ARMv7 flushes denormals */
    const int64_t distance = ordered(a) - ordered(b);
    return (float)(distance < 0 ? -distance : distance) <= ulps || fabsf(a - b) <= absolute;
}

/* --- running one kernel on one case --- */

typedef struct prepared {
    opsnn_value values[CHECK_MAX_INPUTS], out, tail_values[CHECK_MAX_TAIL];
    const opsnn_value *inputs[CHECK_MAX_INPUTS], *outputs[1];
    guarded in[CHECK_MAX_INPUTS], tail_in[CHECK_MAX_TAIL];
    opsnn_tail tails[CHECK_MAX_TAIL];
    opsnn_clip_params clip;
    opsnn_node node;
} prepared;

static const char *case_text(const prepared *p, const check_case *c, check_fill fill) {
    static char text[600];
    static const char *const fills[] = {"uniform", "integers", "large", "special", "tiny"};
    size_t n = (size_t)snprintf(text, sizeof text, "fill %s", fills[fill]);
    for (uint32_t i = 0; i < p->node.n_inputs && n < sizeof text - 100; i++) {
        const opsnn_value *v = p->inputs[i];
        n += (size_t)snprintf(text + n, sizeof text - n, " %s[", v ? opsnn_dtype_name(v->dtype) : "none");
        for (uint32_t d = 0; v && d < v->rank; d++) n += (size_t)snprintf(text + n, sizeof text - n, d ? ",%d" : "%d", v->dims[d]);
        n += (size_t)snprintf(text + n, sizeof text - n, v && v->block > 1 ? "]/%u" : "]", v ? v->block : 0U);
    }
    n += (size_t)snprintf(text + n, sizeof text - n, " tails %u params", p->node.n_tail);
    for (uint32_t i = 0; i < 14 && n < sizeof text - 20; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, " %d", (int)((const int32_t *)(const void *)c->params.bytes)[i]);
    return text;
}

static size_t storage_bytes(const opsnn_value *v) {
    size_t n = opsnn_elements(v);
    if (v->block > 1) n = n / (size_t)(v->dims[0] ? v->dims[0] : 1) * (((size_t)v->dims[0] + v->block - 1) / v->block * v->block);
    return n * opsnn_dtype_bytes(v->dtype);
}

static const opsnn_kernel *find_map(uint16_t op, uint32_t cpu) {
    const opsnn_op_entry *entry = opsnn_op_find(op);
    for (const opsnn_kernel *const *k = entry ? entry->kernels : NULL; k && *k; k++)
        if ((*k)->map && (*k)->dtype == OPSNN_DTYPE_F32 && ((*k)->cpu & ~cpu) == 0) return *k;
    return NULL;
}

/* Fused steps behind the node: an addition of one of three operand kinds, perhaps a clip. */
static void add_tails(check_rng *rng, prepared *p, check_fill fill, bool at_end) {
    opsnn_node *node = &p->node;
    const opsnn_kernel *add = find_map(OPSNN_OP_ADD, opsnn_cpu_features()), *clip = find_map(OPSNN_OP_CLIP, opsnn_cpu_features());
    static const opsnn_add_params open = {-INFINITY, INFINITY};
    node->tail = p->tails;
    if (add && check_chance(rng, 70)) {
        opsnn_value *v = &p->tail_values[node->n_tail];
        opsnn_tail *t = &p->tails[node->n_tail];
        t->kind = (uint8_t)check_range(rng, OPSNN_TAIL_SAME, OPSNN_TAIL_CHANNEL);
        if (p->out.rank == 0) t->kind = OPSNN_TAIL_SCALAR;
        v->dtype = OPSNN_DTYPE_F32;
        v->rank = t->kind == OPSNN_TAIL_SAME ? p->out.rank : t->kind == OPSNN_TAIL_CHANNEL ? 1 : 0;
        if (t->kind == OPSNN_TAIL_SAME) memcpy(v->dims, p->out.dims, sizeof v->dims);
        if (t->kind == OPSNN_TAIL_CHANNEL) v->dims[0] = p->out.dims[p->out.rank - 1];
        v->bytes = storage_bytes(v);
        p->tail_in[node->n_tail] = guard(v->bytes, at_end);
        fill_value(rng, fill, v, true, false, p->tail_in[node->n_tail].data);
        forbid_writes(&p->tail_in[node->n_tail]);
        t->kernel = add;
        t->params = &open;
        t->other = v;
        t->op = OPSNN_OP_ADD;
        t->other_first = (uint8_t)check_range(rng, 0, 1);
        node->n_tail++;
    }
    if (clip && check_chance(rng, 50)) {
        p->clip.lo = -1;
        p->clip.hi = 3;
        p->tails[node->n_tail++] = (opsnn_tail){.kernel = clip, .params = &p->clip, .op = OPSNN_OP_CLIP, .kind = OPSNN_TAIL_UNARY};
    }
}

/* Inputs with data, shapes inferred. False: the rule refuses the node. */
static bool prepare(check_rng *rng, const opsnn_op_entry *op, const check_case *c, check_fill fill, bool at_end, prepared *p) {
    memset(p, 0, sizeof *p);
    p->node = (opsnn_node){.op = op->id, .dtype = c->in[0].dtype, .layout = c->layout, .n_inputs = c->n_inputs, .n_outputs = 1,
                           .params = c->params.bytes, .inputs = p->inputs, .outputs = p->outputs, .name = "case"};
    p->outputs[0] = &p->out;
    for (uint32_t i = 0; i < c->n_inputs; i++) {
        p->values[i] = c->in[i];
        p->values[i].bytes = storage_bytes(&p->values[i]);
        p->inputs[i] = c->absent[i] ? NULL : &p->values[i];
    }
    opsnn_value *outputs[1] = {&p->out};
    opsnn_error err;
    if (op->rule->infer(&p->node, outputs, &err) != OPSNN_OK) return false;
    p->out.bytes = storage_bytes(&p->out);
    for (uint32_t i = 0; i < c->n_inputs; i++) {
        if (c->absent[i]) continue;
        p->in[i] = guard(p->values[i].bytes, at_end);
        fill_value(rng, fill, &p->values[i], c->plain[i], c->depth > 1, p->in[i].data);
        forbid_writes(&p->in[i]);
        if (c->constant[i]) p->values[i].data = p->in[i].data;
    }
    p->node.macs = op->rule->macs(&p->node);
    p->node.moved_bytes = p->out.bytes + p->values[0].bytes;
    return true;
}

static void release(prepared *p) {
    for (uint32_t i = 0; i < CHECK_MAX_INPUTS; i++) unguard(&p->in[i]);
    for (uint32_t i = 0; i < CHECK_MAX_TAIL; i++) unguard(&p->tail_in[i]);
}

typedef enum outcome { RAN, REFUSED, FAILED } outcome;
static char failure[256];
static bool quiet; /* failures are expected: counted, not told */

/* backwards: tasks in the opposite order. alias: output lies where this input lies, or -1. */
static outcome run_kernel(const opsnn_kernel *k, const prepared *p, bool backwards, int alias, bool at_end, guarded *out) {
    opsnn_target target = {.name = "check", .cpu = opsnn_cpu_features(), .n_threads = 4, .gflops = 8, .gbytes_per_s = 4};
    opsnn_fit fit = {0};
    if (!k->plan(&p->node, &target, &fit)) {
        if (fit.why) return REFUSED;
        snprintf(failure, sizeof failure, "plan refuses and gives no reason");
        return FAILED;
    }
    if (fit.n_tasks < 1 || !(fit.predicted_ns >= 0)) {
        snprintf(failure, sizeof failure, "plan gives %u tasks and %g ns", fit.n_tasks, fit.predicted_ns);
        return FAILED;
    }
    if (fit.packed_bytes && !k->pack) {
        snprintf(failure, sizeof failure, "plan wants %zu packed bytes, the kernel has no pack", fit.packed_bytes);
        return FAILED;
    }
    guarded packed = {0}, scratch = guard((fit.scratch_bytes + 63) / 64 * 64, true);
    *out = guard(p->out.bytes, at_end);
    for (size_t i = 0; i < p->out.bytes; i++) out->data[i] = (unsigned char)(0xC5 + i % 4); /* not any right answer */
    const void *in[CHECK_MAX_INPUTS] = {0}, *tail_in[CHECK_MAX_TAIL] = {0};
    for (uint32_t i = 0; i < p->node.n_inputs; i++) in[i] = p->inputs[i] ? p->in[i].data : NULL;
    for (uint32_t i = 0; i < p->node.n_tail; i++) tail_in[i] = p->tail_in[i].data;
    if (alias >= 0) {
        memcpy(out->data, in[alias], p->out.bytes);
        in[alias] = out->data;
    }
    outcome result = RAN;
    const int signal_number = sigsetjmp(escape, 1);
    if (signal_number == 0) {
        guarded_call = 1;
        if (fit.packed_bytes) {
            packed = guard((fit.packed_bytes + 63) / 64 * 64, true);
            k->pack(&p->node, &fit, packed.data);
            forbid_writes(&packed);
        }
        void *outs[1] = {out->data};
        const opsnn_call call = {&p->node, &fit, packed.data, in, outs, tail_in, scratch.data};
        for (uint32_t t = 0; t < fit.n_tasks; t++) {
            memset(scratch.data, 0xA7, fit.scratch_bytes);
            k->run(&call, backwards ? fit.n_tasks - 1 - t : t);
        }
    } else {
        snprintf(failure, sizeof failure, "%s%s", strsignal(signal_number),
                 signal_number == SIGSEGV ? " (it touches what is not its own)" : "");
        result = FAILED;
    }
    guarded_call = 0;
    unguard(&packed);
    unguard(&scratch);
    if (result != RAN) unguard(out);
    return result;
}

/* The plain loop over map that fused steps are defined by. */
static void apply_tails(const prepared *p, unsigned char *out) {
    opsnn_fit fit = {0};
    void *outs[1] = {out};
    const void *tail_in[CHECK_MAX_TAIL] = {0};
    for (uint32_t i = 0; i < p->node.n_tail; i++) tail_in[i] = p->tail_in[i].data;
    const opsnn_call call = {&p->node, &fit, NULL, NULL, outs, tail_in, NULL};
    if (p->out.bytes) opsnn_tail_apply(&call, 0, opsnn_elements(&p->out));
}

static bool same(const check_family *family, const check_case *c, const prepared *p, check_fill fill, const unsigned char *want,
                 const unsigned char *got) {
    const bool exact = p->out.dtype != OPSNN_DTYPE_F32 || (fill == FILL_INTEGERS && family->exact_integers) ||
                       (family->ulps == 0 && family->absolute == 0);
    if (exact && memcmp(want, got, p->out.bytes) == 0) return true;
    const float depth = sqrtf((float)(c->depth ? c->depth : 1));
    for (size_t i = 0; i < p->out.bytes; i += sizeof(float)) {
        float a = 0, b = 0;
        if (p->out.dtype != OPSNN_DTYPE_F32) {
            if (memcmp(want + i, got + i, p->out.bytes - i < 4 ? p->out.bytes - i : 4) == 0) continue;
            snprintf(failure, sizeof failure, "bytes from %zu on differ", i);
            return false;
        }
        memcpy(&a, want + i, sizeof a);
        memcpy(&b, got + i, sizeof b);
        const float scale = fill == FILL_LARGE ? fabsf(a) : fill == FILL_SPECIAL ? 100.0F + fabsf(a) : 1.0F + fabsf(a);
        const float absolute = family->absolute * depth * scale;
        if (exact ? a == b : close_enough(a, b, family->ulps, absolute)) continue;
        snprintf(failure, sizeof failure, "element %zu is %.9g, reference %.9g", i / sizeof(float), (double)b, (double)a);
        return false;
    }
    return true;
}

static bool is_reference(const opsnn_kernel *k) {
    const size_t n = strlen(k->name);
    return n > 4 && strcmp(k->name + n - 4, "_ref") == 0;
}

static const opsnn_kernel *reference_of(const opsnn_op_entry *op, const opsnn_kernel *k) {
    for (const opsnn_kernel *const *r = op->kernels; *r; r++)
        if (is_reference(*r) && ((*r)->dtype == 0 || (*r)->dtype == k->dtype) && ((*r)->layout == 0 || (*r)->layout == k->layout))
            return *r;
    return NULL;
}

static const check_family *family_of(const opsnn_op_entry *op) {
    for (uint32_t i = 0; i < n_check_families; i++)
        if (check_families[i].rule == op->rule) return &check_families[i];
    return NULL;
}

typedef struct tally {
    uint32_t ran, refused, failed, invalid;
} tally;

/* One case through reference and kernel: forwards, backwards, and in place where the operator may. */
static void check_case_once(const opsnn_op_entry *op, const opsnn_kernel *k, const opsnn_kernel *ref, const check_family *family,
                            uint64_t seed, check_fill fill, tally *t) {
    check_rng rng = {seed};
    for (int i = 0; i < 4; i++) check_random(&rng);
    const uint16_t types[] = {OPSNN_DTYPE_F32, OPSNN_DTYPE_U8, OPSNN_DTYPE_S64, OPSNN_DTYPE_F16};
    const uint16_t dtype = k->dtype ? k->dtype : types[check_range(&rng, 0, 3)];
    const bool at_end = check_chance(&rng, 75);
    check_case c = {0};
    prepared p;
    family->generate(&rng, op, dtype, &c);
    if (!prepare(&rng, op, &c, fill, at_end, &p)) {
        t->invalid++;
        return;
    }
    if ((k->flags & OPSNN_KERNEL_TAIL) && dtype == OPSNN_DTYPE_F32 && check_chance(&rng, 35)) add_tails(&rng, &p, fill, at_end);
    for (uint32_t i = 0; i < p.node.n_inputs; i++)
        if (p.inputs[i] && p.inputs[i]->block > 1 && !(k->flags & OPSNN_KERNEL_BLOCKED)) {
            t->refused++;
            release(&p);
            return;
        }
    guarded want = {0}, got = {0};
    prepared bare = p; /* the reference computes the node alone; fused steps follow as defined */
    bare.node.n_tail = 0;
    bare.node.inputs = bare.inputs;
    bare.node.outputs = bare.outputs;
    bare.outputs[0] = &bare.out;
    outcome o = run_kernel(ref, &bare, false, -1, true, &want);
    if (o != RAN) {
        if (o == REFUSED) snprintf(failure, sizeof failure, "the reference refuses what the rule allows");
        printf("not ok %s: %s (%s)\n", ref->name, failure, case_text(&p, &c, fill));
        t->failed++;
        release(&p);
        return;
    }
    apply_tails(&p, want.data);
    o = run_kernel(k, &p, false, -1, at_end, &got);
    bool good = o != FAILED;
    if (o == RAN) {
        good = same(family, &c, &p, fill, want.data, got.data);
        guarded again = {0};
        if (good) {
            good = run_kernel(k, &p, true, -1, at_end, &again) == RAN;
            if (good && memcmp(again.data, got.data, p.out.bytes) != 0) {
                snprintf(failure, sizeof failure, "the order of tasks changes the result");
                good = false;
            }
            unguard(&again);
        }
        const int in_place = !(op->flags & OPSNN_OP_INPLACE) ? 0 : op->flags & OPSNN_OP_MAP ? p.node.n_inputs : 1;
        for (int i = 0; good && i < in_place; i++) {
            const opsnn_value *v = p.inputs[i];
            if (!v || v->bytes != p.out.bytes || v->rank != p.out.rank || memcmp(v->dims, p.out.dims, v->rank * sizeof *v->dims)) continue;
            good = run_kernel(k, &p, false, i, at_end, &again) == RAN;
            if (good && memcmp(again.data, got.data, p.out.bytes) != 0) {
                snprintf(failure, sizeof failure, "in place of input %d the result differs", i);
                good = false;
            }
            unguard(&again);
        }
    }
    if (!good) {
        if (t->failed < 5 && !quiet) printf("not ok %s: %s (seed %llu, %s)\n", k->name, failure, (unsigned long long)seed, case_text(&p, &c, fill));
        t->failed++;
    } else if (o == RAN) t->ran++;
    else t->refused++;
    unguard(&got);
    unguard(&want);
    release(&p);
}

static tally check_kernel(const opsnn_op_entry *op, const opsnn_kernel *k, const opsnn_kernel *ref, uint32_t cases, uint64_t seed) {
    tally t = {0};
    const check_family *family = family_of(op);
    if (!family || !ref) {
        printf("not ok %s: %s\n", k->name, family ? "there is no reference to compare with" : "no generator for its rule in cases.c");
        t.failed++;
        return t;
    }
    for (uint32_t i = 0; i < cases; i++)
        check_case_once(op, k, ref, family, seed + i * UINT64_C(7919), (check_fill)(i % N_FILLS), &t);
    if (!t.failed && t.ran < cases / 20) {
        printf("not ok %s: only %u of %u cases could be run (%u refused, %u invalid)\n", k->name, t.ran, cases, t.refused, t.invalid);
        t.failed++;
    }
    return t;
}

/* --- timing: the cases of one kernel beside those of its reference; ratios are what counts --- */

static double now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static double bench_kernel(const opsnn_kernel *k, const prepared *p) {
    guarded out = {0};
    double best = -1;
    for (int i = 0; i < 5; i++) {
        const double start = now_ns();
        if (run_kernel(k, p, false, -1, true, &out) != RAN) return -1;
        const double spent = now_ns() - start;
        unguard(&out);
        if (best < 0 || spent < best) best = spent;
    }
    return best;
}

static void bench(const opsnn_op_entry *op, const opsnn_kernel *k, const opsnn_kernel *ref, uint32_t cases, uint64_t seed) {
    const check_family *family = family_of(op);
    double mine = 0, reference = 0;
    for (uint32_t i = 0; family && ref && i < cases; i++) {
        check_rng rng = {seed + i * UINT64_C(7919)};
        check_case c = {0};
        prepared p;
        family->generate(&rng, op, k->dtype ? k->dtype : OPSNN_DTYPE_F32, &c);
        if (!prepare(&rng, op, &c, FILL_UNIFORM, true, &p)) continue;
        const double a = bench_kernel(k, &p), b = a < 0 ? -1 : bench_kernel(ref, &p);
        if (b >= 0) {
            mine += a;
            reference += b;
        }
        release(&p);
    }
    if (mine > 0) printf("bench %s %.2f times the speed of %s\n", k->name, reference / mine, ref->name);
}

/* --- the harness itself is tested with kernels that are wrong on purpose --- */

static int self_test(uint32_t cases, uint64_t seed) {
    uint32_t missed = 0;
    quiet = true;
    const opsnn_op_entry *op = opsnn_op_find(OPSNN_OP_ADD);
    for (uint32_t i = 0; i < n_check_brokens; i++) {
        const opsnn_kernel *k = check_brokens[i].kernel;
        const tally t = check_kernel(op, k, reference_of(op, k), cases, seed);
        printf("%s: a kernel that %s is %s\n", t.failed ? "ok" : "not ok", check_brokens[i].what, t.failed ? "noticed" : "not noticed");
        missed += t.failed == 0;
    }
    printf("%u faults, %u missed\n", n_check_brokens, missed);
    return missed != 0;
}

int main(int argc, char **argv) {
    uint32_t cases = 300;
    uint64_t seed = 1;
    const char *only = "";
    bool want_bench = false, list = false, want_self_test = false;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--cases") == 0 && i + 1 < argc) cases = (uint32_t)strtoul(argv[++i], NULL, 10);
        else if (strcmp(argv[i], "--seed") == 0 && i + 1 < argc) seed = strtoull(argv[++i], NULL, 10);
        else if (strcmp(argv[i], "--only") == 0 && i + 1 < argc) only = argv[++i];
        else if (strcmp(argv[i], "--bench") == 0) want_bench = true;
        else if (strcmp(argv[i], "--list") == 0) list = true;
        else if (strcmp(argv[i], "--self-test") == 0) want_self_test = true;
        else {
            fprintf(stderr, "usage: check [--cases N] [--seed N] [--only TEXT] [--bench] [--list] [--self-test]\n");
            return 2;
        }
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    catch_signals();
    if (want_self_test) return self_test(cases, seed);
    const uint32_t cpu = opsnn_cpu_features();
    tally all = {0};
    uint32_t kernels = 0, skipped = 0;
    for (uint32_t i = 0; i < opsnn_ops_count; i++) {
        const opsnn_op_entry *op = &opsnn_ops_table[i];
        for (const opsnn_kernel *const *k = op->kernels; *k; k++) {
            if (is_reference(*k) || !strstr((*k)->name, only)) continue;
            if (list) {
                printf("%s\n", (*k)->name);
                continue;
            }
            if ((*k)->cpu & ~cpu) {
                printf("skip %s: this CPU lacks features %#x\n", (*k)->name, (*k)->cpu & ~cpu);
                skipped++;
                continue;
            }
            if (want_bench) {
                bench(op, *k, reference_of(op, *k), cases, seed);
                continue;
            }
            const tally t = check_kernel(op, *k, reference_of(op, *k), cases, seed);
            if (!t.failed) printf("ok %s: %u cases, %u refused, %u invalid\n", (*k)->name, t.ran, t.refused, t.invalid);
            all.ran += t.ran;
            all.failed += t.failed;
            kernels++;
        }
    }
    if (!list && !want_bench) printf("%u kernels, %u cases, %u failures, %u kernels skipped\n", kernels, all.ran, all.failed, skipped);
    return all.failed != 0;
}
