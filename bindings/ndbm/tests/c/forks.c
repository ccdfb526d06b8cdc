/* SPDX-License-Identifier: Apache-2.0 */
/* Handles survive a fork in the parent and fail in the child. No thread is started. */
#include "check.h"

#include <dirent.h>

static int threads(void)
{
    int threads = 0;
    DIR *folder = opendir("/proc/self/task");
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;)
        threads += entry->d_name[0] != '.';
    closedir(folder);
    return threads;
}

int main(void)
{
    int to_child[2], to_parent[2];
    char byte = 0;
    DBM *db = opened("data", O_RDWR | O_CREAT);
    DBM *reader = opened("data", O_RDONLY);
    put(db, "k", "v");
    CHECK(pipe(to_child) == 0 && pipe(to_parent) == 0);
    pid_t child = fork();
    if (child == 0) {
        close(to_child[1]);
        FAILS(dbm_store(db, text("k"), text("of the child"), DBM_REPLACE) == -1, EBADF);
        CHECK(dbm_error(db));
        FAILS(dbm_fetch(db, text("k")).dptr == NULL, EBADF);
        FAILS(dbm_delete(db, text("k")) == -1, EBADF);
        FAILS(dbm_firstkey(db).dptr == NULL, EBADF);
        FAILS(dbm_nextkey(db).dptr == NULL, EBADF);
        FAILS(dbm_pagfno(db) == -1, EBADF);
        FAILS(dbm_dirfno(db) == -1, EBADF);
        FAILS(dbm_fetch(reader, text("k")).dptr == NULL && dbm_error(reader), EBADF);
        /* The parent has it open to write; to read it is free. */
        FAILS(dbm_open("data", O_RDWR, 0600) == NULL, EAGAIN);
        DBM *own = opened("data", O_RDONLY);
        CHECK(is(dbm_fetch(own, text("k")), "v"));
        dbm_close(own);
        dbm_close(db); /* as what runs at a program's end does */
        CHECK(write(to_parent[1], &byte, 1) == 1);
        /* It lives on while the parent closes and opens again. */
        CHECK(read(to_child[0], &byte, 1) == 0);
        dbm_close(reader);
        _exit(0);
    }
    close(to_parent[1]);
    CHECK(read(to_parent[0], &byte, 1) == 1);
    CHECK(is(dbm_fetch(db, text("k")), "v") && !dbm_error(db));
    put(db, "k", "of the parent");
    dbm_close(db);
    dbm_close(reader);
    db = opened("data", O_RDWR);
    CHECK(is(dbm_fetch(db, text("k")), "of the parent"));
    put(db, "l", "w");
    close(to_child[1]);
    reap(child);

    /* A child that opens what its parent has closed. */
    dbm_close(db);
    child = fork();
    if (child == 0) {
        DBM *own = opened("data", O_RDWR);
        put(own, "of", "the child");
        dbm_close(own);
        _exit(0);
    }
    reap(child);
    db = opened("data", O_RDWR);
    CHECK(is(dbm_fetch(db, text("of")), "the child") && count(db) == 3);

    /* Enough to make checkpoints. */
    static char bytes[3000];
    datum value = {bytes, sizeof bytes};
    for (int nth = 0; nth < 5000; nth++) {
        int key = nth % 100;
        CHECK(dbm_store(db, number(&key), value, DBM_REPLACE) == 0);
    }
    CHECK(threads() == 1);
    dbm_close(db);
    return 0;
}
