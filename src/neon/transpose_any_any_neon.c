/* Transposition of elements of four bytes that swaps two neighbouring groups of axes, [outer, rows, columns] to
   [outer, columns, rows]: images between nchw and nhwc, matrices, attention's keys. Other permutations are for the reference. */
#include "neon/simd.h"

typedef struct swap {
    size_t outer, rows, columns; /* of the input */
} swap;

enum { LINE = 16 }; /* elements of a cache line: columns that are taken together */

/* Axes of one element do not count; the others must be in order, but for the last of them being rotated. */
static int find_swap(const opsnn_node *node, swap *s) {
    const opsnn_transpose_params *p = node->params;
    const opsnn_value *x = node->inputs[0];
    uint32_t number[OPSNN_MAX_RANK], n = 0, order[OPSNN_MAX_RANK], same = 0;
    size_t dims[OPSNN_MAX_RANK];
    for (uint32_t i = 0; i < x->rank; i++) {
        number[i] = n;
        if (x->dims[i] != 1) dims[n++] = (size_t)x->dims[i];
    }
    for (uint32_t i = 0, k = 0; i < x->rank; i++) {
        const uint32_t axis = p->n_perm ? (uint32_t)p->perm[i] : x->rank - 1 - i;
        if (x->dims[axis] != 1) order[k++] = number[axis];
    }
    while (same < n && order[same] == same) same++;
    if (same == n || opsnn_elements(x) == 0) return 0;
    const uint32_t turn = order[same] - same;
    for (uint32_t i = same; i < n; i++)
        if (order[i] != same + (i - same + turn) % (n - same)) return 0;
    *s = (swap){1, 1, 1};
    for (uint32_t i = 0; i < same; i++) s->outer *= dims[i];
    for (uint32_t i = same; i < same + turn; i++) s->rows *= dims[i];
    for (uint32_t i = same + turn; i < n; i++) s->columns *= dims[i];
    return 1;
}

static size_t lines_of(const swap *s) { return (s->columns + LINE - 1) / LINE; }

/* A task is a range of the outer * lines bundles of columns, which lie in one piece in the output. */
static int plan(const opsnn_node *node, const opsnn_target *target, opsnn_fit *fit) {
    swap s;
    if (opsnn_dtype_bytes(node->inputs[0]->dtype) != 4) {
        fit->why = "elements are not of four bytes";
        return 0;
    }
    if (!find_swap(node, &s)) {
        fit->why = "not a swap of two neighbouring groups of axes";
        return 0;
    }
    const size_t n = opsnn_elements(node->inputs[0]);
    fit->n_tasks = opsnn_tasks(n, 4096, s.outer * lines_of(&s));
    fit->predicted_ns = opsnn_predict(node, target, 0.5);
    return 1;
}

/* Four rows of four columns. */
static inline void square(const uint32_t *x, size_t x_step, uint32_t *y, size_t y_step) {
    const uint32x4x2_t a = vtrnq_u32(vld1q_u32(x), vld1q_u32(x + x_step));
    const uint32x4x2_t b = vtrnq_u32(vld1q_u32(x + 2 * x_step), vld1q_u32(x + 3 * x_step));
    vst1q_u32(y, vcombine_u32(vget_low_u32(a.val[0]), vget_low_u32(b.val[0])));
    vst1q_u32(y + y_step, vcombine_u32(vget_low_u32(a.val[1]), vget_low_u32(b.val[1])));
    vst1q_u32(y + 2 * y_step, vcombine_u32(vget_high_u32(a.val[0]), vget_high_u32(b.val[0])));
    vst1q_u32(y + 3 * y_step, vcombine_u32(vget_high_u32(a.val[1]), vget_high_u32(b.val[1])));
}

/* n columns: y[column][row] = x[row][column]. */
static void columns(const swap *s, const uint32_t *x, uint32_t *y, size_t n) {
    size_t row = 0;
    for (; row + 4 <= s->rows; row += 4) {
        const uint32_t *from = x + row * s->columns;
        size_t column = 0;
        for (; column + 4 <= n; column += 4) square(from + column, s->columns, y + column * s->rows + row, s->rows);
        for (; column < n; column++)
            for (size_t i = 0; i < 4; i++) y[column * s->rows + row + i] = from[i * s->columns + column];
    }
    for (; row < s->rows; row++)
        for (size_t column = 0; column < n; column++) y[column * s->rows + row] = x[row * s->columns + column];
}

/* Three rows, the planes of a picture. */
static void pixels(const uint32_t *x, size_t x_step, uint32_t *y, size_t n) {
    for (; n >= 4; n -= 4, x += 4, y += 12) {
        const uint32x4x3_t v = {{vld1q_u32(x), vld1q_u32(x + x_step), vld1q_u32(x + 2 * x_step)}};
        vst3q_u32(y, v);
    }
    for (; n; n--, x++, y += 3)
        for (size_t i = 0; i < 3; i++) y[i] = x[i * x_step];
}

static void run(const opsnn_call *call, uint32_t task) {
    swap s;
    find_swap(call->node, &s);
    const size_t lines = lines_of(&s), end = opsnn_first(s.outer * lines, call->fit->n_tasks, task + 1);
    for (size_t at = opsnn_first(s.outer * lines, call->fit->n_tasks, task); at < end;) {
        const size_t outer = at / lines, column = at % lines * LINE;
        const size_t bundles = lines - at % lines < end - at ? lines - at % lines : end - at;
        const size_t n = column + bundles * LINE < s.columns ? bundles * LINE : s.columns - column;
        const size_t first = (outer * s.columns + column) * s.rows;
        const uint32_t *x = (const uint32_t *)call->in[0] + outer * s.rows * s.columns + column;
        uint32_t *y = (uint32_t *)call->out[0] + first;
        if (s.rows == 3) pixels(x, s.columns, y, n);
        else for (size_t i = 0; i < n; i += LINE) columns(&s, x + i, y + i * s.rows, n - i < LINE ? n - i : LINE);
        opsnn_tail_apply(call, first, n * s.rows);
        at += bundles;
    }
}

const opsnn_kernel opsnn_k_transpose_any_any_neon = {
    .name = "transpose_any_any_neon",
    .op = OPSNN_OP_TRANSPOSE,
    .flags = OPSNN_KERNEL_TAIL,
    .cpu = OPSNN_NEON_CPU,
    .plan = plan,
    .run = run,
};
