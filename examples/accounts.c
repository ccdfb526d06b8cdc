/* SPDX-License-Identifier: Apache-2.0 */
/* Puts records in one transaction, lists them in order, takes a backup.
 *
 *     cc accounts.c $(pkg-config --cflags --libs senko_dbm) && ./a.out FOLDER
 */
#include <senko_dbm.h>
#include <stdio.h>
#include <stdlib.h>

static void check(int error)
{
    if (error != 0) {
        fprintf(stderr, "%s\n", senko_message());
        exit(1);
    }
}

int main(int argc, char **argv)
{
    char path[4096], copy[4096];
    const char *folder = argc > 1 ? argv[1] : ".";
    snprintf(path, sizeof path, "%s/accounts.db", folder);
    snprintf(copy, sizeof copy, "%s/accounts.backup", folder);

    senko_db *db;
    senko_table accounts;
    check(senko_open(path, NULL, &db));
    check(senko_table_open(db, "accounts", SENKO_CREATE, &accounts));
    senko_val names[] = {{3, "ben"}, {3, "ann"}}, value = {3, "100"};
    int done;
    do { /* again, if another thread's commit conflicts with it */
        senko_txn *txn;
        check(senko_begin(db, 0, &txn));
        for (int n = 0; n < 2; n++)
            check(senko_put(txn, accounts, &names[n], &value, 0));
        done = senko_commit(txn, SENKO_SYNCED);
    } while (done == SENKO_CONFLICT);
    check(done);

    senko_txn *snapshot;
    senko_cursor *cursor;
    senko_val key;
    check(senko_begin(db, SENKO_RDONLY, &snapshot));
    check(senko_cursor_open(snapshot, accounts, &cursor));
    while (senko_cursor_get(cursor, &key, &value, SENKO_NEXT) == 0)
        printf("%.*s has %.*s\n", (int)key.size, (char *)key.data, (int)value.size,
               (char *)value.data);
    senko_cursor_close(cursor);
    senko_abort(snapshot);
    check(senko_backup(db, copy, NULL, NULL));
    check(senko_close(db));
    return 0;
}
