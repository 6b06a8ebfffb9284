#include <bide/durable/slots/file.hpp>

#include <bide/durable/locks.hpp>

// The file slot and other programs: files of other kinds in place of its files; files that are
// removed, moved, damaged or restored; and what the errors say.
#include <support/slot_conformance.hpp>
#include <support/slot_results.hpp>
#include <support/temp_directory.hpp>
#include <support/unhurried.hpp>

#include <fcntl.h>
#include <sched.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__linux__)
#include <sys/mount.h>
#include <sys/sysmacros.h>
#endif

using namespace bide;
using test::bytes_of;
using test::put;

static_assert(test::repairable_slot<file_slot>);
static_assert(test::explaining_slot<file_slot>);

namespace {

test::temp_directory fresh_directory() { return test::temp_directory("hands"); }

bool exists(const std::string& path) {
    struct stat facts;
    return ::lstat(path.c_str(), &facts) == 0;
}

// Returns explain() if every operation fails with this error; otherwise "".
std::string words_of(const std::string& path, int error) {
    const std::error_code expected(error, std::generic_category());
    file_slot slot(path);
    const auto loaded = slot.load();
    const cas_result stored = slot.compare_exchange(0, "x");
    const cas_result repaired = slot.replace_damaged("x");
#if defined(__linux__)
    const auto mark = slot.be_present(); // asks for the lock file alone
    if (mark ? ::access((path + ".lock").c_str(), F_OK) != 0 : mark.error() != expected) {
        return {};
    }
#endif
    const bool agree = !loaded && loaded.error() == expected && stored.error == expected &&
                       stored.status == cas_status::failed && repaired.error == expected &&
                       repaired.status == cas_status::failed;
    return agree ? slot.explain() : std::string();
}

bool begins(const std::string& text, const std::string& with) { return text.rfind(with, 0) == 0; }

bool make_socket(const std::string& path) {
    sockaddr_un name{};
    name.sun_family = AF_UNIX;
    if (path.size() >= sizeof name.sun_path) {
        return false;
    }
    std::copy(path.begin(), path.end(), name.sun_path);
    const int file = ::socket(AF_UNIX, SOCK_STREAM, 0);
    const bool is_bound =
        file >= 0 && ::bind(file, reinterpret_cast<const sockaddr*>(&name), sizeof name) == 0;
    ::close(file);
    return is_bound;
}

std::optional<std::string> add_one(const slot_snapshot& there) {
    return std::to_string(std::strtol(there.value.c_str(), nullptr, 10) + 1);
}

} // namespace

TEST_CASE("file_slot: a file that is not regular is refused at once, and the error names its kind",
          "[promise.file-slot-lock-files]") {
    const auto in = fresh_directory();
    ::alarm(60); // opening a pipe may block forever
    for (const std::string beside : {"", ".lock"}) {
        CAPTURE(beside);
        const std::string path = in / ("a" + beside.substr(0, 2));
        const std::string file = path + beside;
        REQUIRE(::mkfifo(file.c_str(), 0600) == 0);
        CHECK(words_of(path, EINVAL) == file + ": is a pipe (FIFO), and not a regular file");
        REQUIRE(::unlink(file.c_str()) == 0);
        REQUIRE(make_socket(file));
        CHECK(words_of(path, EINVAL) == file + ": is a socket, and not a regular file");
        REQUIRE(::unlink(file.c_str()) == 0);
        REQUIRE(::mkdir(file.c_str(), 0700) == 0);
        CHECK(words_of(path, EISDIR) == file + ": is a directory, and not a regular file");
        REQUIRE(::rmdir(file.c_str()) == 0);
        REQUIRE(::symlink("elsewhere", file.c_str()) == 0);
        CHECK(begins(words_of(path, ELOOP), file + ": is a symbolic link"));
        REQUIRE(::unlink(file.c_str()) == 0);
        in.write("twice", "");
        REQUIRE(::link((in / "twice").c_str(), file.c_str()) == 0);
        CHECK(begins(words_of(path, EMLINK), file + ": has a second name (hard link): two locks"));
        REQUIRE(::unlink(file.c_str()) == 0);
#if defined(__linux__)
        if (::mknod(file.c_str(), S_IFCHR | 0600, makedev(1, 3)) != 0) {
            WARN("skipped: the test may not make a device");
            continue;
        }
        CHECK(words_of(path, EINVAL) == file + ": is a device, and not a regular file");
        REQUIRE(::unlink(file.c_str()) == 0);
#endif
    }
    ::alarm(0);
}

