/* SPDX-License-Identifier: Apache-2.0 */
/* senko_dbm.h: the DBM of Senko for C and C++. docs/dbm/c.md has a program that uses it.
 *
 * Calls with an int result return 0 for success. An errno value is positive; the SENKO_ codes below
 * are negative. senko_strerror() has words for each. senko_message() is the sentence of this
 * thread's last failure: it says what happened, and where.
 *
 * A senko_db may be used by several threads at once. A transaction and its cursors belong to one
 * thread at a time. In the child of a fork every handle of the parent returns SENKO_FORKED.
 */
#ifndef SENKO_DBM_H
#define SENKO_DBM_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SENKO_VERSION_MAJOR 0
#define SENKO_VERSION_MINOR 1
#define SENKO_VERSION_PATCH 0

/* Errors. */
#define SENKO_NOTFOUND (-30699)  /* no such key, or the cursor is at its end */
#define SENKO_EXISTS   (-30698)  /* the key is there already */
#define SENKO_CONFLICT (-30697)  /* another transaction changed what this one read: run it again */
#define SENKO_DAMAGED  (-30696)  /* the file does not have what was written to it */
#define SENKO_FOREIGN  (-30695)  /* the file is not a database */
#define SENKO_NEWER    (-30694)  /* the file was written by a later version */
#define SENKO_NOTABLE  (-30693)  /* there is no table of that name, or it was dropped */
#define SENKO_TXNFULL  (-30692)  /* the transaction is larger than transaction_bytes */
#define SENKO_READONLY (-30691)  /* opened or begun to be read, or an earlier write failed */
#define SENKO_EXPIRED  (-30690)  /* it was older than max_snapshot_age_ms, or others wrote much meanwhile */
#define SENKO_TOOLONG  (-30689)  /* a key or a value is too long */
#define SENKO_ENDED    (-30688)  /* the transaction was committed or aborted */
#define SENKO_FORKED   (-30687)  /* the handle belongs to the parent process */
#define SENKO_PANIC    (-30686)  /* a fault of the library itself */
#define SENKO_UNSORTED (-30685)  /* the key of an append is not above all keys of the table */

/* Most bytes of a key, and of a value. */
#define SENKO_MAX_KEY   1024u
#define SENKO_MAX_VALUE (1u << 30)

typedef struct senko_db senko_db;         /* an open database */
typedef struct senko_txn senko_txn;       /* a transaction */
typedef struct senko_cursor senko_cursor; /* a place in the keys of a table */
typedef struct senko_pending senko_pending; /* a commit that is awaited later */
typedef struct senko_batch senko_batch;     /* writes that are gathered */
typedef uint32_t senko_table;             /* the table of a name, while the database is open */

/* A key or a value. An empty one may have any data. */
typedef struct senko_val {
    size_t size;
    void *data;
} senko_val;

/* How to open. Set all to zero, and then size to sizeof(senko_options); zero stands for the
 * default of each field. */
typedef struct senko_options {
    size_t size;
    uint32_t flags;               /* SENKO_CREATE and so on */
    uint32_t mode;                /* permission bits of a new file; 0: nobody else may read it */
    uint64_t cache_bytes;         /* DRAM for pages */
    uint64_t transaction_bytes;   /* what a transaction may hold */
    uint64_t log_bytes;           /* of log, after which a checkpoint is due */
    uint64_t max_bytes;           /* of the file, at least 196608; 0: all that the file system has */
    uint64_t max_snapshot_age_ms; /* older ones end when their space is needed; 0: none does */
} senko_options;

#define SENKO_CREATE    0x1u /* make the database if there is none */
#define SENKO_RDONLY    0x2u /* open, or begin, to read only */
#define SENKO_NOTHREADS 0x4u /* start no thread: commits do the maintenance */
#define SENKO_ONEFILE   0x8u /* no effect: every database is one file */

