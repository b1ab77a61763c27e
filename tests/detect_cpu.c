/* Prints what opsnn_target_detect says, a fact a line. */
#include <stdio.h>

#include "ops_nn.h"

int main(void) {
    opsnn_target t;
    opsnn_error err;
    if (opsnn_target_detect(&t, &err)) {
        puts(err.text);
        return 1;
    }
    printf("name=%s\narch=%u\ncpu=%u\nn_threads=%u\ngflops=%.1f\ngbytes_per_s=%.1f\n", t.name, t.arch, t.cpu, t.n_threads,
           (double)t.gflops, (double)t.gbytes_per_s);
    return 0;
}
