// A database of locks among other programs and containers: presences, losses and errors.

#include <bide/durable/locks.hpp>
#include <bide/durable/process.hpp>
#include <bide/durable/slots/sqlite.hpp>

#include <support/alloc.hpp>
#include <support/on_time.hpp>
#include <support/slot_conformance.hpp>
#include <support/sqlite_databases.hpp>
#include <support/unhurried.hpp>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#if defined(__linux__)
#include <sched.h>
#include <sys/mount.h>
#endif

using namespace bide;
using test::bytes_of;
using test::exists;
using test::in_mode;
using test::lasts;
using test::put;
using test::soon;
using test::value_of;
using database = test::sqlite_database;
using directory = test::sqlite_directory;

namespace {

bool has(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }

// Runs f in a child process and returns its report. Kills a child that does not end.
std::string in_child(const std::function<std::string()>& what) {
    test::children child(1, [&](int, auto) { return what(); });
    return child.reports()[0];
}

void write_bytes(const std::string& path, const std::string& bytes) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

void copy(const std::string& from, const std::string& to) {
    std::filesystem::copy_file(from, to, std::filesystem::copy_options::overwrite_existing);
}

// A process that stores these values and ends without a close: in WAL mode its log stays.
slot_version stored_by_one_that_dies(const std::string& path, sqlite_journal journal, int values) {
    test::shared_with_children<std::atomic<slot_version>> last;
    const pid_t writer = ::fork();
    if (writer == 0) {
        ::alarm(60);
        sqlite_slot s(path, "k", in_mode(journal));
        for (int i = 1; i <= values; ++i) {
            *last = put(s, "value " + std::to_string(i));
        }
        ::kill(::getpid(), SIGKILL);
    }
    int status = 0;
    ::waitpid(writer, &status, 0);
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL ? last->load() : 0;
}

} // namespace

#if defined(__linux__) && defined(F_OFD_SETLK)

TEST_CASE("sqlite_slot: an operation without memory leaves a connection that can be used") {
    const test::temp_directory in("sqlite");
    sqlite_slot slot(in / "db", "k");
    REQUIRE(slot.compare_exchange(0, "a").status == cas_status::stored);
    int failed = 0;
    for (std::size_t n = 0;; ++n) {
        sqlite_slot fresh(in / "db", "k");
        bool has_failed = false;
        try {
            const test::failing_allocations now(n, test::shortage::single, false);
            static_cast<void>(fresh.load());
            has_failed = now.has_failed();
        } catch (const std::bad_alloc&) {
            has_failed = true;
        }
        const auto again = fresh.load();
        INFO("allocation " << n);
        REQUIRE(again);
        REQUIRE(again->value == "a");
        if (!has_failed) {
            break;
        }
        ++failed;
    }
    REQUIRE(failed > 3);
}

TEST_CASE("sqlite_slot: a mark is unknown to any file but its own") {
    directory dir;
    sqlite_slot s(dir / "a.db", "k");
    REQUIRE(put(s, "x") != 0);
    const auto mine = s.be_present();
    REQUIRE(mine);
    const std::int64_t mark = (*mine)->mark();
    for (const std::int64_t no_mark : {std::int64_t{0}, std::int64_t{-1}, std::int64_t{1} << 53}) {
        CHECK(s.is_present(no_mark) == presence::unknown);
    }

    copy(dir / "a.db", dir / "alone.db");
    CHECK(sqlite_slot(dir / "alone.db", "k").is_present(mark) == presence::unknown);
    copy(dir / "a.db", dir / "both.db");
    copy(dir / "a.db-bide", dir / "both.db-bide");
    CHECK(sqlite_slot(dir / "both.db", "k").is_present(mark) == presence::unknown);
    REQUIRE(database(dir / "a.db").run("VACUUM INTO '" + dir / "vacuumed.db" + "'") == SQLITE_OK);
    sqlite_slot vacuumed(dir / "vacuumed.db", "k");
    CHECK(value_of(vacuumed) == "x");
    CHECK(vacuumed.is_present(mark) == presence::unknown);
    CHECK(s.is_present(mark) == presence::yes);

    std::filesystem::rename(dir / "a.db-bide", dir / "elsewhere");
    CHECK(s.is_present(mark) == presence::unknown);
    const auto next = sqlite_slot(dir / "a.db", "k").be_present(); // makes the file again
    REQUIRE(next);
    CHECK(s.is_present(mark) == presence::unknown);
    CHECK(s.is_present((*next)->mark()) == presence::yes);
    std::filesystem::rename(dir / "elsewhere", dir / "a.db-bide");
    CHECK(s.is_present(mark) == presence::yes);
    CHECK(s.is_present((*next)->mark()) == presence::unknown);
}

