/* SPDX-License-Identifier: Apache-2.0 */
/* Batches and bulk loads: all or nothing, and who refuses what. */
#include "check.h"

struct source {
    unsigned at, end;
    /* The record that is none, and what is given there. */
    unsigned wrong;
    int gives;
    char key[16], value[16];
};

static int next(void *arg, senko_val *key, senko_val *value)
{
    struct source *from = arg;
    if (from->at == from->end)
        return SENKO_NOTFOUND;
    if (from->at == from->wrong && from->gives != 0)
        return from->gives;
    unsigned number = from->at == from->wrong ? 0 : from->at;
    snprintf(from->key, sizeof from->key, "%08u", number);
    snprintf(from->value, sizeof from->value, "v%u", number);
    *key = val(from->key);
    *value = val(from->value);
    from->at++;
    return 0;
}

static uint64_t count_of(senko_db *db, senko_table table)
{
    uint64_t count;
    OK(senko_count(db, table, &count));
    return count;
}

int main(int argc, char **argv)
{
    (void)argc;
    senko_db *db;
    senko_table table, other;
    senko_batch *batch;
    senko_txn *txn;
    senko_val k, v;
    OK(senko_open(in_folder(argv, "bulk.db"), NULL, &db));
    OK(senko_table_open(db, "t", SENKO_CREATE, &table));
    OK(senko_table_open(db, "other", SENKO_CREATE, &other));

    /* A load of several commits. */
    struct source from = {.end = 100000, .wrong = UINT32_MAX};
    uint64_t loaded = 0;
    OK(senko_bulk_load(db, table, next, &from, SENKO_SYNCED, &loaded));
    CHECK(loaded == 100000 && count_of(db, table) == 100000);
    OK(senko_begin(db, SENKO_RDONLY, &txn));
    k = val("00077777");
    OK(senko_get(txn, table, &k, &v));
    CHECK(is(v, "v77777"));
    senko_abort(txn);

    /* What is out of order, and what the caller ends, leaves nothing, even after commits. */
    struct source unsorted = {.at = 100000, .end = 300000, .wrong = 290000};
    IS(senko_bulk_load(db, table, next, &unsorted, SENKO_SYNCED, NULL), SENKO_UNSORTED);
    CHECK(count_of(db, table) == 100000);
    struct source ended = {.at = 100000, .end = 300000, .wrong = 290000, .gives = -7};
    IS(senko_bulk_load(db, table, next, &ended, SENKO_SYNCED, NULL), -7);
    CHECK(count_of(db, table) == 100000);
    struct source nothing = {.end = 0};
    OK(senko_bulk_load(db, table, next, &nothing, SENKO_SYNCED, &loaded));
    CHECK(loaded == 0);
    IS(senko_bulk_load(db, table, NULL, NULL, SENKO_SYNCED, NULL), EINVAL);
    IS(senko_bulk_load(db, table, next, &nothing, 9, NULL), EINVAL);
    IS(senko_bulk_load(db, 999, next, &nothing, SENKO_SYNCED, NULL), SENKO_NOTABLE);
    IS(senko_bulk_load(NULL, table, next, &nothing, SENKO_SYNCED, NULL), EINVAL);

    /* A batch over two tables. */
    OK(senko_batch_begin(db, &batch));
    k = val("00000000"), v = val("batched");
    OK(senko_batch_delete_range(batch, table, &k, NULL));
    OK(senko_batch_put(batch, table, &k, &v));
    OK(senko_batch_put(batch, other, &k, &v));
    k = val("gone");
    OK(senko_batch_put(batch, other, &k, &v));
    OK(senko_batch_delete(batch, other, &k));
    IS(senko_batch_put(batch, 999, &k, &v), SENKO_NOTABLE);
    IS(senko_batch_put(batch, table, NULL, &v), EINVAL);
    CHECK(count_of(db, table) == 100000);
    IS(senko_close(db), EBUSY);
    OK(senko_batch_commit(batch, SENKO_SYNCED));
    CHECK(count_of(db, table) == 1 && count_of(db, other) == 1);

    /* One that is ended, and one whose table is dropped meanwhile. */
    OK(senko_batch_begin(db, &batch));
    OK(senko_batch_put(batch, other, &k, &v));
    senko_batch_abort(batch);
    senko_batch_abort(NULL);
    OK(senko_batch_begin(db, &batch));
    OK(senko_batch_put(batch, other, &k, &v));
    OK(senko_batch_put(batch, table, &k, &v));
    OK(senko_table_drop(db, other));
    IS(senko_batch_commit(batch, SENKO_SYNCED), SENKO_NOTABLE);
    CHECK(count_of(db, table) == 1);
    OK(senko_batch_begin(db, &batch));
    IS(senko_batch_commit(batch, 9), EINVAL);
    IS(senko_batch_commit(NULL, SENKO_NONE), EINVAL);
    IS(senko_batch_begin(db, NULL), EINVAL);
    OK(senko_verify(db, NULL, NULL));
    OK(senko_close(db));
    return 0;
}
