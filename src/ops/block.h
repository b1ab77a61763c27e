/* Where an element of a blocked constant lies (opsnn_value.block): [ceil(D/b)][other dimensions...][b]. */
#ifndef OPSNN_OPS_BLOCK_H
#define OPSNN_OPS_BLOCK_H

#include <stddef.h>
#include <stdint.h>

/* Offset, in elements, of element i of the n_row elements of row `row` (index of the first dimension). Consecutive elements of
   a row are `block` apart. Block 0 and 1: plain. */
static inline size_t opsnn_block_offset(uint32_t block, size_t n_row, size_t row, size_t i) {
    return block > 1 ? (row / block * n_row + i) * block + row % block : row * n_row + i;
}

#endif
