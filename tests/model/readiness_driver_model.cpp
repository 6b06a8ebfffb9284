#include <bide/channel/select.hpp>
#include <bide/io/epoll_driver.hpp>
#include <model/at_random.hpp>
#include <model/task_support.hpp>
#include <support/test.hpp>

#if defined(__linux__)

#include <cerrno>

#include <sys/epoll.h>
#include <unistd.h>

// What epoll_driver and uring_driver have in common, with a set of files that is made of a lock. A file that
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

    int request(int, bool& registered, std::uint32_t events, std::uint64_t key) noexcept {
        registered = true;
        bool is_open = true;
        change([&] {
            is_open = !is_closed_;
            if (is_open) {
                key_ = key;
                wanted_ = events;
            }
        });
        return is_open ? 0 : EBADF;
    }
    void remove(int, bool& registered) noexcept {
        registered = false;
        change([this] { wanted_ = 0; });
    }

    void become_ready(std::uint32_t events) noexcept {
        change([&] { ready_ = ready_ | events; });
    }
    // Another file has the descriptor now, for which no event was requested.
    void be_replaced() noexcept {
        change([this] {
            ready_ = 0;
            wanted_ = 0;
        });
    }
    // No event can be requested any more.
    void be_closed() noexcept {
        change([this] { is_closed_ = true; });
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
        const std::uint32_t told = wanted_ == 0 ? 0 : (wanted_ | EPOLLERR | EPOLLHUP) & ready_;
        if (told != 0) {
            key_fired_ = static_cast<std::uint64_t>(key_);
            fired_ = told;
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
    var<bool> is_closed_{false};
    var<bool> is_woken_{false};
    bide::basic_parker<platform> token_;
    event mine_; // of the thread in fetch()
};

// What bide::driver has, with an attachment of the model.
class attachable {
public:
    static constexpr unsigned max_completions = bide::driver::max_completions;

    class attachment {
    public:
        explicit attachment(attachable& to) : to_(to) { MODEL_REQUIRE(to.state_.begin()); }
        attachment(const attachment&) = delete;
        attachment& operator=(const attachment&) = delete;
        ~attachment() {
            to_.state_.end([this]() noexcept { to_.detached(); });
        }

    private:
        attachable& to_;
    };

    attachable() = default;
    attachable(const attachable&) = delete;
    attachable& operator=(const attachable&) = delete;
    virtual ~attachable() = default;
    virtual unsigned wait(deadline until) noexcept = 0;
    virtual void wake() noexcept = 0;

protected:
    bool is_attached() const noexcept { return state_.is_attached(); }

private:
    virtual void detached() noexcept = 0;

    bide::detail::basic_attachment_state<platform> state_;
};

struct driver final : bide::basic_readiness_driver<platform, one_file, attachable> {
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

// One or two waits for the same file, and a thread in the driver until all are over. The first wait reads; the second
// one waits for the same direction, or for the other one.
struct scene {
    explicit scene(int all, bool second_reads = true)
        : left(all), one(waits(d, true, first, left)), two(waits(d, second_reads, second, left)) {}

    // What a worker does.
    void serve() {
        while (left.load(std::memory_order_acquire) != 0) {
            d.wait(deadline::never());
        }
    }

    driver d;
    std::unique_ptr<driver::attachment> in = std::make_unique<driver::attachment>(d);
    platform::atomic<int> left;
    var<becomes> first{becomes::nothing};
    var<becomes> second{becomes::nothing};
    model::chain<platform> one;
    model::chain<platform> two;
};

void one_waits() {
    scene s(1);
    model::thread kernel([&] { s.d.file().become_ready(EPOLLIN); });
    model::thread worker([&] { s.serve(); });
    s.one.begin();
    worker.join();
    MODEL_REQUIRE(s.first == becomes::ready && s.one.ended == 1);
}

// Both wait for one direction, or each for one. The file becomes ready for one after the other, or for the
// second one when the wait for the first one is over: a later wait does not delay an earlier one.
void two_wait(bool same, bool in_turn = false) {
    scene s(2, same);
    model::thread kernel([&] {
        s.d.file().become_ready(EPOLLIN);
        while (in_turn && s.left.load(std::memory_order_acquire) == 2) {
            platform::pause();
        }
        s.d.file().become_ready(EPOLLOUT);
    });
    model::thread worker([&] { s.serve(); });
    model::thread other([&] { s.two.begin(); });
    s.one.begin();
    worker.join();
    other.join();
    MODEL_REQUIRE(s.first == becomes::ready && s.second == becomes::ready);
}

// One of two waits is cancelled while the file becomes ready: the other one is not.
void cancelled(bool another) {
    scene s(another ? 2 : 1);
    s.one.begin();
    if (another) {
        s.two.begin();
    }
    model::thread kernel([&] { s.d.file().become_ready(EPOLLIN); });
    model::thread worker([&] { s.serve(); });
    s.one.cancel();
    s.d.wake(); // a worker looks for what the cancelled task made runnable
    worker.join();
    kernel.join();
    MODEL_REQUIRE(s.first == becomes::ready || s.first == becomes::stopped);
    MODEL_REQUIRE(!another || s.second == becomes::ready);
    model::record(s.first == becomes::ready ? "ready" : "stopped");
}

// Ends every wait, in both directions.
void hung_up() {
    scene s(2, false);
    model::thread kernel([&] { s.d.file().become_ready(EPOLLHUP); });
    model::thread other([&] { s.two.begin(); });
    s.one.begin();
    s.serve();
    other.join();
    MODEL_REQUIRE(s.first == becomes::ready && s.second == becomes::ready);
}

// A wait that follows one that was cancelled, while the file becomes ready, or another file has its
// descriptor, which may be closed when no wait is left.
void waits_after_a_cancellation(bool replaced) {
    scene s(2);
    model::thread kernel([&] { s.d.file().become_ready(EPOLLIN); });
    model::thread worker([&] { s.serve(); });
    s.one.begin();
    s.one.cancel();
    if (replaced) {
        s.d.file().be_replaced();
    }
    s.two.begin();
    if (replaced) {
        s.d.file().become_ready(EPOLLIN);
    }
    s.d.wake();
    worker.join();
    kernel.join();
    MODEL_REQUIRE(s.first == becomes::ready || s.first == becomes::stopped);
    MODEL_REQUIRE(s.second == becomes::ready);
}

// The operation exists before the file is forgotten, or before the driver is attached again, and its wait
// begins before or after that. It does not wait for the file that has the descriptor then.
link waits_later(driver& d, platform::atomic<bool>& exists, var<becomes>& outcome,
                 platform::atomic<int>& left) {
    auto operation = d.async_wait_readable(descriptor());
    exists.store(true, std::memory_order_release);
    const auto got = co_await std::move(operation).as_result();
    outcome = got ? becomes::ready : becomes::failed;
    left.fetch_sub(1, std::memory_order_acq_rel);
}

void forgotten_before_its_wait(bool by_detachment) {
    scene s(1);
    platform::atomic<bool> exists{false};
    model::chain<platform> one(waits_later(s.d, exists, s.first, s.left));
    model::thread waiting([&] { one.begin(); });
    while (!exists.load(std::memory_order_acquire)) {
        platform::pause();
    }
    if (by_detachment) {
        s.in.reset();
        s.in = std::make_unique<driver::attachment>(s.d);
    } else {
        s.d.forget(descriptor());
    }
    s.d.file().become_ready(EPOLLIN); // another file's
    waiting.join();
    s.d.wake();
    s.serve();
    MODEL_REQUIRE(s.first == becomes::failed);
}

// The file is forgotten while it becomes ready.
void forgotten() {
    scene s(1);
    s.one.begin();
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
    s.one.begin();
    model::thread worker([&] { s.serve(); });
    s.d.file().become_ready(EPOLLIN);
    s.d.forget(descriptor());
    s.d.file().be_replaced();
    s.two.begin();
    s.two.cancel();
    s.d.wake();
    worker.join();
    MODEL_REQUIRE(s.first == becomes::ready || s.first == becomes::failed);
    MODEL_REQUIRE(s.second == becomes::stopped);
}

// Every wait ends, in both directions.
void both_forgotten(bool by_detachment) {
    scene s(2, false);
    s.one.begin();
    s.two.begin();
    model::thread kernel([&] { s.d.file().become_ready(EPOLLIN); });
    if (by_detachment) {
        s.in.reset();
    } else {
        s.d.forget(descriptor());
    }
    MODEL_REQUIRE(s.first == becomes::failed && s.second == becomes::failed);
}

// After an event for one wait, none can be requested for the other one.
void closed() {
    scene s(2, false);
    s.one.begin();
    s.two.begin();
    model::thread kernel([&] {
        s.d.file().be_closed();
        s.d.file().become_ready(EPOLLIN);
    });
    s.serve();
    MODEL_REQUIRE(s.first == becomes::ready && s.second == becomes::failed);
}

// A task that waits in a driver is cancelled when it begins. No event comes.
void cancelled_at_its_begin() {
    scene s(1);
    model::thread waiting([&] { s.one.begin(); });
    s.one.cancel();
    waiting.join();
    MODEL_REQUIRE(s.one.ended == 1 && (s.one.never_ran || s.first == becomes::stopped));
}

// Waits for both directions at a time, and takes one of them.
link selects(driver& d, var<becomes>& outcome, platform::atomic<int>& left) {
    auto either =
        bide::async_select(bide::detail::case_of(d.async_wait_readable(descriptor()).as_result()),
                           bide::detail::case_of(d.async_wait_writable(descriptor()).as_result()));
    auto got = co_await std::move(either);
    const bool ready = got.index() == 0 ? got.get<0>().has_value() : got.get<1>().has_value();
    outcome = ready ? becomes::ready : becomes::failed;
    left.fetch_sub(1, std::memory_order_acq_rel);
}

void selected(bool closed) {
    scene s(1);
    model::chain<platform> one(selects(s.d, s.first, s.left));
    model::thread waiting([&] {
        one.begin();
        s.d.wake(); // it may have ended there
    });
    model::thread kernel([&] {
        s.d.file().become_ready(EPOLLIN);
        if (closed) {
            s.d.file().be_closed();
        } else {
            s.d.file().become_ready(EPOLLOUT);
        }
    });
    s.serve();
    waiting.join();
    kernel.join();
    MODEL_REQUIRE(one.ended == 1 && (s.first == becomes::ready || closed));
}

// The driver is detached while the wait begins. The wait ends at once, or when the driver is detached. Another
// thread may have made the entry of the file, and need not have begun its own wait.
void detached(bool beside_another_entry) {
    scene s(1);
    std::optional<model::thread> making;
    if (beside_another_entry) {
        making.emplace([&] { static_cast<void>(s.d.async_wait_writable(descriptor())); });
    }
    model::thread waiting([&] { s.one.begin(); });
    s.in.reset();
    waiting.join();
    making.reset();
    MODEL_REQUIRE(s.first == becomes::failed && s.one.ended == 1);
}

// A wait in the second attachment, after one that the end of the first has closed.
void attached_again() {
    scene s(2);
    s.one.begin();
    model::thread kernel([&] { s.d.file().become_ready(EPOLLIN); });
    s.in.reset();
    s.in = std::make_unique<driver::attachment>(s.d);
    s.two.begin();
    s.serve();
    kernel.join();
    MODEL_REQUIRE(s.first == becomes::failed && s.second == becomes::ready);
}

// Two threads attach: one at a time is attached, and the second one sees what the end of the first did.
void attached_in_turn() {
    bide::detail::basic_attachment_state<platform> state;
    var<int> ends{0};
    const auto attach = [&] {
        const bool begins = state.begin();
        if (begins) {
            state.end([&]() noexcept {
                MODEL_REQUIRE(!state.is_attached());
                ends = ends + 1;
            });
        }
        return begins;
    };
    bool other = false;
    model::thread second([&] { other = attach(); });
    const bool mine = attach();
    second.join();
    MODEL_REQUIRE(ends == (mine ? 1 : 0) + (other ? 1 : 0) && ends != 0 && !state.is_attached());
    model::record(std::to_string(ends));
}

void check(const char* name, bool all, const model::body& body) {
    all ? model::check(name, {}, body) : model::check_at_random(name, 2'000, body);
}

} // namespace

TEST_CASE("readiness_driver: a file that becomes ready ends every wait for it") {
    check("one waits", true, one_waits);
    check("two wait for one direction, at random", false, [] { two_wait(true); });
    check("two wait, each for a direction, at random", false, [] { two_wait(false); });
    check("two wait, one direction after the other, at random", false,
          [] { two_wait(false, true); });
    check("a file that hangs up, at random", false, hung_up);
}

TEST_CASE("readiness_driver: each wait ends once beside a cancellation or the end of its file",
          "[long]") {
    check("one is cancelled, at random", false, [] { cancelled(false); });
    check("one of two is cancelled, at random", false, [] { cancelled(true); });
    check("a wait after one that was cancelled, at random", false,
          [] { waits_after_a_cancellation(false); });
    check("a wait for another file after that, at random", false,
          [] { waits_after_a_cancellation(true); });
    check("forgotten", model::is_long(), forgotten);
    check("forgotten before its wait", true, [] { forgotten_before_its_wait(false); });
    check("detached before its wait", true, [] { forgotten_before_its_wait(true); });
    check("replaced, at random", false, replaced);
    check("both directions forgotten", true, [] { both_forgotten(false); });
    check("both directions detached", true, [] { both_forgotten(true); });
    check("closed", true, closed);
    check("cancelled at its begin", true, cancelled_at_its_begin);
    check("detached", true, [] { detached(false); });
    check("attached again", true, attached_again);
    check("detached beside another entry", true, [] { detached(true); });
}

TEST_CASE("readiness_driver: a select of both directions takes one of them") {
    check("a select, at random", false, [] { selected(false); });
    check("a select of a file that is closed, at random", false, [] { selected(true); });
}

TEST_CASE("readiness_driver: a driver has one attachment at a time") {
    check("two attach", true, attached_in_turn);
    CHECK(model::outcomes({}, attached_in_turn) == "1 2");
}

#endif
