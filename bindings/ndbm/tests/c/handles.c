/* SPDX-License-Identifier: Apache-2.0 */
/* Several handles of one process, and several processes. */
#include "check.h"

/* Does its work in another process. */
static void elsewhere(void (*work)(void))
{
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        work();
        _exit(0);
    }
    reap(child);
}

static void reads_one(void)
{
    DBM *db = opened("data", O_RDONLY);
    CHECK(count(db) == 1 && is(dbm_fetch(db, text("k")), "v"));
    DBM *second = opened("data", O_RDONLY);
    CHECK(count(second) == 1);
    dbm_close(db);
    CHECK(is(dbm_fetch(second, text("k")), "v"));
    dbm_close(second);
}

static void may_not_write(void)
{
    FAILS(dbm_open("data", O_RDWR, 0600) == NULL, EAGAIN);
    FAILS(dbm_open("data", O_RDWR | O_CREAT | O_TRUNC, 0600) == NULL, EAGAIN);
    reads_one();
}

/* A record lock on the .dir file, which another process has. */
static void meets_a_lock(void)
{
    struct flock lock;
    int fd = open("data.dir", O_RDWR);
    memset(&lock, 0, sizeof lock);
    lock.l_type = F_WRLCK;
    CHECK(fd >= 0 && fcntl(fd, F_GETLK, &lock) == 0);
    CHECK(lock.l_type != F_UNLCK && lock.l_pid == getppid());
}

/* Programs lock the .dir file. What the library does leaves their locks alone. */
static void locks_stay(void)
{
    struct flock lock;
    DBM *db = opened("data", O_RDWR), *reader = opened("data", O_RDONLY);
    memset(&lock, 0, sizeof lock);
    lock.l_type = F_WRLCK;
    CHECK(fcntl(dbm_dirfno(db), F_SETLK, &lock) == 0);
    put(db, "k", "v");
    put(db, "k", "v");
    CHECK(count(db) == 1 && count(reader) == 1);
    elsewhere(meets_a_lock);
    dbm_close(db);
    dbm_close(reader);
    /* A walk of a reader without a writer looks at the files anew. */
    db = opened("data", O_RDONLY);
    lock.l_type = F_RDLCK;
    CHECK(fcntl(dbm_dirfno(db), F_SETLK, &lock) == 0);
    CHECK(count(db) == 1 && count(db) == 1);
    elsewhere(meets_a_lock);
    dbm_close(db);
}

static void may_write(void)
{
    DBM *db = opened("data", O_RDWR);
    put(db, "k", "of another process");
    dbm_close(db);
}

static void makes_another(void)
{
    DBM *db = opened("copy", O_RDWR | O_CREAT);
    put(db, "k", "of a copy");
    put(db, "l", "w");
    dbm_close(db);
    CHECK(rename("copy.pag", "data.pag") == 0);
}

/* Of several processes that made one name at once, one that was refused used to remove the .dir
 * file of the one that made it. */
static void make_at_once(int round)
{
    char name[16], ready[16];
    int go[2], made = 0, status;
    pid_t child[3];
    sprintf(name, "race-%d", round);
    CHECK(pipe(go) == 0);
    for (int nth = 0; nth < 3; nth++) {
        fflush(NULL);
        if ((child[nth] = fork()) == 0) {
            close(go[1]);
            CHECK(read(go[0], ready, 1) == 0);
            DBM *db = dbm_open(name, O_RDWR | O_CREAT, 0600);
            if (db == NULL)
                _exit(errno == EAGAIN ? 1 : 2);
            put(db, "k", "v");
            dbm_close(db);
            _exit(0);
        }
    }
    close(go[0]);
    close(go[1]);
    for (int nth = 0; nth < 3; nth++) {
        CHECK(waitpid(child[nth], &status, 0) == child[nth]);
        CHECK(status == 0 || status == 1 << 8);
        made += status == 0;
    }
    DBM *db = opened(name, O_RDWR);
    CHECK(made > 0 && count(db) == 1);
    dbm_close(db);
}

