/* A pool of threads that share the tasks of one call at a time.

   Tasks are handed out by an atomic counter, so a thread that is late takes fewer. A run ends when every task has ended; it
   waits for workers that are inside it, never for those that have not woken yet: on a busy machine the caller does the work
   itself, and is about as fast as without a pool. Workers that find nothing to do look for the next run for a few microseconds
   (nodes of a network follow each other quickly) and then sleep: an idle pool uses no CPU.

   Two pairs of stores and loads decide who sees whom, and are sequentially consistent for that: a worker adds itself to
   `inside` and then reads `open`, while the caller clears `open` and then reads `inside`; a worker adds itself to `sleepers`
   and then reads `generation`, while the caller raises `generation` and then reads `sleepers`. */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include "core.h"

enum { MAX_THREADS = 256, SPIN_NS = 20000, STACK_BYTES = 1 << 20, LINE_BYTES = 64 };

typedef struct worker {
    struct opsnn_pool *pool;
    pthread_t thread;
    uint32_t index; /* 1 and up; 0 is the caller */
} worker;

struct opsnn_pool {
    uint32_t refs; /* atomic */
    uint32_t n_threads, n_started;
    uint32_t may_spin; /* each thread can have a CPU of its own */
    pid_t process;     /* threads do not survive a fork */
    worker *workers;
    pthread_mutex_t running; /* held by the caller of a run */
    pthread_mutex_t mutex;   /* for the two conditions only */
    pthread_cond_t wake, done;
    /* The run; written while no worker is inside. */
    opsnn_task_fn fn;
    void *arg;
    uint32_t n_tasks;
    /* All atomic. */
    uint32_t open;       /* tasks may be taken */
    uint32_t generation; /* of runs */
    uint32_t sleepers, waiting, stop;
    unsigned char apart1[LINE_BYTES]; /* keeps the hot counters out of the others' cache lines */
    uint32_t next;                    /* task */
    unsigned char apart2[LINE_BYTES];
    uint32_t inside; /* workers that may be taking tasks */
    unsigned char apart3[LINE_BYTES];
};

static uint32_t load(const uint32_t *p) {
    return __atomic_load_n(p, __ATOMIC_SEQ_CST);
}
static void store(uint32_t *p, uint32_t value) {
    __atomic_store_n(p, value, __ATOMIC_SEQ_CST);
}
static uint32_t add(uint32_t *p, uint32_t value) {
    return __atomic_add_fetch(p, value, __ATOMIC_SEQ_CST);
}
static uint32_t sub(uint32_t *p, uint32_t value) {
    return __atomic_sub_fetch(p, value, __ATOMIC_SEQ_CST);
}

static void relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__) || (defined(__arm__) && __ARM_ARCH >= 7)
    __asm__ volatile("yield");
#endif
}