TEST_CASE("sqlite_slot: marks stay when the database is made again") {
    directory dir;
    sqlite_slot s(dir / "a.db", "k", in_mode(sqlite_journal::persist));
    REQUIRE(put(s, "x") != 0);
    const auto mine = s.be_present();
    REQUIRE(mine);
    ::unlink((dir / "a.db").c_str());
    ::unlink((dir / "a.db-journal").c_str());
    CHECK(s.is_present((*mine)->mark()) == presence::yes);
    sqlite_slot t(dir / "a.db", "k", in_mode(sqlite_journal::persist));
    REQUIRE(put(t, "y") != 0);
    CHECK(t.is_present((*mine)->mark()) == presence::yes);
}

TEST_CASE("sqlite_slot: without permission to make the -bide file no presence can be taken") {
    directory dir;
    {
        sqlite_slot s(dir / "a.db", "k", in_mode(sqlite_journal::persist));
        REQUIRE(put(s, "old") != 0);
    }
    const bool is_there = GENERATE(false, true);
    if (!is_there) {
        ::unlink((dir / "a.db-bide").c_str());
    } else {
        REQUIRE(::chmod((dir / "a.db-bide").c_str(), 0444) == 0);
    }
    REQUIRE(::chmod((dir / "a.db").c_str(), 0666) == 0);
    REQUIRE(::chmod((dir / "a.db-journal").c_str(), 0666) == 0);
    REQUIRE(::chmod((dir / "").c_str(), 0555) == 0);
    const auto said = test::as_nobody([&]() -> std::string {
        sqlite_slot s(dir / "a.db", "k");
        if (value_of(s) != "old" || put(s, "new") == 0) {
            return "the slot does not work: " + s.explain();
        }
        const auto none = s.be_present();
        if (none || none.error() != std::errc::operation_not_supported) {
            return "be_present: " + (none ? std::string("is") : none.error().message());
        }
        return s.is_present(77) == presence::unknown ? "good" : "known";
    });
    REQUIRE(::chmod((dir / "").c_str(), 0755) == 0);
    CHECK(said.value_or("good") == "good");
}

TEST_CASE("sqlite_slot: the -bide file has the owner and mode of the database") {
    directory dir;
    const mode_t before = ::umask(077);
    database(dir / "a.db").run("CREATE TABLE work (x)");
    CHECK(::chmod((dir / "a.db").c_str(), 0664) == 0);
    CHECK(sqlite_slot(dir / "a.db", "k").be_present());
    ::umask(before);
    struct stat facts{};
    REQUIRE(::stat((dir / "a.db-bide").c_str(), &facts) == 0);
    CHECK((facts.st_mode & 0777) == 0664);

    // Only a regular file is opened.
    ::unlink((dir / "a.db-bide").c_str());
    REQUIRE(::symlink((dir / "a.db").c_str(), (dir / "a.db-bide").c_str()) == 0);
    sqlite_slot s(dir / "a.db", "k");
    CHECK(put(s, "y") != 0);
    CHECK_FALSE(s.be_present());
    CHECK(database(dir / "a.db").ask("PRAGMA integrity_check") == "ok");
    ::unlink((dir / "a.db-bide").c_str());
    REQUIRE(::mkfifo((dir / "a.db-bide").c_str(), 0666) == 0);
    sqlite_slot t(dir / "a.db", "k");
    CHECK(put(t, "z") != 0);
    CHECK_FALSE(t.be_present());
    CHECK(t.is_present(77) == presence::unknown);
}

#endif

#if defined(__linux__) && defined(STATX_ATTR_MOUNT_ROOT)

