// SPDX-License-Identifier: Apache-2.0 One engine behind one line protocol. An experiment of `senko
// lab` compiles this file once for each engine (-DLEVELDB and so on), and drives it over pipes.
// Nothing of it is in any build.
//
// Started as: rival FOLDER SYNCED. Says "ready VERSION". Then, line by line:
//   run COMMITS RECORDS THREADS KEYS SEED   KEYS 0: ascending; else random below KEYS
//                                           -> "ran SECONDS", then as many bytes of times as said
//   fill KEYS                               -> "filled": puts the keys below KEYS, ascending
//   get GETS THREADS KEYS SEED              -> as run: reads at random below KEYS, each checked
//   script OPERATIONS                       -> reads them, 8 bytes each; then as run
//   check KEYS                              -> "checked"
// Anything that fails: "error TEXT", and the end.

#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#define KEY 4
#ifndef VALUE
#define VALUE 8 // at least, and a multiple of it
#endif
#define CACHE (64u << 20)

static void fail(const char *what, const char *why) {
    printf("error %s: %s\n", what, why ? why : "no reason given");
    fflush(stdout);
    exit(1);
}

static char path[4096];
static int synced;
// Bytes of the value that is put.
static size_t bytes = VALUE;

__attribute__((unused)) static const char *in_folder(const char *folder, const char *name) {
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path)
        fail("open", "the folder's name is too long");
    return path;
}

// A record of a scan was read: a part of it is used, so that it has to be in memory.
static volatile unsigned char last_seen;
__attribute__((unused)) static void seen(const void *value, size_t length) {
    if (length) last_seen ^= ((const unsigned char *)value)[length - 1];
}

// What each engine implements. A transaction is begun, given records, and committed by one thread.
static const char *engine_open(const char *folder); // gives its version
static void *engine_begin(void);
static void engine_put(void *tx, const char *key, const char *value, int ascending);
static void engine_commit(void *tx);
// Copies the value; gives its length, or -1 where there is none.
static long engine_get(const char *key, char *value);
// Reads records in order from the key on, and gives their number.
static long engine_scan(const char *key, long most);
static void engine_close(void);

// ------------------------------------------------------------------------------------------------
#if defined(LEVELDB)
#include <leveldb/c.h>

static leveldb_t *db;
static leveldb_writeoptions_t *writing;
static leveldb_readoptions_t *reading;

static void checked(char *error) {
    if (error) fail("LevelDB", error);
}
static const char *engine_open(const char *folder) {
    static char version[32];
    char *error = NULL;
    leveldb_options_t *options = leveldb_options_create();
    leveldb_options_set_create_if_missing(options, 1);
    leveldb_options_set_compression(options, leveldb_no_compression);
    leveldb_options_set_cache(options, leveldb_cache_create_lru(CACHE));
    leveldb_options_set_filter_policy(options, leveldb_filterpolicy_create_bloom(10));
    db = leveldb_open(options, in_folder(folder, "db"), &error);
    checked(error);
    writing = leveldb_writeoptions_create();
    leveldb_writeoptions_set_sync(writing, synced);
    reading = leveldb_readoptions_create();
    snprintf(version, sizeof version, "LevelDB %d.%d", leveldb_major_version(),
             leveldb_minor_version());
    return version;
}
static void *engine_begin(void) { return leveldb_writebatch_create(); }
static void engine_put(void *tx, const char *key, const char *value, int ascending) {
    (void)ascending;
    leveldb_writebatch_put(tx, key, KEY, value, bytes);
}
static void engine_commit(void *tx) {
    char *error = NULL;
    leveldb_write(db, writing, tx, &error);
    checked(error);
    leveldb_writebatch_destroy(tx);
}
static long engine_get(const char *key, char *value) {
    char *error = NULL;
    size_t length = 0;
    char *found = leveldb_get(db, reading, key, KEY, &length, &error);
    checked(error);
    if (!found) return -1;
    memcpy(value, found, length < VALUE ? length : VALUE);
    leveldb_free(found);
    return (long)length;
}
static long engine_scan(const char *key, long most) {
    long found = 0;
    leveldb_iterator_t *at = leveldb_create_iterator(db, reading);
    for (leveldb_iter_seek(at, key, KEY); found < most && leveldb_iter_valid(at); leveldb_iter_next(at)) {
        size_t length = 0;
        seen(leveldb_iter_value(at, &length), length);
        found++;
    }
    leveldb_iter_destroy(at);
    return found;
}
static void engine_close(void) { leveldb_close(db); }

