/* Generators of nodes, one a rule. They need not be valid always: what the rule refuses is drawn again. */
#include <string.h>

#include "check.h"

#define PARAMS(op) opsnn_##op##_params *p = (opsnn_##op##_params *)(void *)c->params.bytes

static void tensor(check_case *c, uint32_t index, uint16_t dtype, uint32_t rank, const int32_t *dims) {
    opsnn_value *v = &c->in[index];
    memset(v, 0, sizeof *v);
    v->dtype = dtype;
    v->rank = rank;
    memcpy(v->dims, dims, rank * sizeof *dims);
    if (c->n_inputs <= index) c->n_inputs = (uint16_t)(index + 1);
}

static void any_shape(check_rng *rng, uint32_t *rank, int32_t *dims) {
    *rank = (uint32_t)check_range(rng, 0, 5);
    int32_t left = 3000;
    for (uint32_t i = *rank; i-- > 0;) {
        dims[i] = check_dim(rng, left < 40 ? left : 40);
        left /= dims[i];
    }
    if (*rank && check_chance(rng, 3)) dims[check_range(rng, 0, (int32_t)*rank - 1)] = 0;
}

static void clamp(check_rng *rng, float *lo, float *hi) {
    *lo = -__builtin_inff();
    *hi = __builtin_inff();
    if (check_chance(rng, 40)) *lo = 0;
    if (check_chance(rng, 30)) *hi = 6;
}

static void window(check_rng *rng, int32_t *strides, int32_t *dilations, int32_t *pads, int32_t *auto_pad, const int32_t *kernel) {
    const bool wild = check_chance(rng, 40);
    for (int i = 0; i < 2; i++) {
        strides[i] = check_range(rng, 1, wild ? 3 : 2);
        dilations[i] = wild ? check_range(rng, 1, 3) : 1;
        pads[i] = wild ? check_range(rng, 0, kernel[i] - 1) : kernel[i] / 2;
        pads[i + 2] = wild ? check_range(rng, 0, kernel[i] - 1) : kernel[i] / 2;
    }
    *auto_pad = check_chance(rng, 25) ? check_range(rng, 1, 3) : OPSNN_AUTO_PAD_NOTSET;
}

static void conv2d(check_rng *rng, const opsnn_op_entry *op, uint16_t dtype, check_case *c) {
    PARAMS(conv2d);
    (void)op;
    c->layout = OPSNN_LAYOUT_NHWC;
    const int kind = check_range(rng, 0, 3); /* pointwise, dense, depthwise, grouped */
    int32_t kernel[2] = {1, 1}, in, out;
    if (kind > 0)
        for (int i = 0; i < 2; i++) kernel[i] = check_chance(rng, 60) ? 3 : check_range(rng, 1, 5);
    p->group = 1;
    in = check_dim(rng, 64);
    out = check_dim(rng, 40);
    if (kind == 1) in = check_dim(rng, 17);
    if (kind == 2) p->group = out = in;
    if (kind == 3) {
        p->group = check_range(rng, 2, 3);
        in = p->group * check_dim(rng, 9);
        out = p->group * (check_chance(rng, 50) ? 8 * check_range(rng, 1, 2) : check_dim(rng, 9));
    }
    window(rng, p->strides, p->dilations, p->pads, &p->auto_pad, kernel);
    if (kind == 0 && check_chance(rng, 70)) {
        p->strides[0] = p->strides[1] = 1;
        memset(p->pads, 0, sizeof p->pads);
        p->auto_pad = OPSNN_AUTO_PAD_NOTSET;
    }
    clamp(rng, &p->lo, &p->hi);
    tensor(c, 0, dtype, 4, (int32_t[]){check_range(rng, 1, 2), check_dim(rng, 17), check_dim(rng, 17), in});
    tensor(c, 1, dtype, 4, (int32_t[]){out, kernel[0], kernel[1], in / p->group});
    tensor(c, 2, dtype, 1, (int32_t[]){out});
    c->absent[2] = check_chance(rng, 20);
    c->constant[1] = c->constant[2] = true;
    c->plain[1] = true;
    c->in[1].block = check_chance(rng, 85) ? 8 : (uint16_t)check_range(rng, 0, 4);
    c->depth = (uint32_t)(kernel[0] * kernel[1] * (in / p->group));
}

