/* What machine is this? Read from the kernel: the auxiliary vector, /proc and /sys. Anything that cannot be read (containers,
   emulators) gives the careful answer, never an error. */
#define _GNU_SOURCE /* sched_getaffinity */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <unistd.h>

#include "core.h"

#if defined(__aarch64__)
#define THIS_ARCH OPSNN_ARCH_AARCH64
#define THIS_ARCH_NAME "aarch64"
#elif defined(__arm__)
#define THIS_ARCH OPSNN_ARCH_ARM
#define THIS_ARCH_NAME "arm"
#elif defined(__x86_64__)
#define THIS_ARCH OPSNN_ARCH_X86_64
#define THIS_ARCH_NAME "x86_64"
#else
#define THIS_ARCH OPSNN_ARCH_ANY
#define THIS_ARCH_NAME "unknown"
#endif

/* What the compiler was told that every CPU has: the baseline of this library. */
static uint32_t baseline_features(void) {
    uint32_t f = 0;
#if defined(__arm__) || defined(__aarch64__)
#if defined(__ARM_NEON)
    f |= OPSNN_CPU_NEON;
#if defined(__ARM_FEATURE_FMA)
    f |= OPSNN_CPU_FMA;
#endif
#endif
#if defined(__ARM_FEATURE_FP16_VECTOR_ARITHMETIC)
    f |= OPSNN_CPU_FP16;
#endif
#if defined(__ARM_FEATURE_DOTPROD)
    f |= OPSNN_CPU_DOTPROD;
#endif
#if defined(__ARM_FEATURE_MATMUL_INT8)
    f |= OPSNN_CPU_I8MM;
#endif
#endif
    return f;
}

/* The bits are those of Linux's <asm/hwcap.h> for arm and arm64, which older kernels' headers do not have in full. */
static uint32_t hardware_features(void) {
    uint32_t f = 0;
#if defined(__aarch64__)
    const unsigned long cap = getauxval(AT_HWCAP), cap2 = getauxval(AT_HWCAP2);
    const unsigned long asimd = 1ul << 1, fphp = 1ul << 9, asimdhp = 1ul << 10, asimddp = 1ul << 20, i8mm = 1ul << 13;
    if (cap & asimd) f |= OPSNN_CPU_NEON | OPSNN_CPU_FMA | OPSNN_CPU_A64;
    if ((cap & fphp) && (cap & asimdhp)) f |= OPSNN_CPU_FP16;
    if (cap & asimddp) f |= OPSNN_CPU_DOTPROD;
    if (cap2 & i8mm) f |= OPSNN_CPU_I8MM;
#elif defined(__arm__)
    const unsigned long cap = getauxval(AT_HWCAP);
    const unsigned long neon = 1ul << 12, vfpv4 = 1ul << 16, fphp = 1ul << 22, asimdhp = 1ul << 23, asimddp = 1ul << 24,
                        i8mm = 1ul << 27;
    if (cap & neon) f |= OPSNN_CPU_NEON;
    if ((cap & neon) && (cap & vfpv4)) f |= OPSNN_CPU_FMA;
    if ((cap & fphp) && (cap & asimdhp)) f |= OPSNN_CPU_FP16;
    if (cap & asimddp) f |= OPSNN_CPU_DOTPROD;
    if (cap & i8mm) f |= OPSNN_CPU_I8MM;
#elif defined(__x86_64__)
    f = OPSNN_CPU_NEON | OPSNN_CPU_FMA | OPSNN_CPU_A64; /* what SIMDe translates */
#endif
    return f;
}

/* 1 and the features to keep when OPSNN_CPU_MASK holds a number, 0 when it is unset, -1 when it holds something else. */
static int environment_mask(uint32_t *mask) {
    const char *text = getenv("OPSNN_CPU_MASK");
    if (!text || !*text) return 0;
    char *end;
    errno = 0;
    *mask = (uint32_t)strtoul(text, &end, 0);
    return *end == '\0' && errno == 0 ? 1 : -1;
}

uint32_t opsnn_cpu_features(void) {
    uint32_t mask = 0;
    return environment_mask(&mask) == 1 ? hardware_features() & mask : hardware_features();
}