// ------------------------------------------------------------------------------------------------
#elif defined(ROCKSDB)
#include <rocksdb/c.h>

static rocksdb_t *db;
static rocksdb_writeoptions_t *writing;
static rocksdb_readoptions_t *reading;

static void checked(char *error) {
    if (error) fail("RocksDB", error);
}
static const char *engine_open(const char *folder) {
    char *error = NULL;
    rocksdb_options_t *options = rocksdb_options_create();
    rocksdb_options_set_create_if_missing(options, 1);
    rocksdb_options_set_compression(options, rocksdb_no_compression);
    // Logs that are written over again: no journal commit for each synced write.
    rocksdb_options_set_recycle_log_file_num(options, 4);
    rocksdb_options_set_max_background_jobs(options, 2);
#ifdef WRITE_BUFFER
    rocksdb_options_set_write_buffer_size(options, WRITE_BUFFER);
#endif
    rocksdb_block_based_table_options_t *table = rocksdb_block_based_options_create();
    rocksdb_block_based_options_set_block_cache(table, rocksdb_cache_create_lru(CACHE));
    rocksdb_block_based_options_set_filter_policy(table,
                                                  rocksdb_filterpolicy_create_bloom_full(10));
    rocksdb_options_set_block_based_table_factory(options, table);
    db = rocksdb_open(options, in_folder(folder, "db"), &error);
    checked(error);
    writing = rocksdb_writeoptions_create();
    rocksdb_writeoptions_set_sync(writing, (unsigned char)synced);
    reading = rocksdb_readoptions_create();
    return "RocksDB";
}
static void *engine_begin(void) { return rocksdb_writebatch_create(); }
static void engine_put(void *tx, const char *key, const char *value, int ascending) {
    (void)ascending;
    rocksdb_writebatch_put(tx, key, KEY, value, bytes);
}
static void engine_commit(void *tx) {
    char *error = NULL;
    rocksdb_write(db, writing, tx, &error);
    checked(error);
    rocksdb_writebatch_destroy(tx);
}
static long engine_get(const char *key, char *value) {
    char *error = NULL;
    size_t length = 0;
    char *found = rocksdb_get(db, reading, key, KEY, &length, &error);
    checked(error);
    if (!found) return -1;
    memcpy(value, found, length < VALUE ? length : VALUE);
    rocksdb_free(found);
    return (long)length;
}
static long engine_scan(const char *key, long most) {
    long found = 0;
    rocksdb_iterator_t *at = rocksdb_create_iterator(db, reading);
    for (rocksdb_iter_seek(at, key, KEY); found < most && rocksdb_iter_valid(at); rocksdb_iter_next(at)) {
        size_t length = 0;
        seen(rocksdb_iter_value(at, &length), length);
        found++;
    }
    rocksdb_iter_destroy(at);
    return found;
}
static void engine_close(void) { rocksdb_close(db); }

// ------------------------------------------------------------------------------------------------
#elif defined(LMDB)
#include <lmdb.h>

static MDB_env *env;
static MDB_dbi table;