static void matmul(check_rng *rng, const opsnn_op_entry *op, uint16_t dtype, check_case *c) {
    PARAMS(matmul);
    (void)op;
    const int32_t m = check_dim(rng, 33), k = check_dim(rng, 70), n = check_dim(rng, 40);
    const bool constant = check_chance(rng, 60), batch = !constant && check_chance(rng, 50);
    p->trans_b = constant || check_chance(rng, 50);
    clamp(rng, &p->lo, &p->hi);
    const int32_t rows = p->trans_b ? n : k, columns = p->trans_b ? k : n;
    if (batch) {
        const int32_t outer = check_range(rng, 1, 3), inner = check_range(rng, 1, 3);
        tensor(c, 0, dtype, 4, (int32_t[]){outer, check_chance(rng, 30) ? 1 : inner, m, k});
        tensor(c, 1, dtype, check_chance(rng, 50) ? 4 : 3, (int32_t[]){inner, rows, columns, 0});
        if (c->in[1].rank == 4) memcpy(c->in[1].dims, (int32_t[]){check_chance(rng, 30) ? 1 : outer, inner, rows, columns}, 16);
    } else {
        if (check_chance(rng, 30)) tensor(c, 0, dtype, 3, (int32_t[]){check_range(rng, 1, 3), m, k});
        else tensor(c, 0, dtype, 2, (int32_t[]){m, k});
        tensor(c, 1, dtype, 2, (int32_t[]){rows, columns});
    }
    tensor(c, 2, dtype, 1, (int32_t[]){n});
    c->absent[2] = check_chance(rng, 30);
    c->constant[1] = c->constant[2] = constant;
    c->plain[1] = true;
    if (constant) c->in[1].block = check_chance(rng, 85) ? 8 : (uint16_t)check_range(rng, 0, 4);
    c->depth = (uint32_t)k;
}

static void spatial_input(check_rng *rng, uint16_t dtype, check_case *c) {
    c->layout = OPSNN_LAYOUT_NHWC;
    tensor(c, 0, dtype, 4, (int32_t[]){check_range(rng, 1, 3), check_dim(rng, 17), check_dim(rng, 17), check_dim(rng, 33)});
}

static void pool(check_rng *rng, const opsnn_op_entry *op, uint16_t dtype, check_case *c) {
    spatial_input(rng, dtype, c);
    const int32_t kernel[2] = {check_range(rng, 1, 4), check_range(rng, 1, 4)};
    if (op->id == OPSNN_OP_MAX_POOL) {
        PARAMS(max_pool);
        memcpy(p->kernel_shape, kernel, sizeof kernel);
        window(rng, p->strides, p->dilations, p->pads, &p->auto_pad, kernel);
        p->ceil_mode = check_chance(rng, 30);
        clamp(rng, &p->lo, &p->hi);
    } else {
        PARAMS(average_pool);
        memcpy(p->kernel_shape, kernel, sizeof kernel);
        window(rng, p->strides, p->dilations, p->pads, &p->auto_pad, kernel);
        p->ceil_mode = check_chance(rng, 30);
        p->count_include_pad = check_chance(rng, 50);
        clamp(rng, &p->lo, &p->hi);
    }
    c->depth = (uint32_t)(kernel[0] * kernel[1]);
}

static void global_pool(check_rng *rng, const opsnn_op_entry *op, uint16_t dtype, check_case *c) {
    (void)op;
    spatial_input(rng, dtype, c);
    c->depth = (uint32_t)(c->in[0].dims[1] * c->in[0].dims[2]);
}

