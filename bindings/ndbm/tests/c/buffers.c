/* SPDX-License-Identifier: Apache-2.0 */
/* What a call gave is used in the next call, and compared with what that gave. */
#include "check.h"

int main(void)
{
    DBM *db = opened("data", O_RDWR | O_CREAT);
    put(db, "a", "first");
    put(db, "b", "second");
    put(db, "c", "third");

    /* A fetch between two steps of the walk moves neither the walk nor its key. */
    datum key = dbm_firstkey(db);
    datum value = dbm_fetch(db, key);
    CHECK(is(key, "a") && is(value, "first"));
    datum next = dbm_nextkey(db);
    CHECK(is(key, "a") && is(value, "first") && is(next, "b"));

    /* Two values, and two keys, at a time. */
    datum other = dbm_fetch(db, next);
    CHECK(is(value, "first") && is(other, "second"));

    /* A value that was fetched goes into a store. */
    value = dbm_fetch(db, text("a"));
    CHECK(dbm_store(db, text("d"), value, DBM_INSERT) == 0);
    CHECK(is(value, "first") && is(dbm_fetch(db, text("d")), "first"));
    value = dbm_fetch(db, text("b"));
    CHECK(dbm_store(db, value, value, DBM_INSERT) == 0);
    CHECK(is(dbm_fetch(db, text("second")), "second"));

    /* What was given may be written to. */
    value = dbm_fetch(db, text("a"));
    value.dptr[0] = 'F';
    CHECK(is(value, "First") && is(dbm_fetch(db, text("a")), "first"));

    /* The key that the walk gave is deleted, and the walk goes on. */
    int deleted = 0;
    for (key = dbm_firstkey(db); key.dptr != NULL; key = dbm_nextkey(db)) {
        CHECK(dbm_delete(db, key) == 0);
        deleted++;
    }
    CHECK(deleted == 5 && count(db) == 0);

    /* A walk has the keys of its start that are still there; behind the end there is none, again
     * and again. */
    put(db, "b", "");
    put(db, "d", "");
    put(db, "e", "");
    key = dbm_firstkey(db);
    put(db, "a", "");
    put(db, "c", "");
    CHECK(dbm_delete(db, text("d")) == 0);
    CHECK(is(dbm_nextkey(db), "e"));
    CHECK(dbm_nextkey(db).dptr == NULL);
    CHECK(dbm_nextkey(db).dptr == NULL && !dbm_error(db));
    CHECK(is(dbm_firstkey(db), "a"));
    CHECK(is(dbm_nextkey(db), "b") && is(dbm_nextkey(db), "c"));

    /* A program that stored a key for each key of a walk used to meet its own keys, without end. */
    int steps = 0;
    for (key = dbm_firstkey(db); key.dptr != NULL; key = dbm_nextkey(db)) {
        char longer[64];
        CHECK(steps < 4 && key.dsize < 8);
        memcpy(longer, key.dptr, (size_t)key.dsize);
        strcpy(longer + key.dsize, ".bak");
        put(db, longer, "");
        steps++;
    }
    CHECK(steps == 4 && count(db) == 8);

    /* A walk that a program leaves gives its state up after many stores: then it has the keys of
     * now. Otherwise the file would keep everything that was overwritten since. */
    static char block[1 << 20];
    datum large = {block, sizeof block};
    key = dbm_firstkey(db);
    for (int nth = 0; nth < 20; nth++)
        CHECK(dbm_store(db, text("z"), large, DBM_REPLACE) == 0);
    CHECK(is(key, "a") && is(dbm_nextkey(db), "a.bak"));
    for (steps = 2; dbm_nextkey(db).dptr != NULL;)
        steps++;
    CHECK(steps == 9);

    /* The longest value is 1 GiB; more than 64 MiB used to be EIO. */
    large.dsize = 65 << 20;
    large.dptr = calloc(1, (size_t)large.dsize);
    CHECK(large.dptr != NULL && dbm_store(db, text("large"), large, DBM_INSERT) == 0);
    CHECK(dbm_fetch(db, text("large")).dsize == large.dsize);
    free(large.dptr);
    dbm_close(db);
    return 0;
}
