// SPDX-License-Identifier: Apache-2.0
// C++: the header as it is, and threads whose transactions conflict.
#include <string>
#include <thread>
#include <vector>

#include "check.h"

static int increment(senko_db *db, senko_table table)
{
    for (int conflicts = 0;; conflicts++) {
        senko_txn *txn;
        senko_val key = val("count"), value;
        OK(senko_begin(db, 0, &txn));
        int got = senko_get(txn, table, &key, &value);
        CHECK(got == 0 || got == SENKO_NOTFOUND);
        long count = got == 0 ? std::stol(std::string((char *)value.data, value.size)) : 0;
        std::string next = std::to_string(count + 1);
        value = val(next.c_str());
        OK(senko_put(txn, table, &key, &value, 0));
        int committed = senko_commit(txn, SENKO_NONE);
        if (committed == 0)
            return conflicts;
        IS(committed, SENKO_CONFLICT);
        CHECK(std::string(senko_message()).find("conflict") != std::string::npos);
    }
}

int main(int, char **argv)
{
    senko_db *db;
    senko_table table;
    OK(senko_open(in_folder(argv, "data.db"), nullptr, &db));
    OK(senko_table_open(db, "main", SENKO_CREATE, &table));
    std::vector<std::thread> threads;
    for (int nth = 0; nth < 4; nth++)
        threads.emplace_back([=] {
            for (int round = 0; round < 2000; round++)
                increment(db, table);
        });
    for (auto &thread : threads)
        thread.join();
    senko_txn *txn;
    senko_val key = val("count"), value;
    OK(senko_begin(db, SENKO_RDONLY, &txn));
    OK(senko_get(txn, table, &key, &value));
    CHECK(is(value, "8000"));
    senko_abort(txn);
    OK(senko_close(db));
    return 0;
}
