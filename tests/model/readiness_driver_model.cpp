#include <bide/channel/select.hpp>
#include <bide/io/io_socket.hpp>
#include <model/at_random.hpp>
#include <model/task_support.hpp>
#include <support/test.hpp>

#if defined(__linux__)

#include <cerrno>

#include <sys/epoll.h>
#include <unistd.h>

// What epoll_driver and uring_driver have in common, with a set of files that is made of a lock. A file that
// becomes ready ends the wait for it, whether it does so before the request, after it, or while a waiter
// is cancelled or the file is forgotten. No waiter is left behind. The same for the operations of an
// io_socket, which make one edge-triggered request.

namespace {

// What a read returns: a number of bytes; 0 at the end of the stream.
struct read_bytes {
    int number;
};
struct read_payload : bide::io_payload {
    bide::detail::retry_on_grant<model::platform_without_lock_sleep> retry{};
    int number = -1;
    bool is_over = false;
    bool was_put_off = false;
};

} // namespace

template <> struct bide::wait_payload<bide::result<read_bytes, std::error_code>> {
    using type = read_payload;
};

namespace {

// The inner locks have a model of their own.
using platform = model::platform_without_lock_sleep;
using bide::deadline;
using link = model::link<platform>;
template <class T> using var = platform::var<T>;

// One file. An event is told once for each request, if the file is ready then or later. After an edge-triggered
// request, an event is also told whenever something happens to the file. As in Linux, it is not told if the file is
// not ready any more when the events are fetched.
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
            requests_ = requests_ + 1;
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
        change([this] { wanted_ = 0; }, false);
    }

    void arrive(int bytes, std::uint32_t events = EPOLLIN) noexcept {
        change([&] {
            bytes_ = bytes_ + bytes;
            ready_ = ready_ | events;
        });
    }
    // Takes all bytes. Returns their number, 0 at the end of the stream, or -1 if it would block.
    int read() noexcept {
        int number = 0;
        change(
            [&] {
                const bool ends = (ready_ & EPOLLRDHUP) != 0;
                number = bytes_ == 0 && !ends ? -1 : static_cast<int>(bytes_);
                bytes_ = 0;
                if (!ends) {
                    ready_ = ready_ & ~std::uint32_t{EPOLLIN};
                }
                reads_ = reads_ + 1;
            },
            false);
        return number;
    }
    int reads() const noexcept { return reads_; }
    int requests() const noexcept { return requests_; }

    void become_ready(std::uint32_t events) noexcept {
        change([&] { ready_ = ready_ | events; });
    }
    // Another file has the descriptor now, for which no event was requested.
    void be_replaced() noexcept {
        change([this] {
            bytes_ = 0;
            ready_ = 0;
            wanted_ = 0;
        });
    }
    // No event can be requested any more.
    void be_closed() noexcept {
        change([this] { is_closed_ = true; });
    }
    void wake() noexcept {
        change([this] { is_woken_ = true; }, false);
    }

    bool has_next() const noexcept { return mine_.events != 0; }
    bool fetch(deadline until) noexcept {
        if (!until.is_poll()) {
            token_.park();
        }
        lock::acquire(lock_);
        const std::uint32_t seen = (wanted_ & EPOLLET) != 0 ? std::uint32_t{ready_} : ~0u;
        mine_ = {key_fired_, fired_ & seen};
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

    template <class Change> void change(Change what, bool is_news = true) noexcept {
        lock::acquire(lock_);
        what();
        const std::uint32_t told =
            wanted_ == 0 || !is_news ? 0 : (wanted_ | EPOLLERR | EPOLLHUP) & ready_;
        if (told != 0) {
            key_fired_ = static_cast<std::uint64_t>(key_);
            fired_ = told;
            if ((wanted_ & EPOLLET) == 0) {
                wanted_ = 0;
            }
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
    var<int> bytes_{0};
    var<int> requests_{0};
    var<int> reads_{0};
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

// ---- The operations of an io_socket

using socket_access = bide::detail::socket_access<driver>;

// Is how an io_socket receives from a TCP socket, with room for more than there is.
struct reading : socket_access::operation<reading, read_payload> {
    using outcome = bide::result<read_bytes, std::error_code>;

    bide::wait_status attempt(read_payload& p) const noexcept {
        if (puts_off(p.was_put_off)) {
            return bide::wait_status::waiting;
        }
        const bool was_armed = is_armed_edge();
        p.number = static_cast<driver&>(of).file().read();
        note_read(was_armed, p.number < 0);
        if (p.number < 0) {
            return would_block();
        }
        if (p.number > 0) {
            note_short_read([] { return true; });
        }
        return bide::wait_status::granted;
    }
    outcome collect(bide::wait_status what, const read_payload& p) const noexcept {
        if (what == bide::wait_status::granted && p.number >= 0) {
            return read_bytes{p.number};
        }
        return bide::unexpected{make_error_code(bide::errc_of(what))};
    }
};

// Reads until it has `wanted` bytes, the end of the stream, or an error. Adds the bytes to `sum`.
link reads(driver& d, int wanted, var<int>& sum, var<becomes>& outcome,
           platform::atomic<int>& left) {
    becomes end = becomes::ready;
    for (int got = 0; got < wanted && end == becomes::ready;) {
        const auto n =
            co_await socket_access::start<reading>(d, descriptor(), false, read_payload());
        if (!n) {
            end = n.error() == bide::errc::stopped ? becomes::stopped : becomes::failed;
        } else if (n->number == 0) {
            break;
        } else {
            got += n->number;
            sum = sum + n->number;
        }
    }
    outcome = end;
    left.fetch_sub(1, std::memory_order_acq_rel);
}

// One or two that read from the same file, which has been read from before, so that the file has its request.
struct read_scene {
    explicit read_scene(int all, int bytes_of_first, int bytes_of_second = 1)
        : left(all), one(reads(d, bytes_of_first, sum, first, left)),
          two(reads(d, bytes_of_second, sum_of_second, second, left)) {}

    void serve() {
        while (left.load(std::memory_order_acquire) != 0) {
            d.wait(deadline::never());
        }
    }
    // It may end at once: then the worker looks.
    void begin(model::chain<platform>& chain) {
        chain.begin();
        d.wake();
    }
    // After this, the request exists. The next read would block, and does not know it.
    void read_before() {
        platform::atomic<int> one_left{1};
        var<int> before{0};
        var<becomes> outcome{becomes::nothing};
        model::chain<platform> chain(reads(d, 1, before, outcome, one_left));
        chain.begin();
        d.file().arrive(1);
        while (one_left.load(std::memory_order_acquire) != 0) {
            d.wait(deadline::poll());
        }
    }

    driver d;
    std::unique_ptr<driver::attachment> in = std::make_unique<driver::attachment>(d);
    platform::atomic<int> left;
    var<int> sum{0};
    var<int> sum_of_second{0};
    var<becomes> first{becomes::nothing};
    var<becomes> second{becomes::nothing};
    model::chain<platform> one;
    model::chain<platform> two;
};

// Bytes arrive before, while and after it reads, and each is read.
void read_each(int bytes, bool again) {
    read_scene s(1, bytes);
    if (again) {
        s.read_before();
    }
    model::thread kernel([&] {
        for (int i = 0; i < bytes; ++i) {
            s.d.file().arrive(1);
        }
    });
    model::thread worker([&] { s.serve(); });
    s.begin(s.one);
    worker.join();
    kernel.join();
    MODEL_REQUIRE(s.first == becomes::ready && s.sum == bytes);
}

// After a short read, each second read waits without a call, and the others find out that it would have blocked.
void read_without_a_call(bool second) {
    read_scene s(1, 1);
    s.read_before();
    if (second) {
        s.read_before();
    }
    const int before = s.d.file().reads();
    s.begin(s.one);
    model::thread kernel([&] { s.d.file().arrive(1); });
    s.serve();
    MODEL_REQUIRE(s.sum == 1 && s.d.file().reads() == before + (second ? 2 : 1));
}

// After the first wait, none makes a request, if its byte comes after it has begun. A wait for room that is cancelled in
// between changes nothing.
void read_without_a_request() {
    read_scene s(2, 1);
    s.read_before();
    model::chain<platform> wait(waits(s.d, false, s.second, s.left));
    wait.begin();
    wait.cancel();
    const int before = s.d.file().requests();
    s.begin(s.one);
    model::thread kernel([&] { s.d.file().arrive(1); });
    s.serve();
    MODEL_REQUIRE(s.second == becomes::stopped);
    MODEL_REQUIRE(s.sum == 1 && s.d.file().requests() == before);
}

// A wait for room makes one request, although there is a byte that is not read.
void wait_beside_unread_bytes() {
    read_scene s(1, 1);
    s.read_before();
    const int before = s.d.file().requests();
    model::chain<platform> wait(waits(s.d, false, s.second, s.left));
    s.begin(wait);
    model::thread kernel([&] {
        s.d.file().arrive(1);
        s.d.file().arrive(0, EPOLLOUT);
    });
    s.serve();
    MODEL_REQUIRE(s.second == becomes::ready && s.d.file().requests() == before + 1);
}

// The end of the stream is found after a byte.
void read_to_the_end(bool again) {
    read_scene s(1, 9);
    if (again) {
        s.read_before();
    }
    model::thread kernel([&] {
        s.d.file().arrive(1);
        s.d.file().arrive(0, EPOLLIN | EPOLLRDHUP);
    });
    model::thread worker([&] { s.serve(); });
    s.begin(s.one);
    worker.join();
    kernel.join();
    MODEL_REQUIRE(s.first == becomes::ready && s.sum == 1);
}

// One is cancelled, by a stop or a time-out, while a byte arrives and a second one begins. The byte is read once,
// and a later byte by the one that is left.
void read_beside_a_cancellation(bool again) {
    read_scene s(2, 1);
    if (again) {
        s.read_before();
    }
    s.begin(s.one);
    model::thread kernel([&] {
        s.d.file().arrive(1);
        while (s.left.load(std::memory_order_acquire) == 2) {
            platform::pause();
        }
        s.d.file().arrive(1);
    });
    model::thread worker([&] { s.serve(); });
    model::thread other([&] { s.begin(s.two); });
    s.one.cancel();
    s.d.wake();
    worker.join();
    kernel.join();
    other.join();
    MODEL_REQUIRE(s.first == becomes::ready || s.first == becomes::stopped);
    MODEL_REQUIRE(s.second == becomes::ready && s.sum_of_second > 0);
}

// Two read what is there for one of them first.
void read_by_two() {
    read_scene s(2, 1);
    model::thread kernel([&] {
        s.d.file().arrive(1);
        while (s.left.load(std::memory_order_acquire) == 2) {
            platform::pause();
        }
        s.d.file().arrive(1);
    });
    model::thread worker([&] { s.serve(); });
    model::thread other([&] { s.begin(s.two); });
    s.begin(s.one);
    worker.join();
    kernel.join();
    other.join();
    MODEL_REQUIRE(s.first == becomes::ready && s.second == becomes::ready);
    MODEL_REQUIRE(s.sum + s.sum_of_second == 2);
}

// The socket is closed while a byte arrives. The next file with the descriptor keeps its bytes from the first one,
// and is read although it was armed for the first one.
void read_of_the_next_file() {
    read_scene s(2, 1, 2);
    s.read_before();
    s.begin(s.one);
    model::thread worker([&] { s.serve(); });
    s.d.file().arrive(1);
    s.d.forget(descriptor());
    s.d.file().be_replaced();
    s.begin(s.two);
    s.d.file().arrive(2);
    s.d.wake();
    worker.join();
    MODEL_REQUIRE(s.first == (s.sum == 1 ? becomes::ready : becomes::failed));
    MODEL_REQUIRE(s.second == becomes::ready && s.sum_of_second == 2);
}

// Another library waits for its file, or has waited for it, and closes it without forget(). An io_socket has the
// descriptor then.
void read_after_a_foreign_file(bool still_waits) {
    read_scene s(1, 2);
    var<becomes> outcome{becomes::nothing};
    platform::atomic<int> waiting{1};
    model::chain<platform> foreign(waits(s.d, true, outcome, waiting));
    foreign.begin();
    if (!still_waits) {
        foreign.cancel();
    }
    s.d.file().be_replaced();
    model::thread kernel([&] {
        s.d.file().arrive(1);
        s.d.file().arrive(1);
    });
    model::thread worker([&] { s.serve(); });
    s.begin(s.one);
    worker.join();
    kernel.join();
    MODEL_REQUIRE(s.first == becomes::ready && s.sum == 2);
    foreign.cancel();
    MODEL_REQUIRE(still_waits || outcome == becomes::stopped);
}

// A wait for the readiness of a socket, beside its read. Both end.
void read_beside_a_wait(bool writes) {
    read_scene s(2, 2);
    model::chain<platform> wait(waits(s.d, !writes, s.second, s.left));
    model::thread kernel([&] {
        s.d.file().arrive(1);
        s.d.file().arrive(1, EPOLLIN | EPOLLOUT);
        while (s.left.load(std::memory_order_acquire) == 2) {
            platform::pause();
        }
        s.d.file().arrive(1); // the read may have taken what the wait is for
    });
    model::thread worker([&] { s.serve(); });
    model::thread other([&] { s.begin(wait); });
    s.begin(s.one);
    worker.join();
    kernel.join();
    other.join();
    MODEL_REQUIRE(s.first == becomes::ready && s.second == becomes::ready);
}

// The driver is attached again, and the byte that has arrived in between is read.
void read_after_a_detachment() {
    read_scene s(2, 9);
    s.read_before();
    s.begin(s.one);
    model::thread kernel([&] { s.d.file().arrive(1); });
    s.in.reset();
    s.in = std::make_unique<driver::attachment>(s.d);
    s.begin(s.two);
    s.serve();
    kernel.join();
    MODEL_REQUIRE(s.first == becomes::failed && s.second == becomes::ready);
}

void check(const char* name, bool all, const model::body& body) {
    all ? model::check(name, {}, body)
        : model::check_at_random(name, model::is_long() ? 100'000 : 2'000, body);
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

TEST_CASE("readiness_driver: an io_socket reads each byte once, and finds the end", "[long]") {
    check("read without a call", true, [] { read_without_a_call(false); });
    check("read with a call in vain", true, [] { read_without_a_call(true); });
    check("read without a request", true, read_without_a_request);
    check("a wait beside unread bytes", true, wait_beside_unread_bytes);
    check("read one byte", true, [] { read_each(1, false); });
    check("read one byte, again, at random", false, [] { read_each(1, true); });
    check("read two bytes, at random", false, [] { read_each(2, false); });
    check("read two bytes, again, at random", false, [] { read_each(2, true); });
    check("read to the end, at random", false, [] { read_to_the_end(false); });
    check("read to the end, again, at random", false, [] { read_to_the_end(true); });
    check("read beside a cancellation, at random", false,
          [] { read_beside_a_cancellation(false); });
    check("read beside a cancellation, again, at random", false,
          [] { read_beside_a_cancellation(true); });
    check("read by two, at random", false, read_by_two);
    check("read of the next file, at random", false, read_of_the_next_file);
    check("read after a foreign file, at random", false, [] { read_after_a_foreign_file(false); });
    check("read beside a foreign file, at random", false, [] { read_after_a_foreign_file(true); });
    check("read beside a wait for bytes, at random", false, [] { read_beside_a_wait(false); });
    check("read beside a wait for room, at random", false, [] { read_beside_a_wait(true); });
    check("read after a detachment", true, read_after_a_detachment);
}

TEST_CASE("readiness_driver: a driver has one attachment at a time") {
    check("two attach", true, attached_in_turn);
    CHECK(model::outcomes({}, attached_in_turn) == "1 2");
}

#endif
