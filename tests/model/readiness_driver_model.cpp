#include <bide/core/deadline.hpp>
#include <bide/core/lock_bits.hpp>
#include <bide/core/parker.hpp>
#include <bide/sched/detail/readiness_driver.hpp>
#include <bide/sched/driver.hpp>
#include <model/check.hpp>
#include <model/task_support.hpp>
#include <support/catch.hpp>

#include <cstdint>
#include <optional>
#include <utility>

#if defined(__linux__)

#include <sys/epoll.h>
#include <unistd.h>

// The driver that epoll and io_uring share, with a set of files that is made of a lock. A file that
// becomes ready ends the wait for it, whether it does so before the request, after it, or while a waiter
// is cancelled or the file is forgotten. No waiter is left behind.

namespace {

// The inner locks have a model of their own.
using platform = model::platform_without_lock_sleep;
using bide::deadline;
using link = model::link<platform>;
template <class T> using var = platform::var<T>;

// One file. An event is told once for each request, if the file is ready then or later.
class one_file {
public:
    static constexpr const char* name = "model";
    struct event {
        std::uint64_t key = 0;
        std::uint32_t events = 0;
    };

    int request(int, bool& registered, std::uint32_t events, std::uint64_t key,
                std::uint64_t) noexcept {
        registered = true;
        change([&] {
            key_ = key;
            wanted_ = events;
        });
        return 0;
    }
    void withdraw(bool&, std::uint64_t) noexcept {
        change([this] { wanted_ = 0; });
    }
    void remove(int, bool& registered, std::uint64_t) noexcept {
        registered = false;
        change([this] { wanted_ = 0; });
    }
    static void has_fired(bool&) noexcept {}

    void become_ready(std::uint32_t events) noexcept {
        change([&] { ready_ = ready_ | events; });
    }
    // Another file has the descriptor now.
    void be_replaced() noexcept {
        change([this] { ready_ = 0; });
    }
    void wake() noexcept {
        change([this] { is_woken_ = true; });
    }

    bool has_next() const noexcept { return mine_.events != 0; }
    bool fetch(deadline until) noexcept {
        if (!until.is_poll()) {
            token_.park();
        }
        lock::acquire(lock_);
        mine_ = {key_fired_, fired_};
        fired_ = 0;
        const bool woken = is_woken_;
        is_woken_ = false;
        lock::release_plain(lock_);
        return woken;
    }
    bool next(event& told) noexcept {
        told = mine_;
        mine_.events = 0;
        return told.events != 0;
    }

private:
    using lock = bide::lock_bits<platform, std::uint32_t>;

    template <class Change> void change(Change what) noexcept {
        lock::acquire(lock_);
        what();
        if ((wanted_ & ready_) != 0) {
            key_fired_ = static_cast<std::uint64_t>(key_);
            fired_ = wanted_ & ready_;
            wanted_ = 0;
        }
        const bool tells = fired_ != 0 || is_woken_;
        lock::release_plain(lock_);
        if (tells) {
            token_.unpark();
        }
    }

    platform::atomic<std::uint32_t> lock_{0};
    // Under the lock:
    var<std::uint64_t> key_{0};
    var<std::uint32_t> wanted_{0};
    var<std::uint32_t> ready_{0};
    var<std::uint64_t> key_fired_{0};
    var<std::uint32_t> fired_{0};
    var<bool> is_woken_{false};
    bide::basic_parker<platform> token_;
    event mine_; // of the thread in fetch()
};

struct driver final : bide::detail::readiness_driver<platform, one_file> {
    driver() = default;
    one_file& file() noexcept { return set_; }
};

// A descriptor that is never ready in truth.
int descriptor() {
    static const int mine = [] {
        int ends[2]{};
        return ::pipe(ends) == 0 ? ends[0] : -1;
    }();
    return mine;
}

enum class becomes { nothing, ready, stopped, failed };

link waits(driver& d, bool reads, var<becomes>& outcome, platform::atomic<int>& left) {
    const auto got =
        co_await (reads ? d.async_wait_readable(descriptor()) : d.async_wait_writable(descriptor()))
            .as_result();
    outcome = got                                  ? becomes::ready
              : got.error() == bide::errc::stopped ? becomes::stopped
                                                   : becomes::failed;
    left.fetch_sub(1, std::memory_order_acq_rel);
}

// One or two waits for the same file, in its directions, and a thread in the driver until all are over.
struct scene {
    explicit scene(int waits) : left(waits) {}

    // What a worker does.
    void serve() {
        while (left.load(std::memory_order_acquire) != 0) {
            d.wait(deadline::never());
        }
    }