static void checked(int error) {
    if (error) fail("LMDB", mdb_strerror(error));
}
static const char *engine_open(const char *folder) {
    MDB_txn *tx;
    int major, minor, patch;
    static char version[32];
    checked(mdb_env_create(&env));
    checked(mdb_env_set_mapsize(env, (size_t)16 << 30));
    // Reads are at random: reading ahead would be for nothing.
    checked(mdb_env_open(env, folder, MDB_NORDAHEAD | (synced ? 0 : MDB_NOSYNC), 0644));
    checked(mdb_txn_begin(env, NULL, 0, &tx));
    checked(mdb_dbi_open(tx, NULL, 0, &table));
    checked(mdb_txn_commit(tx));
    mdb_version(&major, &minor, &patch);
    snprintf(version, sizeof version, "LMDB %d.%d.%d", major, minor, patch);
    return version;
}
static void *engine_begin(void) {
    MDB_txn *tx;
    checked(mdb_txn_begin(env, NULL, 0, &tx));
    return tx;
}
static void engine_put(void *tx, const char *key, const char *value, int ascending) {
    MDB_val k = {KEY, (void *)key}, v = {bytes, (void *)value};
    checked(mdb_put(tx, table, &k, &v, ascending ? MDB_APPEND : 0));
}
static void engine_commit(void *tx) { checked(mdb_txn_commit(tx)); }
static long engine_get(const char *key, char *value) {
    MDB_txn *tx;
    MDB_val k = {KEY, (void *)key}, v;
    checked(mdb_txn_begin(env, NULL, MDB_RDONLY, &tx));
    int error = mdb_get(tx, table, &k, &v);
    if (!error) memcpy(value, v.mv_data, v.mv_size < VALUE ? v.mv_size : VALUE);
    mdb_txn_abort(tx);
    if (error == MDB_NOTFOUND) return -1;
    checked(error);
    return (long)v.mv_size;
}
static long engine_scan(const char *key, long most) {
    MDB_txn *tx;
    MDB_cursor *at;
    MDB_val k = {KEY, (void *)key}, v;
    long found = 0;
    checked(mdb_txn_begin(env, NULL, MDB_RDONLY, &tx));
    checked(mdb_cursor_open(tx, table, &at));
    int error = mdb_cursor_get(at, &k, &v, MDB_SET_RANGE);
    for (; found < most && !error; error = mdb_cursor_get(at, &k, &v, MDB_NEXT)) {
        seen(v.mv_data, v.mv_size);
        found++;
    }
    mdb_cursor_close(at);
    mdb_txn_abort(tx);
    return found;
}
static void engine_close(void) { mdb_env_close(env); }

// ------------------------------------------------------------------------------------------------
#elif defined(SQLITE)
#include <sqlite3.h>

static sqlite3 *db;
static sqlite3_stmt *begin_it, *put_it, *commit_it, *get_it, *scan_it;

