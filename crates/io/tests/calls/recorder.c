// SPDX-License-Identifier: Apache-2.0
//! A library for LD_PRELOAD that records the calls of a process which change files of one folder.
//!
//! `calls.rs` compiles it, runs a program under it and reads the log. The log is a shared mapping,
//! so it outlives a kill, and a second process continues it. Each call takes a number from one
//! counter before it is made and one after it has returned. A call's record thus brackets the time
//! at which the kernel did it.
//!
//! SENKO_CALLS_FOLDER   files in this folder are recorded; an absolute path without links
//! SENKO_CALLS_LOG      the log, made by calls.rs
//! SENKO_CALLS_MARKS    what is written to this file becomes a mark in the log
//! SENKO_CALLS_DELAYS   "seed microseconds": calls are made longer by drawn times up to this
//! SENKO_CALLS_KILL     "number when": the process kills itself at its call of this number: `b`
//!                      before it is made, `h` after half of it (a write), `a` after it
//!
//! Flushes are recorded and not made. No power cut comes, so the device need not be waited for.
//! io_uring is refused, because the calls of a ring would pass by. At a normal end, the bytes that
//! were written through this library are recorded beside those that the kernel counted.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

/// The log: this head in its first page, then records, each with its payload.
struct head {
    _Atomic uint64_t order; /// The next number of the order.
    _Atomic uint64_t next;  /// The offset of the next record.
    _Atomic uint64_t full;  /// A record found no room.
    _Atomic uint64_t lock;
};

/// Kinds of records; `calls.rs` has the same.
enum {
    WRITE = 1, FLUSH, LENGTH, PUNCH, CREATE, RENAME, LINK, UNLINK, MAPPED, MARK, END, UNKNOWN, START
};

struct record {
    uint64_t size, begin, end;
    uint32_t kind, process;
    uint64_t inode, offset, length;
    int64_t result;
    uint64_t durable; /// The write is durable when it returns.
};

static struct head *head;
static uint64_t log_bytes;
static char folder[PATH_MAX], marks[PATH_MAX];
static size_t folder_length;
static uint64_t seed, most_delay, kill_at;
static char kill_when;
static _Atomic uint64_t calls, written;
static uint64_t counted_before;
static _Atomic int inside, closing;

static long (*real)(long, ...);
#define CALL(number, ...) (resolve_real(), real(number, __VA_ARGS__))

static void resolve_real(void) {
    if (!real) real = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
}

/// Bytes that the kernel counts as written by this process.
static uint64_t counted(void) {
    char text[1024];
    int fd = CALL(SYS_openat, AT_FDCWD, "/proc/self/io", O_RDONLY, 0);
    ssize_t got = read(fd, text, sizeof text - 1);
    close(fd);
    text[got > 0 ? got : 0] = 0;
    char *at = strstr(text, "wchar: ");
    return at ? strtoull(at + 7, NULL, 10) : 0;
}

static void note(uint32_t kind, uint64_t offset, uint64_t length);

__attribute__((constructor)) static void begin(void) {
    char *of = getenv("SENKO_CALLS_FOLDER"), *log = getenv("SENKO_CALLS_LOG"), *text;
    if (!of || !log) return;
    if ((text = getenv("SENKO_CALLS_MARKS"))) snprintf(marks, sizeof marks, "%s", text);
    if ((text = getenv("SENKO_CALLS_DELAYS"))) {
        seed = strtoull(text, &text, 10);
        most_delay = strtoull(text, NULL, 10);
    }
    if ((text = getenv("SENKO_CALLS_KILL"))) {
        kill_at = strtoull(text, &text, 10);
        kill_when = text[1];
    }
    int fd = CALL(SYS_openat, AT_FDCWD, log, O_RDWR | O_CLOEXEC, 0);
    struct stat meta;
    if (fd < 0 || fstat(fd, &meta)) abort();
    log_bytes = meta.st_size;
    long rights = PROT_READ | PROT_WRITE;
    struct head *map = (void *)CALL(SYS_mmap, NULL, log_bytes, rights, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED) abort();
    close(fd);
    snprintf(folder, sizeof folder, "%s", of);
    folder_length = strlen(folder);
    counted_before = counted();
    written = 0;
    map->lock = 0; // Whoever held it was killed.
    head = map;
    note(START, 0, 0);
}

