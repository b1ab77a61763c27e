/* The thread pool under stress. thread_pool NAME runs one of the tests below; it prints what the Python side judges. */
#define _DEFAULT_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core.h"

#define EXPECT(condition)                                                            \
    do {                                                                             \
        if (!(condition)) {                                                          \
            fprintf(stderr, "%s:%d: expected %s\n", __FILE__, __LINE__, #condition); \
            abort();                                                                 \
        }                                                                            \
    } while (0)

enum { MAX_TASKS = 1000 };

typedef struct job {
    opsnn_pool *pool;
    uint32_t n_tasks;
    unsigned char done[MAX_TASKS]; /* how often each task was run */
    uint32_t on[8];                /* by each thread; not atomic: a thread has an index of its own */
    struct job *inner;
} job;

static opsnn_pool *new_pool(uint32_t n) {
    opsnn_error err;
    opsnn_pool *pool = NULL;
    EXPECT(opsnn_pool_create(n, &pool, &err) == OPSNN_OK);
    EXPECT(opsnn_pool_n_threads(pool) == n);
    return pool;
}

static void task_once(void *arg, uint32_t task, uint32_t thread) {
    job *j = arg;
    EXPECT(task < j->n_tasks && thread < opsnn_pool_n_threads(j->pool));
    j->done[task]++;
    j->on[thread]++;
}

static void run_job(job *j) {
    memset(j->done, 0, sizeof(j->done));
    opsnn_pool_run(j->pool, j->n_tasks, task_once, j);
    for (uint32_t i = 0; i < MAX_TASKS; i++) EXPECT(j->done[i] == (i < j->n_tasks));
}

static void test_every_task_once(void) {
    for (uint32_t n = 1; n <= 5; n++) {
        job j = {.pool = new_pool(n)};
        for (uint32_t run = 0; run < 800; run++) {
            j.n_tasks = run % 10 == 0 ? MAX_TASKS : run % 10;
            run_job(&j);
            if (run % 200 == 0) usleep(1000); /* so that the workers sleep now and then */
        }
        opsnn_pool_free(j.pool);
    }
    job j = {.n_tasks = 7};
    run_job(&j); /* without a pool */
    opsnn_pool_free(NULL);
}

static void *user_main(void *arg) {
    job *j = arg;
    for (uint32_t run = 0; run < 1000; run++) {
        j->n_tasks = 2 + run % 20;
        run_job(j);
    }
    opsnn_pool_free(j->pool); /* the last of the users ends the pool */
    return NULL;
}

static void test_shared_by_users(void) {
    enum { USERS = 4 };
    opsnn_pool *pool = new_pool(3);
    static job jobs[USERS];
    pthread_t users[USERS];
    for (int i = 0; i < USERS; i++) {
        jobs[i].pool = pool;
        opsnn_pool_retain(pool);
        EXPECT(pthread_create(&users[i], NULL, user_main, &jobs[i]) == 0);
    }
    opsnn_pool_free(pool);
    for (int i = 0; i < USERS; i++) pthread_join(users[i], NULL);
}

static void task_nested(void *arg, uint32_t task, uint32_t thread) {
    job *j = arg;
    if (task == 0) run_job(j->inner);
    task_once(arg, task, thread);
}

static void test_nested(void) {
    static job inner = {.n_tasks = 20}, outer = {.n_tasks = 30};
    inner.pool = outer.pool = new_pool(4);
    outer.inner = &inner;
    for (int run = 0; run < 500; run++) {
        memset(outer.done, 0, sizeof(outer.done));
        opsnn_pool_run(outer.pool, outer.n_tasks, task_nested, &outer);
        for (uint32_t i = 0; i < outer.n_tasks; i++) EXPECT(outer.done[i] == 1);
    }
    opsnn_pool_free(outer.pool);
}

static void test_made_and_freed(void) {
    for (int i = 0; i < 200; i++) {
        job j = {.n_tasks = 9, .pool = new_pool(1 + (uint32_t)i % 6)};
        if (i % 2) run_job(&j);
        if (i % 7 == 0) usleep(200);
        opsnn_pool_free(j.pool);
    }
    opsnn_error err;
    opsnn_pool *pool;
    EXPECT(opsnn_pool_create(257, &pool, &err) == OPSNN_E_ARGUMENT && pool == NULL);
    EXPECT(opsnn_pool_create(0, &pool, &err) == OPSNN_OK && opsnn_pool_n_threads(pool) >= 1);
    opsnn_pool_free(pool);
}

/* A forked child has the pool but not its threads: it still works, and can be freed. */
static void test_fork(void) {
    job j = {.n_tasks = 50, .pool = new_pool(4)};
    run_job(&j);
    usleep(2000);
    const pid_t child = fork();
    EXPECT(child >= 0);
    if (child == 0) {
        run_job(&j);
        opsnn_pool_free(j.pool);
        _exit(0);
    }
    int status;
    EXPECT(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    run_job(&j);
    opsnn_pool_free(j.pool);
}

/* --- time --- */
static double seconds(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void task_work(void *arg, uint32_t task, uint32_t thread) {
    (void)task;
    (void)thread;
    volatile uint32_t x = 1;
    for (uint32_t i = 0; i < *(uint32_t *)arg; i++) x = x * 1664525u + 1013904223u;
}

/* CPU time of runs in quick succession, as the nodes of networks are, that take a millisecond and less each. */
static double cpu_of_runs(opsnn_pool *pool, int n_runs, uint32_t n_tasks, uint32_t work, useconds_t pause) {
    const double start = seconds(CLOCK_PROCESS_CPUTIME_ID);
    for (int i = 0; i < n_runs; i++) {
        opsnn_pool_run(pool, n_tasks, task_work, &work);
        if (pause) usleep(pause);
    }
    return seconds(CLOCK_PROCESS_CPUTIME_ID) - start;
}

/* Prints the CPU time with four threads and with one, the least of several tries each. */
static void measure(int n_runs, uint32_t n_tasks, uint32_t work, useconds_t pause) {
    opsnn_pool *pool = new_pool(4);
    double one = 1e9, four = 1e9;
    for (int i = 0; i < 5; i++) {
        const double a = cpu_of_runs(NULL, n_runs, n_tasks, work, pause), b = cpu_of_runs(pool, n_runs, n_tasks, work, pause);
        if (a < one) one = a;
        if (b < four) four = b;
    }
    opsnn_pool_free(pool);
    printf("%.6f %.6f\n", four, one);
}

static void test_busy(void) {
    measure(200, 16, 10000, 0);
}
static void test_idle(void) {
    measure(3, 16, 200000, 160000);
}

int main(int argc, char **argv) {
    const struct {
        const char *name;
        void (*run)(void);
    } tests[] = {
        {"every_task_once", test_every_task_once},
        {"shared_by_users", test_shared_by_users},
        {"nested", test_nested},
        {"made_and_freed", test_made_and_freed},
        {"fork", test_fork},
        {"busy", test_busy},
        {"idle", test_idle},
    };
    alarm(60); /* a deadlock is a failure */
    for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++) {
        if (argc != 2 || strcmp(argv[1], tests[i].name) != 0) continue;
        tests[i].run();
        uint64_t now;
        opsnn_memory_usage(&now, NULL, 0);
        EXPECT(now == 0);
        return 0;
    }
    return 2;
}
