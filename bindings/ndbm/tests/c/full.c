/* SPDX-License-Identifier: Apache-2.0 */
/* A transaction on a full device. The program stands between the library and the system. */
#define _GNU_SOURCE
#include "check.h"

#include <sys/syscall.h>

static int full, refused;

int fallocate64(int fd, int mode, off64_t at, off64_t size)
{
    if (full && mode == 0) {
        refused++;
        errno = ENOSPC;
        return -1;
    }
    return (int)syscall(SYS_fallocate, fd, mode, at, size);
}

int fallocate(int fd, int mode, off_t at, off_t size)
{
    return fallocate64(fd, mode, at, size);
}

/* Stores 64 MiB in a transaction. */
static void stores(DBM *db)
{
    static char bytes[1 << 20];
    datum value = {bytes, sizeof bytes};
    CHECK(dbm_begin(db) == 0);
    put(db, "k", "w");
    for (int key = 0; key < 64; key++)
        CHECK(dbm_store(db, number(&key), value, DBM_REPLACE) == 0);
    CHECK(is(dbm_fetch(db, text("k")), "w"));
}

int main(void)
{
    DBM *db = opened("data", O_RDWR | O_CREAT);
    put(db, "k", "v");
    /* The commit is refused, and nothing of it is done. */
    full = 1;
    stores(db);
    CHECK(refused == 0);
    FAILS(dbm_commit(db) == -1, ENOSPC);
    CHECK(dbm_error(db) && refused > 0);
    dbm_clearerr(db);
    CHECK(is(dbm_fetch(db, text("k")), "v") && count(db) == 1);
    FAILS(dbm_abort(db) == -1, EINVAL);
    dbm_clearerr(db);
    /* What finds room is still done. */
    CHECK(dbm_begin(db) == 0);
    put(db, "k", "small");
    CHECK(dbm_commit(db) == 0 && is(dbm_fetch(db, text("k")), "small"));
    full = 0;
    stores(db);
    CHECK(dbm_commit(db) == 0 && count(db) == 65);
    dbm_close(db);
    db = opened("data", O_RDONLY);
    CHECK(count(db) == 65 && is(dbm_fetch(db, text("k")), "w"));
    dbm_close(db);
    return 0;
}
