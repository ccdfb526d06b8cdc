/* SPDX-License-Identifier: Apache-2.0 */
/* What a store and a close wait for. The program stands between the library and the system, and
 * counts. */
#define _GNU_SOURCE
#include "check.h"

#include <signal.h>
#include <sys/syscall.h>
#include <sys/uio.h>

static int writes, flushes, reads;

/* The library's calls land here, as a program's own symbols come first. */
ssize_t pwrite64(int fd, const void *bytes, size_t size, off64_t at)
{
    writes++;
    return syscall(SYS_pwrite64, fd, bytes, size, at);
}

ssize_t pread64(int fd, void *bytes, size_t size, off64_t at)
{
    reads++;
    return syscall(SYS_pread64, fd, bytes, size, at);
}

ssize_t pwrite(int fd, const void *bytes, size_t size, off_t at)
{
    return pwrite64(fd, bytes, size, at);
}

ssize_t pread(int fd, void *bytes, size_t size, off_t at)
{
    return pread64(fd, bytes, size, at);
}

ssize_t pwritev2(int fd, const struct iovec *pieces, int count, off_t at, int flags)
{
    writes++;
    flushes += (flags & RWF_DSYNC) != 0;
    return syscall(SYS_pwritev2, fd, pieces, count, (long)at, 0L, flags);
}

int fdatasync(int fd)
{
    flushes++;
    return (int)syscall(SYS_fdatasync, fd);
}

static int flushes_of_a_store(void)
{
    static int nth;
    DBM *db = opened("data", O_RDWR | O_CREAT);
    nth++;
    flushes = writes = 0;
    CHECK(dbm_store(db, number(&nth), text("v"), DBM_REPLACE) == 0);
    CHECK(writes > 0);
    int of_store = flushes;
    flushes = 0;
    dbm_close(db);
    CHECK(flushes > 0 || of_store > 0);
    return of_store;
}

/* Flushes of a transaction with so many stores. They wait for its commit. */
static int flushes_of_a_transaction(int stores)
{
    DBM *db = opened("data", O_RDWR | O_CREAT);
    flushes = writes = 0;
    CHECK(dbm_begin(db) == 0);
    for (int nth = 0; nth < stores; nth++)
        CHECK(dbm_store(db, number(&nth), text("v"), DBM_REPLACE) == 0);
    CHECK(writes == 0 && flushes == 0);
    CHECK(dbm_commit(db) == 0);
    CHECK(writes > 0);
    int of_commit = flushes;
    flushes = 0;
    dbm_close(db);
    CHECK(flushes > 0 || of_commit > 0);
    return of_commit;
}

/* Reads and writes that emptying so many records takes. */
static int emptying(int records)
{
    DBM *db = opened("emptied", O_RDWR | O_CREAT | O_TRUNC);
    for (int nth = 0; nth < records; nth++)
        CHECK(dbm_store(db, number(&nth), text("some value"), DBM_INSERT) == 0);
    reads = writes = 0;
    int deleted = 0;
    for (datum key; (key = dbm_firstkey(db)).dptr != NULL; deleted++)
        CHECK(dbm_delete(db, key) == 0);
    CHECK(deleted == records && count(db) == 0);
    int taken = reads + writes;
    dbm_close(db);
    return taken;
}

int main(void)
{
    /* Handed to the system by each store, and flushed by the close. */
    CHECK(flushes_of_a_store() == 0);
    CHECK(flushes_of_a_transaction(100) == 0);
    setenv("SENKO_NDBM_SYNC", "1", 1);
    CHECK(flushes_of_a_store() > 0);
    CHECK(flushes_of_a_transaction(100) == 1 && flushes_of_a_transaction(1) == 1);
    setenv("SENKO_NDBM_SYNC", "0", 1);
    CHECK(flushes_of_a_store() == 0);

    /* A killed process loses nothing. */
    for (int round = 0; round < 5; round++) {
        pid_t child = fork();
        if (child == 0) {
            DBM *db = opened("killed", O_RDWR | O_CREAT);
            for (int nth = 0; nth < 200; nth++) {
                int key = round * 200 + nth;
                CHECK(dbm_store(db, number(&key), number(&key), DBM_INSERT) == 0);
            }
            kill(getpid(), SIGKILL);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child);
        CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        /* Renamed after the kill, it has all that it had. */
        CHECK(rename("killed.pag", "moved.pag") == 0 && rename("killed.dir", "moved.dir") == 0);
        DBM *db = opened("moved", round % 2 == 0 ? O_RDONLY : O_RDWR);
        for (int key = 0; key < (round + 1) * 200; key++) {
            datum value = dbm_fetch(db, number(&key));
            CHECK(value.dsize == sizeof key && memcmp(value.dptr, &key, sizeof key) == 0);
        }
        dbm_close(db);
        CHECK(rename("moved.pag", "killed.pag") == 0 && rename("moved.dir", "killed.dir") == 0);
    }

    /* Emptying is linear: four times the records take about four times the transfers. Each delete is
     * made to take one. */
    setenv("SENKO_NDBM_SYNC", "1", 1);
    int few = emptying(100), many = emptying(400);
    if (many > 6 * few || few < 100) {
        fprintf(stderr, "100 records took %d reads and writes, 400 took %d\n", few, many);
        return 1;
    }
    return 0;
}
