#include <bide/durable/slots/file.hpp>

// Presences: marks in the lock file that show other processes that this one runs.
#if defined(__linux__)

#include <bide/durable/slots/detail/file/posix_file.hpp>
#include <support/slot_offers.hpp>
#include <support/slot_results.hpp>
#include <support/temp_directory.hpp>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace bide;
using mark_owner = std::shared_ptr<slot_presence>;

static_assert(test::present_slot<file_slot>);

namespace {

// The mark as text, for a report.
std::string text_of(const result<mark_owner, std::error_code>& mark) {
    return mark ? std::to_string((*mark)->mark()) : "! " + mark.error().message();
}

const char* text_of(presence is) {
    return is == presence::yes ? "yes" : is == presence::no ? "no" : "unknown";
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

} // namespace

TEST_CASE("presence: a program that inherited the descriptor keeps the mark until it ends",
          "[promise.file-slot-presence]") {
    slot_in_directory in;
    file_slot slot = in.open();
    int end[2];
    REQUIRE(::pipe2(end, O_CLOEXEC) == 0);
    // The child takes a mark, starts two programs and ends. One inherits the descriptor.
    test::companion starter([&](auto stay) {
        const auto mark = slot.be_present();
        for (const bool inherits : {true, false}) {
            if (mark && ::fork() == 0) {
                ::dup2(end[0], 0);
                ::fcntl((*mark)->fd(), F_SETFD, inherits ? 0 : FD_CLOEXEC);
                ::execlp("cat", "cat",
                         static_cast<char*>(nullptr)); // runs until the pipe is closed
                ::_exit(1);
            }
        }
        stay(text_of(mark));
    });
    ::close(end[0]);
    const std::int64_t mark = std::strtoll(starter.said().c_str(), nullptr, 10);
    REQUIRE(slot.is_present(mark) == presence::yes);
    starter.kill();
    REQUIRE(slot.is_present(mark) == presence::yes);
    ::close(end[1]);
    REQUIRE(test::eventually([&] { return slot.is_present(mark) == presence::no; }));
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
    half.l_start = static_cast<off_t>(bide::detail::presence_file::first);
    half.l_len = 1 << 23;
    REQUIRE(::fcntl(others, F_OFD_SETLK, &half) == 0);
    for (int i = 0; i < 300; ++i) {
        const auto mark = slot.be_present();
        REQUIRE(mark.has_value());
        REQUIRE(((*mark)->mark() & bide::detail::presence_file::byte_mask) >= 1 << 23);
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
    REQUIRE((*next)->mark() >> bide::detail::presence_file::byte_bits !=
            mark >> bide::detail::presence_file::byte_bits);
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

TEST_CASE("presence: an invalid mark is unknown, and so is every mark without a path") {
    slot_in_directory in;
    file_slot slot = in.open();
    const auto mine = slot.be_present();
    REQUIRE(mine.has_value());
    const std::int64_t mark = (*mine)->mark();
    for (const std::int64_t none :
         {std::int64_t{0}, std::int64_t{-1}, mark | std::int64_t{1} << 53, INT64_MAX, INT64_MIN,
          mark & ~bide::detail::presence_file::byte_mask}) {
        REQUIRE(slot.is_present(none) == presence::unknown);
    }
    REQUIRE(slot.is_present(mark ^ std::int64_t{1} << 24) ==
            presence::unknown); // a mark of another file
    REQUIRE(slot.is_present(mark ^ std::int64_t{1}) == presence::no);

    file_slot nowhere("");
    REQUIRE(nowhere.be_present().error() == durable_errc::invalid_argument);
    REQUIRE(nowhere.is_present(mark) == presence::unknown);
}

TEST_CASE("presence: read permission is enough to see a mark") {
    slot_in_directory in;
    file_slot slot(in.path(), {.mode = 0644});
    const auto mine = slot.be_present();
    REQUIRE(mine.has_value());
    const std::int64_t mark = (*mine)->mark();
    const auto said = test::as_nobody([&] {
        file_slot theirs = in.open();
        return std::string(text_of(theirs.is_present(mark))) + ", " +
               theirs.be_present().error().message();
    });
    if (!said) {
        return;
    }
    REQUIRE(*said == "yes, " + std::error_code(EACCES, std::generic_category()).message());
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
        const auto mine = file_slot(in.path(), {.descriptor = fd}).be_present();
        REQUIRE(!mine.has_value());
        REQUIRE(mine.error().value() == error);
        ::close(fd);
    }
}

#endif
