/* ops-nn-run: loads a model, runs it and tells time and memory. It needs no Python, and only the public headers. */
#define _DEFAULT_SOURCE /* syscall */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "ops_nn.h"
#include "opsnn_ops.h"

static const char help[] =
    "usage: ops-nn-run MODEL.opsnn [options]\n"
    "\n"
    "Runs a compiled model and prints how long it took and what memory it needed.\n"
    "\n"
    "tensors:\n"
    "  --input NAME=FILE.npy     read an input from a file of numpy; its shape fills the model's open dimensions\n"
    "  --input NAME=FILE.raw     read an input's bytes as they are\n"
    "  --input NAME=random       random numbers, the same each time (what inputs that are not named get)\n"
    "  --input NAME=zeros\n"
    "  --shape NAME=1x3x224x224  shape of an input with open dimensions\n"
    "  --output NAME=FILE.npy    write an output; any other ending writes its bytes as they are\n"
    "\n"
    "running:\n"
    "  --repeat N                runs that are measured (1)\n"
    "  --warmup N                runs before them (0)\n"
    "  --threads N               threads, the main one included; 0: the big cores of this machine (0)\n"
    "  --ref                     only the portable reference kernels\n"
    "  --mark                    issue close(-7701) before and after each measured run, for tools that watch system calls\n"
    "\n"
    "printing:\n"
    "  --times                   time and kernel of each node\n"
    "  --json                    one JSON object\n"
    "  --version\n"
    "  --help\n"
    "\n"
    "exit status: 0, 1 after a failure (one line on stderr), 2 for a wrong command line\n";

static void fail(int code, const char *format, ...) __attribute__((noreturn, format(printf, 2, 3)));
static void fail(int code, const char *format, ...) {
    va_list args;
    fputs("ops-nn-run: ", stderr);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputs(code == 2 ? " (--help lists the options)\n" : "\n", stderr);
    exit(code);
}

static void *allocate(size_t n, size_t size) {
    void *p = calloc(n ? n : 1, size);
    if (!p) fail(1, "no memory for %zu * %zu bytes", n, size);
    return p;
}

/* --- the command line --- */
typedef struct options {
    const char *model;
    const char **inputs, **shapes, **outputs; /* NAME=VALUE each */
    int n_inputs, n_shapes, n_outputs;
    uint32_t repeat, warmup, threads;
    int ref, mark, times, json;
} options;

static uint32_t parse_count(const char *option, const char *text, uint32_t least) {
    char *end;
    errno = 0;
    const unsigned long n = strtoul(text, &end, 10);
    if (end == text || *end || errno || *text == '-' || n < least || n > 100000000)
        fail(2, "%s takes a number of at least %u, not '%s'", option, least, text);
    return (uint32_t)n;
}

/* The value of option `name` at argv[*at], from "--name=value" or "--name value"; NULL if another option is there. */
static const char *value_of(char **argv, int *at, const char *name) {
    const size_t n = strlen(name);
    const char *arg = argv[*at];
    if (strncmp(arg, name, n) != 0 || (arg[n] != '=' && arg[n] != '\0')) return NULL;
    if (arg[n] == '=') return arg + n + 1;
    if (!argv[*at + 1]) fail(2, "%s needs a value", name);
    return argv[++*at];
}

static options parse_options(int argc, char **argv) {
    const size_t n = (size_t)argc;
    options o = {.repeat = 1};
    o.inputs = allocate(n, sizeof(char *));
    o.shapes = allocate(n, sizeof(char *));
    o.outputs = allocate(n, sizeof(char *));
    for (int i = 1; i < argc; i++) {
        const char *arg = argv[i], *value;
        if (!strcmp(arg, "--help")) {
            fputs(help, stdout);
            exit(0);
        }
        if (!strcmp(arg, "--version")) {
            puts("ops-nn-run " OPSNN_VERSION_TEXT);
            exit(0);
        }
        if ((value = value_of(argv, &i, "--input"))) {
            o.inputs[o.n_inputs++] = value;
        } else if ((value = value_of(argv, &i, "--shape"))) {
            o.shapes[o.n_shapes++] = value;
        } else if ((value = value_of(argv, &i, "--output"))) {
            o.outputs[o.n_outputs++] = value;
        } else if ((value = value_of(argv, &i, "--repeat"))) {
            o.repeat = parse_count("--repeat", value, 1);
        } else if ((value = value_of(argv, &i, "--warmup"))) {
            o.warmup = parse_count("--warmup", value, 0);
        } else if ((value = value_of(argv, &i, "--threads"))) {
            o.threads = parse_count("--threads", value, 0);
        } else if (!strcmp(arg, "--ref")) {
            o.ref = 1;
        } else if (!strcmp(arg, "--mark")) {
            o.mark = 1;
        } else if (!strcmp(arg, "--times")) {
            o.times = 1;
        } else if (!strcmp(arg, "--json")) {
            o.json = 1;
        } else if (arg[0] == '-') {
            fail(2, "unknown option '%s'", arg);
        } else if (o.model) {
            fail(2, "one model at a time: '%s' and '%s' were given", o.model, arg);
        } else {
            o.model = arg;
        }
    }
    if (!o.model) fail(2, "which model?");
    return o;
}

