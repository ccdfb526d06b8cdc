/* SPDX-License-Identifier: Apache-2.0 */
/* dbm_begin, dbm_commit and dbm_abort on a handle, and what the other calls do between them. */
#include "check.h"

#include <signal.h>

#ifndef SENKO_NDBM_TRANSACTIONS
#error "the header does not say that it has transactions"
#endif

static int absent(DBM *db, const char *key)
{
    int absent = dbm_fetch(db, text(key)).dptr == NULL;
    CHECK(!dbm_error(db));
    return absent;
}

static void errors(DBM *db, DBM *other)
{
    static char bytes[1025];
    datum longer = {bytes, 1025};
    datum none = {NULL, 1};

    /* Without a transaction. */
    FAILS(dbm_commit(db) == -1, EINVAL);
    CHECK(dbm_error(db));
    dbm_clearerr(db);
    FAILS(dbm_abort(db) == -1, EINVAL);
    CHECK(dbm_error(db));
    dbm_clearerr(db);
    FAILS(dbm_begin(NULL) == -1, EINVAL);
    FAILS(dbm_commit(NULL) == -1, EINVAL);
    FAILS(dbm_abort(NULL) == -1, EINVAL);

    /* A second begin fails, and the transaction goes on. So do other failures leave it open. */
    CHECK(dbm_begin(db) == 0);
    put(db, "errors", "1");
    FAILS(dbm_begin(db) == -1, EBUSY);
    CHECK(dbm_error(db));
    dbm_clearerr(db);
    FAILS(dbm_store(db, longer, text("v"), DBM_REPLACE) == -1, EINVAL);
    FAILS(dbm_store(db, longer, text("v"), DBM_INSERT) == -1, EINVAL);
    FAILS(dbm_store(db, text("huge"), none, DBM_REPLACE) == -1, EINVAL);
    FAILS(dbm_store(db, text("flags"), text("v"), 2) == -1, EINVAL);
    CHECK(dbm_error(db));
    dbm_clearerr(db);
    CHECK(dbm_fetch(db, longer).dptr == NULL && !dbm_error(db));
    FAILS(dbm_delete(db, longer) == -1, ENOENT);
    FAILS(dbm_delete(db, text("no")) == -1, ENOENT);
    CHECK(!dbm_error(db) && absent(other, "errors"));
    CHECK(dbm_commit(db) == 0);
    CHECK(is(dbm_fetch(other, text("errors")), "1") && absent(other, "huge"));
    CHECK(absent(other, "flags"));
    FAILS(dbm_commit(db) == -1, EINVAL);
    dbm_clearerr(db);
    CHECK(dbm_delete(db, text("errors")) == 0);

    /* A value of more than 1 GiB. */
    size_t size = (1u << 30) + 1;
    datum huge = {malloc(size), (int)size};
    CHECK(huge.dptr != NULL && dbm_begin(db) == 0);
    FAILS(dbm_store(db, text("huge"), huge, DBM_REPLACE) == -1, EINVAL);
    free(huge.dptr);
    dbm_clearerr(db);
    CHECK(absent(db, "huge") && dbm_commit(db) == 0 && absent(db, "huge"));
}

static void own_writes(DBM *db, DBM *other)
{
    put(db, "k", "v");
    CHECK(dbm_begin(db) == 0);
    put(db, "k", "w");
    CHECK(dbm_store(db, text("new"), text("1"), DBM_INSERT) == 0);
    CHECK(dbm_store(db, text("new"), text("2"), DBM_INSERT) == 1);
    CHECK(dbm_store(db, text("k"), text("2"), DBM_INSERT) == 1);
    CHECK(is(dbm_fetch(db, text("k")), "w") && is(dbm_fetch(db, text("new")), "1"));
    CHECK(is(dbm_fetch(other, text("k")), "v") && absent(other, "new"));
    CHECK(dbm_delete(db, text("k")) == 0 && absent(db, "k"));
    FAILS(dbm_delete(db, text("k")) == -1, ENOENT);
    CHECK(is(dbm_fetch(other, text("k")), "v"));
    CHECK(dbm_store(db, text("k"), text("x"), DBM_INSERT) == 0);
    /* Two results of a kind stay valid, as outside. */
    datum one = dbm_fetch(db, text("k")), two = dbm_fetch(db, text("new"));
    CHECK(is(one, "x") && is(two, "1"));
    CHECK(dbm_store(db, text("empty"), text(""), DBM_REPLACE) == 0);
    CHECK(dbm_fetch(db, text("empty")).dptr != NULL);
    CHECK(dbm_abort(db) == 0);
    CHECK(is(dbm_fetch(db, text("k")), "v") && absent(db, "new") && absent(db, "empty"));

    CHECK(dbm_begin(db) == 0);
    put(db, "k", "w");
    put(db, "new", "1");
    CHECK(dbm_delete(db, text("k")) == 0);
    CHECK(dbm_commit(db) == 0);
    CHECK(absent(db, "k") && absent(other, "k") && is(dbm_fetch(other, text("new")), "1"));
    /* Between transactions a store stands alone. */
    put(db, "k", "alone");
    CHECK(is(dbm_fetch(other, text("k")), "alone"));
    /* A transaction of nothing. */
    CHECK(dbm_begin(db) == 0 && dbm_commit(db) == 0);
    CHECK(dbm_delete(db, text("k")) == 0 && dbm_delete(db, text("new")) == 0);
}