__attribute__((destructor)) static void end(void) {
    if (head) note(END, written, counted() - counted_before);
}

/// A record with room for a payload of these bytes; NULL if there is no log, or no room in it.
static struct record *take(uint32_t kind, uint64_t payload) {
    uint64_t size = (sizeof(struct record) + payload + 7) & ~7ull, zero = 0;
    while (!atomic_compare_exchange_weak(&head->lock, &zero, 1)) zero = 0, sched_yield();
    uint64_t at = head->next;
    struct record *it = NULL;
    if (at + size <= log_bytes) {
        it = (struct record *)((char *)head + at);
        it->size = size, it->kind = kind, it->process = getpid();
        it->begin = head->order++;
        head->next = at + size;
    } else {
        head->full = 1;
    }
    head->lock = 0;
    return it;
}

static void done(struct record *it, int64_t result) {
    if (!it) return;
    it->result = result;
    it->end = head->order++;
}

static void note(uint32_t kind, uint64_t offset, uint64_t length) {
    struct record *it = take(kind, 0);
    if (it) it->offset = offset, it->length = length;
    done(it, 0);
}

static void delay(void) {
    static _Thread_local uint64_t state;
    static _Atomic uint64_t threads;
    if (!most_delay) return;
    if (!state) state = (seed + 1) * 0x9e3779b97f4a7c15ull + ++threads * 0xbf58476d1ce4e5b9ull;
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    if (state % 4 == 0) usleep((state >> 32) % most_delay);
}

/// Kills this process while no other thread is within a recorded call.
static void die(void) {
    CALL(SYS_kill, getpid(), SIGKILL);
    for (;;) pause();
}

/// Begins a call. Returns when it shall end this process: 'b' never returns, 0 means no kill.
static char enter(void) {
    uint64_t number = atomic_fetch_add(&calls, 1) + 1;
    if (number == kill_at) {
        closing = 1;
        while (inside) sched_yield();
        if (kill_when == 'b') die();
        return kill_when;
    }
    for (;;) {
        while (closing) usleep(1000);
        inside++;
        if (!closing) return 0;
        inside--;
    }
}

static void leave(char when) {
    if (when) die();
    inside--;
}

/// Memory of the folder's files, of which the kernel may write any state at any time.
static struct map { char *start; uint64_t length, inode, offset; } maps[64];
static pthread_mutex_t maps_lock = PTHREAD_MUTEX_INITIALIZER;

static void sample(void) {
    static _Atomic uint64_t times;
    if (times++ % 8) return;
    int error = errno;
    pthread_mutex_lock(&maps_lock);
    for (int n = 0; n < 64; n++) {
        struct map *map = &maps[n];
        struct record *it = map->start ? take(MAPPED, map->length) : NULL;
        if (!it) continue;
        it->inode = map->inode, it->offset = map->offset, it->length = map->length;
        memcpy(it + 1, map->start, map->length);
        done(it, 0);
    }
    pthread_mutex_unlock(&maps_lock);
    errno = error;
}

/// Whether a path is the folder or in it.
static int within(const char *path) {
    char behind = head && !strncmp(path, folder, folder_length) ? path[folder_length] : 'x';
    return behind == '/' || !behind;
}

/// The path of a descriptor; empty if it has none.
static void path_of(int fd, char *path) {
    char name[32];
    int error = errno;
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(name, path, PATH_MAX - 1);
    path[length > 0 ? length : 0] = 0;
    errno = error;
}

static uint64_t inode_of(int fd) {
    struct stat meta;
    return fstat(fd, &meta) ? 0 : meta.st_ino;
}