/* --- the model's tensors by name --- */
typedef opsnn_status (*get_info)(const opsnn_model *model, uint32_t index, opsnn_tensor_info *info);

/* Index of the tensor that "NAME=VALUE" begins with; *value becomes VALUE. Names may contain '=' themselves. */
static uint32_t find_tensor(const opsnn_model *model, const char *option, get_info get, const char *text, const char **value) {
    char names[400] = "";
    opsnn_tensor_info info;
    for (uint32_t i = 0; get(model, i, &info) == OPSNN_OK; i++) {
        const size_t n = strlen(info.name), used = strlen(names);
        if (strncmp(text, info.name, n) == 0 && text[n] == '=') {
            *value = text + n + 1;
            return i;
        }
        snprintf(names + used, sizeof(names) - used, "%s'%s'", used ? ", " : "", info.name);
    }
    fail(2, "%s %s: write NAME=VALUE with one of the model's tensors %s", option, text, names);
}

static const char *format_dims(const opsnn_tensor_info *info, char text[112]) {
    size_t n = 0;
    text[0] = '\0';
    for (uint32_t i = 0; i < info->rank; i++) {
        n += (size_t)snprintf(text + n, 112 - n, info->dims[i] < 0 ? "%s?" : "%s%d", i ? "x" : "", info->dims[i]);
    }
    return info->rank ? text : "scalar";
}

static void parse_shape(const char *text, opsnn_tensor_info *info) {
    const char *at = text;
    info->rank = 0;
    for (;;) {
        char *end;
        errno = 0;
        const long dim = strtol(at, &end, 10);
        if (end == at || errno || dim < 0 || dim > INT32_MAX || info->rank == OPSNN_MAX_RANK)
            fail(2, "'%s' is no shape of at most %d dimensions, such as 1x3x224x224", text, OPSNN_MAX_RANK);
        info->dims[info->rank++] = (int32_t)dim;
        if (*end == '\0') return;
        if (*end != 'x') fail(2, "'%s' is no shape; write it as 1x3x224x224", text);
        at = end + 1;
    }
}

/* --- numpy's files (numpy.lib.format, versions 1 and 2) --- */
static const struct {
    uint32_t dtype;
    char descr[4]; /* without the byte order */
} descrs[] = {
    {OPSNN_DTYPE_F32, "f4"},  {OPSNN_DTYPE_F16, "f2"}, {OPSNN_DTYPE_BF16, "V2"}, {OPSNN_DTYPE_F64, "f8"},
    {OPSNN_DTYPE_S8, "i1"},   {OPSNN_DTYPE_S16, "i2"}, {OPSNN_DTYPE_S32, "i4"},  {OPSNN_DTYPE_S64, "i8"},
    {OPSNN_DTYPE_U8, "u1"},   {OPSNN_DTYPE_U16, "u2"}, {OPSNN_DTYPE_U32, "u4"},  {OPSNN_DTYPE_U64, "u8"},
    {OPSNN_DTYPE_BOOL, "b1"},
};

static const char *descr_of(uint32_t dtype) {
    for (size_t i = 0; i < sizeof(descrs) / sizeof(descrs[0]); i++)
        if (descrs[i].dtype == dtype) return descrs[i].descr;
    return "?";
}

static int is_npy(const char *path) {
    const size_t n = strlen(path);
    return n >= 4 && strcmp(path + n - 4, ".npy") == 0;
}

/* What follows "'key':" in a header, blanks skipped. */
static const char *header_field(const char *path, const char *header, const char *key) {
    const char *at = strstr(header, key);
    if (!at) fail(1, "'%s': the header of the .npy file has no %s", path, key);
    for (at += strlen(key); *at == ' ' || *at == ':'; at++) {
    }
    return at;
}