/* What is read does not change, whatever others store. */
static void one_state(DBM *db, DBM *other)
{
    put(db, "a", "1");
    put(db, "c", "1");
    CHECK(dbm_begin(db) == 0);
    put(other, "a", "2");
    put(other, "b", "2");
    CHECK(dbm_delete(other, text("c")) == 0);
    CHECK(is(dbm_fetch(db, text("a")), "1") && absent(db, "b"));
    CHECK(is(dbm_firstkey(db), "a") && is(dbm_nextkey(db), "c"));
    CHECK(dbm_nextkey(db).dptr == NULL && dbm_nextkey(db).dptr == NULL);
    CHECK(dbm_commit(db) == 0);
    CHECK(is(dbm_fetch(db, text("a")), "2") && is(dbm_fetch(db, text("b")), "2"));
    CHECK(absent(db, "c"));
    CHECK(dbm_delete(db, text("a")) == 0 && dbm_delete(db, text("b")) == 0);
}

static void walks(DBM *db)
{
    char name[16];
    put(db, "a", "1");
    put(db, "c", "1");
    put(db, "e", "1");
    CHECK(is(dbm_firstkey(db), "a"));
    CHECK(dbm_begin(db) == 0);
    put(db, "b", "own");
    CHECK(dbm_delete(db, text("c")) == 0);
    /* It begins at the first key, with the own writes of before. */
    CHECK(is(dbm_nextkey(db), "a"));
    CHECK(is(dbm_nextkey(db), "b"));
    /* Keys that are stored meanwhile are left out, and so are those that are deleted. One that is
     * deleted and stored again, or replaced, is there. */
    put(db, "d", "of now");
    put(db, "e", "2");
    CHECK(dbm_delete(db, text("e")) == 0);
    put(db, "e", "3");
    CHECK(is(dbm_nextkey(db), "e") && dbm_nextkey(db).dptr == NULL);
    CHECK(is(dbm_firstkey(db), "a") && is(dbm_nextkey(db), "b"));
    CHECK(dbm_delete(db, text("d")) == 0);
    CHECK(is(dbm_nextkey(db), "e") && dbm_nextkey(db).dptr == NULL);
    /* It ends though each step stores a key behind it. */
    int steps = 0;
    for (datum key = dbm_firstkey(db); key.dptr != NULL; key = dbm_nextkey(db)) {
        sprintf(name, "z%d", steps++);
        put(db, name, "v");
    }
    CHECK(steps == 3);
    /* Emptied by deleting its first key again and again. */
    for (datum key; (key = dbm_firstkey(db)).dptr != NULL; steps++)
        CHECK(dbm_delete(db, key) == 0);
    CHECK(steps == 9 && count(db) == 0);
    CHECK(dbm_abort(db) == 0);
    /* The walk of before the transaction goes on. */
    CHECK(is(dbm_nextkey(db), "c") && is(dbm_nextkey(db), "e"));
    CHECK(dbm_nextkey(db).dptr == NULL && count(db) == 3);
    /* One transaction for each step of a walk. */
    steps = 0;
    for (datum key = dbm_firstkey(db); key.dptr != NULL; key = dbm_nextkey(db)) {
        CHECK(dbm_begin(db) == 0);
        CHECK(is(dbm_fetch(db, key), "1") && dbm_delete(db, key) == 0);
        CHECK(dbm_commit(db) == 0);
        steps++;
    }
    CHECK(steps == 3 && count(db) == 0);
}

static void closing(DBM *other)
{
    DBM *db = opened("data", O_RDWR);
    CHECK(dbm_begin(db) == 0);
    put(db, "closed", "v");
    dbm_close(db);
    CHECK(absent(other, "closed"));
    /* Nothing of it comes later, and it is in nobody's way. */
    db = opened("data", O_RDWR);
    FAILS(dbm_commit(db) == -1, EINVAL);
    dbm_clearerr(db);
    CHECK(dbm_begin(db) == 0 && absent(db, "closed"));
    put(db, "closed", "now");
    CHECK(dbm_commit(db) == 0);
    dbm_close(db);
    CHECK(is(dbm_fetch(other, text("closed")), "now"));
    CHECK(dbm_delete(other, text("closed")) == 0);
}

static void writes_elsewhere(void)
{
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        DBM *db = opened("read", O_RDWR);
        for (int nth = 0; nth < 2000; nth++)
            CHECK(dbm_store(db, number(&nth), text("of another process"), DBM_REPLACE) == 0);
        put(db, "k", "of another process");
        dbm_close(db);
        _exit(0);
    }
    reap(child);
}

static void may_not_write_elsewhere(void)
{
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        FAILS(dbm_open("read", O_RDWR, 0600) == NULL, EAGAIN);
        _exit(0);
    }
    reap(child);
}