// Each path would have its own log and journal.
TEST_CASE("sqlite_slot: a database that is mounted without its directory is refused") {
    directory dir;
    REQUIRE(::mkdir((dir / "other").c_str(), 0755) == 0);
    sqlite_slot s(dir / "a.db", "k");
    REQUIRE(put(s, "x") != 0);
    std::ofstream(dir / "other/a.db").close();
    const std::string said = in_child([&]() -> std::string {
        if (::unshare(CLONE_NEWNS) != 0 ||
            ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
            ::mount((dir / "a.db").c_str(), (dir / "other/a.db").c_str(), nullptr, MS_BIND,
                    nullptr) != 0) {
            return "cannot";
        }
        sqlite_slot t(dir / "other/a.db", "k");
        const auto none = t.load();
        if (none || none.error() != std::errc::cross_device_link || !lasts(none.error())) {
            return "load: " + (none ? none->value : none.error().message());
        }
        if (t.compare_exchange(0, "y").status != cas_status::failed ||
            !has(t.explain(), "mount the directory")) {
            return "explain: " + t.explain();
        }
        return exists(dir / "other/a.db-wal") || exists(dir / "other/a.db-bide") ? "made" : "good";
    });
    if (said == "cannot") {
        WARN("skipped: the test may not mount");
        return;
    }
    CHECK(said == "good");
    CHECK(value_of(s) == "x");
}

#endif

TEST_CASE("sqlite_slot: a damaged row says what is wrong, and is replaced") {
    directory dir;
    sqlite_slot s(dir / "a.db", "the key");
    slot_version latest = put(s, "x");
    REQUIRE(latest != 0);
    database db(dir / "a.db");
    CHECK(db.run("UPDATE bide_lock SET value = 'text'") == SQLITE_CONSTRAINT);
    CHECK(db.run("UPDATE bide_lock SET version = 0") == SQLITE_CONSTRAINT);
    CHECK(s.compare_exchange(~slot_version(0), "x").status == cas_status::conflict);
    // A table without the checks, as another program may make it.
    REQUIRE(db.run("DROP TABLE bide_lock; CREATE TABLE bide_lock (key TEXT PRIMARY KEY, version, "
                   "value)") == SQLITE_OK);
    struct damage {
        const char* row;
        const char* words;
    };
    const damage all[] = {
        {"1700000000000000000, 'text'", "the value is TEXT"},
        {"1700000000000000000, 7", "the value is INTEGER"},
        {"1700000000000000000, NULL", "the value is NULL"},
        {"1700000000000000000, 0.5", "the value is REAL"},
        {"'text', x'00'", "the version is TEXT"},
        {"NULL, x'00'", "the version is NULL"},
        {"1.5, x'00'", "the version is REAL"},
        {"x'05', x'00'", "the version is BLOB"},
        {"0, x'00'", "the version is 0"},
        {"-3, x'00'", "the version is -3"},
        {"9223372036854775807, x'00'", "the version is 9223372036854775807"},
        {"4000000000000000000, 'text'", "the value is TEXT"},
    };
    for (const damage& d : all) {
        INFO(d.row);
        REQUIRE(db.run(std::string("INSERT OR REPLACE INTO bide_lock VALUES ('the key', ") + d.row +
                       ")") == SQLITE_OK);
        CHECK(s.load().error() == durable_errc::corrupt_record);
        for (const char* const part : {"a.db", "table bide_lock", "key \"the key\"", d.words}) {
            INFO(s.explain());
            CHECK(has(s.explain(), part));
        }
        CHECK(s.update_locked([](const slot_snapshot&) { return "x"; }).error ==
              durable_errc::corrupt_record);
        CHECK(test::fails(s.compare_exchange(0, "x"), durable_errc::corrupt_record));
        const auto r = s.replace_damaged("repaired");
        REQUIRE(r.status == cas_status::stored);
        CHECK(r.version > latest);
        CHECK((d.row[0] != '4' ||
               r.version > 4'000'000'000'000'000'000u)); // and later than the row's
        const auto there = test::loaded(s);
        CHECK(there->version == r.version);
        CHECK(there->value == "repaired");
        CHECK_FALSE(there->lost_acknowledged);
        latest = r.version;

        // A second repair conflicts, and so does the repair of a good row.
        const auto again = s.replace_damaged("again");
        CHECK(again.status == cas_status::conflict);
        REQUIRE(again.current);
        CHECK(again.current->value == "repaired");
        latest = s.compare_exchange(latest, "on").version;
        CHECK(latest != 0);
    }
    sqlite_slot none(dir / "a.db", "not there");
    CHECK(none.replace_damaged("x").status == cas_status::conflict);
    CHECK(none.load()->version == 0);
    REQUIRE(db.run("UPDATE bide_lock SET value = 'text'") == SQLITE_OK);
    CHECK(sqlite_slot(dir / "a.db", "the key", {.max_value = 3}).replace_damaged("long").error ==
          durable_errc::too_large);
}