static void checked(int code) {
    if (code != SQLITE_OK && code != SQLITE_DONE && code != SQLITE_ROW)
        fail("SQLite", sqlite3_errmsg(db));
}
static sqlite3_stmt *prepared(const char *text) {
    sqlite3_stmt *statement;
    checked(sqlite3_prepare_v2(db, text, -1, &statement, NULL));
    return statement;
}
static void done(sqlite3_stmt *statement) {
    checked(sqlite3_step(statement));
    checked(sqlite3_reset(statement));
}
static sqlite3_int64 number(const char *key) {
    const unsigned char *k = (const unsigned char *)key;
    return (sqlite3_int64)k[0] << 24 | k[1] << 16 | k[2] << 8 | k[3];
}
static const char *engine_open(const char *folder) {
    checked(sqlite3_open(in_folder(folder, "db"), &db));
    checked(sqlite3_exec(db, "PRAGMA journal_mode=WAL; PRAGMA cache_size=-65536;", NULL, NULL, NULL));
    checked(sqlite3_exec(db, synced ? "PRAGMA synchronous=FULL" : "PRAGMA synchronous=OFF", NULL,
                         NULL, NULL));
    checked(sqlite3_exec(db, "CREATE TABLE records(k INTEGER PRIMARY KEY, v BLOB)", NULL, NULL,
                         NULL));
    begin_it = prepared("BEGIN IMMEDIATE");
    commit_it = prepared("COMMIT");
    put_it = prepared("INSERT OR REPLACE INTO records VALUES(?1, ?2)");
    get_it = prepared("SELECT v FROM records WHERE k = ?1");
    scan_it = prepared("SELECT v FROM records WHERE k >= ?1 ORDER BY k LIMIT ?2");
    static char version[32];
    snprintf(version, sizeof version, "SQLite %s", sqlite3_libversion());
    return version;
}
static void *engine_begin(void) {
    done(begin_it);
    return db;
}
static void engine_put(void *tx, const char *key, const char *value, int ascending) {
    (void)tx, (void)ascending;
    checked(sqlite3_bind_int64(put_it, 1, number(key)));
    checked(sqlite3_bind_blob(put_it, 2, value, (int)bytes, SQLITE_STATIC));
    done(put_it);
}
static void engine_commit(void *tx) {
    (void)tx;
    done(commit_it);
}
static long engine_get(const char *key, char *value) {
    long length = -1;
    checked(sqlite3_bind_int64(get_it, 1, number(key)));
    int code = sqlite3_step(get_it);
    checked(code);
    if (code == SQLITE_ROW) {
        length = sqlite3_column_bytes(get_it, 0);
        memcpy(value, sqlite3_column_blob(get_it, 0), length < VALUE ? (size_t)length : VALUE);
    }
    checked(sqlite3_reset(get_it));
    return length;
}
static long engine_scan(const char *key, long most) {
    long found = 0;
    checked(sqlite3_bind_int64(scan_it, 1, number(key)));
    checked(sqlite3_bind_int64(scan_it, 2, most));
    for (; sqlite3_step(scan_it) == SQLITE_ROW; found++)
        seen(sqlite3_column_blob(scan_it, 0), (size_t)sqlite3_column_bytes(scan_it, 0));
    checked(sqlite3_reset(scan_it));
    return found;
}
static void engine_close(void) {
    sqlite3_finalize(begin_it), sqlite3_finalize(put_it), sqlite3_finalize(scan_it);
    sqlite3_finalize(commit_it), sqlite3_finalize(get_it);
    sqlite3_close(db);
}

// ------------------------------------------------------------------------------------------------
#elif defined(GDBM)
#include <gdbm.h>

static GDBM_FILE db;

static const char *engine_open(const char *folder) {
    int cache = 16384; // buckets of 4 KiB
    db = gdbm_open(in_folder(folder, "db"), 0, GDBM_NEWDB, 0644, NULL);
    if (!db) fail("GDBM", gdbm_strerror(gdbm_errno));
    gdbm_setopt(db, GDBM_SETCACHESIZE, &cache, sizeof cache);
    return gdbm_version;
}
// It has no transactions: the records of one are stored, then all is synced. A crash may tear it.
static void *engine_begin(void) { return db; }
static void engine_put(void *tx, const char *key, const char *value, int ascending) {
    (void)ascending;
    datum k = {(char *)key, KEY}, v = {(char *)value, (int)bytes};
    if (gdbm_store(tx, k, v, GDBM_REPLACE)) fail("GDBM", gdbm_strerror(gdbm_errno));
}
static void engine_commit(void *tx) {
    if (synced && gdbm_sync(tx)) fail("GDBM", gdbm_strerror(gdbm_errno));
}
static long engine_get(const char *key, char *value) {
    datum k = {(char *)key, KEY};
    datum v = gdbm_fetch(db, k);
    if (!v.dptr) return -1;
    memcpy(value, v.dptr, v.dsize < VALUE ? (size_t)v.dsize : VALUE);
    free(v.dptr);
    return v.dsize;
}
static void engine_close(void) { gdbm_close(db); }

// ------------------------------------------------------------------------------------------------
#elif defined(KYOTO)
#include <kclangc.h>

static KCDB *db;