/* Opens a .npy file and reads its header: the file is then at its data, and *info has its shape. */
static FILE *open_npy(const char *path, opsnn_tensor_info *info) {
    FILE *f = fopen(path, "rb");
    if (!f) fail(1, "cannot open '%s': %s", path, strerror(errno));
    unsigned char start[12];
    if (fread(start, 1, 10, f) != 10 || memcmp(start, "\x93NUMPY", 6) != 0 || start[6] < 1 || start[6] > 2)
        fail(1, "'%s' is no .npy file of version 1 or 2", path);
    size_t n = (size_t)start[8] | (size_t)start[9] << 8;
    if (start[6] == 2) {
        if (fread(start + 10, 1, 2, f) != 2) fail(1, "'%s': the .npy file is cut off", path);
        n |= (size_t)start[10] << 16 | (size_t)start[11] << 24;
    }
    char header[4096] = "";
    if (n >= sizeof(header)) fail(1, "'%s': the header of the .npy file has %zu bytes, more than any plain array's", path, n);
    if (fread(header, 1, n, f) != n) fail(1, "'%s': the .npy file is cut off", path);
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)header[i] < 0x20) header[i] = ' '; /* messages that quote it are one line */

    const char *descr = header_field(path, header, "'descr'"), *wanted = descr_of(info->dtype);
    const int one_byte = wanted[1] == '1';
    if (descr[0] != '\'' || strchr("<>|=", descr[1]) == NULL || strncmp(descr + 2, wanted, 2) != 0 || descr[4] != '\'')
        fail(1, "'%s' holds %.24s, but input '%s' is %s ('%s%s')", path, descr, info->name, opsnn_dtype_name(info->dtype),
             one_byte ? "|" : "<", wanted);
    if (descr[1] == '>' && !one_byte) fail(1, "'%s' holds big-endian numbers: save it as '<%s'", path, wanted);
    if (strncmp(header_field(path, header, "'fortran_order'"), "False", 5) != 0)
        fail(1, "'%s' is in Fortran order: save numpy.ascontiguousarray(...) of it", path);
    const char *shape = header_field(path, header, "'shape'"), *at = shape;
    if (*at++ != '(') fail(1, "'%s': the header of the .npy file has no shape", path);
    info->rank = 0;
    for (;;) {
        while (*at == ' ' || *at == ',') at++;
        if (*at == ')') return f;
        char *end;
        errno = 0;
        const long dim = strtol(at, &end, 10);
        if (end == at || errno || dim < 0 || dim > INT32_MAX || info->rank == OPSNN_MAX_RANK)
            fail(1, "'%s' has a shape that no tensor has: it starts with %.40s", path, shape);
        info->dims[info->rank++] = (int32_t)dim;
        at = end;
    }
}

static void read_exactly(const char *path, FILE *f, void *data, size_t bytes) {
    const size_t n = fread(data, 1, bytes, f);
    if (ferror(f)) fail(1, "cannot read '%s': %s", path, strerror(errno));
    if (n != bytes) fail(1, "'%s' ends after %zu of %zu bytes", path, n, bytes);
    if (fgetc(f) != EOF) fail(1, "'%s' has more than the %zu bytes that the input takes", path, bytes);
    fclose(f);
}

static void write_output(const char *path, const opsnn_tensor_info *info, const void *data) {
    FILE *f = fopen(path, "wb");
    if (!f) fail(1, "cannot create '%s': %s", path, strerror(errno));
    if (is_npy(path)) {
        char header[256] = "";
        const char *descr = descr_of(info->dtype), *order = descr[1] == '1' || descr[0] == 'V' ? "|" : "<";
        int n = snprintf(header, sizeof(header), "{'descr': '%s%s', 'fortran_order': False, 'shape': (", order, descr);
        for (uint32_t i = 0; i < info->rank; i++) n += snprintf(header + n, sizeof(header) - (size_t)n, "%d, ", info->dims[i]);
        n += snprintf(header + n, sizeof(header) - (size_t)n, "), }");
        const int padding = (64 - (10 + n + 1) % 64) % 64; /* numpy wants the data at a multiple of 64 */
        const int total = n + padding + 1;
        const unsigned char start[10] = {
            0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, (unsigned char)(total & 255), (unsigned char)(total >> 8)};
        fwrite(start, 1, sizeof(start), f);
        fprintf(f, "%s%*s\n", header, padding, "");
    }
    fwrite(data, 1, (size_t)info->bytes, f);
    if (ferror(f) | fclose(f)) fail(1, "cannot write '%s': %s", path, strerror(errno));
}

