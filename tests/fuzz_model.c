/* Hostile models: opens bytes, plans, and runs what is small, as a program would that trusts nobody. LLVMFuzzerTestOneInput is
   libFuzzer's entry; without it, main makes the inputs itself:

       fuzz_model truncate MODEL...           every prefix
       fuzz_model mutate ROUNDS SEED MODEL... random bytes, numbers and splices
       fuzz_model unaligned MODEL...          buffers 1, 2 and 4 bytes off give the same result
       fuzz_model memory MODEL...             each allocation fails once: the right status, nothing lost
       fuzz_model run MODEL...                as they are

   Prints how far the inputs got. Memory is limited and a watchdog ends what hangs. */
#define _POSIX_C_SOURCE 200809L
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ops_nn.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

enum { LIMIT_BYTES = 64 << 20, LIMIT_MACS = 4 << 20, WATCHDOG_S = 20, OPEN_DIM = 5 };

static const char *doing = "";
static uint64_t n_inputs, n_opened, n_planned, n_run;
static opsnn_error err; /* of the last call */

#define EXPECT(condition)                                                                                     \
    do {                                                                                                      \
        if (!(condition)) {                                                                                   \
            fprintf(stderr, "%s:%d: expected %s, %s: %s\n", __FILE__, __LINE__, #condition, doing, err.text); \
            abort();                                                                                          \
        }                                                                                                     \
    } while (0)

/* --- an allocator with a limit, and with a place to fail --- */
static size_t used;
static long fail_at, n_allocations; /* fail_at < 0: never */

static void *alloc(size_t bytes, void *user) {
    (void)user;
    if (n_allocations++ == fail_at || bytes > LIMIT_BYTES || used > LIMIT_BYTES - bytes) return NULL;
    size_t *p = malloc(bytes + 16);
    if (!p) return NULL;
    memset(p, 0xa5, bytes + 16);
    *p = bytes;
    used += bytes;
    return p + 16 / sizeof(size_t);
}

static void release(void *p, void *user) {
    (void)user;
    size_t *start = (size_t *)p - 16 / sizeof(size_t);
    used -= *start;
    free(start);
}

static void alarmed(int signal_number) {
    (void)signal_number;
    static const char text[] = "an input took too long\n";
    if (write(2, text, sizeof(text) - 1) < 0) _exit(3);
    abort();
}

/* --- one input --- */
static void check_error(opsnn_status status) {
    EXPECT(status == 0 || (err.code == (int32_t)status && err.text[0] && memchr(err.text, 0, sizeof(err.text))));
    EXPECT(status == 0 || strpbrk(err.text, "\r\n") == NULL);
}

/* Sum of the outputs' bytes, so that results can be compared. */
static uint64_t checksum(const opsnn_plan *plan, const opsnn_exec *exec) {
    opsnn_tensor_info info;
    uint64_t sum = 0;
    for (uint32_t i = 0; opsnn_plan_output(plan, i, &info) == OPSNN_OK; i++) {
        const uint8_t *p = opsnn_exec_output(exec, i);
        for (uint64_t k = 0; k < info.bytes; k++) sum = sum * 31 + p[k];
    }
    return sum;
}

static opsnn_status execute(opsnn_plan *plan, opsnn_pool *pool, uint64_t *sum) {
    opsnn_exec *exec = NULL;
    opsnn_status status = opsnn_exec_create(plan, pool, NULL, 0, &exec, &err);
    if (status) return status;
    opsnn_tensor_info info;
    for (uint32_t i = 0; opsnn_plan_input(plan, i, &info) == OPSNN_OK; i++) {
        uint8_t *p = opsnn_exec_input(exec, i);
        for (uint64_t k = 0; k < info.bytes; k++) p[k] = k % 4 == 3 ? 0x3f : (uint8_t)(k * 7); /* float32 from 1/2 to 2 */
    }
    status = opsnn_exec_run(exec, &err);
    *sum = checksum(plan, exec);
    opsnn_exec_free(exec);
    return status;
}

/* Everything a program does with a model, up to the first failure. */
static opsnn_status use(const void *data, size_t bytes, uint32_t flags, opsnn_pool *pool, uint64_t *sum) {
    opsnn_model *model = NULL;
    opsnn_plan *plan = NULL;
    opsnn_status status = opsnn_model_open_memory(data, bytes, &model, &err);
    check_error(status);
    if (status) {
        EXPECT(model == NULL);
        return status;
    }
    n_opened++;
    opsnn_model_check_hash(model, NULL);
    opsnn_model_meta(model, "producer");
    const uint32_t n = opsnn_model_n_inputs(model);
    opsnn_tensor_info info, *infos = calloc(n ? n : 1, sizeof(*infos));
    for (uint32_t i = 0; i < n; i++) {
        EXPECT(opsnn_model_input(model, i, &infos[i]) == OPSNN_OK && strlen(infos[i].name) < bytes);
        for (uint32_t d = 0; d < infos[i].rank; d++)
            if (infos[i].dims[d] < 0) infos[i].dims[d] = OPEN_DIM;
    }
    EXPECT(opsnn_model_input(model, n, &info) == OPSNN_E_ARGUMENT);
    for (uint32_t i = 0; i < opsnn_model_n_outputs(model); i++) EXPECT(opsnn_model_output(model, i, &info) == OPSNN_OK);

    /* Look before running: only small models are run. */
    status = opsnn_plan_create(model, NULL, infos, flags | OPSNN_PLAN_NO_PACK, &plan, &err);
    check_error(status);
    opsnn_plan_info facts = {0};
    if (status == OPSNN_OK) {
        n_planned++;
        opsnn_plan_get_info(plan, &facts);
        for (uint32_t i = 0; i < facts.n_nodes; i++) {
            opsnn_node_info node;
            opsnn_candidate candidates[4];
            EXPECT(opsnn_plan_node(plan, i, &node) == OPSNN_OK && node.kernel);
            opsnn_plan_candidates(plan, i, candidates, 4);
        }
        opsnn_plan_free(plan);
    }
    if (status == OPSNN_OK && facts.macs < LIMIT_MACS && facts.moved_bytes < LIMIT_BYTES) {
        plan = NULL;
        status = opsnn_plan_create(model, NULL, infos, flags, &plan, &err);
        check_error(status);
        if (status == OPSNN_OK) status = execute(plan, pool, sum);
        check_error(status);
        n_run += status == OPSNN_OK;
        opsnn_plan_free(plan);
    }
    free(infos);
    opsnn_model_free(model);
    return status;
}

/* `data` lies in a buffer of exactly its size, `offset` bytes off a 64-byte boundary: sanitizers see every byte beyond it. */
static opsnn_status use_copy(const uint8_t *data, size_t bytes, size_t offset, uint32_t flags, opsnn_pool *pool,
                             uint64_t *sum) {
    void *buffer = NULL;
    EXPECT(posix_memalign(&buffer, 64, bytes + offset + (bytes + offset == 0)) == 0);
    memcpy((uint8_t *)buffer + offset, data, bytes);
    alarm(WATCHDOG_S);
    const opsnn_status status = use((uint8_t *)buffer + offset, bytes, flags, pool, sum);
    alarm(0);
    free(buffer);
    uint64_t now;
    opsnn_memory_usage(&now, NULL, 0);
    EXPECT(pool || (now == 0 && used == 0)); /* nothing is lost */
    return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    uint64_t sum = 0;
    opsnn_set_allocator(alloc, release, NULL);
    fail_at = -1;
    n_inputs++;
    const opsnn_status status = use_copy(data, bytes, 0, 0, NULL, &sum);
    if (status == OPSNN_OK) use_copy(data, bytes, 0, OPSNN_PLAN_REF, NULL, &sum);
    return 0;
}

#ifndef OPSNN_LIBFUZZER
/* --- making inputs --- */
static uint64_t random_state;
static uint32_t pick(uint64_t below) { /* SplitMix64 */
    uint64_t z = random_state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return below ? (uint32_t)((z ^ (z >> 31)) % below) : 0;
}

typedef struct bytes {
    uint8_t *data;
    size_t n;
} bytes;

static bytes read_file(const char *path) {
    FILE *f = fopen(path, "rb");
    bytes b = {NULL, 0};
    EXPECT(f && fseek(f, 0, SEEK_END) == 0);
    b.n = (size_t)ftell(f);
    b.data = malloc(b.n);
    rewind(f);
    EXPECT(b.data && fread(b.data, 1, b.n, f) == b.n);
    fclose(f);
    return b;
}

/* A place in one of the sections (constants being one of ten: the numbers before them decide more). */
static size_t in_section(bytes file) {
    uint64_t place[2]; /* offset, bytes */
    memcpy(place, file.data + 48 + 24 * pick(10) + 8, sizeof(place));
    return place[1] ? (size_t)place[0] + pick(place[1]) : pick(file.n);
}

/* Changes a few places. */
static bytes mutated(const bytes *files, uint32_t n_files) {
    static const uint32_t numbers[] = {0,   1,   2,          3,          8,          63,         64,
                                       255, 256, 0x7ffffffe, 0x7fffffff, 0x80000000, 0xfffffffe, 0xffffffff};
    const bytes source = files[pick(n_files)], other = files[pick(n_files)];
    bytes b = {malloc(source.n + other.n), source.n};
    memcpy(b.data, source.data, source.n);
    for (uint32_t i = 1 + pick(4); i > 0; i--) {
        const size_t wanted = pick(4) ? in_section(source) : pick(b.n);
        const size_t at = wanted < b.n ? wanted : pick(b.n), word = at / 4 * 4; /* splices may have made it shorter */
        uint32_t value = 0;
        if (word + 4 <= b.n) memcpy(&value, b.data + word, 4);
        switch (pick(8)) {
        case 0:
            b.data[at] ^= (uint8_t)(1u << pick(8));
            continue;
        case 1:
            b.data[at] = (uint8_t)pick(256);
            continue;
        case 2: { /* another file's bytes over these */
            const size_t from = pick(other.n), n = pick(1 + (other.n - from < b.n - at ? other.n - from : b.n - at)) % 128;
            memcpy(b.data + at, other.data + from, n);
            continue;
        }
        case 3: { /* another file's end on this one's beginning */
            const size_t from = pick(other.n) / 8 * 8, keep = word / 8 * 8, room = source.n + other.n - keep;
            const size_t n = other.n - from < room ? other.n - from : room;
            memcpy(b.data + keep, other.data + from, n);
            b.n = keep + n;
            if (b.n == 0) b.n = 1;
            continue;
        }
        case 4:
            value += pick(9) - 4u;
            break;
        case 5:
            value = pick(64);
            break;
        case 6:
            value = numbers[pick(sizeof(numbers) / sizeof(numbers[0]))];
            break;
        default: /* another word of the same file */
            if (b.n >= 4) memcpy(&value, b.data + pick(b.n / 4) * 4, 4);
            break;
        }
        if (word + 4 <= b.n) memcpy(b.data + word, &value, 4);
    }
    const uint64_t size = b.n;
    if (pick(8) && b.n >= 48) memcpy(b.data + 16, &size, 8); /* a true size: the first gate opens */
    return b;
}

static void truncate_file(bytes file) {
    for (size_t n = 0; n <= file.n; n++) {
        LLVMFuzzerTestOneInput(file.data, n);
        if (n < 48) continue;
        /* And with a size that says so. */
        uint8_t header[8];
        const uint64_t size = n;
        memcpy(header, file.data + 16, 8);
        memcpy(file.data + 16, &size, 8);
        LLVMFuzzerTestOneInput(file.data, n);
        memcpy(file.data + 16, header, 8);
    }
}

static void shift(bytes file) {
    uint64_t sums[5] = {0};
    fail_at = -1;
    for (size_t offset = 0; offset < 5; offset++)
        EXPECT(use_copy(file.data, file.n, offset, 0, NULL, &sums[offset]) == OPSNN_OK);
    for (size_t offset = 1; offset < 5; offset++) EXPECT(sums[offset] == sums[0]);
}

static void starve(bytes file) {
    uint64_t sum = 0, plain = 0;
    fail_at = -1;
    EXPECT(use_copy(file.data, file.n, 1, 0, NULL, &plain) == OPSNN_OK);
    opsnn_status status = OPSNN_E_MEMORY;
    for (long i = 0; status; i++) { /* ends when no allocation is left to fail */
        opsnn_pool *pool = NULL;
        n_allocations = 0;
        fail_at = i;
        n_inputs++;
        status = opsnn_pool_create(3, &pool, &err);
        check_error(status);
        EXPECT((status == OPSNN_OK) == (pool != NULL));
        if (status == OPSNN_OK) status = use_copy(file.data, file.n, 1, 0, pool, &sum);
        opsnn_pool_free(pool);
        uint64_t now;
        opsnn_memory_usage(&now, NULL, 0);
        EXPECT(now == 0 && used == 0);
        EXPECT(status == OPSNN_OK || (status == OPSNN_E_MEMORY && strstr(err.text, "no memory")));
    }
    EXPECT(sum == plain); /* three threads, the same bits */
}

int main(int argc, char **argv) {
    const char *mode = argc > 1 ? argv[1] : "";
    const int first = strcmp(mode, "mutate") == 0 ? 4 : 2;
    if (argc <= first) return 2;
    const uint32_t n_files = (uint32_t)(argc - first);
    bytes *files = calloc(n_files, sizeof(*files));
    signal(SIGALRM, alarmed);
    opsnn_set_allocator(alloc, release, NULL);
    for (uint32_t i = 0; i < n_files; i++) {
        doing = argv[first + (int)i];
        files[i] = read_file(doing);
        if (strcmp(mode, "truncate") == 0) truncate_file(files[i]);
        if (strcmp(mode, "run") == 0) {
            const uint64_t before = n_run;
            LLVMFuzzerTestOneInput(files[i].data, files[i].n);
            EXPECT(n_run == before + 2); /* with the best kernels and with the reference */
        }
        if (strcmp(mode, "unaligned") == 0) shift(files[i]);
        if (strcmp(mode, "memory") == 0) starve(files[i]);
    }
    if (first == 4) {
        char where[64];
        for (long round = 0; round < atol(argv[2]); round++) {
            random_state = (uint64_t)atol(argv[3]) + (uint64_t)round; /* any round can be repeated alone */
            snprintf(where, sizeof(where), "mutating with seed %ld", atol(argv[3]) + round);
            doing = where;
            const bytes b = mutated(files, n_files);
            LLVMFuzzerTestOneInput(b.data, b.n);
            free(b.data);
        }
    }
    for (uint32_t i = 0; i < n_files; i++) free(files[i].data);
    free(files);
    printf("%llu inputs, %llu opened, %llu planned, %llu run\n", (unsigned long long)n_inputs, (unsigned long long)n_opened,
           (unsigned long long)n_planned, (unsigned long long)n_run);
    return 0;
}
#endif
