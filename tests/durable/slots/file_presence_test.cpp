#include <bide/durable/slots/file.hpp>

#include <support/test.hpp>

// Presences: marks in the lock file that show other processes that this one runs.
#if defined(__linux__)

#include <bide/durable/slots/detail/file/presence_file.hpp>
#include <support/children.hpp>
#include <support/temp_directory.hpp>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

using bide::file_slot;
using bide::file_slot_options;
using bide::presence;
using bide::relaxed_file_slot;
using mark_owner = std::shared_ptr<bide::slot_presence>;

static_assert(bide::present_slot<file_slot> && bide::present_slot<relaxed_file_slot>);

namespace {

// The mark as text, for a report.
std::string text_of(const bide::result<mark_owner, std::error_code>& mark) {
    return mark ? std::to_string((*mark)->mark()) : "! " + mark.error().message();
}

const char* text_of(presence is) {
    return is == presence::yes ? "yes" : is == presence::no ? "no" : "unknown";
}

void send_line(int to, const std::string& text) {
    const std::string line = text + "\n";
    static_cast<void>(!::write(to, line.data(), line.size()));
}

std::string read_line(int from) {
    std::string line;
    for (char c = 0; ::read(from, &c, 1) == 1 && c != '\n';) {
        line += c;
    }
    return line;
}

// A child with two pipes. It writes a line when it is ready. It ends when told to, or when killed.
class other_process {
public:
    explicit other_process(const std::function<std::string()>& begin) {
        int said[2];
        int told[2];
        if (::pipe2(said, O_CLOEXEC) != 0 || ::pipe2(told, O_CLOEXEC) != 0) {
            std::abort();
        }
        id_ = ::fork();
        if (id_ == 0) {
            ::alarm(test::children::longest_life);
            ::close(said[0]);
            ::close(told[1]);
            send_line(said[1], begin());
            char none = 0;
            static_cast<void>(!::read(told[0], &none, 1));
            ::_exit(0);
        }
        ::close(said[1]);
        ::close(told[0]);
        told_ = told[1];
        line_ = read_line(said[0]);
        ::close(said[0]);
    }
    other_process(const other_process&) = delete;
    other_process& operator=(const other_process&) = delete;
    ~other_process() { kill(); }

    const std::string& line() const { return line_; }
    std::int64_t mark() const { return std::strtoll(line_.c_str(), nullptr, 10); }
    void kill() {
        if (id_ > 0) {
            ::kill(id_, SIGKILL);
            ::waitpid(id_, nullptr, 0);
            ::close(told_);
            id_ = -1;
        }
    }

private:
    pid_t id_ = -1;
    int told_ = -1;
    std::string line_;
};

// What a program in a container would find: namespaces of its own, and another boot's number.
// Empty: the mark is present.
std::string enter_container(const std::string& boot_id) {
    if (::unshare(CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWUTS | CLONE_NEWIPC) != 0) {
        return "no namespaces can be made here";
    }
#if defined(CLONE_NEWTIME)
    if (::unshare(CLONE_NEWTIME) != 0) {
        return "no namespace of times can be made here";
    }
#endif
    if (::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount(boot_id.c_str(), "/proc/sys/kernel/random/boot_id", nullptr, MS_BIND, nullptr) !=
            0) {
        return "nothing can be mounted here";
    }
    return {};
}

std::string first_line(const char* path) {
    char line[64] = {};
    if (std::FILE* const file = std::fopen(path, "r")) {
        if (std::fgets(line, sizeof line, file) == nullptr) {
            line[0] = 0;
        }
        std::fclose(file);
    }
    return line;
}

// Returns the line that f(pipe) sends from the first process of a container.
std::string in_container_begun(const std::string& boot_id, const std::function<void(int)>& f) {
    int said[2];
    if (::pipe2(said, O_CLOEXEC) != 0) {
        return "! no pipe";
    }
    const std::string refused = enter_container(boot_id);
    if (!refused.empty()) {
        return "skipped: " + refused;
    }
    if (::fork() == 0) {
        ::alarm(test::children::longest_life);
        ::close(said[0]);
        if (::getpid() == 1) {
            f(said[1]);
        }
        ::_exit(1);
    }
    ::close(said[1]);
    std::string line = read_line(said[0]);
    ::close(said[0]);
    return line;
}

class slot_in_directory {
public:
    std::string path() const { return in_ / "a"; }
    std::string lock() const { return in_ / "a.lock"; }
    const test::temp_directory& directory() const { return in_; }
    file_slot open() const { return file_slot(path()); }

private:
    test::temp_directory in_{"presence"};
};

bool is_readable(const bide::slot_watch& watch, int ms) {
    pollfd file{watch.fd(), POLLIN, 0};
    return ::poll(&file, 1, ms) == 1 && (file.revents & POLLIN) != 0;
}

} // namespace