/* --- input data --- */
static uint64_t next_random(uint64_t *state) { /* SplitMix64 (Steele, Lea and Flood, 2014) */
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* Uniform in [-1, 1) for real types (float16: magnitudes from 1/2), any value for integers; the same on every machine. */
static void fill_random(uint32_t dtype, unsigned char *data, size_t bytes, uint64_t seed) {
    const size_t size = opsnn_dtype_bytes(dtype);
    for (size_t at = 0; at + size <= bytes; at += size) {
        uint64_t r = next_random(&seed);
        const double unit = (double)(r >> 40) / 8388608.0 - 1.0;
        const float single = (float)unit;
        if (dtype == OPSNN_DTYPE_F64) memcpy(&r, &unit, sizeof(unit));
        if (dtype == OPSNN_DTYPE_F32) memcpy(&r, &single, sizeof(single));
        if (dtype == OPSNN_DTYPE_BF16) memcpy(&r, (const unsigned char *)&single + 2, 2);
        if (dtype == OPSNN_DTYPE_F16) r = 0x3800 | (r & 0x83ff);
        if (dtype == OPSNN_DTYPE_BOOL) r &= 1;
        memcpy(data + at, &r, size);
    }
}

typedef struct input {
    const char *source; /* a path, "random" or "zeros" */
    FILE *npy;          /* at its data */
    unsigned char *data;
    size_t bytes;
} input;

static void load_input(input *in, uint32_t index, const opsnn_tensor_info *info) {
    in->bytes = (size_t)info->bytes;
    in->data = allocate(in->bytes, 1);
    if (in->npy) {
        read_exactly(in->source, in->npy, in->data, in->bytes);
    } else if (!strcmp(in->source, "random")) {
        fill_random(info->dtype, in->data, in->bytes, index);
    } else if (strcmp(in->source, "zeros") != 0) {
        FILE *f = fopen(in->source, "rb");
        if (!f) fail(1, "cannot open '%s': %s", in->source, strerror(errno));
        read_exactly(in->source, f, in->data, in->bytes);
    }
}

/* --- measuring and printing --- */
static double now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Highest resident memory so far, 0 if not told; VmHWM is this program's own, ru_maxrss may be inherited from its parent. */
static uint64_t peak_resident_bytes(void) {
    FILE *f = fopen("/proc/self/status", "r");
    char line[256];
    unsigned long kib = 0;
    while (f && fgets(line, sizeof(line), f))
        if (sscanf(line, "VmHWM: %lu", &kib) == 1) break;
    if (f) fclose(f);
    return (uint64_t)kib * 1024;
}

typedef struct result {
    opsnn_plan *plan;
    opsnn_plan_info info;
    uint32_t threads, n_runs;
    double *runs;  /* ns, ascending */
    double *nodes; /* the least of each node, or NULL */
    uint64_t alloc_peak;
} result;

static double median(const result *r) {
    return (r->runs[(r->n_runs - 1) / 2] + r->runs[r->n_runs / 2]) / 2;
}

static void print_json_string(const char *s) {
    putchar('"');
    for (; *s; s++) {
        if (*s == '"' || *s == '\\')
            printf("\\%c", *s);
        else if ((unsigned char)*s < 0x20)
            printf("\\u%04x", (unsigned)*s);
        else
            putchar(*s);
    }
    putchar('"');
}

static void print_json_tensors(const char *key, const opsnn_plan *plan,
                               opsnn_status (*get)(const opsnn_plan *, uint32_t, opsnn_tensor_info *)) {
    opsnn_tensor_info info;
    printf(", \"%s\": [", key);
    for (uint32_t i = 0; get(plan, i, &info) == OPSNN_OK; i++) {
        printf("%s{\"name\": ", i ? ", " : "");
        print_json_string(info.name);
        printf(", \"dtype\": \"%s\", \"dims\": [", opsnn_dtype_name(info.dtype));
        for (uint32_t d = 0; d < info.rank; d++) printf("%s%d", d ? ", " : "", info.dims[d]);
        printf("]}");
    }
    putchar(']');
}

static void print_json(const options *o, const result *r) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    printf("{\"model\": ");
    print_json_string(o->model);
    printf(", \"version\": \"%s\", \"threads\": %u, \"n_nodes\": %u, \"times_ns\": [", OPSNN_VERSION_TEXT, r->threads,
           r->info.n_nodes);
    for (uint32_t i = 0; i < r->n_runs; i++) printf("%s%.0f", i ? ", " : "", r->runs[i]);
    printf("], \"min_ns\": %.0f, \"median_ns\": %.0f, \"predicted_ns\": %.0f", r->runs[0], median(r), r->info.predicted_ns);
    const struct {
        const char *key;
        uint64_t value;
    } counts[] = {
        {"macs", r->info.macs},
        {"moved_bytes", r->info.moved_bytes},
        {"arena_bytes", r->info.arena_bytes},
        {"scratch_bytes", r->info.scratch_bytes * r->threads},
        {"packed_bytes", r->info.packed_bytes},
        {"const_bytes", r->info.const_bytes},
        {"alloc_peak_bytes", r->alloc_peak},
        {"peak_rss_bytes", peak_resident_bytes()},
        {"max_rss_bytes", (uint64_t)usage.ru_maxrss * 1024},
    };
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++)
        printf(", \"%s\": %llu", counts[i].key, (unsigned long long)counts[i].value);
    print_json_tensors("inputs", r->plan, opsnn_plan_input);
    print_json_tensors("outputs", r->plan, opsnn_plan_output);
    opsnn_node_info node;
    if (r->nodes) printf(", \"nodes\": [");
    for (uint32_t i = 0; r->nodes && opsnn_plan_node(r->plan, i, &node) == OPSNN_OK; i++) {
        printf("%s{\"name\": ", i ? ", " : "");
        print_json_string(node.name);
        printf(", \"op\": \"%s\", \"kernel\": \"%s\", \"ns\": %.0f, \"predicted_ns\": %.0f, \"macs\": %llu, \"moved_bytes\": "
               "%llu}",
               node.op, node.kernel, r->nodes[i], node.predicted_ns, (unsigned long long)node.macs,
               (unsigned long long)node.moved_bytes);
    }
    puts(r->nodes ? "]}" : "}");
}