/* A handle that reads has transactions too: each shows one state. */
static void read_only(void)
{
    DBM *db = opened("read", O_RDWR | O_CREAT), *reader = opened("read", O_RDONLY);
    put(db, "k", "1");
    CHECK(dbm_begin(reader) == 0);
    put(db, "k", "2");
    CHECK(is(dbm_fetch(reader, text("k")), "1"));
    FAILS(dbm_store(reader, text("k"), text("v"), DBM_REPLACE) == -1, EPERM);
    FAILS(dbm_delete(reader, text("k")) == -1, EPERM);
    dbm_clearerr(reader);
    CHECK(is(dbm_fetch(reader, text("k")), "1"));
    /* The last writer closes, and the transaction has what it had. */
    dbm_close(db);
    CHECK(is(dbm_fetch(reader, text("k")), "1") && count(reader) == 1);
    CHECK(dbm_commit(reader) == 0);
    CHECK(is(dbm_fetch(reader, text("k")), "2"));

    /* Beside writers of another process and of this one. */
    CHECK(dbm_begin(reader) == 0 && is(dbm_fetch(reader, text("k")), "2"));
    writes_elsewhere();
    CHECK(is(dbm_fetch(reader, text("k")), "2") && count(reader) == 1);
    db = opened("read", O_RDWR);
    put(db, "k", "3");
    CHECK(is(dbm_fetch(reader, text("k")), "2") && count(reader) == 1);
    CHECK(dbm_abort(reader) == 0);
    CHECK(is(dbm_fetch(reader, text("k")), "3") && count(reader) == 2001);
    /* Begun beside a writer, it keeps the database from being written to anew, here too. */
    CHECK(dbm_begin(reader) == 0 && is(dbm_fetch(reader, text("k")), "3"));
    dbm_close(db);
    may_not_write_elsewhere();
    FAILS(dbm_open("read", O_RDWR, 0600) == NULL, EAGAIN);
    CHECK(is(dbm_fetch(reader, text("k")), "3") && count(reader) == 2001);
    CHECK(dbm_commit(reader) == 0);
    writes_elsewhere();
    dbm_close(opened("read", O_RDWR));
    CHECK(dbm_begin(reader) == 0);
    dbm_close(reader);
}

static void forks(DBM *db)
{
    CHECK(dbm_begin(db) == 0);
    put(db, "forked", "v");
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        FAILS(dbm_fetch(db, text("forked")).dptr == NULL, EBADF);
        FAILS(dbm_store(db, text("forked"), text("w"), DBM_REPLACE) == -1, EBADF);
        FAILS(dbm_delete(db, text("forked")) == -1, EBADF);
        FAILS(dbm_firstkey(db).dptr == NULL, EBADF);
        FAILS(dbm_nextkey(db).dptr == NULL, EBADF);
        FAILS(dbm_begin(db) == -1, EBADF);
        FAILS(dbm_commit(db) == -1, EBADF);
        FAILS(dbm_abort(db) == -1, EBADF);
        DBM *own = opened("data", O_RDONLY);
        CHECK(dbm_begin(own) == 0 && absent(own, "forked") && dbm_commit(own) == 0);
        dbm_close(own);
        dbm_close(db);
        _exit(0);
    }
    reap(child);
    CHECK(is(dbm_fetch(db, text("forked")), "v") && dbm_commit(db) == 0);
    CHECK(is(dbm_fetch(db, text("forked")), "v") && dbm_delete(db, text("forked")) == 0);
}

/* A killed process loses its open transaction, and nothing that was committed. */
static void kills(void)
{
    for (int round = 0; round < 3; round++) {
        fflush(NULL);
        pid_t child = fork();
        if (child == 0) {
            DBM *db = opened("killed", O_RDWR | O_CREAT);
            CHECK(dbm_begin(db) == 0);
            for (int key = 0; key < 500; key++)
                CHECK(dbm_store(db, number(&key), number(&round), DBM_REPLACE) == 0);
            CHECK(dbm_commit(db) == 0 && dbm_begin(db) == 0);
            for (int key = 250; key < 1000; key++)
                CHECK(dbm_store(db, number(&key), text("open"), DBM_REPLACE) == 0);
            kill(getpid(), SIGKILL);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child);
        CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        DBM *db = opened("killed", O_RDONLY);
        CHECK(count(db) == 500);
        for (int key = 0; key < 500; key++) {
            datum value = dbm_fetch(db, number(&key));
            CHECK(value.dsize == sizeof key && memcmp(value.dptr, &round, sizeof key) == 0);
        }
        dbm_close(db);
    }
}

int main(void)
{
    DBM *db = opened("data", O_RDWR | O_CREAT), *other = opened("data", O_RDWR);
    errors(db, other);
    own_writes(db, other);
    one_state(db, other);
    walks(db);
    closing(other);
    forks(db);
    CHECK(count(db) == 0);
    dbm_close(db);
    dbm_close(other);
    read_only();
    kills();
    return 0;
}
