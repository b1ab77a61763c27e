/* Checks every rule of docs/model-format.md. This is the only file that reads a model's bytes before they are known to be
   sound; whatever passes here is read elsewhere without checks. Time and memory are linear in the file's bytes.

   The values of parameters are not judged here: the operators' rules do that when a plan is made. */
#include "core.h"

#if !defined(__BYTE_ORDER__) || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "models are read in place and are little-endian: big-endian machines are not supported"
#endif
_Static_assert(sizeof(opsnn_file_header) == 48 && sizeof(opsnn_file_section) == 24 && sizeof(opsnn_file_tensor) == 64 &&
                   sizeof(opsnn_file_node) == 32 && sizeof(opsnn_file_tail) == 16,
               "the records have no padding");

enum { MAX_BLOCK = 256 };

typedef struct verifier {
    opsnn_model *m;
    opsnn_error *err;
    int32_t node;           /* being checked, or -1 */
    unsigned char *defined; /* per tensor: constants, listed inputs, values made by the nodes seen so far */
} verifier;

/* Each rule is one CHECK (or KNOWN: a newer library would accept it). The tests switch them off one by one through HOLDS, to
   prove that each is needed and tested. */
#ifndef HOLDS
#define HOLDS(condition) (condition)
#endif
#define CHECK_AS(status, condition, ...)                                                \
    do {                                                                                \
        if (!HOLDS(condition)) return opsnn_fail(v->err, status, v->node, __VA_ARGS__); \
    } while (0)
#define CHECK(condition, ...) CHECK_AS(OPSNN_E_FORMAT, condition, __VA_ARGS__)
#define KNOWN(condition, ...) CHECK_AS(OPSNN_E_VERSION, condition, __VA_ARGS__)
#define TRY(call)                            \
    do {                                     \
        const opsnn_status status_ = (call); \
        if (status_) return status_;         \
    } while (0)
#define LIBRARY "; this is version " OPSNN_VERSION_TEXT " of the library: update it"

/* [offset, offset + n) lies within [0, size) */
static int fits(uint64_t offset, uint64_t n, uint64_t size) {
    return offset <= size && n <= size - offset;
}

/* *product *= factor, unless it would pass what this machine can address. */
static int multiply(uint64_t *product, uint64_t factor) {
    if (factor != 0 && *product > (uint64_t)PTRDIFF_MAX / factor) return 0;
    *product *= factor;
    return 1;
}

static int string_at(const opsnn_model *m, uint32_t offset) { /* a string starts there */
    return offset < m->strings.bytes && (offset == 0 || m->strings.base[offset - 1] == 0);
}

/* Bytes of the well-formed UTF-8 character at s (RFC 3629), 0 if there is none within n. */
static size_t utf8_bytes(const unsigned char *s, size_t n) {
    if (s[0] < 0x80) return 1;
    const size_t length = s[0] >= 0xf0 ? 4 : s[0] >= 0xe0 ? 3 : 2;
    if (s[0] < 0xc2 || s[0] > 0xf4 || length > n) return 0;
    for (size_t i = 1; i < length; i++)
        if ((s[i] & 0xc0) != 0x80) return 0;
    const int overlong = (s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xf0 && s[1] < 0x90);
    const int beyond = (s[0] == 0xed && s[1] > 0x9f) || (s[0] == 0xf4 && s[1] > 0x8f); /* surrogates, above U+10FFFF */
    return overlong || beyond ? 0 : length;
}