static void checked(int32_t fine) {
    if (!fine) fail("Kyoto Cabinet", kcdbemsg(db));
}
static const char *engine_open(const char *folder) {
    db = kcdbnew();
    // A B+ tree, as the others are ordered; its cache of pages is 64 MiB like theirs.
    strncat((char *)in_folder(folder, "db.kct"), "#pccap=67108864", 32);
    checked(kcdbopen(db, path, KCOWRITER | KCOCREATE | KCOTRUNCATE));
    static char version[64];
    snprintf(version, sizeof version, "Kyoto Cabinet %s", KCVERSION);
    return version;
}
static void *engine_begin(void) {
    checked(kcdbbegintran(db, synced));
    return db;
}
static void engine_put(void *tx, const char *key, const char *value, int ascending) {
    (void)ascending;
    checked(kcdbset(tx, key, KEY, value, bytes));
}
static void engine_commit(void *tx) { checked(kcdbendtran(tx, 1)); }
static long engine_get(const char *key, char *value) {
    return kcdbgetbuf(db, key, KEY, value, VALUE);
}
static void engine_close(void) {
    checked(kcdbclose(db));
    kcdbdel(db);
}

// ------------------------------------------------------------------------------------------------
#elif defined(BERKELEY)
#include <db.h>

static DB_ENV *env;
static DB *db;
static atomic_long commits;

static void checked(int error) {
    if (error) fail("Berkeley DB", db_strerror(error));
}
static const char *engine_open(const char *folder) {
    checked(db_env_create(&env, 0));
    checked(env->set_cachesize(env, 0, CACHE, 1));
    checked(env->set_flags(env, synced ? DB_AUTO_COMMIT : DB_AUTO_COMMIT | DB_TXN_WRITE_NOSYNC, 1));
    checked(env->log_set_config(env, DB_LOG_AUTO_REMOVE, 1));
    checked(env->set_lk_detect(env, DB_LOCK_DEFAULT));
    checked(env->open(env, folder,
                      DB_CREATE | DB_INIT_TXN | DB_INIT_LOG | DB_INIT_MPOOL | DB_INIT_LOCK |
                          DB_PRIVATE | DB_THREAD,
                      0644));
    checked(db_create(&db, env, 0));
    checked(db->set_pagesize(db, 4096));
    checked(db->open(db, NULL, "db", NULL, DB_BTREE, DB_CREATE | DB_THREAD, 0644));
    return DB_VERSION_STRING;
}
static void *engine_begin(void) {
    DB_TXN *tx;
    checked(env->txn_begin(env, NULL, &tx, 0));
    return tx;
}
static void engine_put(void *tx, const char *key, const char *value, int ascending) {
    (void)ascending;
    DBT k = {0}, v = {0};
    k.data = (void *)key, k.size = KEY, v.data = (void *)value, v.size = (u_int32_t)bytes;
    checked(db->put(db, tx, &k, &v, 0));
}
static void engine_commit(void *tx) {
    checked(((DB_TXN *)tx)->commit(tx, 0));
    // A checkpoint for each 4 MiB of log, so that logs can go.
    if (atomic_fetch_add(&commits, 1) % 64 == 63)
        checked(env->txn_checkpoint(env, 4096, 0, 0));
}
static long engine_get(const char *key, char *value) {
    DBT k = {0}, v = {0};
    k.data = (void *)key, k.size = KEY;
    v.data = value, v.ulen = VALUE, v.flags = DB_DBT_USERMEM;
    int error = db->get(db, NULL, &k, &v, 0);
    if (error == DB_NOTFOUND) return -1;
    checked(error);
    return v.size;
}
static void engine_close(void) {
    checked(db->close(db, 0));
    checked(env->close(env, 0));
}
// ------------------------------------------------------------------------------------------------
#elif defined(NDBM)
#include <errno.h>

#include "senko_ndbm.h"

static DBM *db;

