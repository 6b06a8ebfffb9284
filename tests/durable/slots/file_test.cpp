#include <bide/durable/slots/file.hpp>

#include <bide/durable/slots/detail/file/posix_file.hpp>

#include <support/slot_conformance.hpp>
#include <support/slot_results.hpp>
#include <support/temp_directory.hpp>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__linux__)
#include <sys/mount.h>
#endif

using namespace bide;
using namespace test;
using std::chrono::milliseconds;

static_assert(any_slot<file_slot>);
static_assert(test::locked_slot<file_slot>);
static_assert(!test::clocked_slot<file_slot>);
static_assert(file_slot::guarantees.keeps_acknowledged);
static_assert(!file_slot::guarantees.multi_host);
static_assert(file_slot::guarantees.clock == lock_clock::boottime);
static_assert(!std::is_copy_constructible_v<file_slot>);
static_assert(bide::detail::is_remote_filesystem(0x6969) &&
              !bide::detail::is_remote_filesystem(0xef53)); // NFS, ext4

namespace {

class directory : public test::temp_directory {
public:
    directory() : temp_directory("file", where()) {}

    std::vector<std::string> names() const {
        std::vector<std::string> all;
        for (const auto& entry : std::filesystem::directory_iterator(path())) {
            all.push_back(entry.path().filename().string());
        }
        std::sort(all.begin(), all.end());
        return all;
    }

private:
    static std::string where() {
        const char* const told = std::getenv("TMPDIR");
        return told != nullptr ? told : "/tmp";
    }
};

struct file_store {
    using slot = file_slot;
    static constexpr std::size_t limit = 150'000;
    static constexpr bool processes = true;
    static constexpr int scale = 8;

    slot open() { return slot(path(), {.page_size = 4096, .max_value = limit}); }
    void fresh() { ++count; }
    void erase() { ::unlink(path().c_str()); }
    std::string path() const { return in / ("slot" + std::to_string(count)); }

    directory in;
    int count = 0;
};

std::error_code error_of(int error) { return {error, std::generic_category()}; }

// Checks that all operations fail with this error, and that nothing is made or changed.
bool is_refused(const std::string& path, std::error_code why, file_slot_options options = {}) {
    file_slot slot(path, options);
    const auto there = slot.load();
    const cas_result r = slot.compare_exchange(0, "x");
    const cas_result u = slot.update_locked([](const slot_snapshot&) { return std::string("x"); });
    return !there && there.error() == why && r.status == cas_status::failed && r.error == why &&
           u.status == cas_status::failed && u.error == why;
}

mode_t mode_of(const std::string& path) {
    struct stat facts;
    return ::lstat(path.c_str(), &facts) == 0 ? facts.st_mode & 07777 : 0;
}

void write_file(const std::string& path, const std::string& bytes) {
    std::FILE* const file = std::fopen(path.c_str(), "wb");
    if (file == nullptr || std::fwrite(bytes.data(), 1, bytes.size(), file) != bytes.size()) {
        test::give_up(test::where(), "cannot write");
    }
    std::fclose(file);
}

} // namespace

TEST_CASE("file_slot: keeps the contract of slots",
          "[promise.slot-contract][promise.file-slot-presence]") {
    file_store store;
    test::check_slot(store);
}

TEST_CASE("file_slot: makes no file before its first use, and the value's file only to store") {
    directory in;
    file_slot slot(in / "a");
    REQUIRE(in.names().empty());
    REQUIRE(slot.load()->version == 0);
    REQUIRE(in.names() == std::vector<std::string>{"a.lock"});
    REQUIRE(put(slot, "x") != 0);
    REQUIRE(in.names() == std::vector<std::string>{"a", "a.lock"});
    REQUIRE(mode_of(in / "a") == 0600);
    REQUIRE(mode_of(in / "a.lock") == 0600);
}

TEST_CASE("file_slot: a relative path is resolved once, when the slot is made") {
    directory in;
    const int before = ::open(".", O_RDONLY | O_CLOEXEC);
    REQUIRE(::chdir(in.path().c_str()) == 0);
    file_slot slot("here");
    REQUIRE(::fchdir(before) == 0);
    ::close(before);
    REQUIRE(put(slot, "x") != 0);
    REQUIRE(in.names() == std::vector<std::string>{"here", "here.lock"});
}

