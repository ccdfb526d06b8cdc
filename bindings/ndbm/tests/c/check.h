/* SPDX-License-Identifier: Apache-2.0 */
/* What the test programs share. Each runs in an empty folder of its own. */
#ifndef CHECK_H
#define CHECK_H

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ndbm.h"

#define CHECK(what)                                                                   \
    do {                                                                              \
        if (!(what)) {                                                                \
            fprintf(stderr, "%s:%d: %s is not so; errno is %d, %s\n", __FILE__,       \
                    __LINE__, #what, errno, strerror(errno));                         \
            exit(1);                                                                  \
        }                                                                             \
    } while (0)

/* The call fails with an errno value. */
#define FAILS(call, number)                                                           \
    do {                                                                              \
        errno = 0;                                                                    \
        CHECK(call);                                                                  \
        CHECK(errno == (number));                                                     \
    } while (0)

static inline datum text(const char *text)
{
    datum d;
    d.dptr = (char *)text;
    d.dsize = (int)strlen(text);
    return d;
}

static inline int is(datum d, const char *text)
{
    return d.dptr != NULL && d.dsize == (int)strlen(text) &&
           memcmp(d.dptr, text, (size_t)d.dsize) == 0;
}

static inline datum number(const int *n)
{
    datum d;
    d.dptr = (char *)n;
    d.dsize = (int)sizeof *n;
    return d;
}

static inline void put(DBM *db, const char *key, const char *value)
{
    CHECK(dbm_store(db, text(key), text(value), DBM_REPLACE) == 0);
}

static inline DBM *opened(const char *name, int flags)
{
    DBM *db = dbm_open(name, flags, 0600);
    CHECK(db != NULL);
    return db;
}

static inline int count(DBM *db)
{
    int count = 0;
    for (datum key = dbm_firstkey(db); key.dptr != NULL; key = dbm_nextkey(db))
        count++;
    CHECK(!dbm_error(db));
    return count;
}

/* Waits for a child, which must have ended well. */
static inline void reap(pid_t child)
{
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(status == 0);
}

#endif