TEST_CASE("sqlite_slot: of many concurrent repairs of a row one succeeds") {
    directory dir;
    sqlite_slot s(dir / "a.db", "k");
    REQUIRE(put(s, "x") != 0);
    REQUIRE(database(dir / "a.db")
                .run("PRAGMA ignore_check_constraints=1; UPDATE bide_lock SET value = 'text'") ==
            SQLITE_OK);
    test::check_one_repairs(6, [&] { return sqlite_slot(dir / "a.db", "k"); });
}

TEST_CASE("sqlite_slot: a table with other columns is refused, and the error says so") {
    directory dir;
    const char* const what = GENERATE(
        "CREATE TABLE bide_lock (mine)", "CREATE TABLE bide_lock (key, version)",
        "CREATE TABLE bide_lock (key, version INTEGER, value BLOB)", // the key is not unique
        "CREATE TABLE w (key, version, value); "
        "CREATE VIEW bide_lock AS SELECT key, version, value FROM w",
        "CREATE VIEW bide_lock AS SELECT 1 AS one",
        "CREATE TABLE w (key, version, value); "
        "CREATE VIEW bide_lock AS SELECT key, version, value FROM w; "
        "CREATE TRIGGER t INSTEAD OF INSERT ON bide_lock BEGIN SELECT 1; END");
    INFO(what);
    database db(dir / "a.db");
    REQUIRE(db.run(what) == SQLITE_OK);
    sqlite_slot s(dir / "a.db", "k");
    const std::error_code error = s.load().error();
    CHECK(lasts(error));
    CHECK(error == std::errc::invalid_argument);
    CHECK(has(s.explain(), "table bide_lock"));
    CHECK(has(s.explain(), "not a table of locks"));
    CHECK(s.compare_exchange(0, "x").error == error);
    CHECK(s.replace_damaged("x").status == cas_status::failed);
    CHECK(s.update_locked([](const slot_snapshot&) { return "x"; }).status == cas_status::failed);
}

// SQLite takes damage for the end of the log, without an error.
TEST_CASE("sqlite_slot: a log that lost its end or its beginning is reported as the loss of an "
          "acknowledged value") {
    const auto how = GENERATE(0, 1, 2, 3);
    directory dir;
    const slot_version last = stored_by_one_that_dies(dir / "a.db", sqlite_journal::wal, 9);
    REQUIRE(last != 0);
    std::string log = bytes_of(dir / "a.db-wal");
    switch (how) {
    case 0: log.resize(log.size() - 100); break; // cuts the end off
    case 1: log[log.rfind("value 9")] ^= 0x20; break;
    case 2: log.resize(log.rfind("value 7")); break; // and removes one value more
    case 3: log[100] ^= 1; break;                    // damages the first page
    }
    write_bytes(dir / "a.db-wal", log);
    ::unlink((dir / "a.db-shm").c_str());

    sqlite_slot s(dir / "a.db", "k", in_mode(sqlite_journal::wal));
    const auto there = test::loaded(s);
    CHECK(there->value == (how == 3 ? "" : how == 2 ? "value 6" : "value 8"));
    CHECK(there->version < last);
    CHECK((there->version == 0) == (how == 3));
    CHECK(there->fell_back == (how != 3)); // a row that is not there may have been deleted
    CHECK(there->lost_acknowledged);
    bool was_told = false;
    CHECK(s.update_locked([&](const slot_snapshot& from) {
               was_told = from.lost_acknowledged;
               return std::optional<std::string>();
           }).status == cas_status::stored);
    CHECK(was_told);
    CHECK(s.load()->lost_acknowledged); // until the next change

    // No version repeats: not the lost one with another value.
    const auto r = test::stored(s, there->version, "after");
    CHECK(r.version > last);
    CHECK(s.compare_exchange(last, "late").status == cas_status::conflict);
    CHECK(s.load()->value == "after");
    CHECK_FALSE(s.load()->fell_back);
    CHECK_FALSE(s.load()->lost_acknowledged);
    const auto other = sqlite_slot(dir / "a.db", "other", in_mode(sqlite_journal::wal)).load();
    REQUIRE(other);
    CHECK_FALSE(other->lost_acknowledged);
}

