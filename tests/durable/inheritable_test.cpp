// Grants that children inherit, and what a lock does if its record was lost or damaged. Over files,
// as the marks and the damage are those of file_slot. (expiry_test and record_admin_test test the
// rules.)

#include <bide/core/errc.hpp>
#include <bide/durable/errors.hpp>
#include <bide/durable/locks.hpp>
#include <bide/durable/process.hpp>
#include <bide/durable/record.hpp>
#include <bide/durable/slots/detail/file/posix_file.hpp>
#include <bide/durable/slots/file.hpp>
#include <bide/durable/slots/memory.hpp>
#include <support/children.hpp>
#include <support/durable_locks.hpp>
#include <support/temp_directory.hpp>
#include <support/unhurried.hpp>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

using namespace bide;

durable_options with_lease(std::chrono::milliseconds lease) {
    durable_options o = test::unhurried();
    o.lease = lease;
    o.poll_most = 50ms;
    return o;
}

acquire_request inheritable() {
    acquire_request r;
    r.inheritable = true;
    return r;
}

// A program that has the file open until it is ended.
class heir {
public:
    explicit heir(int file) {
        int ready[2];
        if (::pipe(ready) != 0) {
            std::abort();
        }
        pid_ = ::fork();
        if (pid_ == 0) {
            ::fcntl(file, F_SETFD, 0);
            ::dup2(ready[1], 1);
            ::execlp("sh", "sh", "-c", "echo; exec sleep 60", nullptr);
            ::_exit(127);
        }
        ::close(ready[1]);
        char some = 0;
        if (::read(ready[0], &some, 1) != 1) {
            std::abort();
        }
        ::close(ready[0]);
    }
    heir(const heir&) = delete;
    heir& operator=(const heir&) = delete;
    ~heir() { end(); }
    void end() {
        if (pid_ > 0) {
            ::kill(pid_, SIGKILL);
            ::waitpid(std::exchange(pid_, -1), nullptr, 0);
        }
    }

private:
    pid_t pid_;
};

int open_descriptors() {
    const std::filesystem::directory_iterator all("/proc/self/fd");
    return static_cast<int>(std::distance(begin(all), end(all)));
}

// In the newest of the two pages of a file slot's file.
void flip_a_bit(const std::string& path) {
    std::string bytes = test::bytes_of(path);
    const std::size_t page = bytes.size() / 2;
    const auto version_at = [&](std::size_t at) {
        return bide::detail::load_little<std::uint64_t>(bytes.data() + at + 16);
    };
    bytes[(version_at(page) > version_at(0) ? page : 0) + 40] ^= 4;
    std::ofstream(path, std::ios::binary) << bytes;
}

} // namespace

#if defined(__linux__)

TEST_CASE(
    "inheritable: the grant lasts as long as a child has its descriptor open, whatever the lease",
    "[promise.durable-inheritable]") {
    const test::temp_directory in("inherits");
    durable_mutex mine(file_slot(in / "lock"), with_lease(100ms));
    durable_mutex theirs(file_slot(in / "lock"), with_lease(100ms));
    auto held = test::acquired(mine, inheritable());
    REQUIRE(held->descriptor() >= 0);
    REQUIRE(held->is_held());
    heir child(held->descriptor());
    REQUIRE(held->hand_over().value());
    const std::int64_t begin = bide::durable::boottime_ms();
    while (bide::durable::boottime_ms() < begin + 250) { // longer than the lease and its drift
        REQUIRE(theirs.try_acquire().error() == errc::timeout);
        std::this_thread::sleep_for(20ms);
    }
    child.end();
    REQUIRE(theirs.acquire()); // long before any other test's time is up
}

TEST_CASE(
    "inheritable: the destructor leaves the grant to a child, release() takes it from the child") {
    const test::temp_directory in("guard-ends");
    durable_mutex mine(file_slot(in / "lock"), with_lease(1h));
    durable_mutex theirs(file_slot(in / "lock"), with_lease(1h));
    std::int64_t fence = 0;
    {
        auto held = test::acquired(mine, inheritable());
        fence = held->fence();
        const heir child(held->descriptor());
        {
            const auto ended = std::move(*held);
        }
        REQUIRE(theirs.inspect().value()->live.holders.size() == 1);
        REQUIRE(theirs.inspect().value()->live.holders[0].fence == fence);
    }
    auto held = theirs.acquire(inheritable()); // its child was killed
    REQUIRE(held);
    const heir child(held->descriptor());
    REQUIRE(held->release());
    REQUIRE(mine.inspect().value()->live.holders.empty());
}

