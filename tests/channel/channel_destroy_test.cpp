// The destruction of a channel, with waiters or right after its last use, and of a thread.

#include "support/channel_waits.hpp"
#include "support/observing.hpp"
#include "support/platforms.hpp"
#include "support/stop.hpp"
#include "support/test.hpp"

#include <bide/task/task.hpp>

using namespace test::channel_waits;

// At every step: one thread pauses after its n-th step on an atomic, and meanwhile the other
// does all that is left to do, and frees the channel, for a sanitizer to see a late access.
namespace {

struct pausing : test::native {
    static constexpr int enough = 28; // by then a wait turns in a loop, or sleeps
    inline static std::atomic<int> paused{0};
    inline static std::atomic<bool> gone{false};

    // This thread's next pause, and the one after it.
    struct plan {
        int left = 0; // steps until then; 0: none
        std::atomic<bool>* until = nullptr;
        int then = 0; // steps from there to a pause until it is gone
    };
    static plan& mine() noexcept {
        thread_local plan p;
        return p;
    }
    static void step() noexcept {
        plan& p = mine();
        if (p.left > 0 && --p.left == 0) {
            const std::atomic<bool>& over = *p.until;
            p = {p.then, &gone, 0};
            ++paused;
            // It may hold the lock that another wants, so it does not pause for ever.
            test::eventually([&over] { return over.load(); }, 500us);
        }
    }

    template <class T> class atomic : public std::atomic<T> {
        using base = std::atomic<T>;
        using order = std::memory_order;

    public:
        using base::base;

        T load(order o) const noexcept { return stepped(base::load(o)); }
        void store(T value, order o) noexcept {
            base::store(value, o);
            step();
        }
        T exchange(T value, order o) noexcept { return stepped(base::exchange(value, o)); }
        bool compare_exchange_weak(T& seen, T value, order o, order failed) noexcept {
            return stepped(base::compare_exchange_weak(seen, value, o, failed));
        }
        bool compare_exchange_strong(T& seen, T value, order o, order failed) noexcept {
            return stepped(base::compare_exchange_strong(seen, value, o, failed));
        }
        T fetch_and(T value, order o) noexcept { return stepped(base::fetch_and(value, o)); }
        T fetch_or(T value, order o) noexcept { return stepped(base::fetch_or(value, o)); }

    private:
        template <class R> static R stepped(R result) noexcept {
            step();
            return result;
        }
    };
};
using pausing_channel = bide::basic_channel<int, pausing>;

// `first` runs on a thread that pauses, `rest` here, which then frees the channel.
template <class First, class Rest>
void free_after_each_step(std::size_t capacity, int inside, First first, Rest rest) {
    for (int n = 1; n <= pausing::enough; ++n) {
        pausing::paused = 0;
        pausing::gone = false;
        auto ch = std::make_unique<pausing_channel>(capacity);
        for (int i = 0; i < inside; ++i) {
            REQUIRE(ch->try_send(i));
        }
        test::team other(1, [&first, n, at = ch.get()](int) {
            pausing::mine() = {n, &pausing::gone, 0};
            first(*at);
            pausing::mine() = {};
            ++pausing::paused;
        });
        // One that waits may not have that many steps to take before it is served.
        test::eventually([] { return pausing::paused != 0; }, 1ms);
        rest(*ch);
        ch.reset();
        pausing::gone = true;
        other.join();
    }
}

template <class Op> bide::task<void> let_be(Op op) {
    const auto got = co_await std::move(op);
    static_cast<void>(got);
}

template <class Channel> struct last_words {
    Channel* in = nullptr;
    Channel* out = nullptr;
    ~last_words() {
        if (in != nullptr) {
            const auto got = in->recv();
            static_cast<void>(out->send(got.value_or(-1) + 1));
            static_cast<void>(in->try_recv_for(1ms));
        }
    }
};

} // namespace