/// An absolute path; the last name may be a link, or absent.
static void resolve(int at, const char *path, char *out) {
    char whole[2 * PATH_MAX + 2], parent[PATH_MAX], start[PATH_MAX] = "";
    int error = errno;
    if (path[0] != '/') {
        if (at == AT_FDCWD) { if (!getcwd(start, sizeof start)) start[0] = 0; }
        else path_of(at, start);
    }
    snprintf(whole, sizeof whole, "%s/%s", start, path);
    char *last = strrchr(whole, '/');
    *last = 0;
    if (!realpath(whole[0] ? whole : "/", parent)) snprintf(parent, sizeof parent, "%s", whole);
    size_t length = strlen(parent);
    snprintf(out, PATH_MAX, "%s/%s", length == 1 ? "" : parent, last + 1);
    errno = error;
}

static struct record *take_paths(uint32_t kind, const char *one, const char *two) {
    size_t first = strlen(one) + 1, second = two ? strlen(two) + 1 : 0;
    struct record *it = take(kind, first + second);
    if (!it) return NULL;
    memcpy(it + 1, one, first);
    if (two) memcpy((char *)(it + 1) + first, two, second);
    it->length = first + second;
    return it;
}

// Writes.

static ssize_t written_now(ssize_t done) {
    if (done > 0) written += done;
    return done;
}

/// A write at an offset, or at the position of the descriptor if that is negative.
static ssize_t write_call(int fd, const struct iovec *parts, int count, int64_t offset, int flags) {
    char path[PATH_MAX];
    path_of(fd, path);
    int marking = head && marks[0] && !strcmp(path, marks);
    int at_position = offset < 0;
    long position = at_position ? -1 : offset;
    if (!within(path) && !marking) {
        if (at_position) return written_now(CALL(SYS_writev, fd, parts, count));
        return written_now(CALL(SYS_pwritev2, fd, parts, count, position, 0, flags));
    }
    uint64_t length = 0;
    for (int n = 0; n < count; n++) length += parts[n].iov_len;
    char *bytes = malloc(length + 1);
    uint64_t at = 0;
    for (int n = 0; n < count; n++) {
        memcpy(bytes + at, parts[n].iov_base, parts[n].iov_len);
        at += parts[n].iov_len;
    }
    if (marking) {
        struct record *it = take(MARK, length);
        if (it) memcpy(it + 1, bytes, length), it->length = length;
        done(it, length);
        free(bytes);
        return written_now(CALL(SYS_writev, fd, parts, count));
    }
    char when = enter();
    if (when == 'h') {
        length = length / 2 & ~511ull;
        if (length > parts[0].iov_len) length = parts[0].iov_len;
    }
    int how = fcntl(fd, F_GETFL);
    if (at_position) {
        struct stat meta;
        if (how & O_APPEND && !fstat(fd, &meta)) offset = meta.st_size;
        else offset = lseek(fd, 0, SEEK_CUR);
    }
    struct record *it = take(WRITE, length);
    if (it) {
        it->inode = inode_of(fd), it->offset = offset, it->length = length;
        it->durable = (flags & (RWF_DSYNC | RWF_SYNC)) || (how & O_DSYNC);
        memcpy(it + 1, bytes, length);
    }
    free(bytes);
    delay();
    ssize_t result = 0;
    flags &= ~(RWF_DSYNC | RWF_SYNC);
    if (when == 'h' && length) result = CALL(SYS_pwrite64, fd, parts[0].iov_base, length, offset);
    else if (when == 'h') result = 0;
    else if (at_position) result = CALL(SYS_writev, fd, parts, count);
    else result = CALL(SYS_pwritev2, fd, parts, count, position, 0, flags);
    int error = errno;
    delay();
    done(it, result);
    sample();
    leave(when);
    errno = error;
    return written_now(result);
}

static ssize_t write_one(int fd, const void *bytes, size_t length, int64_t offset) {
    struct iovec part = {(void *)bytes, length};
    return write_call(fd, &part, 1, offset, 0);
}