/* --- header and sections --- */
static opsnn_status check_header(verifier *v, opsnn_file_header *h) {
    const opsnn_model *m = v->m;
    CHECK(m->bytes >= sizeof(*h), "this is no .opsnn model: it has %zu bytes, fewer than a header", m->bytes);
    memcpy(h, m->base, sizeof(*h));
    CHECK(memcmp(h->magic, OPSNN_MAGIC, sizeof(h->magic)) == 0,
          "this is no .opsnn model: it does not begin with the eight bytes of one");
    CHECK_AS(OPSNN_E_VERSION, h->major == OPSNN_FORMAT_MAJOR,
             "the model has format %d.%d and this library reads %d.x: compile the model again with this "
             "version, " OPSNN_VERSION_TEXT,
             h->major, h->minor, OPSNN_FORMAT_MAJOR);
    CHECK(h->file_bytes <= m->bytes, "the model is cut off: %zu of its %ju bytes are here", m->bytes, (uintmax_t)h->file_bytes);
    CHECK(h->file_bytes >= m->bytes, "%zu bytes are here, but the model has %ju: something was appended", m->bytes,
          (uintmax_t)h->file_bytes);
    CHECK(h->section_stride >= sizeof(opsnn_file_section) && h->section_stride % 8 == 0,
          "the section table has records of %u bytes, not a multiple of 8 of at least %zu", h->section_stride,
          sizeof(opsnn_file_section));
    CHECK(fits(sizeof(*h), (uint64_t)h->n_sections * h->section_stride, m->bytes),
          "the section table has %u records of %u bytes, more than the file holds", h->n_sections, h->section_stride);
    CHECK(h->reserved == 0, "the header's reserved field is %u, not 0", h->reserved);
    return OPSNN_OK;
}

static const struct {
    const char *name;
    uint32_t record; /* bytes that are read of a record; 1: the section is plain bytes */
    uint32_t align;  /* of records */
    int required;
} kinds[] = {
    {"", 0, 0, 0},
    {"strings", 1, 1, 1},
    {"tensors", sizeof(opsnn_file_tensor), 8, 1},
    {"nodes", sizeof(opsnn_file_node), 4, 1},
    {"operands", sizeof(uint32_t), 4, 1},
    {"tails", sizeof(opsnn_file_tail), 4, 0},
    {"params", 1, 1, 0},
    {"inputs", sizeof(uint32_t), 4, 1},
    {"outputs", sizeof(uint32_t), 4, 1},
    {"meta", 2 * sizeof(uint32_t), 4, 0},
    {"data", 1, 1, 0},
};
enum { N_KINDS = sizeof(kinds) / sizeof(kinds[0]) };

static opsnn_status check_section(verifier *v, uint32_t index, const opsnn_file_section *s, opsnn_section *out) {
    const char *name = kinds[s->kind].name;
    const uint32_t record = kinds[s->kind].record;
    CHECK(out->base == NULL, "section %u is a second one of kind %s", index, name);
    if (record == 1) CHECK(s->stride == 1, "section %s has a stride of %u, not 1", name, s->stride);
    CHECK(s->stride >= record && s->stride % kinds[s->kind].align == 0,
          "section %s has records of %u bytes, not a multiple of %u of at least %u", name, s->stride, kinds[s->kind].align,
          record);
    CHECK(s->bytes % s->stride == 0, "section %s has %ju bytes, which are not whole records of %u", name, (uintmax_t)s->bytes,
          s->stride);
    if (s->kind == OPSNN_SECTION_DATA)
        CHECK(s->offset % OPSNN_ALIGN == 0, "section data starts at %ju, not at a multiple of %d", (uintmax_t)s->offset,
              OPSNN_ALIGN);
    const uint64_t count = record == 1 ? 0 : s->bytes / s->stride;
    if (count > INT32_MAX)
        return opsnn_fail(v->err, OPSNN_E_LIMIT, -1, "section %s has %ju records, too many", name, (uintmax_t)count);
    out->base = v->m->base + s->offset;
    out->count = (uint32_t)count;
    out->stride = s->stride;
    out->bytes = (size_t)s->bytes;
    return OPSNN_OK;
}