/* What `senko dbm compact data.pag` does: another file gets the name. A reader used to show the old
 * one for ever. */
static void replaced(void)
{
    DBM *reader = opened("data", O_RDONLY), *idle = opened("data", O_RDONLY);
    int pag = dbm_pagfno(reader);
    elsewhere(makes_another);
    CHECK(is(dbm_fetch(reader, text("k")), "v"));
    CHECK(count(reader) == 2 && is(dbm_fetch(reader, text("k")), "of a copy"));
    CHECK(is(dbm_fetch(idle, text("k")), "v"));
    CHECK(dbm_pagfno(reader) == pag && dbm_pagfno(idle) == pag);

    /* A writer of the new file shares it with the handles that follow. */
    DBM *writer = opened("data", O_RDWR);
    put(writer, "k", "newer");
    CHECK(is(dbm_fetch(reader, text("k")), "newer"));
    CHECK(is(dbm_fetch(idle, text("k")), "v"));
    CHECK(count(idle) == 2 && is(dbm_fetch(idle, text("k")), "newer"));
    DBM *second = opened("data", O_RDWR);
    CHECK(is(dbm_fetch(second, text("k")), "newer"));
    dbm_close(second);
    dbm_close(writer);
    CHECK(is(dbm_fetch(reader, text("k")), "newer"));

    /* Gone: they keep what they have. */
    CHECK(unlink("data.pag") == 0);
    CHECK(count(reader) == 2 && is(dbm_fetch(idle, text("k")), "newer"));
    CHECK(fcntl(pag, F_GETFD) != -1);
    dbm_close(reader);
    dbm_close(idle);
}

int main(void)
{
    for (int round = 0; round < 40; round++)
        make_at_once(round);
    /* Two that write see each other's stores at once. */
    DBM *first = opened("data", O_RDWR | O_CREAT);
    DBM *second = opened("./data", O_RDWR);
    put(first, "k", "first");
    CHECK(is(dbm_fetch(second, text("k")), "first"));
    put(second, "k", "v");
    CHECK(is(dbm_fetch(first, text("k")), "v"));

    /* One that reads beside them sees them too, whenever it was opened. */
    DBM *reader = opened("data", O_RDONLY);
    put(first, "k", "newer");
    CHECK(is(dbm_fetch(reader, text("k")), "newer"));
    FAILS(dbm_store(reader, text("k"), text("v"), DBM_REPLACE) == -1, EPERM);
    dbm_clearerr(reader);
    put(first, "k", "v");
    dbm_close(first);
    elsewhere(may_not_write);
    dbm_close(second);

    /* Without a writer here another process may write, and the reader sees it in its next walk. */
    CHECK(is(dbm_fetch(reader, text("k")), "v"));
    elsewhere(may_write);
    CHECK(is(dbm_fetch(reader, text("k")), "v"));
    CHECK(count(reader) == 1);
    CHECK(is(dbm_fetch(reader, text("k")), "of another process"));

    /* A writer beside the reader that was first. */
    first = opened("data", O_RDWR);
    put(first, "k", "again");
    CHECK(is(dbm_fetch(reader, text("k")), "again"));
    dbm_close(reader);
    put(first, "k", "v");
    elsewhere(may_not_write);

    /* Walks are apart. */
    put(first, "l", "w");
    second = opened("data", O_RDWR);
    CHECK(is(dbm_firstkey(first), "k") && is(dbm_firstkey(second), "k"));
    CHECK(is(dbm_nextkey(first), "l") && is(dbm_nextkey(second), "l"));
    CHECK(dbm_dirfno(first) != dbm_dirfno(second));
    /* Emptied by one that opens, and seen so by the other. */
    DBM *third = opened("data", O_RDWR | O_TRUNC);
    CHECK(dbm_fetch(first, text("k")).dptr == NULL);
    put(third, "k", "v");
    dbm_close(first);
    dbm_close(second);
    dbm_close(third);
    elsewhere(reads_one);
    locks_stay();
    replaced();
    return 0;
}