ssize_t write(int fd, const void *bytes, size_t length) {
    return write_one(fd, bytes, length, -1);
}
ssize_t pwrite(int fd, const void *bytes, size_t length, off_t at) {
    return write_one(fd, bytes, length, at);
}
ssize_t writev(int fd, const struct iovec *parts, int count) {
    return write_call(fd, parts, count, -1, 0);
}
ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t at) {
    return write_call(fd, parts, count, at, 0);
}
ssize_t pwritev2(int fd, const struct iovec *parts, int count, off_t at, int flags) {
    return write_call(fd, parts, count, at, flags);
}

// Calls on one descriptor: flushes, lengths, holes.

static long file_call(
    uint32_t kind, uint64_t offset, uint64_t length, long number, int fd, long a, long b, long c
) {
    char path[PATH_MAX];
    path_of(fd, path);
    if (!within(path)) return CALL(number, fd, a, b, c);
    char when = enter();
    struct record *it = take_paths(kind, path, NULL);
    if (it) it->inode = inode_of(fd), it->offset = offset, it->length = length;
    delay();
    long result = kind == FLUSH ? 0 : CALL(number, fd, a, b, c);
    int error = errno;
    delay();
    done(it, result);
    sample();
    leave(when);
    errno = error;
    return result;
}

int fdatasync(int fd) { return file_call(FLUSH, 0, 0, SYS_fdatasync, fd, 0, 0, 0); }
int fsync(int fd) { return file_call(FLUSH, 0, 0, SYS_fsync, fd, 0, 0, 0); }
int ftruncate(int fd, off_t length) {
    return file_call(LENGTH, 0, length, SYS_ftruncate, fd, length, 0, 0);
}
int fallocate(int fd, int mode, off_t offset, off_t length) {
    // Allocation that keeps the length changes no content.
    if (mode == FALLOC_FL_KEEP_SIZE) return CALL(SYS_fallocate, fd, mode, offset, length);
    uint32_t kind = mode == (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE) ? PUNCH : UNKNOWN;
    if (mode) return file_call(kind, offset, length, SYS_fallocate, fd, mode, offset, length);
    // The offset 1 says that it never shortens.
    return file_call(LENGTH, 1, offset + length, SYS_fallocate, fd, mode, offset, length);
}
int posix_fallocate(int fd, off_t offset, off_t length) {
    return fallocate(fd, 0, offset, length) ? errno : 0;
}
ssize_t copy_file_range(int from, off64_t *a, int to, off64_t *b, size_t length, unsigned flags) {
    char path[PATH_MAX];
    path_of(to, path);
    if (within(path)) note(UNKNOWN, 0, 0);
    return written_now(CALL(SYS_copy_file_range, from, a, to, b, length, flags));
}

// Names.

static long name_call(
    uint32_t kind, int at, const char *one, int at_two, const char *two, long number,
    long a, long b, long c, long d, long e
) {
    char first[PATH_MAX], second[PATH_MAX];
    resolve(at, one, first);
    if (two) resolve(at_two, two, second);
    if (!within(first) && !(two && within(second))) return CALL(number, a, b, c, d, e);
    char when = enter();
    struct record *it = take_paths(kind, first, two ? second : NULL);
    delay();
    long result = CALL(number, a, b, c, d, e);
    int error = errno;
    delay();
    done(it, result);
    leave(when);
    errno = error;
    return result;
}

int renameat2(int at, const char *one, int to, const char *two, unsigned flags) {
    uint32_t kind = flags ? UNKNOWN : RENAME;
    return name_call(
        kind, at, one, to, two, SYS_renameat2, at, (long)one, to, (long)two, flags
    );
}
int renameat(int at, const char *one, int to, const char *two) {
    return renameat2(at, one, to, two, 0);
}
int rename(const char *one, const char *two) {
    return renameat2(AT_FDCWD, one, AT_FDCWD, two, 0);
}
int linkat(int at, const char *one, int to, const char *two, int flags) {
    return name_call(LINK, at, one, to, two, SYS_linkat, at, (long)one, to, (long)two, flags);
}
int link(const char *one, const char *two) { return linkat(AT_FDCWD, one, AT_FDCWD, two, 0); }
int unlinkat(int at, const char *path, int flags) {
    return name_call(UNLINK, at, path, 0, NULL, SYS_unlinkat, at, (long)path, flags, 0, 0);
}
int unlink(const char *path) { return unlinkat(AT_FDCWD, path, 0); }

