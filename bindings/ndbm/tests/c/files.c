/* SPDX-License-Identifier: Apache-2.0 */
/* The files: names, mode bits, descriptors; renamed, deleted and made again. */
#include "check.h"

#include <dirent.h>

static struct stat of(const char *name)
{
    struct stat found;
    CHECK(stat(name, &found) == 0);
    return found;
}

static int files(void)
{
    int files = 0;
    DIR *folder = opendir(".");
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;)
        files += entry->d_name[0] != '.';
    closedir(folder);
    return files;
}

static void same(int fd, const char *name)
{
    struct stat found, named = of(name);
    CHECK(fd >= 0 && fstat(fd, &found) == 0);
    CHECK(found.st_dev == named.st_dev && found.st_ino == named.st_ino);
    CHECK(fcntl(fd, F_GETFD) & FD_CLOEXEC);
}

int main(void)
{
    umask(022);
    DBM *db = dbm_open("data", O_RDWR | O_CREAT, 0666);
    CHECK(db != NULL && files() == 2);
    CHECK((of("data.pag").st_mode & 07777) == 0644);
    CHECK((of("data.dir").st_mode & 07777) == 0644);
    same(dbm_pagfno(db), "data.pag");
    same(dbm_dirfno(db), "data.dir");
    CHECK(dbm_pagfno(db) != dbm_dirfno(db));
    dbm_close(db);
    CHECK(chmod("data.pag", 0664) == 0);

    /* Write-only reads too. Files that are there keep their mode. */
    db = dbm_open("data", O_WRONLY | O_CREAT, 0600);
    CHECK(db != NULL && !dbm_rdonly(db));
    put(db, "k", "v");
    CHECK(is(dbm_fetch(db, text("k")), "v"));
    CHECK((of("data.pag").st_mode & 07777) == 0664);

    /* It grows, in its one file. */
    off_t before = of("data.pag").st_size;
    static char page[4000];
    datum value = {page, sizeof page};
    for (int nth = 0; nth < 1000; nth++)
        CHECK(dbm_store(db, number(&nth), value, DBM_INSERT) == 0);
    CHECK(of("data.pag").st_size > before && files() == 2);

    /* Renamed while it is open, it goes on; a new one of the old name is another. */
    CHECK(rename("data.pag", "other.pag") == 0 && rename("data.dir", "other.dir") == 0);
    put(db, "k", "after");
    DBM *anew = opened("data", O_RDWR | O_CREAT);
    CHECK(count(anew) == 0 && count(db) == 1001);
    put(anew, "new", "one");
    dbm_close(db);
    db = opened("other", O_RDWR);
    CHECK(is(dbm_fetch(db, text("k")), "after") && count(db) == 1001 && count(anew) == 1);

    /* Deleted while it is open, it stays what it is. */
    CHECK(unlink("other.pag") == 0 && unlink("other.dir") == 0);
    put(db, "k", "deleted");
    DBM *third = opened("other", O_RDWR | O_CREAT | O_EXCL);
    CHECK(count(third) == 0 && count(db) == 1001);
    dbm_close(third);
    dbm_close(db);
    dbm_close(anew);
    CHECK(files() == 4);
    /* All lies in the .pag file. */
    CHECK(of("data.dir").st_size == 0);

    /* A name that programs hold while they go elsewhere. */
    db = opened("data", O_RDWR);
    DBM *reader = opened("data", O_RDONLY);
    CHECK(mkdir("folder", 0700) == 0 && chdir("folder") == 0);
    put(db, "from", "elsewhere");
    dbm_close(db);
    CHECK(count(reader) == 2);
    dbm_close(reader);
    return 0;
}
