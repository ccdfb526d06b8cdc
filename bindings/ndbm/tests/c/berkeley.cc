// SPDX-License-Identifier: Apache-2.0
// The header in C++, and Berkeley DB's names of the calls.
#include <string>

#include "check.h"

extern "C" {
DBM *__db_ndbm_open(const char *, int, int);
void __db_ndbm_close(DBM *);
datum __db_ndbm_fetch(DBM *, datum);
int __db_ndbm_store(DBM *, datum, datum, int);
int __db_ndbm_delete(DBM *, datum);
datum __db_ndbm_firstkey(DBM *);
datum __db_ndbm_nextkey(DBM *);
int __db_ndbm_error(DBM *);
int __db_ndbm_clearerr(DBM *);
int __db_ndbm_dirfno(DBM *);
int __db_ndbm_pagfno(DBM *);
int __db_ndbm_rdonly(DBM *);
}

int main()
{
    DBM *db = __db_ndbm_open("data", O_RDWR | O_CREAT, 0600);
    CHECK(db != nullptr && __db_ndbm_rdonly(db) == 0);
    CHECK(__db_ndbm_store(db, text("a"), text("1"), DBM_INSERT) == 0);
    put(db, "b", "2");
    datum value = __db_ndbm_fetch(db, text("b"));
    CHECK(std::string(value.dptr, value.dsize) == "2");
    CHECK(is(__db_ndbm_firstkey(db), "a") && is(__db_ndbm_nextkey(db), "b"));
    CHECK(__db_ndbm_delete(db, text("a")) == 0 && __db_ndbm_delete(db, text("a")) == -1);
    CHECK(__db_ndbm_error(db) == 0);
    CHECK(__db_ndbm_store(db, text("a"), text("1"), 9) == -1 && __db_ndbm_error(db) != 0);
    CHECK(__db_ndbm_clearerr(db) == 0 && __db_ndbm_error(db) == 0);
    CHECK(__db_ndbm_dirfno(db) == dbm_dirfno(db) && __db_ndbm_pagfno(db) == dbm_pagfno(db));
    __db_ndbm_close(db);
    return 0;
}
