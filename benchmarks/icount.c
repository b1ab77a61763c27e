/* A QEMU plugin that counts the instructions of a guest program exactly.

       cc -std=c11 -O2 -shared -fPIC -fvisibility=hidden -o icount.so icount.c
       qemu-arm -plugin icount.so,out=counts.json[,top=N] PROGRAM

   The guest marks regions with the system call close(-7701), which changes nothing anywhere else. At exit one JSON object
   is written: the instructions of the whole run, of each region between two marks (with classes, where the guest is AArch64),
   and the N basic blocks that took most instructions. If there are marks, these are the blocks between first and last mark.

   Debian does not package qemu-plugin.h, so what is used of it is declared here. Interface versions 1 (QEMU 7) to 6 (QEMU 11)
   work; version 7 changes the callbacks. */
#include <inttypes.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
#define NEWEST_INTERFACE 6

typedef uint64_t qemu_plugin_id_t;
struct qemu_plugin_tb;
struct qemu_plugin_insn;

typedef struct qemu_info {
    const char *target_name;
    struct {
        int min, cur;
    } version;
    bool system_emulation;
    int smp_vcpus, max_vcpus;
} qemu_info;

typedef void (*translation_cb)(qemu_plugin_id_t, struct qemu_plugin_tb *);
typedef void (*execution_cb)(unsigned vcpu, void *user);
typedef void (*exit_cb)(qemu_plugin_id_t, void *user);
typedef void (*syscall_cb)(qemu_plugin_id_t, unsigned vcpu, int64_t number, uint64_t a1, uint64_t a2, uint64_t a3, uint64_t a4,
                           uint64_t a5, uint64_t a6, uint64_t a7, uint64_t a8);

void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t, translation_cb);
void qemu_plugin_register_vcpu_tb_exec_cb(struct qemu_plugin_tb *, execution_cb, int flags, void *user);
void qemu_plugin_register_atexit_cb(qemu_plugin_id_t, exit_cb, void *user);
void qemu_plugin_register_vcpu_syscall_cb(qemu_plugin_id_t, syscall_cb);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);
uint64_t qemu_plugin_tb_vaddr(const struct qemu_plugin_tb *);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *, size_t index);
void *qemu_plugin_insn_haddr(const struct qemu_plugin_insn *);
/* Before version 3 this takes the instruction only and returns a pointer to its bytes: see instruction_word(). */
size_t qemu_plugin_insn_data(const struct qemu_plugin_insn *, void *to, size_t size);
/* Only its presence matters: it came with version 2. */
__attribute__((weak)) void *qemu_plugin_scoreboard_new(size_t);

EXPORT int qemu_plugin_version = 1;
EXPORT int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info *info, int argc, char **argv);

/* QEMU reads qemu_plugin_version when this file is loaded. Version 1 and the later ones each refuse the other's number,
   so the number is chosen before. */
__attribute__((constructor)) static void choose_version(void) {
    if (qemu_plugin_scoreboard_new)
        qemu_plugin_version = 2;
}

enum { ALL, SIMD, LOAD_STORE, SIMD_LOAD_STORE, BRANCH, N_CLASSES };

static const char *const class_names[N_CLASSES] = {"instructions", "simd", "load_store", "simd_load_store", "branch"};

typedef struct counts {
    uint64_t n[N_CLASSES];
} counts;

/* A basic block. Blocks that QEMU translates again are listed again. */
typedef struct block {
    counts per_run;
    uint64_t guest, host; /* addresses */
    uint64_t runs, runs_at_mark;
    struct block *next;
} block;

/* Each guest thread counts in its own slot; more threads than slots share, and may then lose a few counts. */
#define N_SLOTS 256
typedef struct slot {
    _Alignas(64) counts sum;
} slot;

static slot slots[N_SLOTS];
static block *blocks;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards blocks and the marks */
static counts *marks;                                    /* the sums at each mark */
static size_t n_marks;
static bool aarch64;
static int interface;
static int64_t close_number;
static size_t n_hottest;
static char target[16];
static FILE *out;