TEST_CASE("sqlite_slot: an older copy of the database is reported as a loss") {
    directory dir;
    slot_version last = 0;
    {
        sqlite_slot s(dir / "a.db", "k", in_mode(sqlite_journal::persist));
        REQUIRE(put(s, "first") != 0);
        copy(dir / "a.db", dir / "backup");
        last = put(s, "second");
    }
    std::filesystem::rename(dir / "backup", dir / "a.db");
    sqlite_slot s(dir / "a.db", "k", in_mode(sqlite_journal::persist));
    CHECK(value_of(s) == "first");
    CHECK(s.load()->lost_acknowledged);
    CHECK(put(s, "third") > last);
    CHECK_FALSE(s.load()->lost_acknowledged);
}

TEST_CASE("sqlite_slot: a damaged value is reported as corrupt, and can be replaced",
          "[promise.durable-damage]") {
    directory dir;
    const std::string before(300, 'v');
    slot_version last = 0;
    {
        sqlite_slot s(dir / "a.db", "k", in_mode(sqlite_journal::persist));
        REQUIRE(put(s, "first") != 0);
        last = put(s, before);
    }
    std::string bytes = bytes_of(dir / "a.db");
    const std::size_t at = bytes.find(before);
    REQUIRE(at != bytes.npos);
    bytes[at + 150] ^= 1;
    write_bytes(dir / "a.db", bytes);
    sqlite_slot s(dir / "a.db", "k", in_mode(sqlite_journal::persist));
    CHECK(s.load().error() == durable_errc::corrupt_record);
    CHECK(has(s.explain(), "not the one that was stored"));
    CHECK(s.update_locked([](const slot_snapshot&) { return "x"; }).error ==
          durable_errc::corrupt_record);
    const auto r = s.replace_damaged("good");
    CHECK(r.status == cas_status::stored);
    CHECK(r.version > last);
    CHECK(value_of(s) == "good");
}

TEST_CASE("sqlite_slot: missing, late or damaged entries of the -bide file do no harm") {
    directory dir;
    sqlite_slot s(dir / "a.db", "k");
    REQUIRE(put(s, "x") != 0);
    const std::string marks = bytes_of(dir / "a.db-bide");
    REQUIRE(marks.size() > 32);
    slot_version last = put(s, "y");

    write_bytes(dir / "a.db-bide", marks); // an older copy
    sqlite_slot t(dir / "a.db", "k");
    CHECK(value_of(t) == "y");
    CHECK_FALSE(t.load()->lost_acknowledged);

    std::string damaged = bytes_of(dir / "a.db-bide");
    for (std::size_t i = 0; i < damaged.size(); i += 7) {
        damaged[i] = static_cast<char>(damaged[i] ^ 0x55);
    }
    write_bytes(dir / "a.db-bide", damaged);
    CHECK(value_of(t) == "y");
    CHECK_FALSE(t.load()->lost_acknowledged);
    CHECK(put(t, "z") == last + 1);

    // A directory in which the file cannot be made.
    ::unlink((dir / "a.db-bide").c_str());
    REQUIRE(::mkdir((dir / "a.db-bide").c_str(), 0755) == 0);
    sqlite_slot u(dir / "a.db", "k");
    CHECK(put(u, "u") != 0);
    CHECK(value_of(u) == "u");
    CHECK_FALSE(u.load()->lost_acknowledged);
}

