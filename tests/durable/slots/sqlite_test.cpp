#include <bide/durable/slots/sqlite.hpp>

#include <support/slot_conformance.hpp>
#include <support/sqlite_databases.hpp>

#include <functional>
#include <future>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#if defined(__linux__)
#include <sys/mount.h>
#endif

using namespace bide;
using namespace test;
using database = test::sqlite_database;
using directory = test::sqlite_directory;

static_assert(any_slot<sqlite_slot>);
static_assert(test::locked_slot<sqlite_slot>);
static_assert(test::repairable_slot<sqlite_slot>);
static_assert(test::explaining_slot<sqlite_slot>);
#if defined(__linux__)
static_assert(test::present_slot<sqlite_slot>);
#endif
static_assert(sqlite_slot::guarantees.keeps_acknowledged);

namespace {

const bool wal_is_safe = bide::detail::sqlite_wal_is_safe(::sqlite3_libversion_number());

template <sqlite_journal Journal> struct sqlite_store {
    using slot = sqlite_slot;
    static constexpr std::size_t limit = std::size_t{1} << 18;
    static constexpr bool processes = true;
    static constexpr int scale = 2;

    slot open() { return slot(dir / "locks.db", key(), {.journal = Journal, .max_value = limit}); }
    // Every few calls another row of the same file, otherwise another file.
    void fresh() {
        if (++place % 3 == 0) {
            static_cast<void>(!std::system(("rm -f " + dir / "*").c_str()));
        }
    }
    void erase() {
        database(dir / "locks.db").run("DELETE FROM bide_lock WHERE key = '" + key() + "'");
    }
    std::string key() const { return "lock " + std::to_string(place); }

    directory dir;
    int place = 0;
};

// Increments the stored number; tries again until it is stored. Returns the error, or none.
std::error_code add_one(sqlite_slot& s) {
    for (;;) {
        const auto there = s.load();
        if (!there) {
            return there.error();
        }
        const auto r =
            s.compare_exchange(there->version, std::to_string(std::atol(there->value.c_str()) + 1));
        if (r.status != cas_status::conflict) {
            return r.error;
        }
    }
}

// A layer between SQLite and the system. It counts writes that are not synced yet, and fails on
// demand.
struct faulty_disk {
    static inline int fails_at = 0; // which write or sync from now on fails; 0: none
    static inline int fails_with = SQLITE_IOERR;
    static inline int calls = 0;
    static inline std::function<void()> in_next_sync{};
    static inline std::vector<sqlite3_file*> unsynced{};
    static inline sqlite3_vfs vfs{};
    static inline sqlite3_vfs* real = nullptr;
    static inline sqlite3_io_methods methods[2]{}; // for databases; for files that are not locked
    static inline const sqlite3_io_methods* originals[2]{};

    static const sqlite3_io_methods& original(sqlite3_file* f) {
        return *originals[f->pMethods == &methods[0] ? 0 : 1];
    }
    static bool fails() { return ++calls == fails_at; }

    static int open(sqlite3_vfs*, const char* name, sqlite3_file* f, int flags, int* out) {
        const int code = real->xOpen(real, name, f, flags, out);
        if (code == SQLITE_OK && f->pMethods != nullptr) {
            const int kind = (flags & SQLITE_OPEN_MAIN_DB) != 0 ? 0 : 1;
            originals[kind] = f->pMethods;
            methods[kind] = *f->pMethods;
            methods[kind].xWrite = &write;
            methods[kind].xSync = &sync;
            methods[kind].xClose = &close;
            f->pMethods = &methods[kind];
        }
        return code;
    }
    static int write(sqlite3_file* f, const void* bytes, int n, sqlite3_int64 at) {
        if (fails()) {
            return fails_with;
        }
        unsynced.push_back(f);
        return original(f).xWrite(f, bytes, n, at);
    }
    static int sync(sqlite3_file* f, int flags) {
        if (fails()) {
            return SQLITE_IOERR_FSYNC;
        }
        if (const auto act = std::exchange(in_next_sync, nullptr)) {
            act();
        }
        std::erase(unsynced, f);
        return original(f).xSync(f, flags);
    }
    static int close(sqlite3_file* f) {
        std::erase(unsynced, f);
        return original(f).xClose(f);
    }