static opsnn_status check_sections(verifier *v, const opsnn_file_header *h) {
    opsnn_model *m = v->m;
    opsnn_section *const sections[N_KINDS] = {NULL,       &m->strings, &m->tensors, &m->nodes, &m->operands, &m->tails,
                                              &m->params, &m->inputs,  &m->outputs, &m->meta,  &m->data};
    for (uint32_t k = 1; k < N_KINDS; k++) memset(sections[k], 0, sizeof(*sections[k]));
    for (uint32_t i = 0; i < h->n_sections; i++) {
        opsnn_file_section s;
        memcpy(&s, m->base + sizeof(*h) + (size_t)i * h->section_stride, sizeof(s));
        CHECK(s.offset % 8 == 0, "section %u starts at %ju, not at a multiple of 8", i, (uintmax_t)s.offset);
        CHECK(fits(s.offset, s.bytes, m->bytes), "section %u has %ju bytes at %ju, beyond the file's %zu", i,
              (uintmax_t)s.bytes, (uintmax_t)s.offset, m->bytes);
        if (s.kind > 0 && s.kind < N_KINDS)
            TRY(check_section(v, i, &s, sections[s.kind])); /* others are of newer minor versions */
    }
    for (uint32_t k = 1; k < N_KINDS; k++) {
        CHECK(sections[k]->base || !kinds[k].required, "section %s is missing", kinds[k].name);
        if (!sections[k]->base) sections[k]->base = m->base; /* an absent section reads as an empty one */
    }
    return OPSNN_OK;
}

static opsnn_status check_strings(verifier *v) {
    const opsnn_section *s = &v->m->strings;
    CHECK(s->bytes > 0 && s->base[0] == 0, "section strings does not begin with the empty string");
    CHECK(s->base[s->bytes - 1] == 0, "section strings does not end in NUL");
    size_t length = 0;
    for (size_t i = 0; i < s->bytes; i += length) {
        length = utf8_bytes(s->base + i, s->bytes - i);
        CHECK(length > 0, "section strings holds no UTF-8 at byte %zu", i);
    }
    return OPSNN_OK;
}

/* --- tensors --- */
static opsnn_status check_tensor(verifier *v, uint32_t i) {
    const opsnn_model *m = v->m;
    const opsnn_file_tensor *t = opsnn_model_tensor(m, i);
    CHECK(string_at(m, t->name), "the name of tensor %u is at byte %u of the strings, where none starts", i, t->name);
    const char *name = opsnn_model_string(m, t->name);
    uint64_t bytes = opsnn_dtype_bytes(t->dtype);
    KNOWN(bytes > 0, "tensor %u ('%.64s') has the unknown data type %d" LIBRARY, i, name, t->dtype);
    CHECK(t->kind <= OPSNN_TENSOR_CONST, "tensor %u ('%.64s') is of the unknown kind %d", i, name, t->kind);
    CHECK(t->rank <= OPSNN_MAX_RANK, "tensor %u ('%.64s') has %d dimensions, more than %d", i, name, t->rank, OPSNN_MAX_RANK);
    CHECK(t->kind != OPSNN_TENSOR_VALUE || t->rank == 0, "tensor %u ('%.64s') is made by a node, but has %d dimensions stored",
          i, name, t->rank);
    CHECK(t->reserved == 0 && t->reserved2 == 0, "tensor %u ('%.64s') has a reserved field that is not 0", i, name);
    const int constant = t->kind == OPSNN_TENSOR_CONST;
    const uint32_t block = t->block > 1 ? t->block : 1;
    CHECK(block == 1 || constant, "tensor %u ('%.64s') is no constant, but has blocks of %u", i, name, block);
    CHECK(block <= MAX_BLOCK, "tensor %u ('%.64s') has blocks of %u, more than %d", i, name, block, MAX_BLOCK);
    CHECK(block == 1 || t->rank > 0, "tensor %u ('%.64s') has blocks of %u, but no dimensions", i, name, block);
    int empty = 0;
    for (uint32_t d = 0; d < OPSNN_MAX_RANK; d++) {
        const int32_t dim = t->dims[d];
        CHECK(d < t->rank || dim == 0, "tensor %u ('%.64s') has rank %d, but %d as dimension %u", i, name, t->rank, dim, d);
        CHECK(dim >= 0 || (dim == -1 && t->kind == OPSNN_TENSOR_INPUT), "tensor %u ('%.64s') has %d as dimension %u", i, name,
              dim, d);
        if (d >= t->rank || dim == -1) continue;
        uint64_t stored = (uint64_t)dim;
        if (d == 0) stored = (stored + block - 1) / block * block;
        if (stored == 0) empty = 1;
        /* As if none were 0: partial products of the dimensions must not overflow elsewhere either. */
        CHECK_AS(OPSNN_E_LIMIT, multiply(&bytes, stored ? stored : 1),
                 "tensor %u ('%.64s') is larger than this machine can address", i, name);
    }
    if (empty) bytes = 0;
    if (!constant) bytes = 0;
    CHECK(t->data_bytes == bytes, "tensor %u ('%.64s') has %ju bytes of data, not the %ju of its type and shape", i, name,
          (uintmax_t)t->data_bytes, (uintmax_t)bytes);
    CHECK(t->data_offset % OPSNN_ALIGN == 0, "tensor %u ('%.64s') has its data at %ju, not at a multiple of %d", i, name,
          (uintmax_t)t->data_offset, OPSNN_ALIGN);
    CHECK(fits(t->data_offset, t->data_bytes, m->data.bytes),
          "tensor %u ('%.64s') has %ju bytes of data at %ju, beyond the section's %zu", i, name, (uintmax_t)t->data_bytes,
          (uintmax_t)t->data_offset, m->data.bytes);
    v->defined[i] = (unsigned char)constant;
    return OPSNN_OK;
}