/* Counts and sizes. Set size to sizeof(senko_stats). */
typedef struct senko_stats {
    size_t size;
    uint64_t file_bytes;         /* that the file takes, without its holes */
    uint64_t live_bytes;         /* of pages that are live */
    uint64_t free_bytes;         /* that may be written */
    uint64_t cached_bytes;       /* of pages in DRAM */
    uint64_t commit;             /* number of the newest commit */
    uint64_t durable;            /* number of the newest durable commit */
    uint64_t commits;            /* transactions that committed, since the opening */
    uint64_t conflicts;          /* transactions that met a conflict, since the opening */
    uint64_t page_reads;         /* pages read from the device, since the opening */
    uint64_t checkpoint;         /* number of the newest checkpoint */
    uint64_t open_snapshots;     /* snapshots and transactions that are open */
    uint64_t oldest_snapshot_ms; /* age of the oldest */
    uint64_t pages_since_oldest; /* an upper bound of the pages that snapshots hold */
    uint64_t bytes_put;          /* of keys and values, since the database was made */
    uint64_t bytes_written;      /* to the device, since then */
    uint64_t bytes_discarded;    /* given back to the file system, since then */
} senko_stats;

/* What a commit waits for. */
#define SENKO_NONE     0 /* nothing: a killed process may lose it */
#define SENKO_BUFFERED 1 /* until a killed process loses nothing; a power cut may */
#define SENKO_SYNCED   2 /* until it is on the device for good */

/* Fails with SENKO_EXISTS if the key is there. */
#define SENKO_NOOVERWRITE 0x10u
/* The key is above all keys of the table, which is checked once for a series of appends; otherwise
 * the call fails with SENKO_UNSORTED. */
#define SENKO_APPEND      0x20u

/* Where a cursor goes. */
#define SENKO_FIRST     0 /* the lowest key */
#define SENKO_LAST      1 /* the highest key */
#define SENKO_NEXT      2 /* the next key; of a new cursor, the lowest */
#define SENKO_PREV      3 /* the key before; of a new cursor, the highest */
#define SENKO_SET       4 /* the given key */
#define SENKO_SET_RANGE 5 /* the first key from the given one on */

/* The library's version, and its numbers where asked for. */
const char *senko_version(int *major, int *minor, int *patch);
/* Words for what a call returned. They live for ever, or, for an errno value, as strerror's. */
const char *senko_strerror(int error);
/* The sentence of this thread's last failure, until the next one. "" if there was none. */
const char *senko_message(void);

/* Opens the database of a path. Without options: as with SENKO_CREATE. One process writes (another
 * gets EBUSY); any number of processes open with SENKO_RDONLY beside it and see it as of then. */
int senko_open(const char *path, const senko_options *options, senko_db **db);
/* Closes it: all commits are durable then. EBUSY while transactions, cursors, batches or pending
 * commits are open. After any other error it is closed all the same. */
int senko_close(senko_db *db);
/* Of a database that was opened to be read: transactions that begin from now on see what is
 * written now, in the file that has the name now. A senko_table keeps its name. */
int senko_refresh(senko_db *db);
/* Makes all commits durable that returned before. */
int senko_sync(senko_db *db);
/* Writes a checkpoint of all commits until now, so that the next opening reads no log of them.
 * Without room for all changed pages it fails with ENOSPC, and the log has the rest. */
int senko_checkpoint(senko_db *db);
int senko_stat(senko_db *db, senko_stats *stats);
/* Calls each with the age, in milliseconds, and the bytes kept for each snapshot and transaction
 * that is open, oldest first, until it returns something other than 0, which is returned. */
int senko_snapshots(senko_db *db, int (*each)(void *arg, uint64_t age_ms, uint64_t bytes),
                    void *arg);
/* Reads and checks everything; calls problem, if not NULL, with a sentence for each problem.
 * SENKO_DAMAGED if there was any. */
int senko_verify(senko_db *db, void (*problem)(void *arg, const char *sentence), void *arg);
/* Copies everything that is committed now into a new database at a path where nothing is, while
 * others commit. It is the path with .part until it is complete. Calls progress, if not NULL, with
 * the number of records so far, now and then; if that returns something other than 0, the copy ends
 * and is removed, and that is returned. */
int senko_backup(senko_db *db, const char *path, int (*progress)(void *arg, uint64_t records),
                 void *arg);