    faulty_disk() {
        real = ::sqlite3_vfs_find(nullptr);
        vfs = *real;
        vfs.zName = "bide_faulty";
        vfs.pNext = nullptr;
        vfs.xOpen = &open;
        ::sqlite3_vfs_register(&vfs, 1);
        fails_at = calls = 0;
        unsynced.clear();
    }
    faulty_disk(const faulty_disk&) = delete;
    faulty_disk& operator=(const faulty_disk&) = delete;
    ~faulty_disk() {
        ::sqlite3_vfs_unregister(&vfs);
        ::sqlite3_vfs_register(real, 1);
    }
};

} // namespace

TEST_CASE("sqlite_slot: keeps the contract of slots", "[promise.slot-contract]") {
    sqlite_store<sqlite_journal::automatic> store;
    test::check_slot(store);
}

TEST_CASE("sqlite_slot: keeps the contract of slots in WAL mode") {
    sqlite_store<sqlite_journal::wal> store;
    test::check_slot(store);
}

TEST_CASE("sqlite_slot: keeps the contract of slots with a persistent journal") {
    sqlite_store<sqlite_journal::persist> store;
    test::check_slot(store);
}

TEST_CASE("sqlite_slot: refuses invalid paths and keys") {
#if BIDE_EXCEPTIONS
    const auto is_key = [](std::string_view text) {
        try {
            sqlite_slot("a.db", std::string(text));
            return true;
        } catch (const std::system_error& e) {
            return e.code() != durable_errc::invalid_argument;
        }
    };
    for (const char* const text : {"", "a b'\"", "\xc3\xa4", "\xe2\x82\xac", "\xf0\x9f\x94\x92"}) {
        CHECK(is_key(text));
    }
    for (const char* const text : {"\xff", "\x80", "\xc3", "\xc0\xaf", "\xed\xa0\x80", "\xe2\x82",
                                   "\xf4\x90\x80\x80", "\xe0\x80\x80", "a\xc3(b"}) {
        CHECK_FALSE(is_key(text));
    }
    CHECK_FALSE(is_key(std::string_view("a\0b", 3)));
    CHECK_THROWS_AS(sqlite_slot("", "k"), std::system_error);
    CHECK_THROWS_AS(sqlite_slot(std::string("a\0b", 3), "k"), std::system_error);
#endif
}