static opsnn_status check_inputs(verifier *v) {
    const opsnn_model *m = v->m;
    for (uint32_t i = 0; i < m->inputs.count; i++) {
        const uint32_t t = opsnn_model_index(&m->inputs, i);
        CHECK(t < m->tensors.count, "input %u is tensor %u of %u", i, t, m->tensors.count);
        CHECK(opsnn_model_tensor(m, t)->kind == OPSNN_TENSOR_INPUT, "input %u is tensor %u, which is not of kind input", i, t);
        CHECK(!v->defined[t], "input %u is tensor %u, which is listed before", i, t);
        v->defined[t] = 1;
    }
    return OPSNN_OK;
}

/* --- nodes --- */
/* who: "" or "step 1, " */
static opsnn_status check_params(verifier *v, const char *name, const char *who, const opsnn_op_entry *op, uint32_t offset,
                                 uint32_t bytes) {
    const int n = (int)v->node;
    KNOWN(bytes <= op->params_bytes, "node %d ('%.64s'): %s%s has %u bytes of parameters, more than the %d known" LIBRARY, n,
          name, who, op->name, bytes, op->params_bytes);
    CHECK(offset % 4 == 0 && bytes % 4 == 0, "node %d ('%.64s'): %s%s has %u bytes of parameters at %u, not multiples of 4", n,
          name, who, op->name, bytes, offset);
    CHECK(fits(offset, bytes, v->m->params.bytes),
          "node %d ('%.64s'): %s%s has %u bytes of parameters at %u, beyond the section's %zu", n, name, who, op->name, bytes,
          offset, v->m->params.bytes);
    return OPSNN_OK;
}

