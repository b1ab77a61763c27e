/* Matrix product on the tiles of gemm_f32.h. Constant weights stored in blocks of 8 are read in place. Any other b is brought
   into such blocks, one at a time, in scratch: once for each task and matrix. */
#include "neon/gemm_f32.h"
#include "ops/broadcast.h"

/* Sizes of a product; a one-dimensional operand is a matrix of one row or column. Blocked weights see all rows as one matrix. */
typedef struct product {
    size_t m, n, k, matrices;
    uint32_t batch_rank;
    int64_t a_steps[OPSNN_MAX_RANK], b_steps[OPSNN_MAX_RANK]; /* in matrices */
    const int32_t *batch;
} product;

/* Rows whose pointers are held at a time, and the longest sum whose block is made in scratch (of 32 bytes a product). */
enum { PANEL = 64, LONGEST = 1 << 20 };

static product sizes(const opsnn_node *node) {
    const opsnn_matmul_params *p = node->params;
    const opsnn_value *a = node->inputs[0], *b = node->inputs[1], *y = node->outputs[0];
    product s = {.m = 1, .n = 1, .k = (size_t)a->dims[a->rank - 1], .batch = y->dims};
    if (a->rank >= 2) s.m = (size_t)a->dims[a->rank - 2];
    if (b->rank >= 2) s.n = (size_t)b->dims[b->rank - (p->trans_b ? 2 : 1)];
    s.batch_rank = y->rank - (a->rank >= 2) - (b->rank >= 2);
    opsnn_broadcast_steps(a->dims, a->rank >= 2 ? a->rank - 2 : 0, s.batch_rank, s.a_steps);
    opsnn_broadcast_steps(b->dims, b->rank >= 2 ? b->rank - 2 : 0, s.batch_rank, s.b_steps);
    s.matrices = (size_t)opsnn_count(s.batch, s.batch_rank);
    if (b->rank <= 2) { /* one b for all: a's matrices lie one behind the other */
        s.m *= s.matrices;
        s.matrices = 1;
        s.batch_rank = 0;
    }
    return s;
}

static size_t ceil_div(size_t a, size_t b) { return (a + b - 1) / b; }

/* A task is a range of the tiles of rows; where there is one row (a classifier's end), of the blocks of columns. */
static int plan(const opsnn_node *node, const opsnn_target *target, opsnn_fit *fit) {
    const product s = sizes(node);
    const int blocked = node->inputs[1]->block > 1;
    if (blocked && node->inputs[1]->block != OPSNN_GEMM_BLOCK) {
        fit->why = "weights are not stored in blocks of 8";
        return 0;
    }
    if (!blocked && s.k > LONGEST) {
        fit->why = "sums are longer than 1048576";
        return 0;
    }
    const size_t rows = s.m * s.matrices;
    fit->n_tasks = opsnn_tasks(node->macs, 50000, rows == 1 ? ceil_div(s.n, OPSNN_GEMM_BLOCK) : ceil_div(rows, OPSNN_GEMM_ROWS));
    if (!blocked) fit->scratch_bytes = s.k * OPSNN_GEMM_BLOCK * sizeof(float);
    fit->predicted_ns = opsnn_predict(node, target, blocked ? 0.6 : rows < OPSNN_GEMM_ROWS ? 0.1 : 0.4);
    return 1;
}

/* Columns [first, first + n) of b, n <= 8, as a block. */
static void make_block(const product *s, int trans_b, const float *b, size_t first, size_t n, float *block) {
    if (trans_b) {
        for (size_t j = 0; j < OPSNN_GEMM_BLOCK; j++)
            for (size_t k = 0; k < s->k; k++) block[k * OPSNN_GEMM_BLOCK + j] = j < n ? b[(first + j) * s->k + k] : 0.0f;
        return;
    }
    for (size_t k = 0; k < s->k; k++, block += OPSNN_GEMM_BLOCK) {
        const float *row = b + k * s->n + first;
        if (n == OPSNN_GEMM_BLOCK) {
            vst1q_f32(block, vld1q_f32(row));
            vst1q_f32(block + 4, vld1q_f32(row + 4));
        } else {
            for (size_t j = 0; j < OPSNN_GEMM_BLOCK; j++) block[j] = j < n ? row[j] : 0.0f;
        }
    }
}

