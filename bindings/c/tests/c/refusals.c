/* SPDX-License-Identifier: Apache-2.0 */
/* What is wrong is told by a number and a sentence, and loses nothing. */
#include "check.h"

#include <stdint.h>
#include <unistd.h>

static void zero(senko_options *options, unsigned flags)
{
    memset(options, 0, sizeof *options);
    options->size = sizeof *options;
    options->flags = flags;
}

int main(int argc, char **argv)
{
    senko_db *db, *second;
    senko_txn *txn, *other;
    senko_table table;
    senko_cursor *cursor;
    senko_val k, v;
    uint64_t count;
    senko_options options;
    struct {
        senko_options known;
        unsigned long more;
    } newer;
    senko_stats stats;
    char path[4096], foreign[4096];
    (void)argc;
    strcpy(path, in_folder(argv, "data.db"));
    strcpy(foreign, in_folder(argv, "foreign"));

    CHECK(strcmp(senko_message(), "") == 0);
    zero(&options, 0);
    IS(senko_open(path, &options, &db), ENOENT);
    CHECK(db == NULL && strstr(senko_message(), path) != NULL);
    zero(&options, SENKO_RDONLY);
    IS(senko_open(path, &options, &db), ENOENT);
    IS(senko_open(in_folder(argv, "no/data.db"), NULL, &db), ENOENT);
    FILE *file = fopen(foreign, "w");
    for (int line = 0; line < 20000; line++)
        fprintf(file, "line %d of another program\n", line);
    fclose(file);
    IS(senko_open(foreign, NULL, &db), SENKO_FOREIGN);
    CHECK(strstr(senko_message(), "not a Senko database") != NULL);

    zero(&options, 0x100);
    IS(senko_open(path, &options, &db), EINVAL);
    /* A flag of earlier versions is taken. */
    zero(&options, SENKO_CREATE | SENKO_ONEFILE);
    IS(senko_open(path, &options, &db), 0);
    IS(senko_close(db), 0);
    IS(unlink(path), 0);
    zero(&options, SENKO_CREATE);
    options.mode = 01000;
    IS(senko_open(path, &options, &db), EINVAL);
    zero(&options, SENKO_CREATE);
    options.cache_bytes = 1;
    IS(senko_open(path, &options, &db), EINVAL);
    zero(&options, SENKO_CREATE);
    options.size = 0;
    IS(senko_open(path, &options, &db), EINVAL);
    IS(senko_open(NULL, NULL, &db), EINVAL);
    IS(senko_open(path, NULL, NULL), EINVAL);
    /* A program that knows more, and asks for it, or does not. */
    memset(&newer, 0, sizeof newer);
    newer.known.size = sizeof newer;
    newer.known.flags = SENKO_CREATE;
    newer.more = 1;
    IS(senko_open(path, &newer.known, &db), EINVAL);
    CHECK(access(path, F_OK) != 0);
    newer.more = 0;
    OK(senko_open(path, &newer.known, &db));
    OK(senko_close(db));
    /* One that knows less: its structure ends behind the flags. */
    senko_options *older = malloc(sizeof(size_t) + 4);
    older->size = sizeof(size_t) + 4;
    older->flags = 0;
    OK(senko_open(path, older, &db));
    free(older);

    /* A sentence about an opening keeps the system's number; it used to be EIO. */
    char below[4096 + 8];
    snprintf(below, sizeof below, "%s/x", path);
    IS(senko_open(below, NULL, &second), ENOTDIR);

    IS(senko_open(path, NULL, &second), EBUSY);
    CHECK(strstr(senko_message(), "in use by") != NULL);
    IS(senko_refresh(db), EINVAL);
    IS(senko_table_open(db, "t", 0x100, &table), EINVAL);
    IS(senko_table_open(db, NULL, SENKO_CREATE, &table), EINVAL);
    IS(senko_table_open(db, "", SENKO_CREATE, &table), EINVAL);
    IS(senko_table_open(db, "\xff", SENKO_CREATE, &table), EINVAL);
    OK(senko_table_open(db, "t", SENKO_CREATE, &table));
    IS(senko_count(db, 99, &count), SENKO_NOTABLE);
    IS(senko_count(db, table, NULL), EINVAL);
    IS(senko_tables(db, NULL, NULL), EINVAL);
    stats.size = 3;
    IS(senko_stat(db, &stats), EINVAL);
    IS(senko_stat(db, NULL), EINVAL);
    /* Of an older program's statistics nothing behind their end is written. */
    memset(&stats, 0x55, sizeof stats);
    stats.size = 2 * sizeof(size_t);
    OK(senko_stat(db, &stats));
    CHECK(stats.file_bytes > 0 && stats.live_bytes == 0x5555555555555555u);

    IS(senko_begin(db, 0x100, &txn), EINVAL);
    IS(senko_begin(NULL, 0, &txn), EINVAL);
    OK(senko_begin(db, 0, &txn));
    static char long_key[SENKO_MAX_KEY + 1];
    k.data = long_key, k.size = sizeof long_key, v = val("v");
    IS(senko_put(txn, table, &k, &v, 0), SENKO_TOOLONG);
    k.size = SENKO_MAX_KEY;
    OK(senko_put(txn, table, &k, &v, 0));
    IS(senko_put(txn, table, &k, NULL, 0), EINVAL);
    IS(senko_put(txn, table, NULL, &v, 0), EINVAL);
    k.data = NULL;
    IS(senko_put(txn, table, &k, &v, 0), EINVAL);
    k = val("k");
    IS(senko_put(txn, table, &k, &v, 0x100), EINVAL);
    IS(senko_put(txn, table, &k, &v, SENKO_APPEND | SENKO_NOOVERWRITE), EINVAL);
    CHECK(strstr(senko_message(), "SENKO_APPEND") != NULL);
    /* More bytes than any object has: the sentence used to say that there were none. */
    k.size = (size_t)PTRDIFF_MAX + 1;
    IS(senko_put(txn, table, &k, &v, 0), SENKO_TOOLONG);
    k = val("k");
    IS(senko_put(txn, 99, &k, &v, 0), SENKO_NOTABLE);
    IS(senko_get(txn, table, &k, NULL), SENKO_NOTFOUND);
    IS(senko_get(NULL, table, &k, &v), EINVAL);
    IS(senko_close(db), EBUSY);
    IS(senko_commit(txn, 3), EINVAL);
    OK(senko_count(db, table, &count));
    CHECK(count == 0);

    /* One that reads only. */
    OK(senko_begin(db, SENKO_RDONLY, &txn));
    v = val("v");
    IS(senko_put(txn, table, &k, &v, 0), SENKO_READONLY);
    /* Its words used to say of the database that it accepts no commits. */
    CHECK(strstr(senko_strerror(SENKO_READONLY), "transaction") != NULL);
    OK(senko_cursor_open(txn, table, &cursor));
    IS(senko_cursor_get(cursor, &k, &v, 99), EINVAL);
    IS(senko_cursor_get(NULL, &k, &v, SENKO_FIRST), EINVAL);
    IS(senko_cursor_get(cursor, NULL, &v, SENKO_SET), EINVAL);
    IS(senko_cursor_get(cursor, &k, &v, SENKO_FIRST), SENKO_NOTFOUND);
    senko_cursor_close(cursor);
    senko_abort(txn);

    /* Of two that conflict one wins, and the other can be run again. */
    k = val("seat"), v = val("taken");
    senko_val found;
    OK(senko_begin(db, 0, &txn));
    OK(senko_begin(db, 0, &other));
    IS(senko_get(txn, table, &k, &found), SENKO_NOTFOUND);
    IS(senko_get(other, table, &k, &found), SENKO_NOTFOUND);
    OK(senko_put(txn, table, &k, &v, 0));
    OK(senko_put(other, table, &k, &v, 0));
    OK(senko_commit(txn, SENKO_SYNCED));
    IS(senko_commit(other, SENKO_SYNCED), SENKO_CONFLICT);
    OK(senko_close(db));

    zero(&options, SENKO_RDONLY);
    OK(senko_open(path, &options, &db));
    OK(senko_table_open(db, "t", 0, &table));
    IS(senko_table_open(db, "new", SENKO_CREATE, &table), SENKO_READONLY);
    /* Its puts used to succeed, and only the commit failed. */
    OK(senko_begin(db, 0, &txn));
    IS(senko_put(txn, table, &k, &v, 0), SENKO_READONLY);
    IS(senko_put(txn, table, &k, &v, SENKO_APPEND), SENKO_READONLY);
    IS(senko_delete(txn, table, &k), SENKO_READONLY);
    IS(senko_delete_range(txn, table, NULL, NULL), SENKO_READONLY);
    OK(senko_get(txn, table, &k, &found));
    OK(senko_commit(txn, SENKO_SYNCED));
    OK(senko_close(db));

    /* A small limit, and a file that may not grow. One without room for anything used to grow. */
    zero(&options, SENKO_CREATE);
    options.max_bytes = (192 << 10) - 1;
    IS(senko_open(in_folder(argv, "small.db"), &options, &db), EINVAL);
    CHECK(strstr(senko_message(), "196608") != NULL && access(in_folder(argv, "small.db"), F_OK) != 0);
    options.transaction_bytes = 10000;
    options.max_bytes = 1 << 20;
    OK(senko_open(path, &options, &db));
    OK(senko_table_open(db, "t", 0, &table));
    static char bytes[9000];
    OK(senko_begin(db, 0, &txn));
    v.data = bytes, v.size = sizeof bytes;
    OK(senko_put(txn, table, &k, &v, 0));
    /* The first value of the key no longer counts, a second key does. */
    OK(senko_put(txn, table, &k, &v, 0));
    senko_val second_key = { .size = 5, .data = "other" };
    IS(senko_put(txn, table, &second_key, &v, 0), SENKO_TXNFULL);
    senko_abort(txn);
    int error = 0;
    for (int nth = 0; nth < 1000 && error == 0; nth++) {
        k.data = &nth, k.size = sizeof nth;
        OK(senko_begin(db, 0, &txn));
        OK(senko_put(txn, table, &k, &v, 0));
        error = senko_commit(txn, SENKO_BUFFERED);
    }
    IS(error, ENOSPC);
    OK(senko_close(db));

    CHECK(strcmp(senko_strerror(0), "no error") == 0);
    CHECK(strcmp(senko_strerror(ENOENT), strerror(ENOENT)) == 0);
    CHECK(strcmp(senko_strerror(-5), "no error of this library") == 0);
    return 0;
}
