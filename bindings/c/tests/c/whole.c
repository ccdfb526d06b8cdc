/* SPDX-License-Identifier: Apache-2.0 */
/* Every call once where it works. */
#include "check.h"

#include <stdint.h>
#include <sys/stat.h>
#include <unistd.h>

_Static_assert(sizeof(senko_options) == sizeof(size_t) + 48, "as the library has it");
_Static_assert(sizeof(senko_stats) == sizeof(size_t) + 128, "as the library has it");
_Static_assert(sizeof(senko_val) == 2 * sizeof(size_t), "as the library has it");

struct names {
    char text[100];
    int left;
};

static int name(void *arg, const char *name)
{
    struct names *names = arg;
    strcat(strcat(names->text, name), " ");
    return --names->left == 0 ? 77 : 0;
}

static int one_snapshot(void *arg, uint64_t age_ms, uint64_t bytes)
{
    uint64_t *seen = arg;
    CHECK(age_ms < 3600000);
    seen[0]++;
    seen[1] = bytes;
    return 0;
}

static void no_problem(void *arg, const char *sentence)
{
    (void)arg;
    fprintf(stderr, "%s\n", sentence);
    exit(1);
}

static int end_with_seven(void *arg, uint64_t records)
{
    (void)arg, (void)records;
    return 7;
}

static void put(senko_db *db, senko_table table, const char *key, const char *value)
{
    senko_txn *txn;
    senko_val k = val(key), v = val(value);
    OK(senko_begin(db, 0, &txn));
    OK(senko_put(txn, table, &k, &v, 0));
    OK(senko_commit(txn, SENKO_SYNCED));
}

static senko_db *with_tables(const char *path, const char *const *names)
{
    senko_db *db;
    senko_table table;
    OK(senko_open(path, NULL, &db));
    for (; *names != NULL; names++) {
        OK(senko_table_open(db, *names, SENKO_CREATE, &table));
        put(db, table, "key", *names);
    }
    return db;
}

static void holds(senko_db *db, senko_table table, const char *value)
{
    senko_txn *txn;
    senko_val k = val("key"), v;
    OK(senko_begin(db, SENKO_RDONLY, &txn));
    OK(senko_get(txn, table, &k, &v));
    CHECK(is(v, value));
    senko_abort(txn);
}

/* As `senko dbm compact` does it. A table used to become that of its number in the new file. */
static void another_file_gets_the_name(char **argv)
{
    char path[4096], new[4096];
    senko_db *db, *reader;
    senko_table users, passwords;
    senko_options options = {.size = sizeof options, .flags = SENKO_RDONLY};
    snprintf(path, sizeof path, "%s/named.db", argv[1]);
    snprintf(new, sizeof new, "%s/new.db", argv[1]);
    db = with_tables(path, (const char *[]){"users", "passwords", NULL});
    OK(senko_close(db));
    OK(senko_open(path, &options, &reader));
    OK(senko_table_open(reader, "users", 0, &users));
    OK(senko_table_open(reader, "passwords", 0, &passwords));
    db = with_tables(new, (const char *[]){"passwords", "users", NULL});
    OK(senko_close(db));
    CHECK(rename(new, path) == 0);
    holds(reader, users, "users");
    OK(senko_refresh(reader));
    holds(reader, users, "users");
    holds(reader, passwords, "passwords");
    OK(senko_close(reader));
}

static void cursor(senko_db *db, senko_table table, unsigned flags)
{
    senko_txn *txn;
    senko_cursor *cursor;
    senko_val k, v;
    OK(senko_begin(db, flags, &txn));
    OK(senko_cursor_open(txn, table, &cursor));
    OK(senko_cursor_get(cursor, &k, &v, SENKO_NEXT));
    CHECK(is(k, "a") && is(v, "1"));
    OK(senko_cursor_get(cursor, &k, &v, SENKO_NEXT));
    CHECK(is(k, "b") && is(v, "2"));
    OK(senko_cursor_get(cursor, &k, &v, SENKO_PREV));
    CHECK(is(k, "a"));
    IS(senko_cursor_get(cursor, &k, &v, SENKO_PREV), SENKO_NOTFOUND);
    OK(senko_cursor_get(cursor, &k, &v, SENKO_LAST));
    CHECK(is(k, "d") && is(v, "4"));
    IS(senko_cursor_get(cursor, &k, &v, SENKO_NEXT), SENKO_NOTFOUND);
    OK(senko_cursor_get(cursor, &k, &v, SENKO_PREV));
    CHECK(is(k, "c"));
    k = val("b");
    OK(senko_cursor_get(cursor, &k, &v, SENKO_SET));
    CHECK(is(k, "b") && is(v, "2"));
    /* The key that a cursor gave may be given back to it. */
    OK(senko_cursor_get(cursor, &k, &v, SENKO_SET_RANGE));
    CHECK(is(k, "b"));
    k = val("bb");
    IS(senko_cursor_get(cursor, &k, &v, SENKO_SET), SENKO_NOTFOUND);
    OK(senko_cursor_get(cursor, &k, &v, SENKO_NEXT));
    CHECK(is(k, "c"));
    k = val("cc");
    OK(senko_cursor_get(cursor, &k, &v, SENKO_SET_RANGE));
    CHECK(is(k, "d"));
    k = val("e");
    IS(senko_cursor_get(cursor, &k, &v, SENKO_SET_RANGE), SENKO_NOTFOUND);
    OK(senko_cursor_get(cursor, &k, &v, SENKO_FIRST));
    CHECK(is(k, "a"));
    /* A cursor may outlive its transaction, and does nothing then. */
    senko_abort(txn);
    IS(senko_cursor_get(cursor, &k, &v, SENKO_FIRST), SENKO_ENDED);
    IS(senko_close(db), EBUSY);
    senko_cursor_close(cursor);
}

