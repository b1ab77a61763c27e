/* Matrix product by its definition, summed in double for the reason conv2d_f32_nhwc_ref.c gives: c first, then along k. */
#include "ops/block.h"
#include "ops/broadcast.h"
#include "ref/clamp.h"
#include "ref/split.h"

/* Sizes of a product; a one-dimensional operand is a matrix of one row or column. */
typedef struct product {
    size_t m, n, k;
    uint32_t batch_rank;
    int64_t a_steps[OPSNN_MAX_RANK], b_steps[OPSNN_MAX_RANK]; /* in matrices */
    const int32_t *batch;
} product;

static product sizes(const opsnn_node *node) {
    const opsnn_matmul_params *p = node->params;
    const opsnn_value *a = node->inputs[0], *b = node->inputs[1], *y = node->outputs[0];
    product s = {.m = 1, .n = 1, .k = (size_t)a->dims[a->rank - 1], .batch = y->dims};
    if (a->rank >= 2) s.m = (size_t)a->dims[a->rank - 2];
    if (b->rank >= 2) s.n = (size_t)b->dims[b->rank - (p->trans_b ? 2 : 1)];
    s.batch_rank = y->rank - (a->rank >= 2) - (b->rank >= 2);
    opsnn_broadcast_steps(a->dims, a->rank >= 2 ? a->rank - 2 : 0, s.batch_rank, s.a_steps);
    opsnn_broadcast_steps(b->dims, b->rank >= 2 ? b->rank - 2 : 0, s.batch_rank, s.b_steps);
    return s;
}

/* A task is a range of the rows of all products; where there is one row (a classifier's end), of its columns. */
static size_t rows_of(const product *s) {
    return s->m * (size_t)opsnn_count(s->batch, s->batch_rank);
}

static int plan(const opsnn_node *node, const opsnn_target *target, opsnn_fit *fit) {
    const product s = sizes(node);
    const size_t rows = rows_of(&s);
    const uint32_t n_tasks = rows == 1 ? opsnn_ref_tasks(s.n, 16) : opsnn_ref_tasks(rows, 1);
    return opsnn_ref_fit(node, target, OPSNN_REF_EFFICIENCY, n_tasks, fit);
}

/* Columns [first, end) of one row. */
static void columns(const opsnn_call *call, const product *s, size_t row, size_t first, size_t end) {
    const opsnn_node *node = call->node;
    const opsnn_matmul_params *p = node->params;
    const uint32_t block = node->inputs[1]->block;
    size_t matrix = row / s->m, a_matrix = 0, b_matrix = 0;
    for (uint32_t i = s->batch_rank; i-- > 0; matrix /= (size_t)s->batch[i]) {
        a_matrix += matrix % (size_t)s->batch[i] * (size_t)s->a_steps[i];
        b_matrix += matrix % (size_t)s->batch[i] * (size_t)s->b_steps[i];
    }
    const float *a = (const float *)call->in[0] + (a_matrix * s->m + row % s->m) * s->k;
    const float *b = (const float *)call->in[1] + b_matrix * s->k * s->n;
    const float *c = opsnn_input(node, 2) ? call->in[2] : NULL;
    float *y = (float *)call->out[0] + row * s->n;
    const size_t step = !p->trans_b ? s->n : block > 1 ? block : 1; /* from k to k + 1 */
    for (size_t j = first; j < end; j++) {
        const float *column = b + (p->trans_b ? opsnn_block_offset(block, s->k, j, 0) : j);
        double sum = c ? (double)c[j] : 0.0;
        for (size_t k = 0; k < s->k; k++) sum += (double)a[k] * (double)column[k * step];
        y[j] = opsnn_clamp((float)sum, p->lo, p->hi);
    }
}

static void run(const opsnn_call *call, uint32_t task) {
    const product s = sizes(call->node);
    const size_t rows = rows_of(&s), units = rows == 1 ? s.n : rows;
    const opsnn_ref_range part = opsnn_ref_part(call, task, units);
    if (rows == 1) {
        columns(call, &s, 0, part.first, part.end);
        opsnn_tail_apply(call, part.first, part.end - part.first);
        return;
    }
    for (size_t row = part.first; row < part.end; row++) columns(call, &s, row, 0, s.n);
    opsnn_tail_apply(call, part.first * s.n, (part.end - part.first) * s.n);
}

const opsnn_kernel opsnn_k_matmul_f32_any_ref = {
    .name = "matmul_f32_any_ref",
    .op = OPSNN_OP_MATMUL,
    .dtype = OPSNN_DTYPE_F32,
    .flags = OPSNN_KERNEL_BLOCKED | OPSNN_KERNEL_TAIL,
    .plan = plan,
    .run = run,
};