TEST_CASE("presence: every process sees a mark until it is closed") {
    slot_in_directory in;
    file_slot slot = in.open();
    auto mine = slot.be_present(); // this makes the lock file
    REQUIRE(mine.has_value());
    const std::int64_t mark = (*mine)->mark();
    REQUIRE(mark >= 1);
    REQUIRE(mark <= (std::int64_t{1} << 53) - 1);
    REQUIRE(::fcntl((*mine)->fd(), F_GETFD) == FD_CLOEXEC);
    REQUIRE(slot.is_present(mark) == presence::yes);
    REQUIRE(in.open().is_present(mark) == presence::yes);
    test::children child(1, [&](int, auto) { return text_of(in.open().is_present(mark)); });
    REQUIRE(child.reports()[0] == "yes");
    mine->reset();
    REQUIRE(slot.is_present(mark) == presence::no);
}

TEST_CASE("presence: marks and the slot's own locks do not affect each other") {
    slot_in_directory in;
    file_slot slot = in.open();
    const auto mine = slot.be_present();
    REQUIRE(mine.has_value());
    REQUIRE(slot.compare_exchange(0, "x").status == bide::cas_status::stored);
    {
        file_slot other = in.open(); // opens and closes the lock file
        REQUIRE(other.load()->value == "x");
    }
    const auto r = slot.update_locked([&](const bide::slot_snapshot&) {
        return std::string(text_of(slot.is_present((*mine)->mark()))); // while the lock is held
    });
    REQUIRE(r.status == bide::cas_status::stored);
    REQUIRE(slot.load()->value == "yes");
    REQUIRE(slot.is_present((*mine)->mark()) == presence::yes);
}

TEST_CASE("presence: a killed process is not present") {
    slot_in_directory in;
    file_slot slot = in.open();
    mark_owner kept; // of the child
    other_process other([&] {
        const auto mark = slot.be_present();
        kept = mark ? *mark : nullptr;
        return text_of(mark);
    });
    REQUIRE(slot.is_present(other.mark()) == presence::yes);
    other.kill();
    REQUIRE(slot.is_present(other.mark()) == presence::no);
}

TEST_CASE("presence: a child of fork() keeps its parent's mark, and releases none",
          "[promise.file-slot-presence]") {
    slot_in_directory in;
    file_slot slot = in.open();
    auto mine = slot.be_present();
    REQUIRE(mine.has_value());
    const std::int64_t mark = (*mine)->mark();
    {
        // The child uses its copies in every allowed way, and ends.
        test::children child(1, [&](int, auto) {
            const bool is_stored = slot.compare_exchange(0, "x").status == bide::cas_status::stored;
            const auto own = slot.be_present();
            mine->reset();
            return std::string(is_stored && own && (*own)->mark() != mark
                                   ? text_of(slot.is_present(mark))
                                   : "! no mark of its own");
        });
        REQUIRE(child.reports()[0] == "yes");
    }
    REQUIRE(slot.is_present(mark) == presence::yes);
    other_process heir([] { return std::string("ready"); });
    mine->reset();
    REQUIRE(slot.is_present(mark) == presence::yes);
    heir.kill();
    REQUIRE(slot.is_present(mark) == presence::no);
}

