/* SPDX-License-Identifier: Apache-2.0 */
/* What fails, with which number, and what dbm_error makes of it. */
#include "check.h"

static void file(const char *name, const char *line, int lines)
{
    FILE *file = fopen(name, "w");
    CHECK(file != NULL);
    while (lines-- > 0)
        fputs(line, file);
    CHECK(fclose(file) == 0);
}

static long size(const char *name)
{
    struct stat found;
    return stat(name, &found) == 0 ? (long)found.st_size : -1;
}

int main(void)
{
    FAILS(dbm_open("absent", O_RDWR, 0600) == NULL, ENOENT);
    FAILS(dbm_open("absent", O_RDONLY, 0600) == NULL, ENOENT);
    FAILS(dbm_open("no/folder", O_RDWR | O_CREAT, 0600) == NULL, ENOENT);
    FAILS(dbm_open("", O_RDWR | O_CREAT, 0600) == NULL, ENOENT);
    FAILS(dbm_open(NULL, O_RDWR | O_CREAT, 0600) == NULL, EINVAL);
    char name[400];
    memset(name, 'x', 399);
    name[399] = 0;
    FAILS(dbm_open(name, O_RDWR | O_CREAT, 0600) == NULL, ENAMETOOLONG);
    CHECK(size("absent.pag") == -1 && size("absent.dir") == -1);

    DBM *db = opened("data", O_RDWR | O_CREAT | O_EXCL);
    CHECK(dbm_store(db, text("k"), text("v"), DBM_INSERT) == 0);
    CHECK(dbm_store(db, text("k"), text("w"), DBM_INSERT) == 1);
    CHECK(is(dbm_fetch(db, text("k")), "v"));
    CHECK(dbm_store(db, text("k"), text("w"), DBM_REPLACE) == 0);
    CHECK(is(dbm_fetch(db, text("k")), "w"));

    /* What is not there is no error. */
    CHECK(dbm_fetch(db, text("no")).dptr == NULL && !dbm_error(db));
    FAILS(dbm_delete(db, text("no")) == -1, ENOENT);
    CHECK(!dbm_error(db));

    FAILS(dbm_store(db, text("k"), text("v"), 2) == -1, EINVAL);
    CHECK(dbm_error(db));
    CHECK(is(dbm_fetch(db, text("k")), "w") && dbm_error(db));
    dbm_clearerr(db);
    CHECK(!dbm_error(db));
    static char bytes[1025];
    datum longest = {bytes, 1024}, longer = {bytes, 1025};
    CHECK(dbm_store(db, longest, text("v"), DBM_INSERT) == 0);
    FAILS(dbm_store(db, longer, text("v"), DBM_INSERT) == -1, EINVAL);
    dbm_clearerr(db);
    CHECK(dbm_fetch(db, longer).dptr == NULL && !dbm_error(db));
    FAILS(dbm_delete(db, longer) == -1, ENOENT);
    CHECK(dbm_rdonly(db) == 0);
    dbm_close(db);
    FAILS(dbm_open("data", O_RDWR | O_CREAT | O_EXCL, 0600) == NULL, EEXIST);

    /* To be read. */
    db = opened("data", O_RDONLY);
    CHECK(dbm_rdonly(db) != 0);
    CHECK(is(dbm_fetch(db, text("k")), "w"));
    FAILS(dbm_store(db, text("k"), text("v"), DBM_REPLACE) == -1, EPERM);
    CHECK(dbm_error(db));
    dbm_clearerr(db);
    FAILS(dbm_delete(db, text("k")) == -1, EPERM);
    dbm_clearerr(db);
    FAILS(dbm_delete(db, text("no")) == -1, EPERM);
    dbm_close(db);
    FAILS(dbm_open("data", O_RDONLY | O_TRUNC, 0600) == NULL, EINVAL);
    db = opened("made", O_RDONLY | O_CREAT);
    CHECK(count(db) == 0 && dbm_rdonly(db));
    dbm_close(db);

    /* Emptied. */
    db = opened("data", O_RDWR | O_TRUNC);
    CHECK(count(db) == 0);
    put(db, "new", "one");
    dbm_close(db);
    db = opened("data", O_RDWR);
    CHECK(count(db) == 1);
    dbm_close(db);

    /* Files of others stay as they are, unless they are to be emptied. */
    file("short.pag", "of another program\n", 3);
    file("long.pag", "of another program\n", 30000);
    file("short.dir", "", 0);
    file("long.dir", "", 0);
    for (int flags = 0; flags < 2; flags++) {
        int how = flags == 0 ? O_RDWR : O_RDWR | O_CREAT;
        FAILS(dbm_open("short", how, 0600) == NULL, EINVAL);
        FAILS(dbm_open("long", how, 0600) == NULL, EINVAL);
        FAILS(dbm_open("long", O_RDONLY, 0600) == NULL, EINVAL);
    }
    CHECK(size("short.pag") == 3 * 19 && size("long.pag") == 30000 * 19);
    CHECK(size("short.dir") == 0);
    const char *names[] = {"short", "long"};
    for (int nth = 0; nth < 2; nth++) {
        db = opened(names[nth], O_RDWR | O_CREAT | O_TRUNC);
        CHECK(count(db) == 0);
        put(db, "new", "one");
        dbm_close(db);
        db = opened(names[nth], O_RDONLY);
        CHECK(is(dbm_fetch(db, text("new")), "one"));
        dbm_close(db);
    }
    /* Made by touch, to have its owner. */
    file("touched.pag", "", 0);
    file("touched.dir", "", 0);
    db = opened("touched", O_RDWR);
    put(db, "k", "v");
    dbm_close(db);

    /* No handle. */
    FAILS(dbm_store(NULL, text("k"), text("v"), DBM_INSERT) == -1, EINVAL);
    FAILS(dbm_fetch(NULL, text("k")).dptr == NULL, EINVAL);
    dbm_close(NULL);
    return 0;
}
