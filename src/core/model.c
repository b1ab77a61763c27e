/* Opening models, and what may be asked of them. The bytes are checked by verify.c and then read in place. */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core.h"

/* The end of an overlong path, so that the reason behind it is not cut off. */
static const char *shown(const char *path) {
    const size_t n = strlen(path), most = 200;
    if (n <= most) return path;
    path += n - most;
    while (((unsigned char)*path & 0xc0) == 0x80) path++; /* not amid a UTF-8 character */
    return path;
}

static opsnn_status fail_errno(opsnn_error *err, const char *what, const char *path, int code) {
    char text[128] = "";
    if (strerror_r(code, text, sizeof(text)) != 0 && text[0] == '\0') memcpy(text, "unknown error", 14);
    const opsnn_status status = code == ENOMEM                       ? OPSNN_E_MEMORY
                                : code == EFBIG || code == EOVERFLOW ? OPSNN_E_LIMIT
                                                                     : OPSNN_E_IO;
    return opsnn_fail(err, status, -1, "cannot %s '%s': %s", what, shown(path), text);
}

/* Checks m->base and m->bytes; gives m up on failure. */
static opsnn_status finish(opsnn_model *m, const char *path, opsnn_model **model, opsnn_error *err) {
    opsnn_error inner = {0};
    const opsnn_status status = opsnn_verify(m, &inner);
    if (status) {
        if (path)
            opsnn_fail(err, status, inner.node, "'%s': %s", shown(path), inner.text);
        else
            opsnn_fail(err, status, inner.node, "%s", inner.text);
        opsnn_model_free(m);
        return status;
    }
    *model = m;
    return OPSNN_OK;
}

static opsnn_model *new_model(opsnn_error *err) {
    opsnn_model *m = opsnn_alloc(sizeof(*m));
    if (m)
        m->refs = 1;
    else
        opsnn_fail(err, OPSNN_E_MEMORY, -1, "no memory for a model");
    return m;
}

/* Maps a regular file that is not empty. */
static opsnn_status map_file(int fd, const char *path, opsnn_model *m, opsnn_error *err) {
    struct stat st;
    if (fstat(fd, &st) != 0) return fail_errno(err, "examine", path, errno);
    if (S_ISDIR(st.st_mode)) return fail_errno(err, "open", path, EISDIR);
    if (!S_ISREG(st.st_mode)) return opsnn_fail(err, OPSNN_E_IO, -1, "cannot open '%s': it is not a regular file", shown(path));
    if (st.st_size == 0) return opsnn_fail(err, OPSNN_E_FORMAT, -1, "'%s': the file is empty", shown(path));
    if ((uintmax_t)st.st_size > PTRDIFF_MAX)
        return opsnn_fail(err, OPSNN_E_LIMIT, -1, "'%s' has %ju bytes, more than this machine can address", shown(path),
                          (uintmax_t)st.st_size);
    void *p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (p == MAP_FAILED) return fail_errno(err, "map", path, errno);
    m->base = m->mapping = p;
    m->bytes = (size_t)st.st_size;
    return OPSNN_OK;
}

opsnn_status opsnn_model_open(const char *path, opsnn_model **model, opsnn_error *err) {
    if (model) *model = NULL;
    if (!path || !model) return opsnn_fail(err, OPSNN_E_ARGUMENT, -1, "opsnn_model_open: path and model must not be NULL");
    int fd;
    do fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO must not block before it is refused */
    while (fd < 0 && errno == EINTR);
    if (fd < 0) return fail_errno(err, "open", path, errno);
    opsnn_status status = OPSNN_E_MEMORY;
    opsnn_model *m = new_model(err);
    if (m) {
        status = map_file(fd, path, m, err);
        if (status)
            opsnn_model_free(m);
        else
            status = finish(m, path, model, err);
    }
    close(fd);
    return status;
}

opsnn_status opsnn_model_open_memory(const void *data, size_t bytes, opsnn_model **model, opsnn_error *err) {
    if (model) *model = NULL;
    if (!data || !model)
        return opsnn_fail(err, OPSNN_E_ARGUMENT, -1, "opsnn_model_open_memory: data and model must not be NULL");
    if (bytes > PTRDIFF_MAX)
        return opsnn_fail(err, OPSNN_E_LIMIT, -1, "%zu bytes are more than this machine can address", bytes);
    opsnn_model *m = new_model(err);
    if (!m) return OPSNN_E_MEMORY;
    m->base = data;
    m->bytes = bytes;
    if ((uintptr_t)data % OPSNN_ALIGN != 0) {
        m->copy = opsnn_alloc(bytes);
        if (!m->copy) {
            opsnn_model_free(m);
            return opsnn_fail(err, OPSNN_E_MEMORY, -1, "no memory to copy the model's %zu bytes to a %d-byte boundary", bytes,
                              OPSNN_ALIGN);
        }
        memcpy(m->copy, data, bytes);
        m->base = m->copy;
    }
    return finish(m, NULL, model, err);
}