TEST_CASE("presence: a program that inherited the descriptor keeps the mark until it ends",
          "[promise.file-slot-presence]") {
    slot_in_directory in;
    file_slot slot = in.open();
    int end[2];
    REQUIRE(::pipe2(end, O_CLOEXEC) == 0);
    // The child takes a mark, starts two programs and ends. One inherits the descriptor.
    other_process starter([&] {
        const auto mark = slot.be_present();
        if (!mark) {
            return text_of(mark);
        }
        for (const bool inherits : {true, false}) {
            if (::fork() == 0) {
                ::dup2(end[0], 0);
                ::fcntl((*mark)->fd(), F_SETFD, inherits ? 0 : FD_CLOEXEC);
                ::execlp("cat", "cat",
                         static_cast<char*>(nullptr)); // runs until the pipe is closed
                ::_exit(1);
            }
        }
        return text_of(mark);
    });
    ::close(end[0]);
    const std::int64_t mark = starter.mark();
    REQUIRE(slot.is_present(mark) == presence::yes);
    auto watch = slot.watch();
    REQUIRE(watch.has_value());
    starter.kill();
    REQUIRE(slot.is_present(mark) == presence::yes);
    ::close(end[1]);
    REQUIRE(is_readable(**watch, 60'000));
    while (slot.is_present(mark) ==
           presence::yes) { // the event comes just before the lock is dropped
        ::sched_yield();
    }
    REQUIRE(slot.is_present(mark) == presence::no);
}

TEST_CASE("presence: marks differ, and a byte that is locked is not drawn again") {
    slot_in_directory in;
    file_slot slot = in.open();
    std::vector<mark_owner> all;
    std::set<std::int64_t> names;
    // Locks a little more than half of all bytes.
    const int others = ::open(in.lock().c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    struct flock half{};
    half.l_type = F_WRLCK;
    half.l_whence = SEEK_SET;
    half.l_start = static_cast<off_t>(bide::detail::presence_bytes::first);
    half.l_len = 1 << 23;
    REQUIRE(::fcntl(others, F_OFD_SETLK, &half) == 0);
    for (int i = 0; i < 300; ++i) {
        const auto mark = slot.be_present();
        REQUIRE(mark.has_value());
        REQUIRE(((*mark)->mark() & bide::detail::presence_bytes::byte_mask) >= 1 << 23);
        all.push_back(*mark);
        names.insert((*mark)->mark());
    }
    REQUIRE(names.size() == all.size());
    for (std::size_t i = 0; i < all.size(); i += 2) {
        const std::int64_t mark = all[i]->mark();
        all[i].reset();
        REQUIRE(slot.is_present(mark) == presence::no);
    }
    for (std::size_t i = 1; i < all.size(); i += 2) {
        REQUIRE(slot.is_present(all[i]->mark()) == presence::yes);
    }
    // If all bytes are locked, the search ends with an error.
    half.l_len = 1 << 25;
    all.clear();
    REQUIRE(::fcntl(others, F_OFD_SETLK, &half) == 0);
    REQUIRE(slot.be_present().error() == std::errc::resource_unavailable_try_again);
    ::close(others);
    REQUIRE(slot.be_present().has_value());
}

TEST_CASE("presence: after the lock file was made again an old mark is unknown",
          "[promise.file-slot-presence]") {
    slot_in_directory in;
    file_slot slot = in.open();
    const auto mine = slot.be_present();
    REQUIRE(mine.has_value());
    const std::int64_t mark = (*mine)->mark();
    for (int i = 0; i < 200; ++i) { // a filesystem may reuse the inode number
        REQUIRE(::unlink(in.lock().c_str()) == 0);
        REQUIRE(slot.is_present(mark) == presence::unknown); // it is not there
        REQUIRE(in.open().load().has_value());               // makes a new lock file
        REQUIRE(slot.is_present(mark) == presence::unknown);
    }
    const auto next = slot.be_present();
    REQUIRE(next.has_value());
    REQUIRE((*next)->mark() >> bide::detail::presence_bytes::byte_bits !=
            mark >> bide::detail::presence_bytes::byte_bits);
    REQUIRE(slot.is_present((*next)->mark()) == presence::yes);

    // A file that is moved away and back is still the mark's file.
    const std::int64_t now = (*next)->mark();
    REQUIRE(::rename(in.lock().c_str(), (in.directory() / "away").c_str()) == 0);
    REQUIRE(slot.is_present(now) == presence::unknown);
    REQUIRE(::rename((in.directory() / "away").c_str(), in.lock().c_str()) == 0);
    REQUIRE(slot.is_present(now) == presence::yes);
}

TEST_CASE("presence: a new file with the old inode number does not answer for the old mark") {
    slot_in_directory in;
    file_slot slot = in.open();
    for (int i = 0; i < 200; ++i) { // no descriptor keeps the inode, so its number may be reused
        const auto mine = slot.be_present();
        REQUIRE(mine.has_value());
        const std::int64_t mark = (*mine)->mark();
        const_cast<mark_owner&>(*mine).reset();
        REQUIRE(slot.is_present(mark) == presence::no);
        REQUIRE(::unlink(in.lock().c_str()) == 0);
        const int made = ::open(in.lock().c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        REQUIRE(made >= 0);
        ::close(made);
        REQUIRE(slot.is_present(mark) == presence::unknown);
    }
}

TEST_CASE(
    "presence: an invalid mark is unknown, and so is every mark on an unreliable filesystem") {
    slot_in_directory in;
    file_slot slot = in.open();
    const auto mine = slot.be_present();
    REQUIRE(mine.has_value());
    const std::int64_t mark = (*mine)->mark();
    for (const std::int64_t none :
         {std::int64_t{0}, std::int64_t{-1}, mark | std::int64_t{1} << 53, INT64_MAX, INT64_MIN,
          mark & ~bide::detail::presence_bytes::byte_mask}) {
        REQUIRE(slot.is_present(none) == presence::unknown);
    }
    REQUIRE(slot.is_present(mark ^ std::int64_t{1} << 24) ==
            presence::unknown); // a mark of another file
    REQUIRE(slot.is_present(mark ^ std::int64_t{1}) == presence::no);

    file_slot_options any{.any_filesystem = true};
    file_slot unsure(in.path(), any);
    REQUIRE(unsure.be_present().error() == std::errc::operation_not_supported);
    REQUIRE(unsure.is_present(mark) == presence::unknown);
    file_slot nowhere("");
    REQUIRE(nowhere.be_present().error() == bide::durable_errc::invalid_argument);
    REQUIRE(nowhere.is_present(mark) == presence::unknown);
}

TEST_CASE("presence: an error says why the lock file cannot be made") {
    test::temp_directory in("presence");
    const auto says = [&](const std::string& name, int error) {
        const auto mark = file_slot(in / name).be_present();
        return !mark && mark.error() == std::error_code(error, std::generic_category());
    };
    REQUIRE(says("missing/a", ENOENT));
    REQUIRE(::mkdir((in / "b.lock").c_str(), 0700) == 0);
    REQUIRE(says("b", EISDIR));
    REQUIRE(::mkfifo((in / "c.lock").c_str(), 0600) == 0);
    REQUIRE(says("c", EINVAL));
    REQUIRE(::symlink("nowhere", (in / "d.lock").c_str()) == 0);
    REQUIRE(says("d", ELOOP));
    in.write("e.lock", "");
    REQUIRE(::link((in / "e.lock").c_str(), (in / "hard").c_str()) == 0);
    REQUIRE(says("e", EMLINK));
    for (const char* name : {"missing/a", "b", "c", "d"}) {
        REQUIRE(file_slot(in / name).is_present(1 << 24 | 1) == presence::unknown);
    }
}

TEST_CASE("presence: read permission is enough to see a mark") {
    slot_in_directory in;
    file_slot_options options{.mode = 0644};
    file_slot slot(in.path(), options);
    const auto mine = slot.be_present();
    REQUIRE(mine.has_value());
    const std::int64_t mark = (*mine)->mark();
    test::children child(1, [&](int, auto) -> std::string {
        if (::geteuid() == 0 && (::setegid(65'534) != 0 || ::seteuid(65'534) != 0)) {
            return "! cannot become nobody";
        }
        if (::geteuid() != 65'534) {
            return "skipped";
        }
        file_slot theirs = in.open();
        return std::string(text_of(theirs.is_present(mark))) + ", " +
               theirs.be_present().error().message();
    });
    const std::string said = child.reports()[0];
    if (said == "skipped") {
        WARN("skipped: only root can change its user");
        return;
    }
    REQUIRE(said == "yes, " + std::error_code(EACCES, std::generic_category()).message());
}

TEST_CASE("presence: containers with separate pids, clocks and boot ids see each other's marks",
          "[promise.file-slot-presence]") {
    slot_in_directory in;
    file_slot slot = in.open();
    const std::string ours = first_line("/proc/sys/kernel/random/boot_id");
    std::vector<std::string> boots;
    for (const char digit : {'1', '2'}) {
        boots.push_back(
            in.directory().write(std::string("boot") + digit, std::string(36, digit) + "\n"));
    }
    int end[2];
    REQUIRE(::pipe2(end, O_CLOEXEC) == 0);
    // The container's first process takes the mark, and outlives the process that made the
    // container.
    other_process maker([&] {
        ::close(end[1]);
        return in_container_begun(boots[0], [&](int said) {
            const auto mark = slot.be_present();
            const bool is_another = first_line("/proc/sys/kernel/random/boot_id") != ours;
            send_line(said, is_another ? text_of(mark) : "! the same boot");
            char none = 0;
            static_cast<void>(!::read(end[0], &none, 1)); // until the test closes the pipe
            ::_exit(0);                                   // the mark is not released first
        });
    });
    if (maker.line().rfind("skipped", 0) == 0) {
        WARN(maker.line());
        return;
    }
    const std::int64_t mark = maker.mark();
    INFO(maker.line());
    REQUIRE(mark > 0);
    const auto from_another = [&] {
        return other_process([&] {
                   return in_container_begun(boots[1], [&](int said) {
                       const bool is_another =
                           first_line("/proc/sys/kernel/random/boot_id") != ours;
                       send_line(said, is_another ? text_of(in.open().is_present(mark)) : "!");
                       ::_exit(0);
                   });
               })
            .line();
    };
    CHECK(slot.is_present(mark) == presence::yes);
    CHECK(from_another() == "yes");
    maker.kill();
    CHECK(slot.is_present(mark) == presence::yes);
    CHECK(from_another() == "yes");
    REQUIRE(slot.load().has_value());
    auto watch = slot.watch();
    REQUIRE(watch.has_value());
    REQUIRE(!is_readable(**watch, 0));
    ::close(end[1]);
    REQUIRE(is_readable(**watch, 60'000));
    while (slot.is_present(mark) ==
           presence::yes) { // the event comes just before the lock is dropped
        ::sched_yield();
    }
    CHECK(from_another() == "no");
    CHECK(slot.is_present(mark) == presence::no);
    ::close(end[0]);
}

TEST_CASE("presence: a watch reports when the last descriptor of a mark is closed") {
    slot_in_directory in;
    file_slot slot = in.open();
    auto mine = slot.be_present();
    REQUIRE(mine.has_value());
    REQUIRE(slot.load().has_value());
    auto watch = slot.watch();
    REQUIRE(watch.has_value());
    REQUIRE(slot.is_present((*mine)->mark()) == presence::yes); // asking does not trigger the watch
    REQUIRE(!is_readable(**watch, 0));
    const int copy = ::fcntl((*mine)->fd(), F_DUPFD_CLOEXEC, 0);
    REQUIRE(copy >= 0);
    mine->reset();
    REQUIRE(!is_readable(**watch, 0));
    ::close(copy);
    REQUIRE(is_readable(**watch, 60'000));
    REQUIRE(!(*watch)->drain());
    REQUIRE(!is_readable(**watch, 0));
}

TEST_CASE(
    "file presence: a mark on a descriptor of the caller outlives its presence and its slot") {
    slot_in_directory in;
    const int given = ::open(in.lock().c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    const int other = ::open(in.lock().c_str(), O_RDWR | O_CLOEXEC);
    REQUIRE((given >= 0 && other >= 0));
    file_slot_options how{.descriptor = given};
    std::int64_t mark = 0;
    {
        file_slot slot(in.path(), how);
        auto mine = slot.be_present();
        REQUIRE(mine.has_value());
        mark = (*mine)->mark();
    }
    const file_slot slot = in.open();
    REQUIRE(slot.is_present(mark) == presence::yes);
    REQUIRE(slot.has_mark(given, mark));
    REQUIRE(!slot.has_mark(other, mark));
    ::close(given);
    REQUIRE(slot.is_present(mark) == presence::no);
    REQUIRE(!slot.has_mark(other, mark));
    ::close(other);
}

TEST_CASE(
    "file presence: a descriptor takes no mark if it has another file open, or cannot write") {
    slot_in_directory in;
    REQUIRE(in.open().be_present().has_value());
    const int elsewhere = ::open(in.path().c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    const int reader = ::open(in.lock().c_str(), O_RDONLY | O_CLOEXEC);
    REQUIRE((elsewhere >= 0 && reader >= 0));
    for (const auto& [fd, error] : {std::pair(elsewhere, ESTALE), std::pair(reader, EBADF)}) {
        file_slot_options how{.descriptor = fd};
        const auto mine = file_slot(in.path(), how).be_present();
        REQUIRE(!mine.has_value());
        REQUIRE(mine.error().value() == error);
        ::close(fd);
    }
}

#endif
