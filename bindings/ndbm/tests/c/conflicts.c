/* SPDX-License-Identifier: Apache-2.0 */
/* Transactions of several handles and threads: which of them conflict, and what a conflict does. */
#define _GNU_SOURCE
#include "check.h"

#include <pthread.h>

/* The commit conflicts. That is no failure of the database. */
#define CONFLICTS(db)                                                                 \
    do {                                                                              \
        FAILS(dbm_commit(db) == -1, ECANCELED);                                       \
        CHECK(!dbm_error(db));                                                        \
        FAILS(dbm_abort(db) == -1, EINVAL);                                           \
        dbm_clearerr(db);                                                             \
    } while (0)

static void two_handles(DBM *one, DBM *two)
{
    /* Both read and write: the first to commit wins, and the second did nothing. */
    put(one, "k", "0");
    CHECK(dbm_begin(one) == 0 && dbm_begin(two) == 0);
    CHECK(is(dbm_fetch(one, text("k")), "0") && is(dbm_fetch(two, text("k")), "0"));
    put(one, "k", "one");
    put(two, "k", "two");
    put(two, "l", "two");
    CHECK(dbm_commit(one) == 0);
    CHECK(is(dbm_fetch(two, text("k")), "two"));
    CONFLICTS(two);
    CHECK(is(dbm_fetch(two, text("k")), "one") && dbm_fetch(two, text("l")).dptr == NULL);
    CHECK(dbm_begin(two) == 0 && is(dbm_fetch(two, text("k")), "one"));
    put(two, "k", "two");
    CHECK(dbm_commit(two) == 0 && is(dbm_fetch(one, text("k")), "two"));

    /* Without a read of it there is no conflict: the later commit stays. */
    CHECK(dbm_begin(one) == 0 && dbm_begin(two) == 0);
    put(one, "k", "one");
    put(two, "k", "two");
    CHECK(dbm_commit(two) == 0 && dbm_commit(one) == 0);
    CHECK(is(dbm_fetch(two, text("k")), "one"));

    /* A store outside of a transaction counts too, and never conflicts itself. */
    CHECK(dbm_begin(one) == 0 && is(dbm_fetch(one, text("k")), "one"));
    put(one, "other", "v");
    put(two, "k", "plain");
    CONFLICTS(one);
    CHECK(dbm_fetch(one, text("other")).dptr == NULL);

    /* A key that was looked for and not there. */
    CHECK(dbm_begin(one) == 0 && dbm_fetch(one, text("new")).dptr == NULL);
    put(one, "other", "v");
    put(two, "new", "plain");
    CONFLICTS(one);
    CHECK(dbm_delete(two, text("new")) == 0);
    CHECK(dbm_begin(one) == 0 && dbm_begin(two) == 0);
    CHECK(dbm_store(one, text("new"), text("1"), DBM_INSERT) == 0);
    CHECK(dbm_store(two, text("new"), text("2"), DBM_INSERT) == 0);
    CHECK(dbm_commit(two) == 0);
    CONFLICTS(one);
    CHECK(is(dbm_fetch(one, text("new")), "2"));
    CHECK(dbm_begin(one) == 0 && dbm_begin(two) == 0);
    CHECK(dbm_delete(one, text("new")) == 0 && dbm_delete(two, text("new")) == 0);
    CHECK(dbm_commit(one) == 0);
    CONFLICTS(two);
    CHECK(dbm_begin(one) == 0 && dbm_delete(one, text("no")) == -1);
    put(one, "other", "v");
    put(two, "no", "there");
    CONFLICTS(one);

    /* A walk reads what lies between its keys, to the last step that was made. */
    CHECK(dbm_delete(two, text("no")) == 0 && count(one) == 1);
    put(two, "m", "v");
    CHECK(dbm_begin(one) == 0 && count(one) == 2);
    put(one, "other", "v");
    put(two, "l", "between");
    CONFLICTS(one);
    CHECK(dbm_begin(one) == 0 && is(dbm_firstkey(one), "k"));
    put(one, "other", "v");
    put(two, "z", "behind");
    CHECK(dbm_commit(one) == 0);

    /* One that only read never conflicts. */
    CHECK(dbm_begin(one) == 0 && is(dbm_fetch(one, text("k")), "plain"));
    put(two, "k", "0");
    CHECK(is(dbm_fetch(one, text("k")), "plain") && dbm_commit(one) == 0);

    /* Another handle empties the database. */
    CHECK(dbm_begin(one) == 0 && is(dbm_fetch(one, text("k")), "0"));
    put(one, "k", "one");
    dbm_close(opened("data", O_RDWR | O_TRUNC));
    CHECK(is(dbm_fetch(one, text("k")), "one"));
    CONFLICTS(one);
    CHECK(count(one) == 0);
}

