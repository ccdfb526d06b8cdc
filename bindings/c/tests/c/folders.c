/* SPDX-License-Identifier: Apache-2.0 */
/* A program that opens a database by a relative path, and then goes to another folder. */
#include "check.h"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

static void put(senko_db *db, senko_table table, const char *key, size_t bytes)
{
    static char zeros[100000];
    senko_txn *txn;
    senko_val k = val(key), v = {bytes, zeros};
    OK(senko_begin(db, 0, &txn));
    OK(senko_put(txn, table, &k, &v, 0));
    OK(senko_commit(txn, SENKO_SYNCED));
}

int main(int argc, char **argv)
{
    senko_db *db, *reader;
    senko_options options;
    senko_table table, read;
    uint64_t count;

    CHECK(argc == 2 && chdir(argv[1]) == 0);
    OK(senko_open("here", NULL, &db));
    OK(senko_table_open(db, "t", SENKO_CREATE, &table));
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.flags = SENKO_RDONLY;
    OK(senko_open("here", &options, &reader));
    put(db, table, "a", 1);

    /* It used to be looked for in the new folder. */
    CHECK(mkdir("folder", 0700) == 0 && chdir("folder") == 0);
    OK(senko_refresh(reader));
    OK(senko_table_open(reader, "t", 0, &read));
    OK(senko_count(reader, read, &count));
    CHECK(count == 1);
    OK(senko_close(reader));

    /* It grows, and shrinks, without a look at the new folder. */
    char key[2] = "b";
    for (; *key < 'z'; ++*key)
        put(db, table, key, 100000);
    OK(senko_table_drop(db, table));
    OK(senko_checkpoint(db));
    OK(senko_close(db));
    int names = 0;
    DIR *folder = opendir(".");
    CHECK(folder != NULL);
    while (readdir(folder) != NULL)
        names++;
    closedir(folder);
    CHECK(names == 2);
    return 0;
}
