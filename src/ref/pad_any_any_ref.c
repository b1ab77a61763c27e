/* Each result asks the axes, one after the other, which element it shows. */
#include "ref/move.h"

/* An axis: `left` elements from `first` of the input on are kept, `before` border elements precede them. */
typedef struct axis {
    int64_t first, left, before;
} axis;

static axis axis_of(const opsnn_pad_params *p, const opsnn_value *x, uint32_t i) {
    const int64_t begin = p->pads[i], end = p->pads[i + x->rank];
    const axis a = {begin < 0 ? -begin : 0, x->dims[i] + (begin < 0 ? begin : 0) + (end < 0 ? end : 0), begin > 0 ? begin : 0};
    return a;
}

/* The element of the input at position `at` of the output, -1: the constant. */
static int64_t source(const axis *a, int32_t mode, int64_t at) {
    int64_t i = at - a->before;
    if (i < 0 || i >= a->left) {
        if (mode == OPSNN_PAD_MODE_CONSTANT) return -1;
        if (mode == OPSNN_PAD_MODE_EDGE) {
            i = i < 0 ? 0 : a->left - 1;
        } else { /* periodic: there and back again for reflect, which does not repeat the ends */
            const int64_t period = mode == OPSNN_PAD_MODE_WRAP || a->left == 1 ? a->left : 2 * (a->left - 1);
            i = (i % period + period) % period;
            if (i >= a->left) i = period - i;
        }
    }
    return a->first + i;
}

/* float32's bits as float16, rounded to nearest even. */
static uint16_t half(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    const uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
    const uint32_t magnitude = bits & 0x7fffffff;
    if (magnitude > 0x7f800000) return (uint16_t)(sign | 0x7e00);  /* NaN */
    if (magnitude >= 0x477ff000) return (uint16_t)(sign | 0x7c00); /* rounds to infinity: 65520 and above */
    if (magnitude < 0x38800000) {                                  /* below the smallest normal number: a multiple of 2^-24 */
        const int shift = 126 - (int)(magnitude >> 23);
        if (shift > 24) return sign;
        const uint32_t mantissa = (magnitude & 0x7fffff) | 0x800000, whole = mantissa >> shift;
        const uint32_t rest = mantissa & ((1u << shift) - 1), tie = 1u << (shift - 1);
        return (uint16_t)(sign | (whole + (rest > tie || (rest == tie && (whole & 1)))));
    }
    const uint32_t rounded = magnitude + 0xfff + (magnitude >> 13 & 1) - (112u << 23);
    return (uint16_t)(sign | rounded >> 13);
}

/* The constant in the tensor's type; the rule has seen that integers hold it. */
static void store(float value, uint32_t dtype, void *to) {
    union {
        float f32;
        double f64;
        int8_t s8;
        int16_t s16;
        int32_t s32;
        int64_t s64;
        uint8_t u8;
        uint16_t u16;
        uint32_t u32;
        uint64_t u64;
    } v;
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    /* clang-format off */
    switch (dtype) {
    case OPSNN_DTYPE_F64: v.f64 = (double)value; break;
    case OPSNN_DTYPE_F16: v.u16 = half(value); break;
    case OPSNN_DTYPE_BF16: v.u16 = value != value ? 0x7fc0 : (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16); break;
    case OPSNN_DTYPE_S8: v.s8 = (int8_t)value; break;
    case OPSNN_DTYPE_S16: v.s16 = (int16_t)value; break;
    case OPSNN_DTYPE_S32: v.s32 = (int32_t)value; break;
    case OPSNN_DTYPE_S64: v.s64 = (int64_t)value; break;
    case OPSNN_DTYPE_U16: v.u16 = (uint16_t)value; break;
    case OPSNN_DTYPE_U32: v.u32 = (uint32_t)value; break;
    case OPSNN_DTYPE_U64: v.u64 = (uint64_t)value; break;
    case OPSNN_DTYPE_U8:
    case OPSNN_DTYPE_BOOL: v.u8 = (uint8_t)value; break;
    default: v.f32 = value; break;
    }
    /* clang-format on */
    memcpy(to, &v, opsnn_dtype_bytes(dtype));
}

static void run(const opsnn_call *call, uint32_t task) {
    const opsnn_pad_params *p = call->node->params;
    const opsnn_value *x = call->node->inputs[0], *y = call->node->outputs[0];
    const size_t size = opsnn_dtype_bytes(y->dtype);
    const opsnn_ref_range part = opsnn_ref_part(call, task, opsnn_elements(y));
    unsigned char constant[8];
    if (p->mode == OPSNN_PAD_MODE_CONSTANT) store(p->value, y->dtype, constant);
    axis axes[OPSNN_MAX_RANK];
    ptrdiff_t steps[OPSNN_MAX_RANK];
    opsnn_dense_steps(x, steps);
    for (uint32_t i = 0; i < x->rank; i++) axes[i] = axis_of(p, x, i);
    for (size_t at = part.first; at < part.end; at++) {
        size_t rest = at;
        ptrdiff_t from = 0;
        int is_constant = 0;
        for (uint32_t i = y->rank; i-- > 0; rest /= (size_t)y->dims[i]) {
            const int64_t index = source(&axes[i], p->mode, (int64_t)(rest % (size_t)y->dims[i]));
            if (index < 0)
                is_constant = 1;
            else
                from += (ptrdiff_t)index * steps[i];
        }
        memcpy((unsigned char *)call->out[0] + at * size,
               is_constant ? constant : (const unsigned char *)call->in[0] + from * (ptrdiff_t)size, size);
    }
    opsnn_tail_apply(call, part.first, part.end - part.first);
}

const opsnn_kernel opsnn_k_pad_any_any_ref = {
    .name = "pad_any_any_ref",
    .op = OPSNN_OP_PAD,
    .flags = OPSNN_KERNEL_TAIL,
    .plan = opsnn_ref_plan_elements,
    .run = run,
};