    driver d;
    std::optional<bide::driver::attachment> in{std::in_place, d};
    platform::atomic<int> left;
    var<becomes> first{becomes::nothing};
    var<becomes> second{becomes::nothing};
};

void one_waits() {
    scene s(1);
    model::chain<platform> one(waits(s.d, true, s.first, s.left));
    model::thread kernel([&] { s.d.file().become_ready(EPOLLIN); });
    model::thread worker([&] { s.serve(); });
    one.begin();
    worker.join();
    MODEL_REQUIRE(s.first == becomes::ready && one.ended == 1);
}

// Both wait for one direction, or each for one. The file becomes ready for one after the other.
void two_wait(bool same) {
    scene s(2);
    model::chain<platform> one(waits(s.d, true, s.first, s.left));
    model::chain<platform> two(waits(s.d, same, s.second, s.left));
    model::thread kernel([&] {
        s.d.file().become_ready(EPOLLIN);
        s.d.file().become_ready(EPOLLOUT);
    });
    model::thread worker([&] { s.serve(); });
    model::thread other([&] { two.begin(); });
    one.begin();
    worker.join();
    other.join();
    MODEL_REQUIRE(s.first == becomes::ready && s.second == becomes::ready);
}

// One of two waits is cancelled while the file becomes ready: the other one is not.
void cancelled(bool another) {
    scene s(another ? 2 : 1);
    model::chain<platform> one(waits(s.d, true, s.first, s.left));
    model::chain<platform> two(waits(s.d, true, s.second, s.left));
    one.begin();
    if (another) {
        two.begin();
    }
    model::thread kernel([&] { s.d.file().become_ready(EPOLLIN); });
    model::thread worker([&] { s.serve(); });
    one.cancel();
    s.d.wake(); // a worker looks for what the cancelled task made runnable
    worker.join();
    kernel.join();
    MODEL_REQUIRE(s.first == becomes::ready || s.first == becomes::stopped);
    MODEL_REQUIRE(!another || s.second == becomes::ready);
    model::record(s.first == becomes::ready ? "ready" : "stopped");
}

// The file is forgotten while it becomes ready.
void forgotten() {
    scene s(1);
    model::chain<platform> one(waits(s.d, true, s.first, s.left));
    one.begin();
    model::thread kernel([&] { s.d.file().become_ready(EPOLLIN); });
    model::thread worker([&] { s.serve(); });
    s.d.forget(descriptor());
    s.d.wake();
    worker.join();
    kernel.join();
    MODEL_REQUIRE(s.first == becomes::ready || s.first == becomes::failed);
    model::record(s.first == becomes::ready ? "ready" : "failed");
}

// A file that is ready is forgotten, and another file, which is not ready, gets its descriptor. The event
// of the former ends no wait for the latter.
void replaced() {
    scene s(2);
    model::chain<platform> one(waits(s.d, true, s.first, s.left));
    model::chain<platform> two(waits(s.d, true, s.second, s.left));
    one.begin();
    model::thread worker([&] { s.serve(); });
    s.d.file().become_ready(EPOLLIN);
    s.d.forget(descriptor());
    s.d.file().be_replaced();
    two.begin();
    two.cancel();
    s.d.wake();
    worker.join();
    MODEL_REQUIRE(s.first == becomes::ready || s.first == becomes::failed);
    MODEL_REQUIRE(s.second == becomes::stopped);
}

// The driver is detached while the wait begins. The wait ends at once, or when the driver is detached.
void detached() {
    scene s(1);
    model::chain<platform> one(waits(s.d, true, s.first, s.left));
    model::thread waiting([&] { one.begin(); });
    static_cast<void>(
        s.left.load(std::memory_order_relaxed)); // a step, before which the other may run
    s.in.reset();
    waiting.join();
    MODEL_REQUIRE(s.first == becomes::failed && one.ended == 1);
}

// Without mutants: the state of the attachment is an atomic of the program, not of the model.
void check(const char* name, bool all, const model::body& body) {
    model::options o;
    if (!all) {
        o.how = model::options::method::pct;
        o.runs = 2'000;
    }
    model::find(name, model::failure::none, o, body);
}

} // namespace

TEST_CASE("readiness_driver: a file that becomes ready ends every wait for it",
          "[readiness_driver]") {
    check("one waits", true, one_waits);
    check("two wait for one direction, at random", false, [] { two_wait(true); });
    check("two wait, each for a direction, at random", false, [] { two_wait(false); });
}

TEST_CASE("readiness_driver: each wait ends once beside a cancellation or the end of its file",
          "[readiness_driver]") {
    check("one is cancelled, at random", false, [] { cancelled(false); });
    check("one of two is cancelled, at random", false, [] { cancelled(true); });
    check("forgotten, at random", false, forgotten);
    check("replaced, at random", false, replaced);
    check("detached, at random", false, detached);
}

TEST_CASE("readiness_driver: a wait beside the end of its file, in every execution",
          "[readiness_driver][.long]") {
    check("forgotten", true, forgotten);
}

#endif