static void batch_normalization(check_rng *rng, const opsnn_op_entry *op, uint16_t dtype, check_case *c) {
    PARAMS(batch_normalization);
    (void)op;
    spatial_input(rng, dtype, c);
    p->epsilon = 1e-3F;
    for (uint32_t i = 1; i < 5; i++) {
        tensor(c, i, dtype, 1, &c->in[0].dims[3]);
        c->constant[i] = c->plain[i] = true;
    }
    c->depth = 2;
}

static void softmax(check_rng *rng, const opsnn_op_entry *op, uint16_t dtype, check_case *c) {
    PARAMS(softmax);
    (void)op;
    int32_t dims[OPSNN_MAX_RANK] = {0};
    uint32_t rank;
    do any_shape(rng, &rank, dims);
    while (rank == 0);
    tensor(c, 0, dtype, rank, dims);
    p->axis = check_chance(rng, 60) ? -1 : check_range(rng, -(int32_t)rank, (int32_t)rank - 1);
    c->depth = 1;
}

static void transpose(check_rng *rng, const opsnn_op_entry *op, uint16_t dtype, check_case *c) {
    PARAMS(transpose);
    (void)op;
    int32_t dims[OPSNN_MAX_RANK] = {0};
    uint32_t rank;
    any_shape(rng, &rank, dims);
    tensor(c, 0, dtype, rank, dims);
    p->n_perm = (int32_t)rank;
    for (int32_t i = 0; i < (int32_t)rank; i++) p->perm[i] = i;
    for (int32_t i = (int32_t)rank - 1; i > 0; i--) {
        const int32_t j = check_range(rng, 0, i), t = p->perm[i];
        p->perm[i] = p->perm[j];
        p->perm[j] = t;
    }
}

static void concat(check_rng *rng, const opsnn_op_entry *op, uint16_t dtype, check_case *c) {
    PARAMS(concat);
    (void)op;
    int32_t dims[OPSNN_MAX_RANK] = {0};
    uint32_t rank;
    do any_shape(rng, &rank, dims);
    while (rank == 0);
    p->axis = check_range(rng, 0, (int32_t)rank - 1);
    const uint32_t n = (uint32_t)check_range(rng, 1, CHECK_MAX_INPUTS);
    for (uint32_t i = 0; i < n; i++) {
        dims[p->axis] = check_range(rng, 0, 9);
        tensor(c, i, dtype, rank, dims);
    }
}

static void pad(check_rng *rng, const opsnn_op_entry *op, uint16_t dtype, check_case *c) {
    PARAMS(pad);
    (void)op;
    int32_t dims[OPSNN_MAX_RANK] = {0};
    uint32_t rank;
    any_shape(rng, &rank, dims);
    tensor(c, 0, dtype, rank, dims);
    p->n_pads = 2 * (int32_t)rank;
    for (int32_t i = 0; i < p->n_pads; i++) p->pads[i] = check_range(rng, -1, 3);
    p->mode = check_range(rng, 0, 3);
    p->value = (float)check_range(rng, -2, 2);
}

static void slice(check_rng *rng, const opsnn_op_entry *op, uint16_t dtype, check_case *c) {
    PARAMS(slice);
    (void)op;
    int32_t dims[OPSNN_MAX_RANK] = {0};
    uint32_t rank;
    any_shape(rng, &rank, dims);
    tensor(c, 0, dtype, rank, dims);
    p->n_starts = p->n_ends = p->n_axes = p->n_steps = (int32_t)rank;
    for (int32_t i = 0; i < (int32_t)rank; i++) {
        p->axes[i] = i;
        p->starts[i] = check_range(rng, -3, 3);
        p->ends[i] = check_chance(rng, 50) ? INT32_MAX : check_range(rng, -2, dims[i]);
        p->steps[i] = check_chance(rng, 70) ? 1 : check_range(rng, 1, 3);
        if (check_chance(rng, 20)) {
            p->steps[i] = -check_range(rng, 1, 3);
            p->starts[i] = -1;
            p->ends[i] = INT32_MIN;
        }
    }
}

