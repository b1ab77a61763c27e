/* From lifetimes to offsets: where each tensor lies in the arena, so that tensors alive at the same time never overlap. */
#include <stdint.h>

#include "core.h"

/* The layout takes n * n / 2 comparisons: a hostile model shall not keep a board busy for minutes. Large networks have a few
   thousand tensors. */
#define MAX_INTERVALS 16384

/* Larger first; among equals the one that lives earlier, then the earlier one: the result depends on nothing else. */
static int goes_before(const opsnn_interval *v, uint32_t a, uint32_t b) {
    if (v[a].bytes != v[b].bytes) return v[a].bytes > v[b].bytes;
    if (v[a].first != v[b].first) return v[a].first < v[b].first;
    return a < b;
}

static void sift_down(const opsnn_interval *v, uint32_t *heap, uint32_t root, uint32_t n) {
    const uint32_t item = heap[root];
    for (uint32_t child = 2 * root + 1; child < n; child = 2 * root + 1) {
        if (child + 1 < n && goes_before(v, heap[child], heap[child + 1])) child++;
        if (!goes_before(v, item, heap[child])) break;
        heap[root] = heap[child];
        root = child;
    }
    heap[root] = item;
}

/* Heap sort: in place, without the C library's qsort, which may allocate. */
static void sort(const opsnn_interval *v, uint32_t *order, uint32_t n) {
    for (uint32_t i = n / 2; i-- > 0;) sift_down(v, order, i, n);
    for (uint32_t end = n; end-- > 1;) {
        const uint32_t last = order[0];
        order[0] = order[end];
        order[end] = last;
        sift_down(v, order, 0, end);
    }
}

opsnn_status opsnn_arena_layout(opsnn_interval *intervals, uint32_t n, size_t *arena_bytes, opsnn_error *err) {
    *arena_bytes = 0;
    if (n > MAX_INTERVALS)
        return opsnn_fail(err, OPSNN_E_LIMIT, -1, "%u tensors are more than the memory planner takes (%d)", n, MAX_INTERVALS);
    uint32_t *order = opsnn_alloc(2 * sizeof *order * n);
    if (!order) return opsnn_fail(err, OPSNN_E_MEMORY, -1, "no memory to lay out %u tensors", n);
    uint32_t *placed = order + n; /* by ascending offset */
    uint32_t n_order = 0, n_placed = 0;
    size_t arena = 0;
    opsnn_status status = OPSNN_OK;
    for (uint32_t i = 0; i < n; i++) {
        intervals[i].offset = 0;
        if (intervals[i].bytes) order[n_order++] = i;
    }
    sort(intervals, order, n_order);
    for (uint32_t i = 0; i < n_order; i++) {
        opsnn_interval *item = &intervals[order[i]];
        /* The smallest sufficient gap between what is alive at the same time; else the end of it all. */
        size_t best = SIZE_MAX, best_gap = SIZE_MAX, end = 0;
        for (uint32_t j = 0; j < n_placed; j++) {
            const opsnn_interval *other = &intervals[placed[j]];
            if (other->last < item->first || item->last < other->first) continue;
            if (other->offset > end && other->offset - end >= item->bytes && other->offset - end < best_gap) {
                best = end;
                best_gap = other->offset - end;
            }
            const size_t other_end = opsnn_align_up(other->offset + other->bytes);
            if (other_end > end) end = other_end;
        }
        item->offset = best != SIZE_MAX ? best : end;
        /* Alignment behind the last byte included, so that the sums above cannot wrap either. */
        if (item->bytes > (size_t)PTRDIFF_MAX - (OPSNN_ALIGN - 1) ||
            item->offset > (size_t)PTRDIFF_MAX - (OPSNN_ALIGN - 1) - item->bytes) {
            status = opsnn_fail(err, OPSNN_E_LIMIT, -1,
                                "the tensors alive at step %u need more memory than this machine can address", item->first);
            break;
        }
        if (item->offset + item->bytes > arena) arena = item->offset + item->bytes;
        uint32_t at = n_placed++;
        for (; at > 0 && intervals[placed[at - 1]].offset > item->offset; at--) placed[at] = placed[at - 1];
        placed[at] = order[i];
    }
    opsnn_release(order);
    if (status == OPSNN_OK) *arena_bytes = opsnn_align_up(arena);
    return status;
}