TEST_CASE("sqlite_slot: the entries of many rows fit into the -bide file") {
    directory dir;
    constexpr int rows = 3'000;
    const auto slot_of = [&](int i) {
        return sqlite_slot(dir / "a.db", "key " + std::to_string(i),
                           in_mode(sqlite_journal::persist));
    };
    int stored = 0;
    for (int i = 0; i < rows; ++i) {
        stored += slot_of(i).compare_exchange(0, "x").status == cas_status::stored;
    }
    CHECK(stored == rows);
    CHECK(std::filesystem::file_size(dir / "a.db-bide") <= 1'024 * 128);
    REQUIRE(database(dir / "a.db").run("DELETE FROM bide_lock") == SQLITE_OK);
    const auto is_lost = [&](int i) {
        sqlite_slot slot = slot_of(i);
        return test::loaded(slot)->lost_acknowledged;
    };
    int noticed = 0;
    for (int i = 0; i < rows; ++i) {
        noticed += is_lost(i);
    }
    CHECK(noticed > rows * 8 / 10);
    CHECK_FALSE(is_lost(rows));
}

// Readers and writers of one row race. No load may report a loss.
TEST_CASE("sqlite_slot: concurrent changes are not reported as a loss") {
    const auto journal = GENERATE(sqlite_journal::persist, sqlite_journal::wal);
    directory dir;
    sqlite_slot made(dir / "a.db", "k", in_mode(journal));
    REQUIRE(put(made, "0") != 0);
    test::shared_with_children<std::atomic<int>> writing;
    *writing = 2;
    test::children crew(5, [&](int i, auto gate) -> std::string {
        sqlite_slot s(dir / "a.db", "k", in_mode(journal));
        gate();
        for (int n = 0; i < 2 ? n < 300 : writing->load() > 0; ++n) {
            slot_snapshot seen;
            if (i < 2) {
                const auto r = s.update_locked([&](const slot_snapshot& from) {
                    seen = from;
                    return std::string(50, static_cast<char>('a' + n % 26));
                });
                if (r.status != cas_status::stored) {
                    return "! " + s.explain();
                }
            } else {
                auto there = s.load();
                if (!there && there.error() != std::errc::timed_out) {
                    return "! " + s.explain();
                }
                seen = there ? *there : slot_snapshot();
            }
            if (seen.fell_back || seen.lost_acknowledged) {
                return "! lost";
            }
        }
        *writing -= i < 2 ? 1 : 0;
        return "good";
    });
    for (const std::string& report : crew.reports()) {
        CHECK(report == "good");
    }
}

TEST_CASE(
    "sqlite_slot: a path that cannot be a database's is refused at once, and the error says why") {
    directory dir;
    const auto refused = [&](const std::string& path, std::errc as, const std::string& words) {
        INFO(path);
        sqlite_slot s(path, "k");
        const std::string before = s.explain();
        CHECK(has(before, path));
        const auto r = s.load();
        REQUIRE_FALSE(r);
        CHECK(r.error() == as);
        CHECK(lasts(r.error()));
        CHECK(s.compare_exchange(0, "x").status == cas_status::failed);
        CHECK(s.update_locked([](const slot_snapshot&) { return "x"; }).error == as);
        CHECK(s.replace_damaged("x").error == as);
        INFO(s.explain());
        CHECK(has(s.explain(), path));
        CHECK(has(s.explain(), words));
    };
    refused(dir / "none/a.db", std::errc::no_such_file_or_directory,
            "unable to open database file");
    refused(dir / "none/a.db", std::errc::no_such_file_or_directory, "No such file or directory");
    write_bytes(dir / "file", "");
    refused(dir / "file/a.db", std::errc::not_a_directory, "a part of the path is not a directory");
    REQUIRE(::mkdir((dir / "directory").c_str(), 0755) == 0);
    refused(dir / "directory", std::errc::is_a_directory, "directory");
    REQUIRE(::mkfifo((dir / "fifo").c_str(), 0666) == 0);
    refused(dir / "fifo", std::errc::invalid_argument, "not a regular file");
    REQUIRE(::symlink((dir / "loop").c_str(), (dir / "loop").c_str()) == 0);
    refused(dir / "loop", std::errc::too_many_symbolic_link_levels, "");
    refused(dir / std::string(300, 'n'), std::errc::filename_too_long, "");
    {
        sqlite_slot s(dir / "first.db", "k");
        REQUIRE(put(s, "x") != 0);
    }
    REQUIRE(::link((dir / "first.db").c_str(), (dir / "second.db").c_str()) == 0);
    refused(dir / "second.db", std::errc::too_many_links, "second name");
    refused(dir / "first.db", std::errc::too_many_links, "second name");
    ::unlink((dir / "second.db").c_str());
    CHECK(value_of(sqlite_slot(dir / "first.db", "k")) == "x");
    write_bytes(dir / "text", std::string(8'192, 'g'));
    refused(dir / "text", std::errc::protocol_error, "file is not a database");
    CHECK(bytes_of(dir / "text") == std::string(8'192, 'g'));

    // A symbolic link leads to the same database, with the same files beside it.
    REQUIRE(::symlink((dir / "first.db").c_str(), (dir / "directory/link.db").c_str()) == 0);
    sqlite_slot linked(dir / "directory/link.db", "k");
    CHECK(value_of(linked) == "x");
    CHECK(put(linked, "y") != 0);
    CHECK_FALSE(exists(dir / "directory/link.db-bide"));
    CHECK(exists(dir / "first.db-bide"));
    CHECK(value_of(sqlite_slot(dir / "first.db", "k")) == "y");
}

TEST_CASE("sqlite_slot: a damaged database is reported") {
    directory dir;
    {
        sqlite_slot s(dir / "a.db", "k", in_mode(sqlite_journal::persist));
        REQUIRE(put(s, "x") != 0);
    }
    std::string bytes = bytes_of(dir / "a.db");
    REQUIRE(bytes.size() >= 8'192);
    std::string no_schema = bytes;
    no_schema.replace(100, 100, 100, '\xff');
    write_bytes(dir / "a.db", no_schema);
    sqlite_slot s(dir / "a.db", "k");
    CHECK((s.load().error().value() & 0xff) == SQLITE_CORRUPT);
    CHECK(lasts(s.load().error()));
    CHECK(has(s.explain(), "malformed"));
    std::string no_row = bytes;
    no_row.replace(4'096, 4'096, 4'096, '\xff');
    write_bytes(dir / "b.db", no_row);
    sqlite_slot t(dir / "b.db", "k");
    CHECK((t.load().error().value() & 0xff) == SQLITE_CORRUPT);
    const auto r = t.compare_exchange(0, "x");
    CHECK(r.status == cas_status::failed);
    CHECK((r.error.value() & 0xff) == SQLITE_CORRUPT);
    CHECK(has(t.explain(), "malformed"));
    CHECK(t.replace_damaged("x").status == cas_status::failed);
}

TEST_CASE("sqlite_slot: explain() is one line with the last failure") {
    directory dir;
    sqlite_slot s(dir / "a\nb.db", "a\nkey", soon());
    REQUIRE(put(s, "x") != 0);
    CHECK(s.explain() == "SQLite database " + dir / "a b.db" + ", table bide_lock, key \"a key\"");
    database db(dir / "a\nb.db");
    REQUIRE(db.run("BEGIN IMMEDIATE") == SQLITE_OK);
    CHECK(s.compare_exchange(s.load()->version, "y").error == std::errc::timed_out);
    CHECK(has(s.explain(), ": database is locked"));
    REQUIRE(db.run("COMMIT") == SQLITE_OK);
    REQUIRE(db.run("CREATE TRIGGER no BEFORE UPDATE ON bide_lock BEGIN "
                   "SELECT raise(ABORT, 'the shop is closed'); END") == SQLITE_OK);
    const auto r = s.compare_exchange(s.load()->version, "y");
    CHECK(r.status == cas_status::failed);
    CHECK(lasts(r.error));
    CHECK(has(s.explain(), "the shop is closed"));
}

// The test's own time limit is 120 s; the slot's retry time is 50 ms.
TEST_CASE("sqlite_slot: a wait for a stopped process that locked the database times out") {
    const auto journal = GENERATE(sqlite_journal::persist, sqlite_journal::wal);
    directory dir;
    sqlite_slot_options options = in_mode(journal);
    {
        sqlite_slot s(dir / "a.db", "k", options);
        REQUIRE(put(s, "old") != 0);
    }
    test::shared_with_children<std::atomic<int>> locked;
    const pid_t holder = ::fork();
    if (holder == 0) {
        ::alarm(60);
        database db(dir / "a.db");
        *locked = db.run("BEGIN EXCLUSIVE; UPDATE bide_lock SET version = version + 1") == SQLITE_OK
                      ? 1
                      : 2;
        for (;;) {
            ::pause();
        }
    }
    REQUIRE(test::eventually([&] { return locked->load() == 1; }));
    int status = 0;
    ::kill(holder, SIGSTOP);
    ::waitpid(holder, &status, WUNTRACED);
    options.retry_time = 50ms;
    sqlite_slot s(dir / "a.db", "k", options);
    if (journal == sqlite_journal::wal) {
        CHECK(value_of(s) == "old");
    } else {
        CHECK(s.load().error() == std::errc::timed_out);
    }
    CHECK(test::fails(s.compare_exchange(1, "x"), std::errc::timed_out));
    bool is_called = false;
    const auto updated = s.update_locked([&](const slot_snapshot&) {
        is_called = true;
        return std::string("x");
    });
    CHECK(test::fails(updated, std::errc::timed_out));
    CHECK_FALSE(is_called);
    CHECK(s.replace_damaged("x").error == std::errc::timed_out);
    CHECK_FALSE(lasts(s.replace_damaged("x").error));
    // SQLite's own waits take ten seconds each. A wait for the stopped process would never end.
    if (journal != sqlite_journal::wal) {
        CHECK(test::time_of([&] { CHECK(!s.load()); }) < 5s);
    }
    CHECK(test::time_of([&] { CHECK(s.compare_exchange(1, "x").error); }) < 5s);
    ::kill(holder, SIGKILL);
    ::waitpid(holder, &status, 0);
    CHECK(value_of(s) == "old");
    CHECK(put(s, "new") != 0);
    CHECK(value_of(s) == "new");
}

TEST_CASE("sqlite_slot: another program's change of the journal mode loses nothing") {
    directory dir;
    sqlite_slot s(dir / "a.db", "k", in_mode(sqlite_journal::persist));
    REQUIRE(put(s, "persist") != 0);
    {
        database db(dir / "a.db");
        REQUIRE(db.ask("PRAGMA journal_mode=WAL") == "wal");
    }
    CHECK(value_of(s) == "persist");
    CHECK(put(s, "wal") != 0);
    CHECK(value_of(sqlite_slot(dir / "a.db", "k", in_mode(sqlite_journal::wal))) == "wal");
    CHECK(put(s, "again") != 0);
    CHECK_FALSE(s.load()->lost_acknowledged);
}

TEST_CASE("sqlite_slot: a lock whose acknowledged record was lost is held for a lease",
          "[promise.durable-damage]") {
    enum class loss { none, last_commit, whole_log, whole_file };
    const auto how = GENERATE(loss::none, loss::last_commit, loss::whole_log, loss::whole_file);
    const auto mode =
        in_mode(how == loss::whole_file ? sqlite_journal::persist : sqlite_journal::wal);
    directory dir;
    test::shared_with_children<std::atomic<int>> held;
    const pid_t holder = ::fork();
    if (holder == 0) {
        ::alarm(60);
        durable_mutex m(sqlite_slot(dir / "a.db", "k", mode), test::unhurried({.lease = 1h}));
        {
            const auto before = m.try_acquire();
        }
        const auto guard = m.try_acquire();
        *held = guard ? 1 : 2;
        ::kill(::getpid(), SIGKILL);
    }
    int status = 0;
    ::waitpid(holder, &status, 0);
    REQUIRE(held->load() == 1);
    std::string log = how == loss::whole_file ? std::string() : bytes_of(dir / "a.db-wal");
    switch (how) {
    case loss::none: break;
    case loss::last_commit: log.resize(log.size() - 100); break; // it granted the lock
    case loss::whole_log: log.clear(); break;
    case loss::whole_file: write_bytes(dir / "a.db", ""); break;
    }
    if (how == loss::last_commit || how == loss::whole_log) {
        write_bytes(dir / "a.db-wal", log);
        ::unlink((dir / "a.db-shm").c_str());
    }
    // In a child, because SQLite cannot be used in a child that was forked while a thread of this
    // process still closed a connection.
    const int granted = test::in_child([&] {
        durable_mutex m(sqlite_slot(dir / "a.db", "k", mode), test::unhurried({.lease = 1h}));
        int grants = 0;
        for (int tries = 0; tries < 2; ++tries) {
            const auto guard = m.try_acquire();
            grants += guard ? 1 : 0;
        }
        return grants;
    });
    // After a loss, the record does not name the holder, so its death is not detected.
    CHECK(granted == (how == loss::none ? 2 : 0));
}

TEST_CASE(
    "sqlite_slot: a damaged record is an error until it is repaired, and tokens do not repeat") {
    directory dir;
    durable_mutex m(sqlite_slot(dir / "a.db", "k"), test::unhurried({.lease = 1h}));
    std::int64_t before = 0;
    {
        const auto guard = m.try_acquire();
        REQUIRE(guard);
        before = guard->fence();
    }
    REQUIRE(database(dir / "a.db")
                .run("PRAGMA ignore_check_constraints=1; UPDATE bide_lock SET value = 'text'") ==
            SQLITE_OK);
    const auto refused = m.try_acquire();
    REQUIRE_FALSE(refused);
    CHECK(refused.error() == durable_errc::corrupt_record);
    INFO(m.explain());
    CHECK(has(m.explain(), "the value is TEXT"));
    // Records that are made within one millisecond have the same smallest token.
    CHECK(test::eventually(
        [&] { return bide::durable::floor_of(bide::durable::unix_ms()) > before; }));
    const auto repaired = m.admin("a test").repair(0, "a row of a wrong type");
    REQUIRE(repaired);
    CHECK(*repaired);
    const auto guard = m.try_acquire();
    REQUIRE(guard);
    CHECK(guard->fence() > before);
}