// The process must not run in the boot in which its image is opened: a power cut lies between. The
// kernel draws a number of the same form at each reading of the other file.
static const char *boot = "/proc/sys/kernel/random/boot_id";
static const char *other_boot = "/proc/sys/kernel/random/uuid";

static int open_call(int at, const char *path, int flags, int mode) {
    if (path && !strcmp(path, boot)) path = other_boot;
    char whole[PATH_MAX];
    struct stat meta;
    int changes = head && flags & (O_CREAT | O_TRUNC) && (flags & O_TMPFILE) != O_TMPFILE;
    if (changes) resolve(at, path, whole);
    changes = changes && within(whole);
    int there = changes && !fstatat(AT_FDCWD, whole, &meta, 0);
    if (there) changes = !(flags & O_EXCL) && flags & O_TRUNC && meta.st_size;
    else changes = changes && flags & O_CREAT;
    if (!changes) return CALL(SYS_openat, at, path, flags, mode);
    char when = enter();
    struct record *it = take_paths(there ? LENGTH : CREATE, whole, NULL);
    if (it && there) it->length = 0;
    delay();
    int fd = CALL(SYS_openat, at, path, flags, mode);
    int error = errno;
    if (it && fd >= 0) it->inode = inode_of(fd);
    done(it, fd);
    leave(when);
    errno = error;
    return fd;
}

static int mode_of(int flags, va_list list) {
    return flags & (O_CREAT | O_TMPFILE) ? va_arg(list, int) : 0;
}
int openat(int at, const char *path, int flags, ...) {
    va_list list;
    va_start(list, flags);
    int mode = mode_of(flags, list);
    va_end(list);
    return open_call(at, path, flags, mode);
}
int open(const char *path, int flags, ...) {
    va_list list;
    va_start(list, flags);
    int mode = mode_of(flags, list);
    va_end(list);
    return open_call(AT_FDCWD, path, flags, mode);
}

// Memory, and what passes by.

void *mmap(void *start, size_t length, int rights, int flags, int fd, off_t offset) {
    void *map = (void *)CALL(SYS_mmap, start, length, rights, flags, fd, offset);
    char path[PATH_MAX] = "";
    int shared = flags & MAP_SHARED && rights & PROT_WRITE && fd >= 0;
    if (head && map != MAP_FAILED && shared) path_of(fd, path);
    if (path[0] && within(path)) {
        pthread_mutex_lock(&maps_lock);
        int n = 0;
        while (n < 64 && maps[n].start) n++;
        if (n < 64) maps[n] = (struct map){map, length, inode_of(fd), offset};
        else note(UNKNOWN, 0, 0);
        pthread_mutex_unlock(&maps_lock);
    }
    return map;
}
int munmap(void *start, size_t length) {
    pthread_mutex_lock(&maps_lock);
    for (int n = 0; n < 64; n++) if (maps[n].start == (char *)start) maps[n].start = NULL;
    int result = CALL(SYS_munmap, start, length);
    pthread_mutex_unlock(&maps_lock);
    return result;
}
long syscall(long number, ...) {
    va_list list;
    va_start(list, number);
    long a = va_arg(list, long), b = va_arg(list, long), c = va_arg(list, long);
    long d = va_arg(list, long), e = va_arg(list, long), f = va_arg(list, long);
    va_end(list);
    if (number == SYS_io_uring_setup) return errno = ENOSYS, -1;
    return CALL(number, a, b, c, d, e, f);
}

// The same calls under their names for large files: these systems have 64-bit offsets anyway.

#define SAME(name, as) extern __typeof__(as) name __attribute__((alias(#as)))
SAME(pwrite64, pwrite);
SAME(pwritev64, pwritev);
SAME(pwritev64v2, pwritev2);
SAME(ftruncate64, ftruncate);
SAME(fallocate64, fallocate);
SAME(posix_fallocate64, posix_fallocate);
SAME(open64, open);
SAME(openat64, openat);
SAME(mmap64, mmap);