static void checked(int failed) {
    if (failed) fail("ndbm", strerror(errno));
}
static const char *engine_open(const char *folder) {
    setenv("SENKO_NDBM_SYNC", synced ? "1" : "0", 1);
    db = dbm_open(in_folder(folder, "db"), O_RDWR | O_CREAT, 0644);
    checked(!db);
    return "libsenko_ndbm";
}
static void *engine_begin(void) {
    checked(dbm_begin(db));
    return db;
}
static void engine_put(void *tx, const char *key, const char *value, int ascending) {
    (void)ascending;
    datum k = {(char *)key, KEY}, v = {(char *)value, bytes};
    checked(dbm_store(tx, k, v, DBM_REPLACE));
}
static void engine_commit(void *tx) { checked(dbm_commit(tx)); }
static long engine_get(const char *key, char *value) {
    datum k = {(char *)key, KEY};
    datum v = dbm_fetch(db, k);
    checked(dbm_error(db));
    if (!v.dptr) return -1;
    memcpy(value, v.dptr, v.dsize < VALUE ? (size_t)v.dsize : VALUE);
    return v.dsize;
}
static void engine_close(void) { dbm_close(db); }
#else
#error "no engine was named"
#endif

#if defined(GDBM) || defined(KYOTO) || defined(BERKELEY) || defined(NDBM)
static long engine_scan(const char *key, long most) {
    (void)key, (void)most;
    fail("scan", "this engine does not scan here");
    return 0;
}
#endif

// ------------------------------------------------------------------------------------------------
static atomic_ulong next_key;
static atomic_ulong next_change = 1;

struct share {
    unsigned long commits, records, keys, seed;
    int reads;
    uint64_t *times;
    pthread_t thread;
};

static uint64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}
static uint64_t mixed(uint64_t *state) { // splitmix64
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}
static void name(uint64_t number, char *key) {
    for (int i = 0; i < KEY; i++) key[i] = (char)(number >> (8 * (KEY - 1 - i)));
}

static void is_there(uint64_t number) {
    char key[KEY], value[VALUE];
    uint64_t stored;
    name(number, key);
    if (engine_get(key, value) != VALUE) fail("check", "a record is gone");
    memcpy(&stored, value, sizeof stored);
    if ((stored & 0xffffffffu) != number) fail("check", "a record is another's");
}

static void *commit_share(void *of) {
    struct share *share = of;
    uint64_t change = atomic_fetch_add(&next_change, 1);
    uint64_t state = share->seed * 1000 + change;
    char key[KEY], value[VALUE];
    for (unsigned long i = 0; i < share->commits; i++) {
        uint64_t since = now();
        if (share->reads) {
            is_there(mixed(&state) % share->keys);
            share->times[i] = now() - since;
            continue;
        }
        void *tx = engine_begin();
        // Behind the beginning, which lets one thread in at a time where appended keys must ascend.
        uint64_t first = share->keys ? 0 : atomic_fetch_add(&next_key, share->records);
        for (unsigned long at = 0; at < share->records; at++) {
            uint64_t number = share->keys ? mixed(&state) % share->keys : first + at;
            uint64_t stored = (number & 0xffffffffu) | change << 32;
            name(number, key);
            for (size_t begin = 0; begin < VALUE; begin += sizeof stored)
                memcpy(value + begin, &stored, sizeof stored);
            engine_put(tx, key, value, !share->keys);
        }
        engine_commit(tx);
        share->times[i] = now() - since;
    }
    return NULL;
}

static void run(unsigned long commits, unsigned long records, unsigned long threads,
                unsigned long keys, unsigned long seed, int reads) {
#if defined(SQLITE) || defined(GDBM) || defined(KYOTO) || defined(NDBM)
    // Their handles, statements and transactions belong to one thread.
    if (threads != 1) fail("run", "this engine is used by one thread here");
#endif
    struct share *shares = calloc(threads, sizeof *shares);
    uint64_t *times = calloc(commits, sizeof *times), *at = times;
    if (!shares || !times) fail("run", "no memory");
    uint64_t start = now();
    for (unsigned long t = 0; t < threads; t++) {
        unsigned long mine = commits / threads + (t < commits % threads);
        shares[t] = (struct share){mine, records, keys, seed, reads, at, 0};
        at += mine;
        if (threads == 1)
            commit_share(&shares[t]);
        else if (pthread_create(&shares[t].thread, NULL, commit_share, &shares[t]))
            fail("run", "no thread");
    }
    for (unsigned long t = 0; threads > 1 && t < threads; t++)
        pthread_join(shares[t].thread, NULL);
    printf("ran %.9f\n", (double)(now() - start) / 1e9);
    fwrite(times, sizeof *times, commits, stdout);
    free(shares), free(times);
}