TEST_CASE("channel: no step of a send comes after its item can be received and the channel freed",
          "[promise.destroy-channel]") {
    const int form = GENERATE(range(0, forms_of_send + 1));
    const std::size_t capacity = GENERATE(0u, 1u);
    CAPTURE(form);
    const bool waits = GENERATE(true, false);
    const int before = static_cast<int>(capacity) - (waits ? 0 : 1);
    if (before < 0) {
        return;
    }
    std::stop_source never = test::new_stop();
    const auto send = [form, &never](pausing_channel& ch) {
        if (form == forms_of_send) {
            bide::sync_wait(let_be(ch.async_send(7)));
        } else {
            static_cast<void>(send_by(form, ch, 7, never.get_token()));
        }
    };
    int last = 0;
    free_after_each_step(capacity, before, send, [&last, before](pausing_channel& ch) {
        for (int i = 0; i <= before; ++i) {
            last = ch.recv().value_or(-1);
        }
    });
    CHECK(last == 7);
}

TEST_CASE("channel: no step of a receive comes after its sender can know of it and free the "
          "channel") {
    const int form = GENERATE(range(0, forms_of_recv + 1));
    const std::size_t capacity = GENERATE(0u, 1u);
    CAPTURE(form);
    std::stop_source never = test::new_stop();
    const auto recv = [form, &never](pausing_channel& ch) {
        if (form == forms_of_recv) {
            bide::sync_wait(let_be(ch.async_recv()));
        } else {
            static_cast<void>(recv_by(form, ch, never.get_token()));
        }
    };
    bool went = true;
    free_after_each_step(capacity, 0, recv, [&went](pausing_channel& ch) {
        // Where the last one fits in, the first has been taken out.
        for (std::size_t left = ch.capacity() + 1; left > 0; --left) {
            went = ch.send(7).has_value() && went;
        }
    });
    CHECK(went);
}

TEST_CASE("channel: no step of close comes after a waiter that is told can free the channel") {
    const std::size_t capacity = GENERATE(0u, 1u);
    const auto close = [](pausing_channel& ch) { ch.close(); };
    const bool waits = GENERATE(true, false);
    free_after_each_step(capacity, 0, close, [waits](pausing_channel& ch) {
        if (waits) {
            static_cast<void>(ch.recv());
        }
        while (ch.try_recv().error() != bide::errc::closed) {
        }
    });
}

// One receiver waits, so both senders see that; the one serves it, and the other comes with an item
// that no receiver waits for: it can be received before its send has returned.
TEST_CASE(
    "channel: no step of a send comes after a receiver that does not wait can have its item") {
    for (int at = 1; at <= 6; ++at) {
        for (int then = 1; then <= 8; ++then) {
            pausing::paused = 0;
            pausing::gone = false;
            std::atomic<bool> go[2] = {};
            std::atomic<bool> over{false};
            auto ch = std::make_unique<pausing_channel>(2u);
            test::manual_executor later;
            recv_ending end;
            auto waiting = hold(ch->async_recv().resume_on(later), end);
            waiting.start();
            test::team senders(2, [&, to = ch.get()](int i) {
                if (i == 1) {
                    test::eventually([] { return pausing::paused != 0; }, 1ms);
                }
                pausing::mine() = {at, &go[i], i == 0 ? 0 : then};
                static_cast<void>(to->send(i));
                pausing::mine() = {};
                if (i == 0) {
                    over = true;
                }
            });
            test::eventually([] { return pausing::paused == 2; }, 1ms);
            go[0] = true;
            test::eventually([&] { return over.load(); }, 1ms);
            go[1] = true;
            int received = 0;
            while (received + static_cast<int>(later.size()) < 2) {
                received += ch->try_recv() ? 1 : 0;
            }
            later.run_all();
            waiting.destroy();
            ch.reset();
            pausing::gone = true;
            senders.join();
            REQUIRE(end.done == (received == 1));
        }
    }
}

TEST_CASE("channel: a thread may wait in the destructor of a thread_local") {
    using platform = test::observing<test::native>;
    using any_channel = bide::basic_channel<int, platform>;
    const bool waited_before =
        GENERATE(false, true); // so that what waits need is older, or younger
    any_channel in(1);
    any_channel out(0);
    test::team ending(1, [&](int) {
        if (waited_before) {
            bide::sync_wait([](any_channel& ch) -> bide::task<void> {
                static_cast<void>(co_await ch.async_recv().with_timeout(1ms));
            }(in));
        }
        thread_local last_words<any_channel> last;
        last.in = &in;
        last.out = &out;
    });
    REQUIRE(test::are_asleep<test::native>(1));
    CHECK(in.try_send(41));
    CHECK(out.recv() == 42);
    ending.join();
}