int main(int argc, char **argv)
{
    senko_db *db, *reader;
    senko_table table, again, other;
    senko_txn *txn, *first;
    senko_val k, v;
    uint64_t count;
    senko_options options;
    senko_stats stats;
    const char *path = in_folder(argv, "data.db");
    (void)argc;

    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.flags = SENKO_CREATE;
    options.mode = 0640;
    options.cache_bytes = 8 << 20;
    OK(senko_open(path, &options, &db));
    struct stat file;
    CHECK(stat(path, &file) == 0 && (file.st_mode & 0777) == 0640);
    OK(senko_close(db));
    OK(senko_open(path, NULL, &db));

    IS(senko_table_open(db, "main", 0, &table), SENKO_NOTABLE);
    OK(senko_table_open(db, "main", SENKO_CREATE, &table));
    OK(senko_table_open(db, "main", 0, &again));
    CHECK(table == again);
    OK(senko_table_open(db, "other", SENKO_CREATE, &other));
    CHECK(table != other);
    struct names names = {"", 10};
    OK(senko_tables(db, name, &names));
    CHECK(strcmp(names.text, "main other ") == 0);
    names.left = 1;
    IS(senko_tables(db, name, &names), 77);

    put(db, table, "a", "1");
    put(db, table, "b", "2");
    put(db, table, "d", "4");
    put(db, table, "c", "3");
    OK(senko_count(db, table, &count));
    CHECK(count == 4);

    cursor(db, table, 0);
    cursor(db, table, SENKO_RDONLY);

    /* Its own writes, and those of others only if they came before. */
    OK(senko_begin(db, 0, &txn));
    OK(senko_begin(db, SENKO_RDONLY, &first));
    k = val("e"), v = val("5");
    OK(senko_put(txn, table, &k, &v, SENKO_NOOVERWRITE));
    IS(senko_put(txn, table, &k, &v, SENKO_NOOVERWRITE), SENKO_EXISTS);
    OK(senko_get(txn, table, &k, &v));
    CHECK(is(v, "5"));
    k = val("a");
    OK(senko_get_untracked(txn, table, &k, &v));
    CHECK(is(v, "1"));
    OK(senko_delete(txn, table, &k));
    IS(senko_get(txn, table, &k, &v), SENKO_NOTFOUND);
    OK(senko_commit(txn, SENKO_BUFFERED));
    OK(senko_get(first, table, &k, &v));
    CHECK(is(v, "1"));
    k = val("e");
    IS(senko_get(first, table, &k, &v), SENKO_NOTFOUND);
    OK(senko_commit(first, SENKO_NONE));

    /* Empty keys and values are keys and values. */
    OK(senko_begin(db, 0, &txn));
    k.size = 0, k.data = NULL, v.size = 0, v.data = NULL;
    OK(senko_put(txn, other, &k, &v, 0));
    OK(senko_get(txn, other, &k, &v));
    CHECK(v.size == 0 && v.data != NULL);
    OK(senko_commit(txn, SENKO_SYNCED));

    /* Ranges. */
    OK(senko_begin(db, 0, &txn));
    k = val("b"), v = val("d");
    OK(senko_delete_range(txn, table, &k, &v));
    OK(senko_commit(txn, SENKO_SYNCED));
    OK(senko_count(db, table, &count));
    CHECK(count == 2); /* d and e */
    OK(senko_begin(db, 0, &txn));
    OK(senko_delete_range(txn, table, NULL, NULL));
    senko_abort(txn);
    OK(senko_count(db, table, &count));
    CHECK(count == 2);

    /* Appends, and commits that are awaited later. */
    senko_pending *pending[3];
    int done = 0;
    for (int nth = 0; nth < 3; nth++) {
        char key[2] = {(char)('m' + nth), 0};
        OK(senko_begin(db, 0, &txn));
        k = val(key), v = val("appended");
        OK(senko_put(txn, other, &k, &v, SENKO_APPEND));
        IS(senko_put(txn, other, &k, &v, SENKO_APPEND), SENKO_UNSORTED);
        OK(senko_commit_async(txn, SENKO_SYNCED, &pending[nth]));
    }
    OK(senko_count(db, other, &count));
    CHECK(count == 4);
    IS(senko_close(db), EBUSY);
    OK(senko_pending_wait(pending[2]));
    for (int nth = 0; nth < 2; nth++) {
        OK(senko_pending_done(pending[nth], &done));
        CHECK(done == 1);
        OK(senko_pending_wait(pending[nth]));
    }
    IS(senko_pending_wait(NULL), EINVAL);

    /* What is open, and what it holds. */
    uint64_t seen[2] = {0, 0};
    OK(senko_begin(db, SENKO_RDONLY, &first));
    put(db, other, "m", "anew");
    OK(senko_snapshots(db, one_snapshot, seen));
    CHECK(seen[0] == 1 && seen[1] >= 4096);
    senko_abort(first);
    seen[0] = 0;
    OK(senko_snapshots(db, one_snapshot, seen));
    CHECK(seen[0] == 0);

    /* A long value. */
    size_t bytes = 5 << 20;
    char *big = malloc(bytes);
    memset(big, 'x', bytes);
    OK(senko_begin(db, 0, &txn));
    k = val("long"), v.size = bytes, v.data = big;
    OK(senko_put(txn, table, &k, &v, 0));
    OK(senko_commit(txn, SENKO_SYNCED));
    OK(senko_begin(db, SENKO_RDONLY, &txn));
    OK(senko_get(txn, table, &k, &v));
    CHECK(v.size == bytes && memcmp(v.data, big, bytes) == 0);
    senko_abort(txn);
    free(big);

    OK(senko_sync(db));
    memset(&stats, 0, sizeof stats);
    stats.size = sizeof stats;
    OK(senko_stat(db, &stats));
    CHECK(stats.size == sizeof stats && stats.durable == stats.commit && stats.commit > 0);
    CHECK(stats.open_snapshots == 0 && stats.file_bytes > bytes);
    CHECK(stats.bytes_put > bytes && stats.bytes_written > bytes && stats.bytes_discarded == 0);
    OK(senko_checkpoint(db));
    OK(senko_verify(db, no_problem, NULL));
    OK(senko_verify(db, NULL, NULL));

    /* A copy while the database is open; a copy that is ended leaves nothing. */
    char copied[4096];
    snprintf(copied, sizeof copied, "%s/copy.db", argv[1]);
    IS(senko_backup(db, copied, end_with_seven, NULL), 7);
    CHECK(access(copied, F_OK) != 0);
    OK(senko_backup(db, copied, NULL, NULL));
    IS(senko_backup(db, copied, NULL, NULL), EEXIST);
    IS(senko_backup(db, NULL, NULL, NULL), EINVAL);
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.flags = SENKO_RDONLY;
    OK(senko_open(copied, &options, &reader));
    OK(senko_table_open(reader, "main", 0, &again));
    OK(senko_count(reader, again, &count));
    CHECK(count == 3);
    OK(senko_verify(reader, NULL, NULL));
    OK(senko_close(reader));

    /* Beside it, to read. */
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.flags = SENKO_RDONLY;
    OK(senko_open(path, &options, &reader));
    OK(senko_table_open(reader, "main", 0, &again));
    OK(senko_count(reader, again, &count));
    CHECK(count == 3);
    put(db, table, "f", "6");
    OK(senko_count(reader, again, &count));
    CHECK(count == 3);
    OK(senko_refresh(reader));
    OK(senko_count(reader, again, &count));
    CHECK(count == 4);
    OK(senko_close(reader));

    OK(senko_table_drop(db, other));
    IS(senko_table_drop(db, other), SENKO_NOTABLE);
    IS(senko_count(db, other, &count), SENKO_NOTABLE);

    another_file_gets_the_name(argv);

    senko_abort(NULL);
    senko_cursor_close(NULL);
    OK(senko_close(db));
    int major, minor, patch;
    char version[30];
    senko_version(&major, &minor, &patch);
    snprintf(version, sizeof version, "%d.%d.%d", major, minor, patch);
    CHECK(strcmp(version, senko_version(NULL, NULL, NULL)) == 0);
    CHECK(major == SENKO_VERSION_MAJOR && minor == SENKO_VERSION_MINOR);
    return 0;
}
