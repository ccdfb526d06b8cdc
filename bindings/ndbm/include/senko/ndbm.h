/* SPDX-License-Identifier: Apache-2.0 */
/* ndbm.h: the interface of ndbm, as POSIX and 4.3BSD have it. docs/dbm/ndbm.md tells what this
 * library does where others differ. */
#ifndef SENKO_NDBM_H
#define SENKO_NDBM_H

#include <fcntl.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A key or a value. dsize is an int, as in the libraries of Debian. */
typedef struct {
    char *dptr;
    int dsize;
} datum;

typedef struct senko_ndbm DBM;

#define DBM_INSERT 0
#define DBM_REPLACE 1

/* Opens NAME.pag and NAME.dir. Flags and mode are those of open(2). */
DBM *dbm_open(const char *name, int flags, mode_t mode);
void dbm_close(DBM *db);

/* The value of a key; its dptr is NULL if there is none. */
datum dbm_fetch(DBM *db, datum key);
/* 0; 1 if DBM_INSERT finds the key; -1 for an error. */
int dbm_store(DBM *db, datum key, datum content, int flags);
/* 0; -1 if there is no such key (errno is ENOENT), or for an error. */
int dbm_delete(DBM *db, datum key);

/* The keys, one by one; dptr is NULL after the last. */
datum dbm_firstkey(DBM *db);
datum dbm_nextkey(DBM *db);

/* Whether a call failed since the opening or the last dbm_clearerr. */
int dbm_error(DBM *db);
int dbm_clearerr(DBM *db);

/* Those of 4.3BSD: the descriptors of NAME.dir and NAME.pag, and whether it is open to be read. */
int dbm_dirfno(DBM *db);
int dbm_pagfno(DBM *db);
int dbm_rdonly(DBM *db);

/* Transactions, which other libraries of ndbm do not have. The calls above are part of the
 * handle's transaction from its dbm_begin to its dbm_commit or dbm_abort. */
#define SENKO_NDBM_TRANSACTIONS 1
/* 0; -1 for an error, EBUSY if the handle has a transaction already. */
int dbm_begin(DBM *db);
/* 0; -1 with ECANCELED if another handle changed what this transaction read (run it again), or -1
 * for an error. The transaction has ended in any case; EINVAL if there was none. */
int dbm_commit(DBM *db);
/* 0: the transaction has ended without an effect. -1 for an error, EINVAL if there was none. */
int dbm_abort(DBM *db);

#ifdef __cplusplus
}
#endif

#endif