static void binary(check_rng *rng, const opsnn_op_entry *op, uint16_t dtype, check_case *c) {
    PARAMS(add); /* all binary operators have the same parameters */
    (void)op;
    clamp(rng, &p->lo, &p->hi);
    int32_t dims[OPSNN_MAX_RANK] = {0}, other[OPSNN_MAX_RANK];
    uint32_t rank;
    any_shape(rng, &rank, dims);
    memcpy(other, dims, sizeof dims);
    uint32_t drop = 0;
    if (check_chance(rng, 60)) { /* broadcasting: dimensions of one, or none in front */
        for (uint32_t i = 0; i < rank; i++)
            if (check_chance(rng, 40)) other[i] = 1;
        drop = (uint32_t)check_range(rng, 0, (int32_t)rank);
    }
    const bool first = check_chance(rng, 30);
    tensor(c, first ? 1 : 0, dtype, rank, dims);
    tensor(c, first ? 0 : 1, dtype, rank - drop, other + drop);
    if (check_chance(rng, 20)) /* both sides broadcast */
        for (uint32_t i = drop; i < rank; i++)
            if (other[i] != 1 && check_chance(rng, 40)) c->in[first ? 1 : 0].dims[i] = 1;
}

static void unary(check_rng *rng, const opsnn_op_entry *op, uint16_t dtype, check_case *c) {
    int32_t dims[OPSNN_MAX_RANK] = {0};
    uint32_t rank;
    any_shape(rng, &rank, dims);
    tensor(c, 0, dtype, rank, dims);
    if (op->id == OPSNN_OP_CLIP) {
        PARAMS(clip);
        clamp(rng, &p->lo, &p->hi);
        return;
    }
    /* The others have no parameters, one factor, a factor and an offset, or a choice. */
    if (op->id == OPSNN_OP_GELU) {
        PARAMS(gelu);
        p->approximate = check_range(rng, 0, 1);
        return;
    }
    float *factors = (float *)(void *)c->params.bytes;
    for (uint32_t i = 0; i < op->params_bytes / sizeof(float); i++) factors[i] = (float)check_range(rng, 1, 12) / 8.0F;
}

extern const opsnn_rule opsnn_rule_conv2d;
extern const opsnn_rule opsnn_rule_matmul;
extern const opsnn_rule opsnn_rule_pool;
extern const opsnn_rule opsnn_rule_global_pool;
extern const opsnn_rule opsnn_rule_batch_normalization;
extern const opsnn_rule opsnn_rule_softmax;
extern const opsnn_rule opsnn_rule_transpose;
extern const opsnn_rule opsnn_rule_concat;
extern const opsnn_rule opsnn_rule_pad;
extern const opsnn_rule opsnn_rule_slice;
extern const opsnn_rule opsnn_rule_binary;
extern const opsnn_rule opsnn_rule_unary;

const check_family check_families[] = {
    {&opsnn_rule_conv2d, conv2d, 2, 4e-7F, true},
    {&opsnn_rule_matmul, matmul, 2, 4e-7F, true},
    {&opsnn_rule_pool, pool, 4, 4e-7F, false},
    {&opsnn_rule_global_pool, global_pool, 4, 4e-7F, false},
    {&opsnn_rule_batch_normalization, batch_normalization, 16, 2e-6F, false},
    {&opsnn_rule_softmax, softmax, 16, 3e-7F, false},
    {&opsnn_rule_transpose, transpose, 0, 0, true},
    {&opsnn_rule_concat, concat, 0, 0, true},
    {&opsnn_rule_pad, pad, 0, 0, true},
    {&opsnn_rule_slice, slice, 0, 0, true},
    {&opsnn_rule_binary, binary, 2, 0, false},
    {&opsnn_rule_unary, unary, 12, 3e-7F, false},
};
const uint32_t n_check_families = sizeof check_families / sizeof *check_families;