/* n rows of one matrix times blocks [first, end) of b. */
static void rows_times(const opsnn_call *call, const product *s, const float *a, const float *b, size_t n, size_t first,
                       size_t end, float *y) {
    const opsnn_matmul_params *p = call->node->params;
    const float *bias = opsnn_input(call->node, 2) ? call->in[2] : NULL, *runs[PANEL];
    const int blocked = call->node->inputs[1]->block > 1;
    /* Blocks made here are taken one by one, all rows passing each. */
    const size_t step = blocked ? end - first : 1;
    for (size_t block = first; block < end; block += step) {
        const size_t at = block * OPSNN_GEMM_BLOCK, left = s->n - at;
        opsnn_gemm g = {.n_taps = 1, .length = s->k, .n = s->n, .row_step = s->n, .w = b, .bias = bias, .lo = p->lo, .hi = p->hi};
        if (!blocked) {
            g.n = left < OPSNN_GEMM_BLOCK ? left : OPSNN_GEMM_BLOCK;
            g.w = call->scratch;
            if (bias) g.bias += at;
            make_block(s, p->trans_b, b, at, g.n, call->scratch);
        }
        opsnn_gemm_prepare(&g);
        for (size_t row = 0; row < n; row += PANEL) {
            const size_t rows = n - row < PANEL ? n - row : PANEL;
            for (size_t i = 0; i < rows; i++) runs[i] = a + (row + i) * s->k;
            if (blocked) opsnn_gemm_panel(&g, runs, rows, first, end, y + row * s->n);
            else opsnn_gemm_panel(&g, runs, rows, 0, 1, y + row * s->n + at);
        }
    }
}

static void run(const opsnn_call *call, uint32_t task) {
    const product s = sizes(call->node);
    const size_t rows = s.m * s.matrices, blocks = ceil_div(s.n, OPSNN_GEMM_BLOCK), tiles = ceil_div(rows, OPSNN_GEMM_ROWS);
    const uint32_t n_tasks = call->fit->n_tasks;
    const float *a = call->in[0], *b = call->in[1];
    float *y = call->out[0];
    if (rows == 1) {
        const size_t first = opsnn_first(blocks, n_tasks, task), end = opsnn_first(blocks, n_tasks, task + 1);
        const size_t from = first * OPSNN_GEMM_BLOCK, to = end * OPSNN_GEMM_BLOCK < s.n ? end * OPSNN_GEMM_BLOCK : s.n;
        rows_times(call, &s, a, b, 1, first, end, y);
        if (to > from) opsnn_tail_apply(call, from, to - from);
        return;
    }
    const size_t first = opsnn_first(tiles, n_tasks, task) * OPSNN_GEMM_ROWS;
    size_t end = opsnn_first(tiles, n_tasks, task + 1) * OPSNN_GEMM_ROWS;
    if (end > rows) end = rows;
    for (size_t row = first; row < end;) {
        size_t matrix = row / s.m, a_matrix = 0, b_matrix = 0;
        const size_t in_matrix = row % s.m, n = s.m - in_matrix < end - row ? s.m - in_matrix : end - row;
        for (uint32_t i = s.batch_rank; i-- > 0; matrix /= (size_t)s.batch[i]) {
            a_matrix += matrix % (size_t)s.batch[i] * (size_t)s.a_steps[i];
            b_matrix += matrix % (size_t)s.batch[i] * (size_t)s.b_steps[i];
        }
        rows_times(call, &s, a + (a_matrix * s.m + in_matrix) * s.k, b + b_matrix * s.k * s.n, n, 0, blocks, y + row * s.n);
        row += n;
    }
    if (end > first) opsnn_tail_apply(call, first * s.n, (end - first) * s.n);
}

const opsnn_kernel opsnn_k_matmul_f32_any_neon = {
    .name = "matmul_f32_any_neon",
    .op = OPSNN_OP_MATMUL,
    .dtype = OPSNN_DTYPE_F32,
    .flags = OPSNN_KERNEL_BLOCKED | OPSNN_KERNEL_TAIL,
    .cpu = OPSNN_NEON_CPU,
    .plan = plan,
    .run = run,
};
