/* SPDX-License-Identifier: Apache-2.0 */
/* Empty keys and values are told from those that are not there. */
#include "check.h"

int main(void)
{
    DBM *db = opened("data", O_RDWR | O_CREAT);
    datum none = {NULL, 0}, empty = {(char *)"x", 0};
    CHECK(dbm_fetch(db, none).dptr == NULL);
    put(db, "empty", "");
    datum value = dbm_fetch(db, text("empty"));
    CHECK(value.dptr != NULL && value.dsize == 0 && value.dptr[0] == '\0');
    CHECK(dbm_fetch(db, text("absent")).dptr == NULL);
    CHECK(dbm_store(db, none, text("of the empty key"), DBM_INSERT) == 0);
    CHECK(dbm_store(db, empty, none, DBM_INSERT) == 1);
    CHECK(is(dbm_fetch(db, empty), "of the empty key"));
    CHECK(dbm_store(db, empty, none, DBM_REPLACE) == 0);
    value = dbm_fetch(db, none);
    CHECK(value.dptr != NULL && value.dsize == 0);
    datum key = dbm_firstkey(db);
    CHECK(key.dptr != NULL && key.dsize == 0);
    CHECK(is(dbm_nextkey(db), "empty"));
    CHECK(dbm_nextkey(db).dptr == NULL);
    CHECK(dbm_delete(db, none) == 0);
    CHECK(dbm_delete(db, none) == -1);
    CHECK(!dbm_error(db));

    /* Bytes of any value, and a long one. */
    char bytes[256];
    for (int nth = 0; nth < 256; nth++)
        bytes[nth] = (char)nth;
    datum all = {bytes, 256};
    CHECK(dbm_store(db, all, all, DBM_INSERT) == 0);
    value = dbm_fetch(db, all);
    CHECK(value.dsize == 256 && memcmp(value.dptr, bytes, 256) == 0);
    datum large = {calloc(1, 3 << 20), 3 << 20};
    large.dptr[1 << 20] = 7;
    CHECK(dbm_store(db, text("large"), large, DBM_INSERT) == 0);
    value = dbm_fetch(db, text("large"));
    CHECK(value.dsize == 3 << 20 && memcmp(value.dptr, large.dptr, 3 << 20) == 0);
    free(large.dptr);

    /* What is not a datum. */
    datum below = {bytes, -1}, without = {NULL, 5};
    FAILS(dbm_store(db, below, text("v"), DBM_REPLACE) == -1, EINVAL);
    FAILS(dbm_store(db, text("k"), without, DBM_REPLACE) == -1, EINVAL);
    FAILS(dbm_fetch(db, below).dptr == NULL, EINVAL);
    FAILS(dbm_delete(db, without) == -1, EINVAL);
    CHECK(dbm_error(db));
    dbm_clearerr(db);
    CHECK(count(db) == 3);
    dbm_close(db);
    return 0;
}