static void print_mib(const char *what, uint64_t bytes) {
    printf("%-12s %9.2f MiB\n", what, (double)bytes / 1048576);
}

static void print_text(const options *o, const result *r) {
    opsnn_node_info node;
    if (r->nodes) printf("%10s %10s %10s  %-32s %s\n", "us", "predicted", "MMAC", "kernel", "node");
    for (uint32_t i = 0; r->nodes && opsnn_plan_node(r->plan, i, &node) == OPSNN_OK; i++)
        printf("%10.1f %10.1f %10.3f  %-32s %s\n", r->nodes[i] * 1e-3, node.predicted_ns * 1e-3, (double)node.macs * 1e-6,
               node.kernel, node.name);
    printf("%s: %u nodes, %.1f MMAC, %u thread%s\n", o->model, r->info.n_nodes, (double)r->info.macs * 1e-6, r->threads,
           r->threads == 1 ? "" : "s");
    printf("%-12s %9.3f ms, median %.3f ms of %u run%s (predicted %.3f ms)\n", "time", r->runs[0] * 1e-6, median(r) * 1e-6,
           r->n_runs, r->n_runs == 1 ? "" : "s", r->info.predicted_ns * 1e-6);
    print_mib("arena", r->info.arena_bytes);
    print_mib("scratch", r->info.scratch_bytes * r->threads);
    print_mib("packed", r->info.packed_bytes);
    print_mib("constants", r->info.const_bytes);
    print_mib("allocated", r->alloc_peak);
    print_mib("peak RSS", peak_resident_bytes());
}

/* --- */
static void check(opsnn_status status, const opsnn_error *err) {
    if (status) fail(1, "%s", err->text);
}

static void mark(const options *o) {
    if (o->mark) syscall(SYS_close, -7701);
}

static void run(const options *o, opsnn_exec *exec, const input *inputs, result *r) {
    opsnn_error err;
    double *times = o->times ? allocate(r->info.n_nodes, sizeof(double)) : NULL;
    r->nodes = o->times ? allocate(r->info.n_nodes, sizeof(double)) : NULL;
    r->runs = allocate(r->n_runs, sizeof(double));
    opsnn_exec_set_times(exec, times);
    for (uint32_t i = 0; i < o->warmup + r->n_runs; i++) {
        const int measured = i >= o->warmup;
        for (uint32_t k = 0; k < r->info.n_inputs; k++) memcpy(opsnn_exec_input(exec, k), inputs[k].data, inputs[k].bytes);
        if (measured) mark(o);
        const double start = now_ns();
        const opsnn_status status = opsnn_exec_run(exec, &err);
        const double end = now_ns();
        if (measured) mark(o);
        check(status, &err);
        if (!measured) continue;
        r->runs[i - o->warmup] = end - start;
        for (uint32_t k = 0; r->nodes && k < r->info.n_nodes; k++)
            if (i == o->warmup || times[k] < r->nodes[k]) r->nodes[k] = times[k];
    }
    qsort(r->runs, r->n_runs, sizeof(double), by_value);
    opsnn_exec_set_times(exec, NULL);
    free(times);
}

