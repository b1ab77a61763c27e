/* The operators' table, and the shapes and types of one node's outputs. */
#include <stdio.h>

#include "plan.h"

const opsnn_op_entry *opsnn_op_find(uint32_t id) {
    uint32_t low = 0, high = opsnn_ops_count;
    while (low < high) {
        const uint32_t mid = low + (high - low) / 2;
        if (opsnn_ops_table[mid].id == id) return &opsnn_ops_table[mid];
        if (opsnn_ops_table[mid].id < id)
            low = mid + 1;
        else
            high = mid;
    }
    return NULL;
}

int opsnn_value_bytes(const opsnn_value *v, size_t limit, size_t *bytes) {
    /* Empty dimensions count as one here, so that no product of dimensions, in whatever order it is formed, can overflow. */
    size_t product = opsnn_dtype_bytes(v->dtype);
    int empty = 0;
    for (uint32_t i = 0; i < v->rank; i++) {
        uint64_t dim = (uint64_t)v->dims[i];
        if (i == 0 && v->block > 1) dim = (dim + v->block - 1) / v->block * v->block;
        if (dim == 0) {
            empty = 1;
            continue;
        }
        if (dim > limit / product) return 0;
        product *= (size_t)dim;
    }
    *bytes = empty ? 0 : product;
    return 1;
}

opsnn_dims_text opsnn_format_dims(const int32_t *dims, uint32_t rank) {
    opsnn_dims_text text = {"["};
    size_t at = 1;
    for (uint32_t i = 0; i < rank && i < OPSNN_MAX_RANK; i++) {
        const char *comma = i ? ", " : "";
        const int n = dims[i] < 0 ? snprintf(text.s + at, sizeof text.s - at, "%s?", comma)
                                  : snprintf(text.s + at, sizeof text.s - at, "%s%d", comma, (int)dims[i]);
        at += (size_t)n;
    }
    text.s[at] = ']';
    text.s[at + 1] = '\0';
    return text;
}

opsnn_status opsnn_infer_node(const opsnn_op_entry *entry, const opsnn_node *node, opsnn_value *const *outputs, size_t limit,
                              opsnn_error *err) {
    const opsnn_status status = entry->rule->infer(node, outputs, err);
    if (status != OPSNN_OK) return status;
    for (uint32_t i = 0; i < node->n_outputs; i++) {
        opsnn_value *y = outputs[i];
        int sound = y->rank <= OPSNN_MAX_RANK && opsnn_dtype_bytes(y->dtype) != 0;
        for (uint32_t d = 0; sound && d < y->rank; d++) sound = y->dims[d] >= 0;
        if (!sound) return opsnn_fail(err, OPSNN_E_SHAPE, -1, "output %u gets no sound shape", i);
        if (!opsnn_value_bytes(y, limit, &y->bytes))
            return opsnn_fail(err, OPSNN_E_LIMIT, -1, "output %u, %s %s, is larger than memory can be", i,
                              opsnn_dtype_name(y->dtype), opsnn_format_dims(y->dims, y->rank).s);
    }
    return OPSNN_OK;
}

/* A value of a caller's description, whose rank is not UINT32_MAX. */
static opsnn_status value_of(const opsnn_tensor_info *info, uint32_t i, const char *op, opsnn_value *v, opsnn_error *err) {
    if (info->rank > OPSNN_MAX_RANK)
        return opsnn_fail(err, OPSNN_E_ARGUMENT, -1, "%s: input %u has rank %u; at most %d", op, i, info->rank, OPSNN_MAX_RANK);
    if (opsnn_dtype_bytes(info->dtype) == 0)
        return opsnn_fail(err, OPSNN_E_ARGUMENT, -1, "%s: input %u has the unknown type %u", op, i, info->dtype);
    v->rank = info->rank;
    v->dtype = (uint16_t)info->dtype;
    memcpy(v->dims, info->dims, info->rank * sizeof *v->dims);
    for (uint32_t d = 0; d < v->rank; d++)
        if (v->dims[d] < 0)
            return opsnn_fail(err, OPSNN_E_ARGUMENT, -1, "%s: input %u is %s; all dimensions must be known", op, i,
                              opsnn_format_dims(v->dims, v->rank).s);
    if (!opsnn_value_bytes(v, PTRDIFF_MAX, &v->bytes))
        return opsnn_fail(err, OPSNN_E_LIMIT, -1, "%s: input %u, %s, is larger than memory can be", op, i,
                          opsnn_format_dims(v->dims, v->rank).s);
    return OPSNN_OK;
}