static opsnn_status check_tail(verifier *v, const char *name, uint32_t step, const opsnn_file_tail *tail) {
    const opsnn_model *m = v->m;
    const int n = (int)v->node;
    const opsnn_op_entry *op = opsnn_op_find(tail->op);
    KNOWN(op != NULL, "node %d ('%.64s'): step %u is the unknown operator %d" LIBRARY, n, name, step, tail->op);
    CHECK(op->flags & OPSNN_OP_MAP, "node %d ('%.64s'): step %u is %s, which is not element-wise", n, name, step, op->name);
    const int binary = op->max_inputs == 2;
    CHECK((tail->other != OPSNN_NONE) == binary, "node %d ('%.64s'): step %u, %s, has %s other operand", n, name, step,
          op->name, binary ? "no" : "an");
    CHECK(tail->other_first <= binary, "node %d ('%.64s'): step %u, %s, has %d as its order of operands", n, name, step,
          op->name, tail->other_first);
    if (binary) {
        CHECK(tail->other < m->tensors.count, "node %d ('%.64s'): step %u, %s, reads tensor %u of %u", n, name, step, op->name,
              tail->other, m->tensors.count);
        CHECK(v->defined[tail->other], "node %d ('%.64s'): step %u, %s, reads tensor %u, which is not made yet", n, name, step,
              op->name, tail->other);
    }
    return check_params(v, name, "fused ", op, tail->params, tail->params_bytes);
}

static opsnn_status check_node(verifier *v, uint32_t index) {
    const opsnn_model *m = v->m;
    const opsnn_file_node *node = opsnn_model_node(m, index);
    const int n = (int)index;
    v->node = n;
    CHECK(string_at(m, node->name), "the name of node %d is at byte %u of the strings, where none starts", n, node->name);
    const char *name = opsnn_model_string(m, node->name);
    const opsnn_op_entry *op = opsnn_op_find(node->op);
    KNOWN(op != NULL, "node %d ('%.64s') is the unknown operator %d" LIBRARY, n, name, node->op);
    const int spatial = (op->flags & OPSNN_OP_LAYOUT) != 0;
    CHECK(!spatial || node->layout == OPSNN_LAYOUT_NCHW || node->layout == OPSNN_LAYOUT_NHWC,
          "node %d ('%.64s'): %s has layout %d, not 1 (nchw) or 2 (nhwc)", n, name, op->name, node->layout);
    CHECK(spatial || node->layout == OPSNN_LAYOUT_ANY, "node %d ('%.64s'): %s has layout %d, not 0 (any)", n, name, op->name,
          node->layout);
    CHECK(node->reserved == 0, "node %d ('%.64s') has a reserved field that is not 0", n, name);
    CHECK(node->n_inputs >= op->min_inputs && node->n_inputs <= op->max_inputs,
          "node %d ('%.64s'): %s has %d inputs, not %d to %d", n, name, op->name, node->n_inputs, op->min_inputs,
          op->max_inputs);
    CHECK(node->n_outputs == op->n_outputs, "node %d ('%.64s'): %s has %d outputs, not %d", n, name, op->name, node->n_outputs,
          op->n_outputs);
    const uint32_t n_operands = (uint32_t)node->n_inputs + node->n_outputs;
    CHECK(fits(node->operands, n_operands, m->operands.count),
          "node %d ('%.64s') has %u operands at %u, beyond the section's %u", n, name, n_operands, node->operands,
          m->operands.count);
    TRY(check_params(v, name, "", op, node->params, node->params_bytes));
    /* A variadic operator (the only ones that take so many) has no optional inputs. */
    const uint32_t n_needed = op->max_inputs == OPSNN_MAX_INPUTS ? OPSNN_MAX_INPUTS : op->min_inputs;
    for (uint32_t i = 0; i < node->n_inputs; i++) {
        const uint32_t t = opsnn_model_index(&m->operands, node->operands + i);
        CHECK(t != OPSNN_NONE || i >= n_needed, "node %d ('%.64s'): input %u of %s must be given", n, name, i, op->name);
        if (t == OPSNN_NONE) continue;
        CHECK(t < m->tensors.count, "node %d ('%.64s'): input %u of %s is tensor %u of %u", n, name, i, op->name, t,
              m->tensors.count);
        CHECK(v->defined[t], "node %d ('%.64s'): input %u of %s is tensor %u, which is not made yet", n, name, i, op->name, t);
    }
    CHECK(node->n_tail <= OPSNN_MAX_TAIL, "node %d ('%.64s') has %d fused steps, more than %d", n, name, node->n_tail,
          OPSNN_MAX_TAIL);
    CHECK(node->n_tail == 0 || !(op->flags & OPSNN_OP_VIEW),
          "node %d ('%.64s'): %s computes nothing, so no steps can be fused into it", n, name, op->name);
    CHECK(fits(node->tails, node->n_tail, m->tails.count),
          "node %d ('%.64s') has %d fused steps at %u, beyond the section's %u", n, name, node->n_tail, node->tails,
          m->tails.count);
    for (uint32_t i = 0; i < node->n_tail; i++) TRY(check_tail(v, name, i, opsnn_model_tail(m, node->tails + i)));
    for (uint32_t i = node->n_inputs; i < n_operands; i++) {
        const uint32_t t = opsnn_model_index(&m->operands, node->operands + i);
        CHECK(t < m->tensors.count, "node %d ('%.64s') makes tensor %u of %u", n, name, t, m->tensors.count);
        CHECK(opsnn_model_tensor(m, t)->kind == OPSNN_TENSOR_VALUE,
              "node %d ('%.64s') makes tensor %u, which is an input or a constant", n, name, t);
        CHECK(!v->defined[t], "node %d ('%.64s') makes tensor %u, which an earlier node makes", n, name, t);
        v->defined[t] = 1;
    }
    return OPSNN_OK;
}