TEST_CASE("sqlite_slot: a path is always a file name, even if it looks like a URI") {
    directory dir;
    char before[4'096] = "/";
    static_cast<void>(!::getcwd(before, sizeof before));
    REQUIRE(::chdir((dir / "").c_str()) == 0);
    for (const std::string name : {"file:a.db?mode=memory", ":memory:", "plain.db"}) {
        sqlite_slot s(name, "k");
        CHECK(put(s, name) != 0);
        CHECK(exists(dir / name));
    }
    // A change of the working directory does not change the file.
    sqlite_slot s("plain.db", "k");
    CHECK(value_of(s) == "plain.db");
    REQUIRE(::mkdir("other", 0700) == 0);
    REQUIRE(::chdir("other") == 0);
    {
        const database corrupting(dir / "plain.db");
        CHECK(::sqlite3_exec(corrupting.get(), "DROP TABLE bide_lock", nullptr, nullptr, nullptr) ==
              SQLITE_OK);
    }
    CHECK_FALSE(s.load()); // so the slot opens a new file
    CHECK(put(s, "again") != 0);
    CHECK_FALSE(exists("plain.db"));
    CHECK(value_of(sqlite_slot(dir / "plain.db", "k")) == "again");
    REQUIRE(::chdir(before) == 0);
}

TEST_CASE("sqlite_slot: keys are independent of each other") {
    directory dir;
    const std::string keys[] = {"", "a", "A", "a ", "\xc3\xa4", "'; DROP TABLE bide_lock; --"};
    std::vector<sqlite_slot> slots;
    for (const std::string& key : keys) {
        slots.emplace_back(dir / "a.db", key);
    }
    for (std::size_t i = 0; i < slots.size(); ++i) {
        CHECK(slots[i].load()->version == 0);
        CHECK(put(slots[i], std::to_string(i)) != 0);
    }
    for (std::size_t i = 0; i < slots.size(); ++i) {
        CHECK(value_of(slots[i]) == std::to_string(i));
    }
    database db(dir / "a.db");
    CHECK(db.ask("SELECT count(*) FROM bide_lock") == "6");
    CHECK(db.ask("SELECT value FROM bide_lock WHERE key = 'A'") == "2");
}

TEST_CASE("sqlite_slot: knows the versions in which WAL mode is safe") {
    using bide::detail::sqlite_wal_is_safe;
    for (const int version :
         {3'007'000, 3'040'001, 3'044'005, 3'045'000, 3'050'006, 3'051'000, 3'051'002}) {
        CHECK_FALSE(sqlite_wal_is_safe(version));
    }
    for (const int version : {3'044'006, 3'050'007, 3'051'003, 3'052'000, 4'000'000}) {
        CHECK(sqlite_wal_is_safe(version));
    }
}

TEST_CASE("sqlite_slot: a new database gets the safe mode of this version") {
    directory dir;
    sqlite_slot s(dir / "a.db", "k");
    REQUIRE(put(s, "x") != 0);
    database db(dir / "a.db");
    CHECK((db.ask("PRAGMA journal_mode") == "wal") == wal_is_safe);
    CHECK(exists(dir / "a.db-wal") == wal_is_safe);
    CHECK(exists(dir / "a.db-journal") == !wal_is_safe); // the journal is kept
}

TEST_CASE("sqlite_slot: without shared memory a new database gets a rollback journal") {
    struct default_vfs {
        sqlite3_vfs* const before = ::sqlite3_vfs_find(nullptr);
        explicit default_vfs(sqlite3_vfs* vfs) { ::sqlite3_vfs_register(vfs, 1); }
        default_vfs(const default_vfs&) = delete;
        default_vfs& operator=(const default_vfs&) = delete;
        ~default_vfs() { ::sqlite3_vfs_register(before, 1); }
    };
    sqlite3_vfs* const dotfile = ::sqlite3_vfs_find("unix-dotfile"); // has no shared memory
    if (dotfile == nullptr) {
        return;
    }
    directory dir;
    const default_vfs now(dotfile);
    sqlite_slot s(dir / "a.db", "k");
    CHECK(put(s, "x") != 0);
    CHECK(value_of(s) == "x");
    CHECK(exists(dir / "a.db-journal"));
    sqlite_slot t(dir / "b.db", "k", in_mode(sqlite_journal::wal));
    CHECK(t.load().error() == std::errc::operation_not_supported);
}

TEST_CASE("sqlite_slot: sets the journal mode that is asked for, or fails") {
    directory dir;
    {
        sqlite_slot s(dir / "a.db", "k", in_mode(sqlite_journal::wal));
        REQUIRE(put(s, "x") != 0);
        CHECK(database(dir / "a.db").ask("PRAGMA journal_mode") == "wal");
        sqlite_slot_options other = in_mode(sqlite_journal::persist);
        other.retry_time = 30ms;
        sqlite_slot in_vain(dir / "a.db", "k", other); // fails while another connection is open
        CHECK(in_vain.load().error() == std::errc::timed_out);
        CHECK(in_vain.compare_exchange(0, "y").status == cas_status::failed);
    }
    sqlite_slot s(dir / "a.db", "k", in_mode(sqlite_journal::persist));
    CHECK(value_of(s) == "x");
    CHECK(database(dir / "a.db").ask("PRAGMA journal_mode") == "delete");
}

TEST_CASE("sqlite_slot: an existing database keeps its journal mode") {
    directory dir;
    database(dir / "rollback.db").run("CREATE TABLE work (x)");
    sqlite_slot s(dir / "rollback.db", "k");
    CHECK(put(s, "x") != 0);
    CHECK(database(dir / "rollback.db").ask("PRAGMA journal_mode") == "delete");

    database(dir / "wal.db").run("PRAGMA journal_mode=WAL; CREATE TABLE work (x)");
    sqlite_slot t(dir / "wal.db", "k");
    CHECK((put(t, "x") != 0) == wal_is_safe);
    if (!wal_is_safe) {
        CHECK(t.load().error() == std::errc::operation_not_supported);
        CHECK(t.explain().find("WAL mode is not safe") != std::string::npos);
        CHECK(t.compare_exchange(0, "x").error == std::errc::operation_not_supported);
    }
    CHECK(database(dir / "wal.db").ask("PRAGMA journal_mode") == "wal");
    sqlite_slot u(dir / "wal.db", "k", in_mode(sqlite_journal::wal));
    CHECK(put(u, "x") != 0);
}

TEST_CASE("sqlite_slot: a commit that readers block is rolled back") {
    directory dir;
    sqlite_slot_options options = in_mode(sqlite_journal::persist);
    options.retry_time = 30ms;
    sqlite_slot s(dir / "a.db", "k", options);
    const auto v = put(s, "old");
    database db(dir / "a.db");
    REQUIRE(db.run("BEGIN; SELECT * FROM bide_lock") == SQLITE_OK);
    CHECK(s.compare_exchange(v, "new").error == std::errc::timed_out);
    const auto r = s.update_locked([](const slot_snapshot&) { return std::string("new"); });
    CHECK(test::fails(r, std::errc::timed_out));
    REQUIRE(db.run("COMMIT") == SQLITE_OK);
    REQUIRE(db.run("BEGIN EXCLUSIVE") == SQLITE_OK);
    CHECK(s.load().error() == std::errc::timed_out);
    REQUIRE(db.run("COMMIT") == SQLITE_OK);
    CHECK(value_of(s) == "old");
    CHECK(s.compare_exchange(v, "new").status == cas_status::stored);
}

TEST_CASE("sqlite_slot: no process starves among processes that store again at once") {
    directory dir("/tmp"); // on a disk whose syncs take time
    const sqlite_slot_options patient{.retry_time = test::patience}; // on a busy machine, too
    const auto open = [&] { return sqlite_slot(dir / "a.db", "k", patient); };
    test::check_nobody_starves(8, 3, 3'000, open, add_one);
}

TEST_CASE("sqlite_slot: error codes have messages and conditions") {
    const auto code = [](int c) { return std::error_code(c, sqlite_category()); };
    CHECK(code(SQLITE_BUSY_SNAPSHOT) == std::errc::timed_out);
    CHECK(code(SQLITE_FULL) == std::errc::no_space_on_device);
    CHECK(code(SQLITE_IOERR_FSYNC) == std::errc::io_error);
    CHECK(code(SQLITE_READONLY_DBMOVED) == std::errc::permission_denied);
    CHECK(code(SQLITE_NOMEM) == std::errc::not_enough_memory);
    CHECK(code(SQLITE_IOERR_FSYNC).message().find("1034") != std::string::npos);
}

TEST_CASE("sqlite_slot: a read-only file can be loaded and not changed") {
    directory dir;
    {
        sqlite_slot s(dir / "a.db", "k", in_mode(sqlite_journal::persist));
        REQUIRE(put(s, "old") != 0);
    }
    REQUIRE(::chmod((dir / "a.db").c_str(), 0444) == 0);
    REQUIRE(::chmod((dir / "").c_str(), 0755) == 0);
    const auto said = test::as_nobody([&]() -> std::string {
        sqlite_slot s(dir / "a.db", "k");
        const auto there = s.load();
        if (!there || there->value != "old") {
            return "load: " + (there ? there->value : there.error().message());
        }
        const auto r = s.compare_exchange(there->version, "new");
        if (r.status != cas_status::failed || (r.error.value() & 0xff) != SQLITE_READONLY) {
            return "compare_exchange: " + r.error.message();
        }
        return value_of(s) == "old" ? "good" : "changed";
    });
    CHECK(said.value_or("good") == "good");
    CHECK(value_of(sqlite_slot(dir / "a.db", "k")) == "old");
}

#if defined(__linux__)
TEST_CASE("sqlite_slot: on a full disk the old value stays") {
    const auto journal = GENERATE(sqlite_journal::persist, sqlite_journal::wal);
    directory dir;
    const std::string disk = dir / "disk";
    REQUIRE(::mkdir(disk.c_str(), 0755) == 0);
    if (::mount("bide", disk.c_str(), "tmpfs", 0, "size=256k") != 0) {
        std::fprintf(stderr, "skipped: a small disk cannot be mounted here\n");
        return;
    }
    {
        sqlite_slot s(disk + "/a.db", "k", in_mode(journal));
        auto v = put(s, "old");
        CHECK(v != 0);
        v = put(s, "old");
        {
            std::ofstream filler(disk + "/filler");
            for (char c = 0; filler.put(c).flush();) {
            }
        }
        const std::string large(100'000, 'x');
        auto r = s.compare_exchange(v, large);
        CHECK(test::fails(r, std::error_code(SQLITE_FULL, sqlite_category())));
        CHECK(value_of(s) == "old");
        r = s.update_locked([&](const slot_snapshot&) { return large; });
        CHECK(r.status == cas_status::failed);
        CHECK(value_of(sqlite_slot(disk + "/a.db", "k", in_mode(journal))) == "old");
        if (journal == sqlite_journal::persist) { // the pages and the journal are allocated already
            CHECK(s.compare_exchange(v, "new").status == cas_status::stored);
            v = s.load()->version;
        }
        ::unlink((disk + "/filler").c_str());
        CHECK(s.compare_exchange(v, large).status == cas_status::stored);
    }
    CHECK(::umount(disk.c_str()) == 0);
}
#endif

TEST_CASE("sqlite_slot: a value is synced before it is acknowledged") {
    const auto journal = GENERATE(sqlite_journal::persist, sqlite_journal::wal);
    directory dir;
    faulty_disk disk;
    sqlite_slot s(dir / "a.db", "k", in_mode(journal));
    static_cast<void>(s.load());
    for (int i = 0; i < 4; ++i) {
        disk.unsynced.clear();
        disk.calls = 0;
        CHECK(put(s, std::string(std::size_t(i) * 9'000, 'x')) != 0);
        CHECK(disk.calls > 1);
        CHECK(disk.unsynced.empty());
        const auto r =
            s.update_locked([](const slot_snapshot& there) { return there.value + "y"; });
        CHECK(r.status == cas_status::stored);
        CHECK(disk.unsynced.empty());
    }
}

TEST_CASE("sqlite_slot: a slow close does not delay the slots of other databases") {
    directory dir;
    sqlite_slot other(dir / "other.db", "k");
    REQUIRE(put(other, "y") != 0);
    std::future<bool> is_loaded;
    bool is_in_time = false;
    {
        faulty_disk disk;
        sqlite_slot s(dir / "a.db", "k", in_mode(sqlite_journal::wal));
        REQUIRE(put(s, "x") != 0);
        disk.in_next_sync = [&] { // of the checkpoint at the close
            is_loaded = std::async(std::launch::async, [&] {
                const auto there = other.load();
                return there && there->value == "y";
            });
            is_in_time = is_loaded.wait_for(test::patience) == std::future_status::ready;
        };
    }
    REQUIRE(is_loaded.valid());
    CHECK(is_in_time);
    CHECK(is_loaded.get());
}

TEST_CASE("sqlite_slot: the result is correct wherever the disk fails") {
    const auto journal = GENERATE(sqlite_journal::persist, sqlite_journal::wal);
    const auto error = GENERATE(SQLITE_IOERR_WRITE, SQLITE_FULL);
    const bool is_locked = GENERATE(false, true);
    directory dir;
    faulty_disk disk;
    sqlite_slot s(dir / "a.db", "k", in_mode(journal));
    REQUIRE(put(s, "0") != 0);
    int seen[4] = {};
    bool is_over = false;
    for (int at = 1; !is_over && at < 200; ++at) {
        INFO("call " << at);
        const auto there = test::loaded(s);
        const std::string value = std::to_string(at) + std::string(6'000, 'v');
        disk.calls = 0;
        disk.fails_with = error;
        disk.fails_at = at;
        const auto r = is_locked ? s.update_locked([&](const slot_snapshot&) { return value; })
                                 : s.compare_exchange(there->version, value);
        is_over = disk.calls < at;
        disk.fails_at = 0;
        ++seen[static_cast<int>(r.status)];
        sqlite_slot other(dir / "a.db", "k", in_mode(journal));
        const auto now = test::loaded(other);
        const bool is_new = now->version == there->version + 1 && now->value == value;
        const bool is_old = now->version == there->version && now->value == there->value;
        CHECK((is_new || is_old));
        switch (r.status) {
        case cas_status::stored: CHECK(is_new); break;
        case cas_status::failed: CHECK(is_old); break;
        case cas_status::indeterminate: CHECK(r.error == std::errc::io_error); break;
        case cas_status::conflict: CHECK(false); break;
        }
        CHECK(value_of(s) == now->value);
    }
    CHECK(is_over);
    CHECK(seen[static_cast<int>(cas_status::stored)] >= 1);
    CHECK(seen[static_cast<int>(cas_status::indeterminate)] >= 1);
    CHECK((error != SQLITE_FULL || seen[static_cast<int>(cas_status::failed)] >= 1));
}

TEST_CASE("sqlite_slot: uses the file that the path names now") {
    const auto journal = GENERATE(sqlite_journal::persist, sqlite_journal::wal);
    directory dir;
    sqlite_slot s(dir / "a.db", "k", in_mode(journal));
    const auto v = put(s, "old");
    REQUIRE(v != 0);
    REQUIRE(std::system(("rm -f " + dir / "a.db*").c_str()) == 0);
    sqlite_slot other(dir / "a.db", "k", in_mode(journal));
    const auto w = put(other, "new"); // in WAL mode, only in its log
    CHECK(w > v);
    CHECK(s.compare_exchange(v, "lost").status == cas_status::conflict);
    CHECK(s.compare_exchange(w, "newer").status == cas_status::stored);
    CHECK(value_of(other) == "newer");
    CHECK(value_of(sqlite_slot(dir / "a.db", "k", in_mode(journal))) == "newer");

    // The close of an old connection does not remove the new database's log.
    std::optional<sqlite_slot> last(std::in_place, dir / "b.db", "k", in_mode(journal));
    REQUIRE(put(*last, "old") != 0);
    REQUIRE(std::system(("rm -f " + dir / "b.db*").c_str()) == 0);
    sqlite_slot next(dir / "b.db", "k", in_mode(journal));
    REQUIRE(put(next, "new") != 0);
    last.reset();
    CHECK(exists(dir / "b.db-wal") == (journal == sqlite_journal::wal));
    CHECK(value_of(sqlite_slot(dir / "b.db", "k", in_mode(journal))) == "new");
}

// In WAL mode the last connection to close removes the log. A connection that is open without the
// lock that says so would lose its later changes.
TEST_CASE("sqlite_slot: a child's changes survive the close of its parent's connections") {
    const auto journal = GENERATE(sqlite_journal::persist, sqlite_journal::wal);
    directory dir;
    std::optional<sqlite_slot> s(std::in_place, dir / "a.db", "k", in_mode(journal));
    std::optional<sqlite_slot> t(std::in_place, dir / "a.db", "other", in_mode(journal));
    REQUIRE(put(*s, "parent's") != 0);
    REQUIRE(put(*t, "parent's") != 0);
    test::shared_with_children<std::atomic<int>> step;
    const auto reached = [&](int n) { return test::eventually([&] { return step->load() >= n; }); };
    test::children child(1, [&](int, auto) -> std::string {
        if (put(*s, "first") == 0 || value_of(*t) != "parent's") {
            return "! the child cannot use it";
        }
        *step = 1;
        if (!reached(2) || put(*s, "second") == 0) {
            return "! the child cannot go on";
        }
        *step = 3;
        return reached(4) ? "" : "! the parent is late";
    });
    REQUIRE(reached(1));
    CHECK(value_of(*s) == "first"); // the parent's connection still works
    CHECK(put(*t, "again") != 0);
    s.reset();
    t.reset();
    *step = 2;
    CHECK(reached(3));
    CHECK(value_of(sqlite_slot(dir / "a.db", "k", in_mode(journal))) == "second");
    *step = 4;
    CHECK(child.reports()[0] == "");
    CHECK(value_of(sqlite_slot(dir / "a.db", "k", in_mode(journal))) == "second");
}

TEST_CASE("sqlite_slot: operations fail in a child that was forked inside an update") {
    const auto journal = GENERATE(sqlite_journal::persist, sqlite_journal::wal);
    directory dir;
    sqlite_slot s(dir / "a.db", "k", in_mode(journal));
    REQUIRE(put(s, "old") != 0);
    int report[2];
    REQUIRE(::pipe(report) == 0);
    pid_t child = -1;
    const auto r = s.update_locked([&](const slot_snapshot&) {
        child = ::fork();
        return std::string("new");
    });
    if (child == 0) {
        ::alarm(60);
        const auto forked = std::make_error_code(std::errc::operation_not_permitted);
        bool good = r.status == cas_status::failed && r.error == forked;
        good = good && s.load().error() == forked;
        {
            sqlite_slot other(dir / "a.db", "k");
            good = good && other.compare_exchange(0, "x").error == forked;
            sqlite_slot gone = std::move(s);
        }
        static_cast<void>(!::write(report[1], good ? "y" : "n", 1));
        ::_exit(0);
    }
    REQUIRE(child > 0);
    char said = 0;
    CHECK(::read(report[0], &said, 1) == 1);
    CHECK(said == 'y');
    ::waitpid(child, nullptr, 0);
    ::close(report[0]);
    ::close(report[1]);
    CHECK(r.status == cas_status::stored);
    CHECK(value_of(s) == "new");
    CHECK(put(s, "newer") != 0);
    CHECK(value_of(sqlite_slot(dir / "a.db", "k", in_mode(journal))) == "newer");
}
