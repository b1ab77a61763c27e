/* Mean of each window, summed in double. The divisor counts the taps inside the input, or with count_include_pad those inside
   the padded input: never the cells beyond it that ceil_mode's last window reaches. A window wholly in padding gives 0. */
#include "ref/pool.h"

static void pixel(const void *params, const opsnn_window *h, const opsnn_window *w, const float *image, int32_t oy, int32_t ox,
                  float *y, size_t n) {
    const opsnn_average_pool_params *p = params;
    int32_t y_first, y_end, x_first, x_end;
    opsnn_window_taps(h, oy, &y_first, &y_end);
    opsnn_window_taps(w, ox, &x_first, &x_end);
    const double inside = (double)(y_end - y_first) * (double)(x_end - x_first);
    const double padded = (double)opsnn_window_padded_taps(h, oy) * (double)opsnn_window_padded_taps(w, ox);
    const double divisor = p->count_include_pad ? padded : inside;
    for (size_t c = 0; c < n; c++) {
        double sum = 0.0;
        for (int32_t ky = y_first; ky < y_end; ky++) {
            const size_t iy = (size_t)(oy * h->stride - h->pad + ky * h->dilation);
            for (int32_t kx = x_first; kx < x_end; kx++) {
                const size_t ix = (size_t)(ox * w->stride - w->pad + kx * w->dilation);
                sum += (double)image[(iy * (size_t)w->in + ix) * n + c];
            }
        }
        y[c] = opsnn_clamp(inside > 0.0 ? (float)(sum / divisor) : 0.0f, p->lo, p->hi);
    }
}

static void run(const opsnn_call *call, uint32_t task) {
    const opsnn_average_pool_params *p = call->node->params;
    const int32_t *x = call->node->inputs[0]->dims;
    opsnn_window h, w;
    opsnn_window_resolve(0, x[1], p->kernel_shape[0], p->strides, p->dilations, p->pads, p->auto_pad, p->ceil_mode, &h);
    opsnn_window_resolve(1, x[2], p->kernel_shape[1], p->strides, p->dilations, p->pads, p->auto_pad, p->ceil_mode, &w);
    opsnn_pool_run(call, task, &h, &w, pixel);
}

const opsnn_kernel opsnn_k_average_pool_f32_nhwc_ref = {
    .name = "average_pool_f32_nhwc_ref",
    .op = OPSNN_OP_AVERAGE_POOL,
    .dtype = OPSNN_DTYPE_F32,
    .layout = OPSNN_LAYOUT_NHWC,
    .flags = OPSNN_KERNEL_TAIL,
    .plan = opsnn_pool_plan,
    .run = run,
};