TEST_CASE("file_slot: a file that grows keeps its mode, and other slots see the new file") {
    directory in;
    file_slot_options options;
    options.page_size = 1; // 4096
    options.mode = 0640;
    const mode_t mask = ::umask(022);
    file_slot one(in / "a", options);
    file_slot two(in / "a");
    REQUIRE(put(one, "small") != 0);
    ::umask(mask);
    struct stat facts;
    REQUIRE(::stat((in / "a").c_str(), &facts) == 0);
    REQUIRE(facts.st_size == 8192);
    REQUIRE(value_of(two) == "small");
    write_file(in / "a.new", "left by a crash");
    const std::string large(30'000, 'x');
    REQUIRE(put(two, large) != 0);
    REQUIRE(mode_of(in / "a") == 0640);
    REQUIRE(in.names() == std::vector<std::string>{"a", "a.lock"});
    REQUIRE(value_of(one) == large);
    REQUIRE(put(one, "small again") != 0);
    REQUIRE(value_of(two) == "small again");
}

TEST_CASE("file_slot: a path that names no file is refused, and so is a file of another program") {
    directory in;
    REQUIRE(is_refused("", durable_errc::invalid_argument));
    REQUIRE(is_refused(in / "", durable_errc::invalid_argument));
    REQUIRE(is_refused(in / std::string("a\0b", 3), durable_errc::invalid_argument));
    REQUIRE(in.names().empty());
    write_file(in / "text", std::string(32'768, 'x'));
    REQUIRE(is_refused(in / "text", durable_errc::corrupt_record));
}

TEST_CASE("file_slot: a file with two names is refused under both") {
    directory in;
    file_slot slot(in / "a");
    REQUIRE(put(slot, "x") != 0);
    REQUIRE(::link((in / "a").c_str(), (in / "hard").c_str()) == 0);
    REQUIRE(is_refused(in / "hard", error_of(EMLINK)));
    REQUIRE(is_refused(in / "a", error_of(EMLINK)));
    REQUIRE(slot.load().error() == error_of(EMLINK));
    REQUIRE(::unlink((in / "hard").c_str()) == 0);
    REQUIRE(value_of(slot) == "x");
}

TEST_CASE("file_slot: read permission is enough to load") {
    directory in;
    file_slot slot(in / "a", {.mode = 0644});
    REQUIRE(put(slot, "x") != 0);
    REQUIRE(put(slot, "there") != 0);
    file_slot other(in / "b");
    REQUIRE(put(other, "secret") != 0);
    const auto said = test::as_nobody([&] {
        file_slot mine(in / "a");
        const auto there = mine.load();
        std::string told = there ? there->value : there.error().message();
        const cas_result r = mine.compare_exchange(there ? there->version : 0, "mine");
        told += r.status == cas_status::failed && r.error == error_of(EACCES) ? ", denied" : ", ?";
        told += value_of(mine) == "there" ? ", still there" : ", lost";
        told += is_refused(in / "b", error_of(EACCES)) ? ", denied" : ", ?";
        told += is_refused(in / "c", error_of(EACCES)) ? ", denied" : ", ?";
        return told;
    });
    if (!said) {
        return;
    }
    REQUIRE(*said == "there, denied, still there, denied, denied");
    REQUIRE(value_of(slot) == "there");
}

#if defined(__linux__)

namespace {

// A small filesystem, if the test may mount one.
class small_filesystem {
public:
    explicit small_filesystem(const char* options) {
        is_there_ = ::mount("bide-test", in_.path().c_str(), "tmpfs", 0, options) == 0;
        if (!is_there_) {
            std::fprintf(stderr, "skipped: no filesystem can be mounted here\n");
        }
    }
    small_filesystem(const small_filesystem&) = delete;
    small_filesystem& operator=(const small_filesystem&) = delete;
    ~small_filesystem() {
        if (is_there_) {
            ::umount2(in_.path().c_str(), MNT_DETACH);
        }
    }
    explicit operator bool() const { return is_there_; }
    std::string operator/(const std::string& name) const { return in_ / name; }

    void fill() const {
        const int fd = ::open((in_ / "full").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        const std::string some(4096, 'x');
        while (::write(fd, some.data(), some.size()) > 0) {
        }
        ::close(fd);
    }
    bool make_read_only() const {
        return ::mount("bide-test", in_.path().c_str(), "tmpfs", MS_REMOUNT | MS_RDONLY, "") == 0;
    }

private:
    directory in_;
    bool is_there_ = false;
};

} // namespace

TEST_CASE("file_slot: works on a full disk, and reports ENOSPC where it needs space",
          "[promise.file-slot-crash]") {
    small_filesystem on("size=128k");
    if (!on) {
        return;
    }
    file_slot slot(on / "a");
    REQUIRE(put(slot, "first") != 0);
    on.fill();
    for (int i = 0; i < 20; ++i) {
        REQUIRE(put(slot, std::string(16'000, static_cast<char>('a' + i))) != 0);
    }
    file_slot again(on / "a");
    REQUIRE(value_of(again) == std::string(16'000, 't'));
    REQUIRE(test::fails(again.compare_exchange(again.load()->version, std::string(20'000, 'x')),
                        std::errc::no_space_on_device));
    REQUIRE(::access((on / "a.new").c_str(), F_OK) != 0);
    REQUIRE(value_of(slot) == std::string(16'000, 't'));
    REQUIRE(put(again, "on") != 0);

    file_slot another(on / "b");
    REQUIRE(test::fails(another.compare_exchange(0, "x"), std::errc::no_space_on_device));
    const auto none = another.load();
    REQUIRE((none ? none->version == 0 : none.error() == std::errc::no_space_on_device));
    REQUIRE(::access((on / "b").c_str(), F_OK) != 0);
    REQUIRE(::unlink((on / "full").c_str()) == 0);
    REQUIRE(put(another, "x") != 0);
}

TEST_CASE("file_slot: loads from a filesystem that became read-only") {
    small_filesystem on("size=256k");
    if (!on) {
        return;
    }
    slot_version last = 0;
    {
        file_slot slot(on / "a");
        REQUIRE(put(slot, "first") != 0);
        last = put(slot, "there");
    }
    if (!on.make_read_only()) {
        std::fprintf(stderr, "skipped: it cannot be made read-only\n");
        return;
    }
    file_slot slot(on / "a");
    REQUIRE(value_of(slot) == "there");
    REQUIRE(test::fails(slot.compare_exchange(last, "x"), std::errc::read_only_file_system));
    REQUIRE(value_of(slot) == "there");
    REQUIRE(is_refused(on / "b", error_of(EROFS)));
}

#endif

TEST_CASE("file_slot: a use inside the slot's own update fails, and the update keeps the lock") {
    directory in;
    file_slot slot(in / "a");
    REQUIRE(put(slot, "x") != 0);
    file_slot other(in / "a", {.retry_time = milliseconds(1)});
    std::error_code loaded;
    cas_result exchanged;
    cas_result by_other;
    const cas_result r = slot.update_locked([&](const slot_snapshot& there) {
        if (const auto again = slot.load(); !again) {
            loaded = again.error();
        }
        exchanged = slot.compare_exchange(there.version, "inside");
        by_other = other.compare_exchange(there.version, "other");
        return std::string("y");
    });
    REQUIRE(r.status == cas_status::stored);
    REQUIRE(loaded == std::errc::resource_deadlock_would_occur);
    REQUIRE(test::fails(exchanged, std::errc::resource_deadlock_would_occur));
    REQUIRE(by_other.error == std::errc::timed_out);
    REQUIRE(value_of(slot) == "y");
}

TEST_CASE(
    "file_slot: a wait for a stopped holder times out; a load of a synced value needs no lock") {
    directory in;
    file_slot_options hasty{.retry_time = milliseconds(30)};
    file_slot slot(in / "a", hasty);
    REQUIRE(put(slot, "x") != 0);
    int ready[2];
    REQUIRE(::pipe(ready) == 0);
    const pid_t holder = ::fork();
    if (holder == 0) {
        ::alarm(60);
        const int fd = ::open((in / "a.lock").c_str(), O_RDWR);
        const bool is_held = fd >= 0 && ::flock(fd, LOCK_EX) == 0;
        static_cast<void>(!::write(ready[1], is_held ? "y" : "n", 1));
        for (;;) {
            ::raise(SIGSTOP); // a shell that continues the test continues its children, too
        }
    }
    ::close(ready[1]);
    char is_held = 0;
    REQUIRE(::read(ready[0], &is_held, 1) == 1);
    ::close(ready[0]);
    int status = 0;
    ::waitpid(holder, &status, WUNTRACED);

    const cas_result r = slot.compare_exchange(slot.load()->version, "y");
    file_slot fresh(in / "a", hasty);
    const auto there = fresh.load();
    const std::string quiet = value_of(slot);

    ::kill(holder, SIGKILL);
    ::waitpid(holder, &status, 0);
    REQUIRE(is_held == 'y');
    REQUIRE(test::fails(r, std::errc::timed_out));
    REQUIRE(!there); // the first load takes the lock
    REQUIRE(there.error() == std::errc::timed_out);
    REQUIRE(quiet == "x");
    REQUIRE(put(slot, "z") != 0); // the lock of a dead process is free
}

TEST_CASE("file_slot: a child locks for itself, even if it was forked inside an update") {
    directory in;
    file_slot_options hasty{.retry_time = milliseconds(20)};
    file_slot slot(in / "a", hasty);
    REQUIRE(put(slot, "0") != 0);
    std::string said;
    std::string after;
    file_slot other(in / "a", hasty);
    cas_result by_other;
    const cas_result r = slot.update_locked([&](const slot_snapshot& there) {
        test::children child(1, [&](int, auto) {
            const cas_result busy = slot.compare_exchange(there.version, "child's");
            return std::string(busy.error == std::errc::timed_out ? "busy" : "free");
        });
        said = child.reports()[0];
        by_other = other.compare_exchange(
            there.version, "other's"); // the end of the child releases no lock of the parent
        return std::string("1");
    });
    REQUIRE(r.status == cas_status::stored);
    REQUIRE(said == "busy");
    REQUIRE(by_other.error == std::errc::timed_out);
    REQUIRE(value_of(slot) == "1");
}

TEST_CASE("file_slot: no process starves among processes that lock again at once") {
    directory in;
    const file_slot_options patient{.retry_time = test::patience}; // on a busy machine, too
    const auto open = [&] { return file_slot(in / "a", patient); };
    const auto increment = [](file_slot& slot) {
        return slot
            .update_locked([](const slot_snapshot& there) {
                return std::to_string(std::atol(there.value.c_str()) + 1);
            })
            .error;
    };
    test::check_nobody_starves(60, 2, 20'000, open, increment);
}

#if defined(__linux__) && defined(F_OFD_SETLK)

TEST_CASE("file_slot: a claim belongs to one open file, and does not block the lock") {
    directory in;
    write_file(in / "a", "");
    using bide::detail::byte_lock;
    bide::detail::posix_io io;
    const auto is_claimed = [&](int file) { return io.claim(file, byte_lock::ask) == 1; };
    int files[2];
    for (int& file : files) {
        file = io.open_file((in / "a").c_str(), O_RDWR);
        REQUIRE(file >= 0);
    }
    REQUIRE(!is_claimed(files[1]));
    REQUIRE(io.claim(files[0], byte_lock::set) == 0);
    REQUIRE(io.claim(files[1], byte_lock::set) == -1);
    REQUIRE(!is_claimed(files[0])); // by another open file
    REQUIRE(is_claimed(files[1]));
    REQUIRE(io.try_lock(files[1], true) == 0);
    REQUIRE(io.claim(files[0], byte_lock::remove) == 0);
    REQUIRE(!is_claimed(files[1]));
    REQUIRE(io.claim(files[1], byte_lock::set) == 0);
    io.close_file(files[1]);
    REQUIRE(!is_claimed(files[0]));
    io.close_file(files[0]);
}

#endif

#if defined(__linux__)

TEST_CASE("file_slot: a descriptor that other code closed and reused is left alone") {
    const test::temp_directory dir("closed-by-others");
    const std::string path = dir / "slot";
    const std::string theirs = dir / "theirs";
    for (const bool is_destroyed : {false, true}) {
        auto slot = std::make_unique<file_slot>(path);
        const auto seen = test::loaded(*slot);
        REQUIRE(slot->compare_exchange(seen->version, "mine").status == cas_status::stored);
        REQUIRE(test::loaded(*slot)->value == "mine"); // keeps the file open
        std::vector<int> ours;
        for (int fd = 3; fd < 256; ++fd) {
            std::error_code none;
            const auto link =
                std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(fd), none);
            if (!none && link.string().rfind(path, 0) == 0) {
                ours.push_back(fd);
            }
        }
        REQUIRE(ours.size() >= 2);
        const int other = ::open(theirs.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        REQUIRE(::write(other, "theirs", 6) == 6);
        for (const int fd : ours) { // as closefrom() and open() do
            REQUIRE(::dup2(other, fd) == fd);
        }
        if (!is_destroyed) {
            const auto again = test::loaded(*slot);
            REQUIRE(again->value == "mine");
            REQUIRE(slot->compare_exchange(again->version, "more").status == cas_status::stored);
        }
        slot.reset();
        for (const int fd : ours) {
            char text[8] = {};
            REQUIRE(::pread(fd, text, sizeof text, 0) == 6);
            REQUIRE(std::string(text) == "theirs");
            ::close(fd);
        }
        ::close(other);
    }
    REQUIRE(file_slot(path).load()->value == "mine");
}

#endif
