/* Convolution by its definition. There is no nchw one: graphs are turned to nhwc before they are compiled.

   Sums are made in double, bias first, then taps in the order of the weights: a product of two floats is exact in double, so
   the result is the same whether or not a compiler fuses multiply and add, and within half a unit in the last place, or
   nearly, of the true one: what other kernels are measured against. */
#include "ops/block.h"
#include "ops/window.h"
#include "ref/clamp.h"
#include "ref/split.h"

/* A task is a range of the N * OH output rows. */
static int plan(const opsnn_node *node, const opsnn_target *target, opsnn_fit *fit) {
    const int32_t *y = node->outputs[0]->dims;
    return opsnn_ref_fit(node, target, OPSNN_REF_EFFICIENCY, opsnn_ref_tasks((size_t)opsnn_count(y, 2), 1), fit);
}

/* One output row: n of the batch, oy. h and w are the resolved axes. */
static void row(const opsnn_call *call, const opsnn_window *h, const opsnn_window *w, size_t n, int32_t oy) {
    const opsnn_node *node = call->node;
    const opsnn_conv2d_params *p = node->params;
    const opsnn_value *weights = node->inputs[1];
    const size_t n_in = (size_t)node->inputs[0]->dims[3], n_out = (size_t)weights->dims[0],
                 per_group = (size_t)weights->dims[3];
    const size_t group_out = n_out / (size_t)p->group;
    const size_t step = weights->block > 1 ? weights->block : 1, taps = (size_t)opsnn_count(weights->dims + 1, 3);
    const float *x = call->in[0], *wt = call->in[1], *bias = opsnn_input(node, 2) ? call->in[2] : NULL;
    float *y = (float *)call->out[0] + (n * (size_t)h->out + (size_t)oy) * (size_t)w->out * n_out;
    int32_t y_first, y_end, x_first, x_end;
    opsnn_window_taps(h, oy, &y_first, &y_end);
    if (per_group == 0) y_end = y_first; /* nothing to sum, though there may be many taps */
    for (int32_t ox = 0; ox < w->out; ox++) {
        opsnn_window_taps(w, ox, &x_first, &x_end);
        for (size_t o = 0; o < n_out; o++) {
            const float *from = wt + opsnn_block_offset(weights->block, taps, o, 0);
            double sum = bias ? (double)bias[o] : 0.0;
            for (int32_t ky = y_first; ky < y_end; ky++) {
                const size_t iy = (size_t)(oy * h->stride - h->pad + ky * h->dilation);
                for (int32_t kx = x_first; kx < x_end; kx++) {
                    const size_t ix = (size_t)(ox * w->stride - w->pad + kx * w->dilation);
                    const float *px = x + ((n * (size_t)h->in + iy) * (size_t)w->in + ix) * n_in + o / group_out * per_group;
                    const float *pw = from + ((size_t)ky * (size_t)w->kernel + (size_t)kx) * per_group * step;
                    for (size_t c = 0; c < per_group; c++) sum += (double)px[c] * (double)pw[c * step];
                }
            }
            y[(size_t)ox * n_out + o] = opsnn_clamp((float)sum, p->lo, p->hi);
        }
    }
}

static void run(const opsnn_call *call, uint32_t task) {
    const opsnn_conv2d_params *p = call->node->params;
    const int32_t *x = call->node->inputs[0]->dims, *kernel = call->node->inputs[1]->dims + 1,
                  *y = call->node->outputs[0]->dims;
    opsnn_window h, w;
    opsnn_window_resolve(0, x[1], kernel[0], p->strides, p->dilations, p->pads, p->auto_pad, 0, &h);
    opsnn_window_resolve(1, x[2], kernel[1], p->strides, p->dilations, p->pads, p->auto_pad, 0, &w);
    const size_t rows = (size_t)opsnn_count(y, 2), row_elements = (size_t)opsnn_count(y + 2, 2);
    const opsnn_ref_range part = opsnn_ref_part(call, task, rows);
    for (size_t r = part.first; r < part.end; r++) row(call, &h, &w, r / (size_t)h.out, (int32_t)(r % (size_t)h.out));
    opsnn_tail_apply(call, part.first * row_elements, (part.end - part.first) * row_elements);
}

const opsnn_kernel opsnn_k_conv2d_f32_nhwc_ref = {
    .name = "conv2d_f32_nhwc_ref",
    .op = OPSNN_OP_CONV2D,
    .dtype = OPSNN_DTYPE_F32,
    .layout = OPSNN_LAYOUT_NHWC,
    .flags = OPSNN_KERNEL_BLOCKED | OPSNN_KERNEL_TAIL,
    .plan = plan,
    .run = run,
};