TEST_CASE(
    "file_slot: a path without a directory is refused at once, and the error names the part") {
    const auto in = fresh_directory();
    CHECK(words_of(in / "missing/a", ENOENT) == in / "missing/: there is no such directory");
    in.write("file", "x");
    CHECK(words_of(in / "file/a", ENOTDIR) ==
          in / "file/a.lock: a part of the path is not a directory");
    CHECK(begins(words_of(in / std::string(300, 'a'), ENAMETOOLONG), in / "aaa"));
    file_slot none("");
    CHECK(none.load().error() == durable_errc::invalid_argument);
    CHECK(none.replace_damaged("x").error == durable_errc::invalid_argument);
    CHECK(none.explain() == ": the path cannot name a file");
    file_slot quiet(in / "quiet");
    CHECK(quiet.explain() == in / "quiet");
}

TEST_CASE("file_slot: a file without permission is refused at once, and the error names it") {
    const auto in = fresh_directory();
    file_slot one(in / "a");
    file_slot two(in / "b");
    REQUIRE((put(one, "x") != 0 && put(two, "x") != 0));
    REQUIRE(::chmod((in / "a").c_str(), 0000) == 0);
    REQUIRE(::chmod((in / "a.lock").c_str(), 0666) == 0);
    const auto said = test::as_nobody(
        [&] { return words_of(in / "a", EACCES) + "\n" + words_of(in / "b", EACCES) + "\n"; });
    if (!said) {
        return;
    }
    INFO(*said);
    CHECK(begins(*said, in / "a: no permission to open or make it"));
    CHECK(said->find("\n" + (in / "b.lock: no permission")) != std::string::npos);
}

TEST_CASE("file_slot: in a directory that cannot be synced nothing is stored") {
    const auto in = fresh_directory();
    REQUIRE(::chmod((in / "").c_str(), 0733) == 0); // files can be made; it cannot be opened
    const auto said = test::as_nobody([&] {
        file_slot slot(in / "a");
        const cas_result r = slot.compare_exchange(0, "x");
        const auto there = slot.load();
        return std::string(r.status == cas_status::failed ? "failed" : "?") +
               (r.error.value() == EACCES ? ", denied" : ", ?") +
               (there && there->version == 0 ? ", absent" : ", ?");
    });
    REQUIRE(::chmod((in / "").c_str(), 0755) == 0);
    CHECK(said.value_or("failed, denied, absent") == "failed, denied, absent");
    CHECK(::access((in / "a").c_str(), F_OK) != 0);
    CHECK(::access((in / "a.new").c_str(), F_OK) != 0);
}

TEST_CASE("file_slot: a change that lacks a descriptor changes nothing") {
    const auto in = fresh_directory();
    file_slot slot(in / "a");
    REQUIRE(slot.load()); // opens the lock file
    const int next = ::dup(0);
    REQUIRE(next >= 0);
    ::close(next);
    rlimit before{};
    REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
    for (unsigned room = 0; room < 2; ++room) { // the directory and the new file need two
        rlimit few = before;
        few.rlim_cur = static_cast<rlim_t>(next) + room;
        REQUIRE(::setrlimit(RLIMIT_NOFILE, &few) == 0);
        const cas_result r = slot.compare_exchange(0, "x");
        REQUIRE(::setrlimit(RLIMIT_NOFILE, &before) == 0);
        CAPTURE(room);
        CHECK(r.status == cas_status::failed);
        CHECK(r.error.value() == EMFILE);
        CHECK(slot.load()->version == 0);
    }
    CHECK(put(slot, "x") != 0);
}

TEST_CASE("file_slot: a file that no slot wrote is refused at once, kept, and named in the error") {
    const auto in = fresh_directory();
    const std::string path = in.write("a", "my diary\n");
    file_slot slot(path);
    CHECK(slot.load().error() == durable_errc::corrupt_record);
    CHECK(slot.compare_exchange(0, "x").error == durable_errc::corrupt_record);
    CHECK(begins(slot.explain(), path + ": is not a slot's file, or both copies"));
    CHECK(bytes_of(path) == "my diary\n");

    file_slot tight(in / "b", {.max_value = 10});
    CHECK(tight.compare_exchange(0, "eleven bytes").error == durable_errc::too_large);
    CHECK(tight.explain() == in / "b: the record is larger than the store accepts");
}

