#ifndef BIDE_TESTS_SUPPORT_SQLITE_DATABASES_HPP
#define BIDE_TESTS_SUPPORT_SQLITE_DATABASES_HPP

// Shared by the tests of the SQLite slot.

#include <bide/durable/slots/sqlite.hpp>
#include <support/slot_results.hpp>
#include <support/temp_directory.hpp>

#include <sqlite3.h>
#include <unistd.h>

namespace test {

// A directory in memory if possible, because these tests sync often.
class sqlite_directory : public temp_directory {
public:
    explicit sqlite_directory(const std::string& under = "/dev/shm")
        : temp_directory("sqlite", ::access(under.c_str(), W_OK) == 0 ? under : "/tmp") {}
};

inline bool exists(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

// A plain SQLite connection.
class sqlite_database {
public:
    explicit sqlite_database(const std::string& path) {
        if (::sqlite3_open(path.c_str(), &db_) != SQLITE_OK) {
            give_up(where(), "no database");
        }
    }
    sqlite_database(const sqlite_database&) = delete;
    sqlite_database& operator=(const sqlite_database&) = delete;
    ~sqlite_database() { ::sqlite3_close(db_); }

    sqlite3* get() const { return db_; }
    int run(const std::string& text) {
        return ::sqlite3_exec(db_, text.c_str(), nullptr, nullptr, nullptr);
    }
    // Returns the first column of the first row.
    std::string ask(const std::string& text) {
        std::string answer = "none";
        ::sqlite3_exec(
            db_, text.c_str(),
            [](void* to, int, char** row, char**) {
                *static_cast<std::string*>(to) = row[0] == nullptr ? "null" : row[0];
                return 1;
            },
            &answer, nullptr);
        return answer;
    }

private:
    sqlite3* db_ = nullptr;
};

inline bide::sqlite_slot_options soon() {
    bide::sqlite_slot_options options{.retry_time = std::chrono::milliseconds(30)};
    return options;
}

inline bide::sqlite_slot_options in_mode(bide::sqlite_journal journal) {
    bide::sqlite_slot_options options{.journal = journal};
    return options;
}

} // namespace test

#endif
