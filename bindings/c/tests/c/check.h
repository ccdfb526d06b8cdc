/* SPDX-License-Identifier: Apache-2.0 */
/* What the test programs share. Each gets a folder of its own as its first argument. */
#ifndef CHECK_H
#define CHECK_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "senko_dbm.h"

#define CHECK(what)                                                                              \
    do {                                                                                         \
        if (!(what)) {                                                                           \
            fprintf(stderr, "%s:%d: %s is not so; last message: %s\n", __FILE__, __LINE__, #what, \
                    senko_message());                                                            \
            exit(1);                                                                             \
        }                                                                                        \
    } while (0)

#define IS(call, wanted)                                                                         \
    do {                                                                                         \
        int got = (call);                                                                        \
        if (got != (wanted)) {                                                                   \
            fprintf(stderr, "%s:%d: %s gave %d (%s), not %d; last message: %s\n", __FILE__,       \
                    __LINE__, #call, got, senko_strerror(got), (wanted), senko_message());       \
            exit(1);                                                                             \
        }                                                                                        \
    } while (0)

#define OK(call) IS(call, 0)

static inline senko_val val(const char *text)
{
    senko_val v;
    v.size = strlen(text);
    v.data = (void *)text;
    return v;
}

static inline int is(senko_val v, const char *text)
{
    return v.size == strlen(text) && memcmp(v.data, text, v.size) == 0;
}

static inline const char *in_folder(char **argv, const char *name)
{
    static char path[4096];
    snprintf(path, sizeof path, "%s/%s", argv[1], name);
    return path;
}

#endif