TEST_CASE("inheritable: hand_over() releases if no child has the descriptor") {
    const test::temp_directory in("hands-over");
    durable_mutex lock(file_slot(in / "lock"), with_lease(1h));
    auto held = test::acquired(lock, inheritable());
    REQUIRE_FALSE(held->hand_over().value());
    REQUIRE(lock.inspect().value()->live.holders.empty());
    auto again = lock.acquire(inheritable());
    REQUIRE(again->release());
    REQUIRE(lock.try_acquire());
}

TEST_CASE("inheritable: if a holder and its children are killed, the permits are free",
          "[promise.durable-inheritable]") {
    const test::temp_directory in("is-killed");
    test::companion holder([&](auto stay) {
        durable_mutex lock(file_slot(in / "lock"), with_lease(1h));
        const auto held = lock.acquire(inheritable());
        stay(held ? "holds" : "");
    });
    REQUIRE(holder.said() == "holds");
    durable_mutex lock(file_slot(in / "lock"), with_lease(1h));
    REQUIRE(lock.try_acquire().error() == errc::timeout);
    holder.kill();
    REQUIRE(lock.try_acquire());
}

TEST_CASE("inheritable: a grant that is taken away is lost by its next renewal") {
    const test::temp_directory in("is-taken");
    durable_mutex lock(file_slot(in / "lock"), with_lease(1h));
    auto held = lock.acquire(inheritable());
    REQUIRE(held->renew());
    REQUIRE(lock.admin("ops").force_release(held->fence(), "").value());
    REQUIRE(held->renew().error() == durable_errc::lock_lost);
    REQUIRE(held->lost().stop_requested());
    REQUIRE(held->release().error() == durable_errc::lock_lost);
}

TEST_CASE("inheritable: a process-bound ticket stays bound after its lock object is destroyed") {
    const test::temp_directory in("is-bound");
    {
        durable_mutex lock(file_slot(in / "lock"), with_lease(1h));
        auto held = lock.acquire();
        REQUIRE(held->ticket().process_bound);
        held->detach();
    }
    durable_mutex lock(file_slot(in / "lock"), with_lease(1h));
    const auto seen = lock.inspect().value();
    REQUIRE(seen->live.holders.size() == 1);
    const std::int64_t mark = seen->live.holders[0].from.mark;
    REQUIRE(mark != 0);
    REQUIRE(file_slot(in / "lock").is_present(mark) == presence::yes);
}

TEST_CASE("inheritable: a child of fork() that uses the lock does not keep its parent's mark") {
    const bool is_detached = GENERATE(false, true);
    const test::temp_directory in("leaves-mark");
    std::int64_t mark = 0;
    std::optional<test::companion> child;
    {
        durable_mutex lock(file_slot(in / "lock"), with_lease(1h));
        auto held = test::acquired(lock);
        mark = lock.inspect().value()->live.holders[0].from.mark;
        std::optional<durable_ticket> ticket;
        if (is_detached) {
            ticket = held->detach();
        }
        child.emplace([&](auto stay) { stay(lock.inspect() ? "looked" : ""); });
        REQUIRE(child->said() == "looked");
        REQUIRE((ticket ? lock.release(*ticket).value() : held->release().has_value()));
    }
    CHECK(mark != 0);
    CHECK(file_slot(in / "lock").is_present(mark) == presence::no);
}