#define THREADS 4
#define EACH 300

/* Adds one to two counters. */
static void add(DBM *db, int first, int second)
{
    int counters[2] = {first, second};
    for (;;) {
        CHECK(dbm_begin(db) == 0);
        for (int nth = 0; nth < 2; nth++) {
            int sum = 0;
            datum found = dbm_fetch(db, number(&counters[nth]));
            if (found.dptr != NULL)
                memcpy(&sum, found.dptr, sizeof sum);
            sum++;
            CHECK(dbm_store(db, number(&counters[nth]), number(&sum), DBM_REPLACE) == 0);
        }
        if (dbm_commit(db) == 0)
            return;
        CHECK(errno == ECANCELED);
    }
}

static void *adds(void *unused)
{
    DBM *db = opened("sums", O_RDWR);
    for (int nth = 0; nth < EACH; nth++)
        add(db, nth % 3, 3 + nth % 2);
    CHECK(!dbm_error(db));
    dbm_close(db);
    return unused;
}

/* Several threads, each with a handle of its own: no update is lost, and a reader never sees a half
 * of one. */
static void threads(void)
{
    pthread_t thread[THREADS];
    DBM *db = opened("sums", O_RDWR | O_CREAT), *reader = opened("sums", O_RDONLY);
    for (int nth = 0; nth < THREADS; nth++)
        CHECK(pthread_create(&thread[nth], NULL, adds, NULL) == 0);
    for (int done = 0, joined = 0; !done;) {
        int halves[2] = {0, 0};
        done = joined == THREADS;
        CHECK(dbm_begin(reader) == 0);
        for (int key = 0; key < 5; key++) {
            int sum = 0;
            datum found = dbm_fetch(reader, number(&key));
            if (found.dptr != NULL)
                memcpy(&sum, found.dptr, sizeof sum);
            halves[key >= 3] += sum;
        }
        CHECK(dbm_commit(reader) == 0);
        CHECK(halves[0] == halves[1]);
        CHECK(!done || halves[0] == THREADS * EACH);
        while (joined < THREADS && pthread_tryjoin_np(thread[joined], NULL) == 0)
            joined++;
    }
    dbm_close(reader);
    dbm_close(db);
}

/* Others store 80 MiB of keys meanwhile: that ends it, and nothing of it is done. */
static void open_for_too_long(void)
{
    static char bytes[1024];
    datum key = {bytes, sizeof bytes};
    DBM *db = opened("long", O_RDWR | O_CREAT), *other = opened("long", O_RDWR);
    put(db, "k", "v");
    CHECK(dbm_begin(db) == 0 && is(dbm_fetch(db, text("k")), "v"));
    put(db, "k", "w");
    for (int nth = 0; nth < 80 * 1024; nth++) {
        memcpy(bytes, &nth, sizeof nth);
        CHECK(dbm_store(other, key, text(""), DBM_REPLACE) == 0);
    }
    FAILS(dbm_fetch(db, text("other")).dptr == NULL, ETIMEDOUT);
    CHECK(dbm_error(db));
    FAILS(dbm_begin(db) == -1, EBUSY);
    FAILS(dbm_commit(db) == -1, ETIMEDOUT);
    dbm_clearerr(db);
    CHECK(is(dbm_fetch(db, text("k")), "v") && dbm_begin(db) == 0);
    put(db, "k", "w");
    CHECK(dbm_commit(db) == 0 && is(dbm_fetch(db, text("k")), "w"));
    dbm_close(other);
    dbm_close(db);
}

int main(void)
{
    DBM *one = opened("data", O_RDWR | O_CREAT), *two = opened("data", O_RDWR);
    two_handles(one, two);
    dbm_close(one);
    dbm_close(two);
    threads();
    open_for_too_long();
    return 0;
}
