/* Verifies the files of the command line and prints for each: status, node, number of the rule that it breaks (-1: none), text;
   before that, how many rules there are. The verifier is included with its rules made to report. */
#include <stdio.h>
#include <stdlib.h>

static int broken_rule;
static int broken(int rule) {
    broken_rule = rule;
    return 0;
}
enum { FIRST_RULE = __COUNTER__ + 1 };
#define HOLDS(condition) ((condition) || broken(__COUNTER__ - FIRST_RULE))
#include "../src/core/verify.c"
enum { N_RULES = __COUNTER__ - FIRST_RULE };

int main(int argc, char **argv) {
    printf("%d\n", N_RULES);
    for (int i = 1; i < argc; i++) {
        FILE *f = fopen(argv[i], "rb");
        if (!f || fseek(f, 0, SEEK_END) != 0) return 1;
        const size_t bytes = (size_t)ftell(f);
        void *data = NULL; /* of exactly the file's size, so that AddressSanitizer sees a read beyond it */
        rewind(f);
        if (posix_memalign(&data, OPSNN_ALIGN, bytes) != 0 || fread(data, 1, bytes, f) != bytes) return 1;
        fclose(f);
        opsnn_error err = {0};
        opsnn_model *model = NULL;
        err.node = -1;
        broken_rule = -1;
        const opsnn_status status = opsnn_model_open_memory(data, bytes, &model, &err);
        printf("%s\t%d\t%d\t%s\n", opsnn_status_name((int32_t)status), (int)err.node, broken_rule, err.text);
        opsnn_model_free(model);
        free(data);
    }
    return 0;
}