void opsnn_model_retain(opsnn_model *model) {
    __atomic_add_fetch(&model->refs, 1, __ATOMIC_RELAXED);
}

void opsnn_model_free(opsnn_model *model) {
    if (!model || __atomic_sub_fetch(&model->refs, 1, __ATOMIC_ACQ_REL) != 0) return;
    if (model->mapping) munmap(model->mapping, model->bytes);
    opsnn_release(model->copy);
    opsnn_release(model);
}

uint32_t opsnn_model_n_inputs(const opsnn_model *model) {
    return model->inputs.count;
}
uint32_t opsnn_model_n_outputs(const opsnn_model *model) {
    return model->outputs.count;
}
uint32_t opsnn_model_n_nodes(const opsnn_model *model) {
    return model->nodes.count;
}

static opsnn_status tensor_info(const opsnn_model *m, const opsnn_section *list, uint32_t index, opsnn_tensor_info *info) {
    if (!info || index >= list->count) return OPSNN_E_ARGUMENT;
    const opsnn_file_tensor *t = opsnn_model_tensor(m, opsnn_model_index(list, index));
    memset(info, 0, sizeof(*info));
    info->name = opsnn_model_string(m, t->name);
    info->dtype = t->dtype;
    info->rank = t->rank;
    info->block = t->block;
    memcpy(info->dims, t->dims, sizeof(info->dims));
    if (t->kind == OPSNN_TENSOR_VALUE) return OPSNN_OK; /* only a plan knows its shape */
    uint64_t bytes = opsnn_dtype_bytes(t->dtype);       /* verified: the product does not overflow */
    for (uint32_t i = 0; i < t->rank; i++) bytes *= t->dims[i] < 0 ? 0 : (uint64_t)t->dims[i];
    info->bytes = t->kind == OPSNN_TENSOR_CONST ? t->data_bytes : bytes;
    return OPSNN_OK;
}

opsnn_status opsnn_model_input(const opsnn_model *model, uint32_t index, opsnn_tensor_info *info) {
    return tensor_info(model, &model->inputs, index, info);
}

opsnn_status opsnn_model_output(const opsnn_model *model, uint32_t index, opsnn_tensor_info *info) {
    return tensor_info(model, &model->outputs, index, info);
}

const char *opsnn_model_meta(const opsnn_model *model, const char *key) {
    for (uint32_t i = 0; key && i < model->meta.count; i++) {
        uint32_t pair[2];
        memcpy(pair, model->meta.base + (size_t)i * model->meta.stride, sizeof(pair));
        if (strcmp(opsnn_model_string(model, pair[0]), key) == 0) return opsnn_model_string(model, pair[1]);
    }
    return NULL;
}

/* FNV-1a, 64 bits (Fowler, Noll and Vo), over little-endian 64-bit words; the last word is filled with zeros. */
static uint64_t fnv1a(const unsigned char *p, size_t bytes) {
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < bytes; i += 8) {
        uint64_t word = 0;
        memcpy(&word, p + i, bytes - i < 8 ? bytes - i : 8);
        h = (h ^ word) * UINT64_C(0x100000001b3);
    }
    return h;
}

opsnn_status opsnn_model_check_hash(const opsnn_model *model, opsnn_error *err) {
    opsnn_file_header header;
    memcpy(&header, model->base, sizeof(header));
    if (header.hash == 0) return opsnn_fail(err, OPSNN_E_FORMAT, -1, "the model carries no hash to compare its bytes with");
    const uint64_t hash = fnv1a(model->base + sizeof(header), model->bytes - sizeof(header));
    if (hash != header.hash)
        return opsnn_fail(err, OPSNN_E_FORMAT, -1,
                          "the model's bytes have the hash %016jx, not %016jx: they were changed; copy it again",
                          (uintmax_t)hash, (uintmax_t)header.hash);
    return OPSNN_OK;
}