opsnn_status opsnn_infer(uint32_t op, uint32_t layout, const void *params, size_t params_bytes, const opsnn_tensor_info *inputs,
                         uint32_t n_inputs, opsnn_tensor_info *outputs, uint32_t n_outputs, opsnn_error *err) {
    uint32_t words[OPSNN_MAX_PARAMS_BYTES / 4] = {0};
    opsnn_value in[OPSNN_MAX_INPUTS], out[OPSNN_MAX_OUTPUTS];
    const opsnn_value *in_refs[OPSNN_MAX_INPUTS], *out_const[OPSNN_MAX_OUTPUTS];
    opsnn_value *out_refs[OPSNN_MAX_OUTPUTS];
    memset(in, 0, sizeof in);
    memset(out, 0, sizeof out);
    const opsnn_op_entry *entry = opsnn_op_find(op);
    if (!entry) return opsnn_fail(err, OPSNN_E_ARGUMENT, -1, "there is no operator %u", op);
    if ((!params && params_bytes) || (!inputs && n_inputs) || (!outputs && n_outputs))
        return opsnn_fail(err, OPSNN_E_ARGUMENT, -1, "%s: params, inputs or outputs is NULL", entry->name);
    if (!entry->rule)
        return opsnn_fail(err, OPSNN_E_UNSUPPORTED, -1,
                          "%s is an operator that this library was built without: configure.py --ops=+%s", entry->name,
                          entry->name);
    if (params_bytes > entry->params_bytes)
        return opsnn_fail(err, OPSNN_E_ARGUMENT, -1, "%s: its parameters are %u bytes, not %zu", entry->name,
                          entry->params_bytes, params_bytes);
    if (n_inputs < entry->min_inputs || n_inputs > entry->max_inputs)
        return opsnn_fail(err, OPSNN_E_ARGUMENT, -1, "%s takes %u to %u inputs, not %u", entry->name, entry->min_inputs,
                          entry->max_inputs, n_inputs);
    if (n_outputs != entry->n_outputs)
        return opsnn_fail(err, OPSNN_E_ARGUMENT, -1, "%s has %u outputs, not %u", entry->name, entry->n_outputs, n_outputs);
    const int spatial = (entry->flags & OPSNN_OP_LAYOUT) != 0;
    if (spatial ? layout != OPSNN_LAYOUT_NCHW && layout != OPSNN_LAYOUT_NHWC : layout != OPSNN_LAYOUT_ANY)
        return opsnn_fail(err, OPSNN_E_ARGUMENT, -1, "%s has the layout %u; it must be %s", entry->name, layout,
                          spatial ? "1 (nchw) or 2 (nhwc)" : "0 (any)");
    if (params_bytes) memcpy(words, params, params_bytes);
    /* Inputs that may be left out come behind those that may not; of a list of inputs none may. */
    const uint32_t n_needed = entry->max_inputs == OPSNN_MAX_INPUTS ? n_inputs : entry->min_inputs;
    for (uint32_t i = 0; i < n_inputs; i++) {
        in_refs[i] = inputs[i].rank == UINT32_MAX ? NULL : &in[i];
        if (!in_refs[i] && i < n_needed)
            return opsnn_fail(err, OPSNN_E_ARGUMENT, -1, "%s: input %u must be given", entry->name, i);
        if (!in_refs[i]) continue;
        const opsnn_status status = value_of(&inputs[i], i, entry->name, &in[i], err);
        if (status != OPSNN_OK) return status;
    }
    for (uint32_t i = 0; i < n_outputs; i++) out_const[i] = out_refs[i] = &out[i];
    opsnn_node node = {0};
    node.op = entry->id;
    node.dtype = in[0].dtype;
    node.layout = (uint16_t)layout;
    node.n_inputs = (uint16_t)n_inputs;
    node.n_outputs = (uint16_t)n_outputs;
    node.params = words;
    node.inputs = in_refs;
    node.outputs = out_const;
    node.name = "";
    opsnn_error why = {0};
    const opsnn_status status = opsnn_infer_node(entry, &node, out_refs, PTRDIFF_MAX, &why);
    if (status != OPSNN_OK) return opsnn_fail(err, status, -1, "%s: %s", entry->name, why.text);
    for (uint32_t i = 0; i < n_outputs; i++) {
        memset(&outputs[i], 0, sizeof outputs[i]);
        outputs[i].name = "";
        outputs[i].dtype = out[i].dtype;
        outputs[i].rank = out[i].rank;
        memcpy(outputs[i].dims, out[i].dims, sizeof out[i].dims);
        outputs[i].bytes = out[i].bytes;
    }
    return OPSNN_OK;
}