static void *allocate(void *old, size_t bytes) {
    void *p = realloc(old, bytes);
    if (!p) {
        fputs("icount: out of memory\n", stderr);
        abort(); /* a wrong count would be worse */
    }
    return p;
}

static counts sum_of_slots(void) {
    counts sum = {{0}};
    for (size_t s = 0; s < N_SLOTS; s++)
        for (size_t c = 0; c < N_CLASSES; c++)
            sum.n[c] += slots[s].sum.n[c];
    return sum;
}

static uint32_t instruction_word(const struct qemu_plugin_insn *insn) {
    uint32_t word = 0;
    if (interface >= 3) {
        qemu_plugin_insn_data(insn, &word, sizeof word);
    } else {
        const void *(*before_3)(const struct qemu_plugin_insn *);
        before_3 = (const void *(*)(const struct qemu_plugin_insn *))(void (*)(void))qemu_plugin_insn_data;
        memcpy(&word, before_3(insn), sizeof word);
    }
    return word;
}

/* The top level of the A64 encoding ("op0", bits 25 to 28). */
static int class_of(uint32_t word) {
    unsigned op0 = word >> 25 & 15;
    if ((op0 & 7) == 7)
        return SIMD;
    if ((op0 & 5) == 4)
        return word >> 26 & 1 ? SIMD_LOAD_STORE : LOAD_STORE;
    return (op0 & 14) == 10 ? BRANCH : ALL;
}

static void on_execution(unsigned vcpu, void *user) {
    block *b = user;
    counts *sum = &slots[vcpu % N_SLOTS].sum;
    for (size_t c = 0; c < N_CLASSES; c++)
        sum->n[c] += b->per_run.n[c];
    b->runs++;
}

static void on_translation(qemu_plugin_id_t id, struct qemu_plugin_tb *tb) {
    (void)id;
    size_t n = qemu_plugin_tb_n_insns(tb);
    block *b = allocate(NULL, sizeof *b);
    *b = (block){.guest = qemu_plugin_tb_vaddr(tb)};
    b->host = (uint64_t)(uintptr_t)qemu_plugin_insn_haddr(qemu_plugin_tb_get_insn(tb, 0));
    b->per_run.n[ALL] = n;
    for (size_t i = 0; aarch64 && i < n; i++) {
        int c = class_of(instruction_word(qemu_plugin_tb_get_insn(tb, i)));
        if (c != ALL)
            b->per_run.n[c]++;
    }
    pthread_mutex_lock(&lock);
    b->next = blocks;
    blocks = b;
    pthread_mutex_unlock(&lock);
    qemu_plugin_register_vcpu_tb_exec_cb(tb, on_execution, 0, b);
}

static void on_syscall(qemu_plugin_id_t id, unsigned vcpu, int64_t number, uint64_t a1, uint64_t a2, uint64_t a3, uint64_t a4,
                       uint64_t a5, uint64_t a6, uint64_t a7, uint64_t a8) {
    (void)id, (void)vcpu, (void)a2, (void)a3, (void)a4, (void)a5, (void)a6, (void)a7, (void)a8;
    if (number != close_number || (int32_t)(uint32_t)a1 != -7701)
        return;
    pthread_mutex_lock(&lock);
    for (block *b = blocks; b; b = b->next) {
        if (!n_marks)
            b->runs = 0;
        b->runs_at_mark = b->runs;
    }
    marks = allocate(marks, (n_marks + 1) * sizeof *marks);
    marks[n_marks++] = sum_of_slots();
    pthread_mutex_unlock(&lock);
}

static uint64_t weight(const block *b) {
    return b->per_run.n[ALL] * (n_marks > 1 ? b->runs_at_mark : b->runs);
}

static int heavier_first(const void *a, const void *b) {
    uint64_t x = weight(*(block *const *)a), y = weight(*(block *const *)b);
    return (x < y) - (x > y);
}

