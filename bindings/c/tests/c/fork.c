/* SPDX-License-Identifier: Apache-2.0 */
/* Handles in the child of a fork do nothing, and the parent's go on. */
#include "check.h"

#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    senko_db *db, *own;
    senko_table table;
    senko_txn *txn, *begun;
    senko_cursor *cursor;
    senko_val k = val("k"), v = val("v");
    uint64_t count;
    senko_options options;
    senko_stats stats;
    const char *path = in_folder(argv, "data.db");
    int status;
    (void)argc;
    stats.size = sizeof stats;
    OK(senko_open(path, NULL, &db));
    OK(senko_table_open(db, "main", SENKO_CREATE, &table));
    OK(senko_begin(db, 0, &begun));
    OK(senko_put(begun, table, &k, &v, 0));
    OK(senko_cursor_open(begun, table, &cursor));
    pid_t child = fork();
    if (child == 0) {
        IS(senko_get(begun, table, &k, &v), SENKO_FORKED);
        IS(senko_put(begun, table, &k, &v, 0), SENKO_FORKED);
        IS(senko_delete(begun, table, &k), SENKO_FORKED);
        IS(senko_cursor_get(cursor, &k, &v, SENKO_FIRST), SENKO_FORKED);
        IS(senko_commit(begun, SENKO_NONE), SENKO_FORKED);
        senko_cursor_close(cursor);
        senko_abort(begun);
        IS(senko_begin(db, 0, &txn), SENKO_FORKED);
        IS(senko_count(db, table, &count), SENKO_FORKED);
        IS(senko_sync(db), SENKO_FORKED);
        IS(senko_checkpoint(db), SENKO_FORKED);
        IS(senko_stat(db, &stats), SENKO_FORKED);
        IS(senko_table_open(db, "main", 0, &table), SENKO_FORKED);
        IS(senko_close(db), SENKO_FORKED);
        CHECK(strcmp(senko_message(), senko_strerror(SENKO_FORKED)) == 0);
        /* A handle of its own, to read beside the parent; to write is the parent's. */
        IS(senko_open(path, NULL, &own), EBUSY);
        memset(&options, 0, sizeof options);
        options.size = sizeof options;
        options.flags = SENKO_RDONLY;
        OK(senko_open(path, &options, &own));
        OK(senko_table_open(own, "main", 0, &table));
        OK(senko_count(own, table, &count));
        CHECK(count == 0);
        OK(senko_close(own));
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    senko_cursor_close(cursor);
    OK(senko_commit(begun, SENKO_SYNCED));
    OK(senko_count(db, table, &count));
    CHECK(count == 1);
    OK(senko_close(db));
    return 0;
}