/* Looks at *p for a few microseconds; 1: it is no longer `value`. */
static int spin_while(const opsnn_pool *pool, const uint32_t *p, uint32_t value) {
    struct timespec start, now;
    if (load(p) != value) return 1;
    if (!pool->may_spin) return 0;
    clock_gettime(CLOCK_MONOTONIC, &start);
    do {
        for (int i = 0; i < 64; i++) {
            if (load(p) != value) return 1;
            relax();
        }
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while ((now.tv_sec - start.tv_sec) * 1000000000LL + (now.tv_nsec - start.tv_nsec) < SPIN_NS);
    return 0;
}

static void take_tasks(opsnn_pool *pool, uint32_t thread) {
    const uint32_t n = pool->n_tasks;
    while (__atomic_load_n(&pool->next, __ATOMIC_RELAXED) < n) {
        const uint32_t task = __atomic_fetch_add(&pool->next, 1, __ATOMIC_RELAXED);
        if (task >= n) return;
        pool->fn(pool->arg, task, thread);
    }
}

static void *worker_main(void *arg) {
    worker *w = arg;
    opsnn_pool *pool = w->pool;
    uint32_t seen = 0;
    while (!load(&pool->stop)) {
        add(&pool->inside, 1);
        if (load(&pool->open)) take_tasks(pool, w->index);
        if (sub(&pool->inside, 1) == 0 && load(&pool->waiting)) {
            pthread_mutex_lock(&pool->mutex);
            pthread_cond_signal(&pool->done);
            pthread_mutex_unlock(&pool->mutex);
        }
        if (!spin_while(pool, &pool->generation, seen)) {
            pthread_mutex_lock(&pool->mutex);
            add(&pool->sleepers, 1);
            while (load(&pool->generation) == seen) pthread_cond_wait(&pool->wake, &pool->mutex);
            sub(&pool->sleepers, 1);
            pthread_mutex_unlock(&pool->mutex);
        }
        seen = load(&pool->generation);
    }
    return NULL;
}

static void wake_workers(opsnn_pool *pool, uint32_t n) {
    add(&pool->generation, 1);
    if (load(&pool->sleepers) == 0) return;
    pthread_mutex_lock(&pool->mutex);
    for (uint32_t i = load(&pool->sleepers); i > 0 && n > 0; i--, n--) pthread_cond_signal(&pool->wake);
    pthread_mutex_unlock(&pool->mutex);
}

void opsnn_pool_run(opsnn_pool *pool, uint32_t n_tasks, opsnn_task_fn fn, void *arg) {
    /* A pool at work for another executor (or for the task that calls this) is not waited for: the caller works alone. */
    if (n_tasks < 2 || !pool || pool->n_threads < 2 || pthread_mutex_trylock(&pool->running) != 0) {
        for (uint32_t task = 0; task < n_tasks; task++) fn(arg, task, 0);
        return;
    }
    pool->fn = fn;
    pool->arg = arg;
    pool->n_tasks = n_tasks;
    __atomic_store_n(&pool->next, 0, __ATOMIC_RELAXED);
    store(&pool->open, 1);
    wake_workers(pool, n_tasks - 1);
    take_tasks(pool, 0);
    store(&pool->open, 0);
    for (uint32_t n = load(&pool->inside); n != 0; n = load(&pool->inside)) {
        if (spin_while(pool, &pool->inside, n)) continue;
        pthread_mutex_lock(&pool->mutex);
        store(&pool->waiting, 1);
        while (load(&pool->inside) != 0) pthread_cond_wait(&pool->done, &pool->mutex);
        store(&pool->waiting, 0);
        pthread_mutex_unlock(&pool->mutex);
    }
    pthread_mutex_unlock(&pool->running);
}

/* Signals are the program's own business: the workers take none but those that a faulty instruction raises. */
static int start_workers(opsnn_pool *pool) {
    pthread_attr_t attr;
    int code = pthread_attr_init(&attr);
    if (code) return code;
    pthread_attr_setstacksize(&attr, STACK_BYTES);
    sigset_t mask, old;
    sigfillset(&mask);
    sigdelset(&mask, SIGSEGV);
    sigdelset(&mask, SIGBUS);
    sigdelset(&mask, SIGFPE);
    sigdelset(&mask, SIGILL);
    pthread_sigmask(SIG_BLOCK, &mask, &old);
    while (!code && pool->n_started < pool->n_threads - 1) {
        worker *w = &pool->workers[pool->n_started];
        w->pool = pool;
        w->index = pool->n_started + 1;
        code = pthread_create(&w->thread, &attr, worker_main, w);
        if (!code) pool->n_started++;
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    pthread_attr_destroy(&attr);
    return code;
}

opsnn_status opsnn_pool_create(uint32_t n_threads, opsnn_pool **pool, opsnn_error *err) {
    if (!pool) return opsnn_fail(err, OPSNN_E_ARGUMENT, -1, "opsnn_pool_create: pool must not be NULL");
    *pool = NULL;
    if (n_threads == 0) {
        opsnn_target here;
        const opsnn_status status = opsnn_target_detect(&here, err);
        if (status) return status;
        n_threads = here.n_threads < MAX_THREADS ? here.n_threads : MAX_THREADS;
    }
    if (n_threads > MAX_THREADS)
        return opsnn_fail(err, OPSNN_E_ARGUMENT, -1, "a pool of %u threads was asked for; at most %d are possible", n_threads,
                          MAX_THREADS);
    opsnn_pool *p = opsnn_alloc(sizeof(*p));
    worker *workers = opsnn_alloc(n_threads * sizeof(*workers));
    if (!p || !workers) {
        opsnn_release(p);
        opsnn_release(workers);
        return opsnn_fail(err, OPSNN_E_MEMORY, -1, "no memory for a pool of %u threads", n_threads);
    }
    p->refs = 1;
    p->n_threads = n_threads;
    p->may_spin = opsnn_cpu_count() >= n_threads;
    p->process = getpid();
    p->workers = workers;
    pthread_mutex_init(&p->running, NULL);
    pthread_mutex_init(&p->mutex, NULL);
    pthread_cond_init(&p->wake, NULL);
    pthread_cond_init(&p->done, NULL);
    const int code = start_workers(p);
    if (code) {
        const uint32_t n_started = p->n_started;
        opsnn_pool_free(p);
        return opsnn_fail(err, OPSNN_E_MEMORY, -1, "thread %u of %u could not be started: error %d", n_started + 2, n_threads,
                          code);
    }
    *pool = p;
    return OPSNN_OK;
}

void opsnn_pool_retain(opsnn_pool *pool) {
    if (pool) add(&pool->refs, 1);
}

uint32_t opsnn_pool_n_threads(const opsnn_pool *pool) {
    return pool ? pool->n_threads : 1;
}

void opsnn_pool_free(opsnn_pool *pool) {
    if (!pool || sub(&pool->refs, 1) != 0) return;
    if (pool->process == getpid()) {
        store(&pool->stop, 1);
        wake_workers(pool, pool->n_started);
        for (uint32_t i = 0; i < pool->n_started; i++) pthread_join(pool->workers[i].thread, NULL);
        pthread_cond_destroy(&pool->wake);
        pthread_cond_destroy(&pool->done);
        pthread_mutex_destroy(&pool->running);
        pthread_mutex_destroy(&pool->mutex);
    } /* else: a forked child, which has no workers to end */
    opsnn_release(pool->workers);
    opsnn_release(pool);
}
