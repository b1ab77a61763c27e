/* Memory and errors. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "core.h"

static const char *const status_names[] = {
    "OPSNN_OK",        "OPSNN_E_ARGUMENT",    "OPSNN_E_MEMORY", "OPSNN_E_IO",  "OPSNN_E_FORMAT",
    "OPSNN_E_VERSION", "OPSNN_E_UNSUPPORTED", "OPSNN_E_SHAPE",  "OPSNN_E_CPU", "OPSNN_E_LIMIT",
};

const char *opsnn_status_name(int32_t status) {
    if (status < 0 || (size_t)status >= sizeof(status_names) / sizeof(status_names[0])) return "unknown status";
    return status_names[status];
}

/* The text may quote names from a hostile file and is promised to be one line of whole UTF-8 characters. */
static void tidy(char *text) {
    size_t n = 0;
    for (; text[n]; n++) {
        const unsigned char c = (unsigned char)text[n];
        if (c < 0x20 || c == 0x7f) text[n] = '?';
    }
    size_t start = n; /* of the last character: cutting may have left a part of it */
    while (start > 0 && ((unsigned char)text[start - 1] & 0xc0) == 0x80) start--;
    if (start == 0) return;
    const unsigned char lead = (unsigned char)text[start - 1];
    const size_t wanted = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : lead >= 0xc0 ? 2 : 1;
    if (n - start + 1 < wanted) text[start - 1] = '\0';
}

opsnn_status opsnn_fail(opsnn_error *err, opsnn_status code, int32_t node, const char *format, ...) {
    if (!err) return code;
    err->code = (int32_t)code;
    err->node = node;
    va_list args;
    va_start(args, format);
    if (vsnprintf(err->text, sizeof(err->text), format, args) < 0) err->text[0] = '\0';
    va_end(args);
    tidy(err->text);
    return code;
}

/* --- memory --- */
static void *(*user_alloc)(size_t bytes, void *user);
static void (*user_release)(void *p, void *user);
static void *user_data;
static size_t bytes_now, bytes_peak; /* atomic */

/* Lies just below each block. The block keeps the function that frees it: setting another allocator cannot mix them up. */
typedef struct block_header {
    void *start; /* what the allocator gave */
    size_t bytes;
    void (*release)(void *p, void *user);
    void *user;
} block_header;
_Static_assert(sizeof(block_header) <= OPSNN_ALIGN, "a header fits into the alignment");

void opsnn_set_allocator(void *(*alloc)(size_t bytes, void *user), void (*release)(void *p, void *user), void *user) {
    const int both = alloc && release;
    user_alloc = both ? alloc : NULL;
    user_release = both ? release : NULL;
    user_data = both ? user : NULL;
}

void *opsnn_alloc(size_t bytes) {
    const size_t extra = 2 * OPSNN_ALIGN;
    if (bytes > PTRDIFF_MAX - extra) return NULL;
    if (bytes == 0) bytes = 1;
    /* calloc leaves untouched pages of a large block unmapped. */
    void *start = user_alloc ? user_alloc(bytes + extra, user_data) : calloc(1, bytes + extra);
    if (!start) return NULL;
    unsigned char *p = (unsigned char *)start + sizeof(block_header);
    p += (OPSNN_ALIGN - (uintptr_t)p % OPSNN_ALIGN) % OPSNN_ALIGN;
    if (user_alloc) memset(p, 0, bytes);
    const block_header header = {start, bytes, user_release, user_data};
    memcpy(p - sizeof(header), &header, sizeof(header));
    const size_t now = __atomic_add_fetch(&bytes_now, bytes, __ATOMIC_RELAXED);
    size_t peak = __atomic_load_n(&bytes_peak, __ATOMIC_RELAXED);
    while (now > peak && !__atomic_compare_exchange_n(&bytes_peak, &peak, now, 1, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
    return p;
}

void opsnn_release(void *p) {
    if (!p) return;
    block_header header;
    memcpy(&header, (unsigned char *)p - sizeof(header), sizeof(header));
    __atomic_sub_fetch(&bytes_now, header.bytes, __ATOMIC_RELAXED);
    if (header.release)
        header.release(header.start, header.user);
    else
        free(header.start);
}

void opsnn_memory_usage(uint64_t *now, uint64_t *peak, int32_t reset_peak) {
    const size_t current = __atomic_load_n(&bytes_now, __ATOMIC_RELAXED);
    if (now) *now = current;
    if (peak) *peak = __atomic_load_n(&bytes_peak, __ATOMIC_RELAXED);
    if (reset_peak) __atomic_store_n(&bytes_peak, current, __ATOMIC_RELAXED);
}
