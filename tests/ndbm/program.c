/* SPDX-License-Identifier: Apache-2.0 */
/* A plain program on ndbm. It prints what it finds, in an order that does not depend on the
 * library. */
#include <errno.h>
#include <fcntl.h>
#include <ndbm.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static datum text(char *bytes)
{
    datum d;
    d.dptr = bytes;
    d.dsize = (int)strlen(bytes);
    return d;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void show(DBM *db)
{
    char *lines[2000];
    int count = 0;
    for (datum key = dbm_firstkey(db); key.dptr != NULL; key = dbm_nextkey(db)) {
        datum value = dbm_fetch(db, key);
        int size = key.dsize + value.dsize + 2;
        lines[count] = malloc((size_t)size);
        snprintf(lines[count++], (size_t)size, "%.*s=%.*s", key.dsize, key.dptr, value.dsize,
                 value.dptr);
    }
    qsort(lines, (size_t)count, sizeof *lines, by_text);
    printf("%d:", count);
    for (int nth = 0; nth < count; nth++) {
        printf(" %s", lines[nth]);
        free(lines[nth]);
    }
    printf("\n");
}

static void print(const char *what, datum d)
{
    if (d.dptr == NULL)
        printf("%s: none\n", what);
    else
        printf("%s: %.*s\n", what, d.dsize, d.dptr);
}

int main(void)
{
    char key[32], value[32];
    char name[] = "proof", absent[] = "absent";
    struct stat found;
    umask(022);
    DBM *db = dbm_open(name, O_RDWR | O_CREAT | O_TRUNC, 0644);
    if (db == NULL) {
        perror(name);
        return 1;
    }
    for (int nth = 0; nth < 300; nth++) {
        snprintf(key, sizeof key, "key%d", nth);
        snprintf(value, sizeof value, "value%d", nth * nth);
        printf("%d", dbm_store(db, text(key), text(value), DBM_INSERT));
    }
    printf("\n");
    show(db);
    printf("%d\n", dbm_store(db, text(strcpy(key, "key7")), text(strcpy(value, "other")), DBM_INSERT));
    print("insert", dbm_fetch(db, text(key)));
    printf("%d\n", dbm_store(db, text(key), text(value), DBM_REPLACE));
    print("replace", dbm_fetch(db, text(key)));
    print("absent", dbm_fetch(db, text(absent)));
    printf("%d\n", dbm_delete(db, text(absent)) < 0);
    printf("%d %d\n", dbm_delete(db, text(key)), dbm_fetch(db, text(key)).dptr == NULL);
    printf("%d\n", dbm_store(db, text(strcpy(key, "empty")), text(strcpy(value, "")), DBM_INSERT));
    datum empty = dbm_fetch(db, text(key));
    printf("%d %d\n", empty.dptr != NULL, empty.dsize);
    printf("%d %d\n", fstat(dbm_dirfno(db), &found), fstat(dbm_pagfno(db), &found));
    printf("%o %d\n", (unsigned)found.st_mode & 07777, dbm_rdonly(db) != 0);
    show(db);
    dbm_close(db);

    db = dbm_open(name, O_RDONLY, 0);
    printf("%d\n", dbm_rdonly(db) != 0);
    printf("%d\n", dbm_store(db, text(key), text(value), DBM_REPLACE));
    show(db);
    dbm_close(db);

    db = dbm_open(name, O_RDWR, 0);
    int deleted = 0;
    for (datum first; (first = dbm_firstkey(db)).dptr != NULL; deleted++)
        if (dbm_delete(db, first) != 0)
            return 2;
    printf("%d\n", deleted);
    show(db);
    dbm_close(db);
    errno = 0;
    printf("%d %d\n", dbm_open(absent, O_RDWR, 0) == NULL, errno == ENOENT);
    printf("done\n");
    return 0;
}