TEST_CASE("file_slot: a timed-out wait for the lock says that another process holds it") {
    const auto in = fresh_directory();
    file_slot slot(in / "a", {.retry_time = std::chrono::milliseconds(0)});
    REQUIRE(slot.load().has_value());
    const int lock = ::open((in / "a.lock").c_str(), O_RDWR | O_CLOEXEC);
    REQUIRE(::flock(lock, LOCK_EX) == 0);
    CHECK(slot.compare_exchange(0, "x").error == std::errc::timed_out);
    CHECK(begins(slot.explain(), in / "a.lock: another process has held its lock"));
    ::close(lock);
    CHECK(put(slot, "x") != 0);
}

#if defined(__linux__)

TEST_CASE("file_slot: a file that is mounted alone is refused at once, and the error says so") {
    const auto in = fresh_directory();
    const auto out = fresh_directory();
    if (::mount("bide-test", out.path().c_str(), "tmpfs", 0, "size=64k") != 0) {
        WARN("skipped: the test may not mount a filesystem");
        return;
    }
    out.write("a", "");
    in.write("a", "");
    const bool is_bound =
        ::mount((out / "a").c_str(), (in / "a").c_str(), nullptr, MS_BIND, nullptr) == 0;
    const std::string said = is_bound ? words_of(in / "a", EXDEV) : "";
    ::umount2((in / "a").c_str(), MNT_DETACH);
    ::umount2(out.path().c_str(), MNT_DETACH);
    REQUIRE(is_bound);
    CHECK(begins(said, in / "a: is mounted here from another place"));
}

#endif

TEST_CASE("file_slot: a repair keeps each kind of damaged file, with its mode",
          "[promise.file-slot-damage]") {
    const auto in = fresh_directory();
    const std::string path = in / "a";
    file_slot_options wide{.mode = 0640};
    slot_version last = 0;
    {
        file_slot slot(path, wide);
        REQUIRE(put(slot, "one") != 0);
        last = put(slot, "two");
    }
    struct stat before;
    REQUIRE(::stat(path.c_str(), &before) == 0);
    for (const std::string form : {"", "my diary\n"}) {
        CAPTURE(form.size());
        std::ofstream(path, std::ios::binary | std::ios::trunc) << form;
        file_slot slot(path);
        struct stat damaged;
        REQUIRE(::stat(path.c_str(), &damaged) == 0);
        REQUIRE(slot.load().error() == durable_errc::corrupt_record);
        const cas_result r = slot.replace_damaged("repaired");
        REQUIRE(r.status == cas_status::stored);
        REQUIRE(r.version > last);
        struct stat kept;
        REQUIRE(::stat((path + ".damaged").c_str(), &kept) == 0);
        CHECK(kept.st_ino == damaged.st_ino); // the same file, and not a copy
        last = r.version;
        CHECK(bytes_of(path + ".damaged") == form); // and replaced the one kept before
        CHECK(!exists(path + ".new"));
        struct stat facts;
        REQUIRE(::stat(path.c_str(), &facts) == 0);
        CHECK(facts.st_mode == before.st_mode);
        CHECK(file_slot(path).load()->value == "repaired");
        CHECK(slot.replace_damaged("again").status == cas_status::conflict);
        CHECK(slot.load()->value == "repaired");
        REQUIRE((last = put(slot, "on")) > r.version);
    }
    REQUIRE(::unlink(path.c_str()) == 0);
    file_slot slot(path);
    const cas_result absent = slot.replace_damaged("no");
    CHECK(absent.status == cas_status::conflict);
    CHECK(absent.current->version == 0);
    CHECK(!exists(path));
}

TEST_CASE("file_slot: of many concurrent repairs one succeeds, and all slots go on") {
    const auto in = fresh_directory();
    const std::string path = in.write("a", "damaged");
    test::check_one_repairs(8, [&] { return file_slot(path); });
    CHECK(bytes_of(path + ".damaged") == "damaged");
}

TEST_CASE("file_slot: removing the lock file at any moment loses no change",
          "[promise.file-slot-lock-files]") {
    const auto in = fresh_directory();
    const std::string path = in / "a";
    {
        file_slot slot(path);
        REQUIRE(put(slot, "0") != 0);
    }
    test::shared_with_children<std::atomic<int>> running;
    constexpr int n = 6;
    test::children crowd(n, [&](int, auto gate) {
        ++*running;
        gate();
        // A removed lock file has no order of waiters, so one may lose many times on a busy machine.
        file_slot slot(path, {.retry_time = std::chrono::minutes(10)});
        std::string said;
        for (int i = 0; i < 200; ++i) {
            const cas_result r = slot.update_locked(add_one);
            if (r.status != cas_status::stored) {
                said += "! " + r.error.message();
            }
        }
        --*running;
        return said;
    });
    crowd.go();
    long removed = 0;
    while (running->load() > 0) {
        removed += ::unlink((path + ".lock").c_str()) == 0;
        ::sched_yield();
    }
    for (const std::string& report : crowd.reports()) {
        CHECK(report == "");
    }
    CAPTURE(removed);
    CHECK(removed > 0);
    CHECK(file_slot(path).load()->value == std::to_string(n * 200));
}