/* Finds a table; with SENKO_CREATE, makes it if there is none. */
int senko_table_open(senko_db *db, const char *name, unsigned flags, senko_table *table);
/* Drops a table with all that it holds. */
int senko_table_drop(senko_db *db, senko_table table);
/* Calls each with the name of each table, in their order, until it returns something
 * other than 0, which is returned. */
int senko_tables(senko_db *db, int (*each)(void *arg, const char *name), void *arg);
/* How many records are committed in a table now. */
int senko_count(senko_db *db, senko_table table, uint64_t *count);

/* Begins a transaction. With SENKO_RDONLY it is a snapshot: it never conflicts. */
int senko_begin(senko_db *db, unsigned flags, senko_txn **txn);
/* Ends it, in every case. On an error nothing of it was done, but for an error of the device. */
int senko_commit(senko_txn *txn, int durability);
/* Ends it as senko_commit, but does not wait for the device: others see the commit, and the
 * library's thread makes it durable together with what else comes. On an error there is nothing to
 * wait for, and *pending is NULL. */
int senko_commit_async(senko_txn *txn, int durability, senko_pending **pending);
/* Sets *done to 1 if senko_pending_wait would return at once, else to 0. */
int senko_pending_done(senko_pending *pending, int *done);
/* Waits until the commit is what was asked for, and frees the handle, which is needed also where
 * nobody wants to wait. */
int senko_pending_wait(senko_pending *pending);
/* Ends it; nothing of it was done. NULL is ignored. */
void senko_abort(senko_txn *txn);

/* The value of a key. It lives until the next get in this transaction, or its end. */
int senko_get(senko_txn *txn, senko_table table, const senko_val *key, senko_val *value);
/* The same, but the commit does not ask whether another changed the key. */
int senko_get_untracked(senko_txn *txn, senko_table table, const senko_val *key, senko_val *value);
int senko_put(senko_txn *txn, senko_table table, const senko_val *key, const senko_val *value,
              unsigned flags);
/* Whether the key was there is not asked. */
int senko_delete(senko_txn *txn, senko_table table, const senko_val *key);
/* Deletes the keys from one on (NULL: from the lowest) below another (NULL: to the highest). */
int senko_delete_range(senko_txn *txn, senko_table table, const senko_val *from,
                       const senko_val *to);

/* Puts and deletes that are collected first and committed as one. A batch reads nothing, so it
 * never conflicts. */
int senko_batch_begin(senko_db *db, senko_batch **batch);
int senko_batch_put(senko_batch *batch, senko_table table, const senko_val *key,
                    const senko_val *value);
int senko_batch_delete(senko_batch *batch, senko_table table, const senko_val *key);
/* As senko_delete_range; what the batch puts later stays. */
int senko_batch_delete_range(senko_batch *batch, senko_table table, const senko_val *from,
                             const senko_val *to);
/* Commits all of it or, on an error, nothing, and ends the batch in every case. */
int senko_batch_commit(senko_batch *batch, int durability);
/* Ends it; nothing of it was done. NULL is ignored. */
void senko_batch_abort(senko_batch *batch);

/* Loads records whose keys ascend and are above all keys of the table. It calls next for each
 * record, which sets key and value and returns 0; their bytes live until the next call. At the end
 * next returns SENKO_NOTFOUND. Anything else ends the load and is returned. A record out of order
 * is SENKO_UNSORTED. After an error nothing of the load is left; a crash during it leaves the first
 * part. *loaded (may be NULL) is the number of records. Nobody else may write above the last key of
 * the table meanwhile. */
int senko_bulk_load(senko_db *db, senko_table table,
                    int (*next)(void *arg, senko_val *key, senko_val *value), void *arg,
                    int durability, uint64_t *loaded);

/* A cursor sees what its transaction sees. When that has ended it returns SENKO_ENDED. */
int senko_cursor_open(senko_txn *txn, senko_table table, senko_cursor **cursor);
/* Goes somewhere. Key and value live until the next call on this cursor. At the end it returns
 * SENKO_NOTFOUND and stays where it is. */
int senko_cursor_get(senko_cursor *cursor, senko_val *key, senko_val *value, int where);
/* NULL is ignored. */
void senko_cursor_close(senko_cursor *cursor);

#ifdef __cplusplus
}
#endif

#endif