static void fill(unsigned long keys) {
    uint64_t time;
    while (next_key < keys) {
        unsigned long left = keys - next_key;
        // The last transaction of a fill has the promise that all have; so have those before it.
        struct share share = {1, left < 1000 ? left : 1000, 0, 1, 0, &time, 0};
        commit_share(&share);
    }
#ifdef LMDB
    checked(mdb_env_sync(env, 1));
#endif
    printf("filled\n");
}

// An operation of a script. What a transaction puts is gathered, and committed at its end.
struct operation {
    uint32_t key;
    uint16_t number; // of bytes to put, or of records to scan
    uint8_t what;    // 0 get, 1 put, 2 scan
    uint8_t ends;    // whether the transaction does
};

static void script(unsigned long count) {
    struct operation *all = calloc(count, sizeof *all);
    uint64_t *times = calloc(count, sizeof *times);
    if (!all || !times || fread(all, sizeof *all, count, stdin) != count)
        fail("script", "no memory, or cut short");
    char key[KEY], value[VALUE];
    unsigned long commits = 0, first = 0;
    uint64_t start = now(), since = start, state = ++next_change;
    for (size_t at = 0; at + 8 <= VALUE; at += 8) {
        uint64_t word = mixed(&state);
        memcpy(value + at, &word, 8);
    }
    for (unsigned long i = 0; i < count; i++) {
        char got[VALUE];
        name(all[i].key, key);
        if (all[i].what == 0 && engine_get(key, got) < 0) fail("script", "a record is gone");
        if (all[i].what == 2 && engine_scan(key, all[i].number) < 1) fail("script", "no record");
        if (!all[i].ends) continue;
        void *tx = NULL;
        for (unsigned long at = first; at <= i; at++) {
            if (all[at].what != 1) continue;
            if (!tx) tx = engine_begin();
            name(all[at].key, key);
            bytes = all[at].number;
            engine_put(tx, key, value, 0);
        }
        if (tx) engine_commit(tx);
        first = i + 1;
        uint64_t end = now();
        times[commits++] = end - since;
        since = end;
    }
    bytes = VALUE;
    printf("ran %.9f\n", (double)(now() - start) / 1e9);
    fwrite(times, sizeof *times, commits, stdout);
    free(all), free(times);
}

static void check(unsigned long keys) {
    for (unsigned long number = 0; number < keys; number++) is_there(number);
    printf("checked\n");
}

int main(int count, char **words) {
    char line[256];
    unsigned long a, b, c, d, e;
    if (count != 3) return 2;
    synced = atoi(words[2]);
    mkdir(words[1], 0755);
    printf("ready %s\n", engine_open(words[1]));
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        if (sscanf(line, "run %lu %lu %lu %lu %lu", &a, &b, &c, &d, &e) == 5)
            run(a, b, c, d, e, 0);
        else if (sscanf(line, "get %lu %lu %lu %lu", &a, &b, &c, &d) == 4)
            run(a, 0, b, c, d, 1);
        else if (sscanf(line, "fill %lu", &a) == 1)
            fill(a);
        else if (sscanf(line, "script %lu", &a) == 1)
            script(a);
        else if (sscanf(line, "check %lu", &a) == 1)
            check(a);
        else
            fail("asked", line);
        fflush(stdout);
    }
    engine_close();
    return 0;
}