static opsnn_status check_outputs(verifier *v) {
    const opsnn_model *m = v->m;
    CHECK(m->outputs.count > 0, "the model has no outputs");
    for (uint32_t i = 0; i < m->outputs.count; i++) {
        const uint32_t t = opsnn_model_index(&m->outputs, i);
        CHECK(t < m->tensors.count, "output %u is tensor %u of %u", i, t, m->tensors.count);
    }
    return OPSNN_OK;
}

static opsnn_status check_meta(verifier *v) {
    const opsnn_section *s = &v->m->meta;
    for (uint32_t i = 0; i < s->count; i++) {
        uint32_t pair[2];
        memcpy(pair, s->base + (size_t)i * s->stride, sizeof(pair));
        CHECK(string_at(v->m, pair[0]) && string_at(v->m, pair[1]),
              "metadata %u is at bytes %u and %u of the strings, where none start", i, pair[0], pair[1]);
    }
    return OPSNN_OK;
}

static opsnn_status check_graph(verifier *v) {
    const opsnn_model *m = v->m;
    for (uint32_t i = 0; i < m->tensors.count; i++) TRY(check_tensor(v, i));
    TRY(check_inputs(v));
    for (uint32_t i = 0; i < m->nodes.count; i++) TRY(check_node(v, i));
    v->node = -1;
    for (uint32_t i = 0; i < m->tensors.count; i++)
        CHECK(v->defined[i], "tensor %u ('%.64s') is %s", i, opsnn_model_string(m, opsnn_model_tensor(m, i)->name),
              opsnn_model_tensor(m, i)->kind == OPSNN_TENSOR_INPUT ? "an input that the list of inputs lacks"
                                                                   : "made by no node");
    TRY(check_outputs(v));
    return check_meta(v);
}

opsnn_status opsnn_verify(opsnn_model *model, opsnn_error *err) {
    verifier verifier_ = {model, err, -1, NULL}, *const v = &verifier_;
    opsnn_file_header header;
    TRY(check_header(v, &header));
    TRY(check_sections(v, &header));
    TRY(check_strings(v));
    v->defined = opsnn_alloc(model->tensors.count);
    if (!v->defined) return opsnn_fail(err, OPSNN_E_MEMORY, -1, "no memory to verify %u tensors", model->tensors.count);
    const opsnn_status status = check_graph(v);
    opsnn_release(v->defined);
    return status;
}