int main(int argc, char **argv) {
    const options o = parse_options(argc, argv);
    opsnn_error err;
    opsnn_model *model = NULL;
    opsnn_pool *pool = NULL;
    opsnn_exec *exec = NULL;
    result r = {.n_runs = o.repeat};
    check(opsnn_model_open(o.model, &model, &err), &err);

    const uint32_t n_inputs = opsnn_model_n_inputs(model);
    opsnn_tensor_info *infos = allocate(n_inputs, sizeof(*infos));
    input *inputs = allocate(n_inputs, sizeof(*inputs));
    for (uint32_t i = 0; i < n_inputs; i++) {
        opsnn_model_input(model, i, &infos[i]);
        inputs[i].source = "random";
    }
    const char *value = NULL;
    for (int i = 0; i < o.n_inputs; i++) {
        const uint32_t k = find_tensor(model, "--input", opsnn_model_input, o.inputs[i], &value);
        inputs[k].source = value;
        if (is_npy(value)) inputs[k].npy = open_npy(value, &infos[k]);
    }
    for (int i = 0; i < o.n_shapes; i++) {
        const uint32_t k = find_tensor(model, "--shape", opsnn_model_input, o.shapes[i], &value);
        opsnn_tensor_info wanted = infos[k];
        parse_shape(value, &wanted);
        char a[112], b[112];
        if (inputs[k].npy &&
            (wanted.rank != infos[k].rank || memcmp(wanted.dims, infos[k].dims, wanted.rank * sizeof(int32_t)) != 0))
            fail(1, "'%s' has the shape %s, not %s", inputs[k].source, format_dims(&infos[k], a), format_dims(&wanted, b));
        infos[k] = wanted;
    }
    for (uint32_t i = 0; i < n_inputs; i++) {
        char text[112];
        const char *name = infos[i].name, *dims = format_dims(&infos[i], text);
        if (strchr(dims, '?')) fail(2, "input '%s' is %s: give its shape, --shape %s=...", name, dims, name);
    }

    check(opsnn_plan_create(model, NULL, infos, o.ref ? OPSNN_PLAN_REF : 0, &r.plan, &err), &err);
    opsnn_plan_get_info(r.plan, &r.info);
    for (uint32_t i = 0; i < n_inputs; i++) {
        opsnn_plan_input(r.plan, i, &infos[i]);
        load_input(&inputs[i], i, &infos[i]);
    }
    r.threads = o.threads;
    if (r.threads == 0) {
        opsnn_target here;
        check(opsnn_target_detect(&here, &err), &err);
        r.threads = here.n_threads;
    }
    if (r.threads > 1) check(opsnn_pool_create(r.threads, &pool, &err), &err);
    check(opsnn_exec_create(r.plan, pool, NULL, 0, &exec, &err), &err);
    run(&o, exec, inputs, &r);

    for (int i = 0; i < o.n_outputs; i++) {
        const uint32_t k = find_tensor(model, "--output", opsnn_model_output, o.outputs[i], &value);
        opsnn_tensor_info info;
        opsnn_plan_output(r.plan, k, &info);
        write_output(value, &info, opsnn_exec_output(exec, k));
    }
    opsnn_memory_usage(NULL, &r.alloc_peak, 0);
    if (o.json)
        print_json(&o, &r);
    else
        print_text(&o, &r);

    opsnn_exec_free(exec);
    opsnn_pool_free(pool);
    opsnn_plan_free(r.plan);
    opsnn_model_free(model);
    for (uint32_t i = 0; i < n_inputs; i++) free(inputs[i].data);
    free(inputs);
    free(infos);
    free(r.runs);
    free(r.nodes);
    free(o.inputs);
    free(o.shapes);
    free(o.outputs);
    if (fflush(stdout) != 0) fail(1, "cannot write the results: %s", strerror(errno));
    return 0;
}