TEST_CASE("inheritable: a ticket keeps no descriptor open once it is known to hold nothing") {
    const test::temp_directory in("keeps-none");
    const auto none_is_left = [&](const char* what, auto use) {
        CAPTURE(what);
        use(); // the process opens some that stay
        const int before = open_descriptors();
        for (int i = 0; i < 10; ++i) {
            use();
        }
        // A thread that called the store may close descriptors a moment later, those of the first use too.
        REQUIRE(test::eventually([&] { return open_descriptors() <= before; }));
    };
    const auto make = [&] { return durable_mutex(file_slot(in / "lock"), with_lease(1h)); };
    const auto detached = [&](acquire_request wanted) {
        durable_mutex lock = make();
        auto held = lock.acquire(std::move(wanted));
        REQUIRE(held);
        return held->detach();
    };
    none_is_left("detached, and released by another lock object",
                 [&] { REQUIRE(make().release(detached({})).value()); });
    none_is_left("detached, and taken up by a guard", [&] {
        acquire_request again;
        again.ticket = detached({});
        durable_mutex lock = make();
        REQUIRE(lock.acquire(again)->release());
    });
    none_is_left("detached, and found lost", [&] {
        const durable_ticket left = detached({});
        durable_mutex lock = make();
        REQUIRE(lock.admin("ops").force_release(left.fence, "").value());
        REQUIRE_FALSE(lock.renew(left).value());
    });
    none_is_left("acquired step by step", [&] {
        durable_ticket t = make().ticket();
        t.process_bound = true;
        REQUIRE(make().try_acquire(t)->acquired);
        REQUIRE(make().renew(t).value());
        REQUIRE(make().release(t).value());
    });
    none_is_left("inheritable, and released", [&] {
        durable_mutex lock = make();
        REQUIRE(lock.acquire(inheritable())->release());
    });
    none_is_left("inheritable, and detached", [&] {
        static_cast<void>(detached(inheritable()));
        REQUIRE(make().try_acquire()); // no process has its mark
    });
}

#endif

TEST_CASE("inheritable: a slot without marks refuses it at once, and stores nothing") {
    const memory_slot slot;
    durable_mutex lock(slot);
    REQUIRE(lock.acquire(inheritable()).error() == std::errc::operation_not_supported);
    REQUIRE_FALSE(lock.inspect().value().has_value());
    acquire_request with_ticket = inheritable();
    with_ticket.ticket = lock.ticket();
    REQUIRE(lock.acquire(with_ticket).error() == std::errc::operation_not_supported);
}

TEST_CASE("durable_mutex: tokens grow even if the record was deleted",
          "[promise.durable-tokens-grow]") {
    const test::temp_directory in("deleted");
    std::int64_t last = 0;
    for (int i = 0; i < 3; ++i) {
        durable_mutex lock(file_slot(in / "lock"));
        for (int k = 0; k < 20; ++k) {
            const auto held = test::acquired(lock);
            REQUIRE(held->fence() > last);
            last = held->fence();
        }
        REQUIRE(std::remove((in / "lock").c_str()) == 0);
    }
}

TEST_CASE(
    "durable_mutex: a flipped bit in the newest value admits no second holder within the lease",
    "[promise.durable-damage]") {
    const test::temp_directory in("rots");
    durable_options o = with_lease(1h);
    o.auto_renew = false;
    durable_mutex lock(file_slot(in / "lock"), o);
    REQUIRE(lock.acquire()->release());
    auto held = test::acquired(lock);
    flip_a_bit(in / "lock");

    durable_mutex other(file_slot(in / "lock"), o);
    REQUIRE(other.try_acquire().error() == errc::timeout);
    const auto seen = other.inspect().value();
    REQUIRE(seen->live.holders.size() == 1);
    REQUIRE(seen->live.holders[0].fence >= held->fence());
    REQUIRE(seen->free == 0);
    // It is in the record: another one does not begin to wait anew.
    REQUIRE(durable_mutex(file_slot(in / "lock"), o).inspect().value()->live.holders ==
            seen->live.holders);
    REQUIRE(held->renew().error() == durable_errc::lock_lost); // what it had is not known any more
    REQUIRE(other.admin("ops").force_release(seen->live.holders[0].fence, "").value());
    const auto next = other.try_acquire();
    REQUIRE(next);
    REQUIRE(next->fence() > held->fence());
}

TEST_CASE("durable_semaphore: with adopt_permits, a free lock takes the new number, a used one "
          "refuses it",
          "[promise.durable-permit-number]") {
    const memory_slot slot;
    durable_semaphore three(slot, 3, test::unhurried());
    auto held = three.acquire();
    durable_options o = test::unhurried();
    o.adopt_permits = true;
    durable_semaphore five(slot, 5, o);
    REQUIRE(five.try_acquire(5).error() == durable_errc::permits_mismatch);
    REQUIRE(held->release());
    auto all = five.try_acquire(5);
    REQUIRE(all);
    REQUIRE(three.try_acquire().error() == durable_errc::permits_mismatch);
}
