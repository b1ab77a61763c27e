/* The bytes of an .opsnn model (docs/model-format.md is normative). Little-endian. A header, a section table, sections of fixed
   records with a stride, and constants at 64-byte boundaries. Offsets in records count from the start of their section. A minor
   version may append fields to a record (a larger stride; absent fields read as zero) and sections of new kinds; it changes
   nothing else. Only verify.c reads these bytes before they have been checked. */
#ifndef OPSNN_CORE_FORMAT_H
#define OPSNN_CORE_FORMAT_H

#include <stdint.h>

#define OPSNN_MAGIC "OPSNN\r\n\032" /* 8 bytes: line-ending damage is noticed */
#define OPSNN_ALIGN 64
#define OPSNN_NONE UINT32_MAX

typedef struct opsnn_file_header {
    char magic[8];
    uint16_t major, minor;
    uint32_t n_sections;
    uint64_t file_bytes;  /* the whole file: truncation is noticed at once */
    uint64_t schema;      /* fingerprint of the schema that wrote it: information only */
    uint64_t hash;        /* FNV-1a of everything behind the header in 64-bit words; checked on request; 0: none */
    uint32_t section_stride;
    uint32_t reserved;
} opsnn_file_header; /* 48 bytes, followed by the section table */

typedef enum opsnn_section_kind {
    OPSNN_SECTION_STRINGS = 1,  /* UTF-8, each ending in NUL; offset 0 is the empty string */
    OPSNN_SECTION_TENSORS = 2,
    OPSNN_SECTION_NODES = 3,    /* in execution order */
    OPSNN_SECTION_OPERANDS = 4, /* uint32 tensor indices, OPSNN_NONE for an absent input */
    OPSNN_SECTION_TAILS = 5,
    OPSNN_SECTION_PARAMS = 6,   /* parameter structs at 8-byte boundaries */
    OPSNN_SECTION_INPUTS = 7,   /* uint32 tensor indices */
    OPSNN_SECTION_OUTPUTS = 8,  /* uint32 tensor indices */
    OPSNN_SECTION_META = 9,     /* pairs of uint32 string offsets: key, value */
    OPSNN_SECTION_DATA = 10     /* constants, each at a multiple of 64; the section itself starts at one */
} opsnn_section_kind;

typedef struct opsnn_file_section {
    uint32_t kind;
    uint32_t stride; /* bytes of a record; 1 for strings, params and data */
    uint64_t offset; /* from the start of the file, a multiple of 8 */
    uint64_t bytes;
} opsnn_file_section; /* 24 bytes */

typedef enum opsnn_tensor_kind {
    OPSNN_TENSOR_VALUE = 0, /* made by a node; its shape is inferred, dims and rank are 0 */
    OPSNN_TENSOR_INPUT = 1, /* dims of -1 are open */
    OPSNN_TENSOR_CONST = 2
} opsnn_tensor_kind;

typedef struct opsnn_file_tensor {
    uint32_t name; /* string offset */
    uint16_t dtype;
    uint8_t kind; /* opsnn_tensor_kind */
    uint8_t rank;
    int32_t dims[8];
    uint16_t block; /* constants: storage blocks of the first dimension, 0 or 1 plain */
    uint16_t reserved;
    uint32_t reserved2;
    uint64_t data_offset; /* into the data section */
    uint64_t data_bytes;  /* exactly what dtype, dims and block say */
} opsnn_file_tensor; /* 64 bytes */

typedef struct opsnn_file_node {
    uint32_t name;
    uint16_t op;
    uint16_t layout;
    uint16_t n_inputs, n_outputs;
    uint16_t n_tail;
    uint16_t reserved;
    uint32_t operands; /* index of the first of n_inputs + n_outputs operands */
    uint32_t tails;    /* index of the first of n_tail tail records */
    uint32_t params;   /* byte offset into the params section */
    uint32_t params_bytes; /* at most the struct's size; what is missing reads as zero, which is the default of appended fields */
} opsnn_file_node; /* 32 bytes */

typedef struct opsnn_file_tail {
    uint16_t op;
    uint16_t other_first; /* 1: op(other, acc) */
    uint32_t other;       /* tensor index, or OPSNN_NONE for unary steps */
    uint32_t params;
    uint32_t params_bytes;
} opsnn_file_tail; /* 16 bytes */

#endif