/* The file's beginning as text; "" if it cannot be read. */
static void read_text(const char *path, char *text, size_t capacity) {
    text[0] = '\0';
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;
    const ssize_t n = read(fd, text, capacity - 1);
    text[n > 0 ? n : 0] = '\0';
    close(fd);
}

/* A number that the kernel tells about a core, 0 if it does not. */
static unsigned long cpu_fact(size_t cpu, const char *file) {
    char path[96], text[32];
    snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%zu/%s", cpu, file);
    read_text(path, text, sizeof(text));
    return strtoul(text, NULL, 10);
}

static int allowed_cpus(cpu_set_t *set) { /* how many; *set is empty when the kernel does not tell which */
    CPU_ZERO(set);
    if (sched_getaffinity(0, sizeof(*set), set) == 0 && CPU_COUNT(set) > 0) return CPU_COUNT(set);
    CPU_ZERO(set);
    const long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 && n < CPU_SETSIZE ? (int)n : 1;
}

uint32_t opsnn_cpu_count(void) {
    cpu_set_t set;
    return (uint32_t)allowed_cpus(&set);
}

/* Cores of the fastest kind that this process may use, and their clock in GHz (0: not known). A core counts as fast from three
   quarters of the best one's capacity: clusters of one kind may be clocked a little apart. */
static uint32_t big_cores(double *ghz) {
    cpu_set_t set;
    const int n = allowed_cpus(&set);
    *ghz = 0;
    unsigned long best = 0, khz = 0;
    uint32_t big = 0;
    for (int pass = 0; pass < 2; pass++) {
        for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++) {
            if (!CPU_ISSET(cpu, &set)) continue;
            const unsigned long max_khz = cpu_fact(cpu, "cpufreq/cpuinfo_max_freq");
            unsigned long capacity = cpu_fact(cpu, "cpu_capacity");
            if (capacity == 0) capacity = max_khz;
            if (pass == 0 && capacity > best) best = capacity;
            if (pass == 1 && capacity >= best - best / 4) {
                big++;
                if (max_khz > khz) khz = max_khz;
            }
        }
    }
    *ghz = (double)khz * 1e-6;
    return big ? big : (uint32_t)n;
}

opsnn_status opsnn_target_detect(opsnn_target *target, opsnn_error *err) {
    if (!target) return opsnn_fail(err, OPSNN_E_ARGUMENT, -1, "opsnn_target_detect: target must not be NULL");
    memset(target, 0, sizeof(*target));
    uint32_t mask;
    if (environment_mask(&mask) < 0)
        return opsnn_fail(err, OPSNN_E_ARGUMENT, -1, "OPSNN_CPU_MASK is '%.32s'; it must be a number, the features to keep",
                          getenv("OPSNN_CPU_MASK"));
    const uint32_t missing = baseline_features() & ~hardware_features();
    if (missing)
        return opsnn_fail(err, OPSNN_E_CPU, -1,
                          "this CPU lacks what the whole library was built for (features %#x): build it for this board, "
                          "configure.py --board=... or without --enable-neon",
                          missing);
    target->arch = THIS_ARCH;
    target->cpu = opsnn_cpu_features();
    double ghz;
    target->n_threads = big_cores(&ghz);
    /* Coarse: what one core of the usual kind does in a cycle. Boards' files in boards/soc/ hold measured figures. */
    double flop = 1, bytes = 1;
    if (THIS_ARCH == OPSNN_ARCH_X86_64) {
        flop = 16;
        bytes = 4;
    } else if (THIS_ARCH == OPSNN_ARCH_AARCH64) {
        flop = 8;
        bytes = 2;
    } else if (target->cpu & OPSNN_CPU_NEON) {
        flop = 4;
        bytes = 1.5;
    }
    if (ghz < 0.1) ghz = THIS_ARCH == OPSNN_ARCH_X86_64 ? 2.5 : 1.0;
    target->gflops = (float)(ghz * flop);
    target->gbytes_per_s = (float)(ghz * bytes);
    read_text("/proc/device-tree/model", target->name, sizeof(target->name));
    if (target->name[0] == '\0') memcpy(target->name, THIS_ARCH_NAME, sizeof(THIS_ARCH_NAME));
    for (char *c = target->name; *c; c++)
        if (*c < 0x20 || *c > 0x7e) *c = '?';
    return OPSNN_OK;
}