TEST_CASE("file_slot: a slot whose lock file was removed reads the latest value") {
    const test::temp_directory in = fresh_directory();
    const std::string path = in / "lock";
    file_slot reader(path);
    REQUIRE(put(reader, "a"));
    for (int i = 0; i < 2; ++i) { // from the second load() on without the lock
        REQUIRE(reader.load()->value == "a");
    }
    REQUIRE(::unlink((path + ".lock").c_str()) == 0);
    file_slot writer(path);
    REQUIRE(put(writer, "b"));
    REQUIRE(reader.load()->value == "b");
}

TEST_CASE("file_slot: a moved directory is missing, and a new one in its place is empty",
          "[promise.file-slot-lock-files]") {
    const auto in = fresh_directory();
    REQUIRE(::mkdir((in / "d").c_str(), 0700) == 0);
    file_slot slot(in / "d/a");
    file_slot reader(in / "d/a");
    const slot_version first = put(slot, "x");
    REQUIRE(reader.load()->version == first);
    REQUIRE(::rename((in / "d").c_str(), (in / "moved").c_str()) == 0);
    for (file_slot* const each : {&slot, &reader}) {
        const auto there = each->load();
        REQUIRE(!there); // not an absent record
        CHECK(there.error() == std::errc::no_such_file_or_directory);
        CHECK(each->compare_exchange(first, "y").error == there.error());
        CHECK(each->explain() == in / "d/: there is no such directory");
    }
    CHECK(file_slot(in / "moved/a").load()->value == "x");
    REQUIRE(::mkdir((in / "d").c_str(), 0700) == 0);
    CHECK(reader.load()->version == 0);
    const slot_version next = put(slot, "new");
    CHECK(next > first);
    CHECK(reader.load()->value == "new");
    CHECK(file_slot(in / "moved/a").load()->value == "x");

    // After the directory is moved back, its files count again.
    REQUIRE(::rename((in / "d").c_str(), (in / "second").c_str()) == 0);
    REQUIRE(::rename((in / "moved").c_str(), (in / "d").c_str()) == 0);
    for (file_slot* const each : {&slot, &reader}) {
        CHECK(each->load()->value == "x");
    }
    CHECK(put(slot, "y") > next);
    CHECK(reader.load()->value == "y");
}

TEST_CASE(
    "file_slot: a lock whose newest page is damaged is held for a lease, also if the lock file "
    "was emptied or removed",
    "[promise.file-slot-damage]") {
    using namespace std::chrono_literals;
    const bool is_removed = GENERATE(false, true);
    const auto in = fresh_directory();
    const std::string path = in / "a";
    const durable_options of_lock = test::unhurried({.lease = 1h});
    const pid_t holder = ::fork();
    if (holder == 0) {
        ::alarm(60);
        durable_mutex m(file_slot(path), of_lock);
        for (int i = 0; i < 2; ++i) {
            const auto before = m.try_acquire();
        }
        const auto guard = m.try_acquire();
        ::_exit(guard ? 0 : 1); // without a release
    }
    int status = 0;
    ::waitpid(holder, &status, 0);
    REQUIRE((WIFEXITED(status) && WEXITSTATUS(status) == 0));
    if (is_removed) {
        REQUIRE(::unlink((path + ".lock").c_str()) == 0);
    } else {
        REQUIRE(::truncate((path + ".lock").c_str(), 0) == 0);
    }
    std::string bytes = bytes_of(path);
    const std::size_t half = bytes.size() / 2;
    const auto version_at = [&](std::size_t page) { // little-endian
        return std::string(bytes.rend() - static_cast<std::ptrdiff_t>(page + 24),
                           bytes.rend() - static_cast<std::ptrdiff_t>(page + 16));
    };
    bytes[(version_at(0) > version_at(half) ? 0 : half) + 40] ^= 1;
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
    for (int i = 0; i < 2; ++i) {
        durable_mutex m(file_slot(path), of_lock);
        const auto guard = m.try_acquire();
        CHECK_FALSE(guard); // the record does not name the holder, so its death is not detected
    }
}