/* The mapped file that a host address lies in, and the offset in that file. */
static bool find_file(uint64_t host, char *path, size_t size, uint64_t *offset) {
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[4096];
    bool found = false;
    while (maps && !found && fgets(line, sizeof line, maps)) {
        uint64_t start, end, at;
        int name = 0;
        if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %*s %" SCNx64 " %*s %*s %n", &start, &end, &at, &name) < 3)
            continue;
        found = host >= start && host < end && line[name] == '/';
        if (found) {
            line[strcspn(line, "\n")] = 0;
            snprintf(path, size, "%s", line + name);
            *offset = host - start + at;
        }
    }
    if (maps)
        fclose(maps);
    return found;
}

static void write_counts(const counts *end, const counts *start) {
    for (size_t c = 0; c < (aarch64 ? N_CLASSES : 1); c++)
        fprintf(out, "%s\"%s\": %" PRIu64, c ? ", " : "{", class_names[c], end->n[c] - start->n[c]);
    fputs("}", out);
}

static void write_hottest(void) {
    size_t n = 0;
    for (block *b = blocks; b; b = b->next)
        n++;
    block **sorted = allocate(NULL, (n + 1) * sizeof *sorted);
    n = 0;
    for (block *b = blocks; b; b = b->next)
        sorted[n++] = b;
    qsort(sorted, n, sizeof *sorted, heavier_first);
    for (size_t i = 0; i < n && i < n_hottest; i++) {
        const block *b = sorted[i];
        char path[4096] = "";
        uint64_t offset = 0;
        find_file(b->host, path, sizeof path, &offset);
        fprintf(out, "%s\n  {\"instructions\": %" PRIu64 ", \"length\": %" PRIu64 ", \"address\": %" PRIu64, i ? "," : "", weight(b),
                b->per_run.n[ALL], b->guest);
        fprintf(out, ", \"file\": \"%s\", \"offset\": %" PRIu64 "}", path, offset);
    }
    free(sorted);
}

static void on_exit_of_guest(qemu_plugin_id_t id, void *user) {
    (void)id, (void)user;
    static const counts zero;
    pthread_mutex_lock(&lock);
    counts total = sum_of_slots();
    fprintf(out, "{\"target\": \"%s\",\n \"total\": ", target);
    write_counts(&total, &zero);
    fputs(",\n \"regions\": [", out);
    for (size_t i = 1; i < n_marks; i++) {
        fputs(i > 1 ? ",\n  " : "\n  ", out);
        write_counts(&marks[i], &marks[i - 1]);
    }
    fputs("],\n \"hottest\": [", out);
    write_hottest();
    fputs("]}\n", out);
    fflush(out);
    pthread_mutex_unlock(&lock);
}

EXPORT int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info *info, int argc, char **argv) {
    interface = info->version.cur;
    if (interface > NEWEST_INTERFACE) {
        fprintf(stderr, "icount: this QEMU has plugin interface %d, but 1 to %d are known: see the head of icount.c\n", interface,
                NEWEST_INTERFACE);
        return -1;
    }
    aarch64 = !strcmp(info->target_name, "aarch64");
    if (info->system_emulation || (!aarch64 && strcmp(info->target_name, "arm") != 0)) {
        fprintf(stderr, "icount: only programs of qemu-arm and qemu-aarch64 can be counted, not of %s\n", info->target_name);
        return -1;
    }
    snprintf(target, sizeof target, "%s", info->target_name);
    close_number = aarch64 ? 57 : 6;
    out = stderr;
    for (int i = 0; i < argc; i++) {
        if (!strncmp(argv[i], "out=", 4)) {
            out = fopen(argv[i] + 4, "w");
            if (!out) {
                perror(argv[i] + 4);
                return -1;
            }
        } else if (!strncmp(argv[i], "top=", 4)) {
            n_hottest = strtoul(argv[i] + 4, NULL, 10);
        } else {
            fprintf(stderr, "icount: unknown option %s; there are out=FILE and top=N\n", argv[i]);
            return -1;
        }
    }
    qemu_plugin_register_vcpu_tb_trans_cb(id, on_translation);
    qemu_plugin_register_vcpu_syscall_cb(id, on_syscall);
    qemu_plugin_register_atexit_cb(id, on_exit_of_guest, NULL);
    return 0;
}
