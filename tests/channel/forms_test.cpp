// What every kind of channel keeps, in each form of a send and of a receive.

#include "support/alloc.hpp"
#include "support/channel_forms.hpp"
#include "support/counted.hpp"
#include "support/death.hpp"
#include "support/foreign_wait.hpp"
#include "support/last_touch.hpp"
#include "support/service.hpp"

namespace forms = test::forms;

namespace {

using bide::errc;
using test::forms::ending;
using test::forms::held;
using watched = test::observing<test::native>;

// A number that can be moved, and nothing else; all that were made are counted.
struct parcel {
    explicit parcel(int v) noexcept : n(v) { ++alive; }
    parcel(parcel&& other) noexcept : n(std::exchange(other.n, -1)) { ++alive; }
    parcel& operator=(parcel&&) = delete;
    ~parcel() { --alive; }

    int n;
    inline static std::atomic<int> alive{0};
};

// A kind of channel that sleeps on a platform.
template <template <class, class> class Kind, class Base> struct on {
    using base = Base;
    using platform = test::observing<Base>;
    template <class T> using of = Kind<T, platform>;
    using type = of<parcel>;
};
using bounded = on<forms::bounded, test::native>;
using unbounded = on<forms::unbounded, test::native>;
using priority = on<forms::priority, test::native>;
using sliding = on<forms::sliding, test::native>;
using bounded_handles = on<forms::bounded_handles, test::native>;
using unbounded_handles = on<forms::unbounded_handles, test::native>;

#define BIDE_EACH_KIND bounded, unbounded, priority, sliding
#define BIDE_EACH_HANDLE bounded_handles, unbounded_handles

// Ends the first of three waits, in one of the ways there are. Says whether it ended with `why`.
enum class way { stopped, late, destroyed, withdrawn };

template <class Op> bool leaves(way how, Op op, std::function<void()> others_come, errc& why) {
    test::journal turns;
    std::stop_source stop = test::new_stop();
    const auto note = [&why](auto& end) {
        if (!test::eventually([&] { return end.done.load(); })) {
            return false;
        }
        test::service_thread<watched>(); // it has left the coroutine
        if constexpr (std::is_same_v<decltype(end.out->error()), errc&>) {
            why = end.out->error();
        } else {
            why = end.out->error().code;
        }
        return !end.out->has_value();
    };
    switch (how) {
    case way::stopped: {
        auto limited = std::move(op).with_stop(stop.get_token());
        test::channel_waits::ending_of<decltype(limited)> end;
        const held frame = forms::start(std::move(limited), end);
        others_come();
        stop.request_stop();
        return note(end);
    }
    case way::late: {
        auto limited = std::move(op).with_timeout(1ms);
        test::channel_waits::ending_of<decltype(limited)> end;
        const held frame = forms::start(std::move(limited), end);
        others_come();
        return note(end);
    }
    case way::destroyed: {
        test::channel_waits::ending_of<Op> end;
        held frame = forms::start(std::move(op), end);
        others_come();
        frame.destroy();
        return !end.done;
    }
    default: { // an event loop's
        test::foreign_wait foreign(std::move(op).as_case(), turns, 1);
        const bool waits = !foreign.start();
        others_come();
        return waits && foreign.cancel() && turns.size() == 0;
    }
    }
}

// Its destructor uses the channel that it was in: all that does not wait, and, when it is closed, all.
template <class Kind> class meddler {
public:
    using home = typename Kind::template of<meddler>;

    explicit meddler(home* at, int& died) noexcept : home_(at), died_(&died) {}
    meddler(meddler&& other) noexcept
        : home_(std::exchange(other.home_, nullptr)), died_(std::exchange(other.died_, nullptr)) {}
    ~meddler() {
        if (died_ != nullptr) {
            ++*died_;
        }
        if (home_ != nullptr) {
            auto& c = home_->c;
            static_cast<void>(c.size());
            static_cast<void>(c.is_closed());
            static_cast<void>(c.try_recv());
            static_cast<void>(c.try_send(meddler(nullptr, *died_)));
            c.close();
            static_cast<void>(c.try_send_for(meddler(nullptr, *died_), 1h));
            static_cast<void>(c.try_recv_for(1h));
        }
    }

private:
    home* home_;
    int* died_;
};

} // namespace

TEMPLATE_TEST_CASE("channels: in each form, what can complete at once does, though a stop is "
                   "requested or the time has passed",
                   "", BIDE_EACH_KIND, BIDE_EACH_HANDLE) {
    forms::goes_through_at_once<typename TestType::platform, typename TestType::type>();
    CHECK(parcel::alive == 0);
}

TEMPLATE_TEST_CASE("channels: in each form, an item that is not sent comes back, and an empty "
                   "channel gives none",
                   "[promise.unsent-returns]", BIDE_EACH_KIND) {
    forms::fails_if_it_would_wait<typename TestType::platform, typename TestType::type>();
    CHECK(parcel::alive == 0);
}

TEMPLATE_TEST_CASE("channels: closed, each form of receive drains it, then says closed; each form "
                   "of send gives its item back",
                   "[promise.closed-channel-drains]", BIDE_EACH_KIND, BIDE_EACH_HANDLE) {
    forms::is_drained_when_closed<typename TestType::platform, typename TestType::type>();
    CHECK(parcel::alive == 0);
}

TEMPLATE_TEST_CASE("channels: a handle that was moved from is one of a closed channel", "",
                   BIDE_EACH_HANDLE) {
    typename TestType::type c(1);
    auto live_tx = std::move(c.tx());
    auto live_rx = std::move(c.rx());
    const auto is_closed = [](auto& tx, auto& rx) {
        forms::is_closed_in_every_form<typename TestType::platform>(tx, rx);
    };
    is_closed(c.tx(), c.rx());
    auto copy_tx = c.tx();
    auto copy_rx(c.rx());
    auto moved_tx = std::move(c.tx());
    is_closed(copy_tx, copy_rx);
    is_closed(moved_tx, copy_rx);
    CHECK_FALSE(live_tx.is_closed());
    c.tx() = live_tx; // may be used again
    c.rx() = std::move(live_rx);
    CHECK(c.tx().send(parcel(7)));
    CHECK(c.rx().recv()->n == 7);
}

TEMPLATE_TEST_CASE("channels: receivers that wait, threads and coroutines in each form, are served "
                   "in the order in which they came",
                   "[promise.channel-fifo]", BIDE_EACH_KIND) {
    using kind = typename TestType::type;
    for (std::size_t capacity = kind::least; capacity < 4; capacity += 2) {
        CAPTURE(capacity);
        forms::serves_receivers_in_order<typename TestType::base, kind>(capacity);
    }
}

TEMPLATE_TEST_CASE(
    "channels: senders that wait, threads and coroutines in each form, are served in "
    "the order in which they came",
    "", bounded, priority) {
    using kind = typename TestType::type;
    for (std::size_t capacity = kind::least; capacity < 4; ++capacity) {
        CAPTURE(capacity);
        forms::serves_senders_in_order<typename TestType::base, kind>(capacity);
    }
}

TEMPLATE_TEST_CASE("channels: close() ends the waits of threads and coroutines in each form", "",
                   BIDE_EACH_KIND) {
    forms::close_ends_every_wait<typename TestType::base, typename TestType::type>();
    CHECK(parcel::alive == 0);
}

TEST_CASE("channels: where the system has no futex, an item, room and a close wake a thread") {
    using ported = test::observing<test::portable>;
    bide::basic_channel<int, ported> c(1);
    std::optional<int> got[2];
    test::team receivers(2, [&](int i) { got[i] = i == 0 ? c.recv() : *c.try_recv_for(1h); });
    REQUIRE(test::are_asleep<test::portable>(2));
    CHECK((c.try_send(1) && c.try_send(2)));
    receivers.join();
    CHECK(*got[0] + *got[1] == 3);
    REQUIRE(c.try_send(3));
    bool sent = false;
    test::team sender(1, [&](int) { sent = c.send(4).has_value(); });
    REQUIRE(test::are_asleep<test::portable>(1));
    CHECK(c.try_recv().value() == 3);
    sender.join();
    CHECK(sent);
    bool back = false;
    test::team late(1, [&](int) { back = !c.try_send_for(5, 1h); });
    REQUIRE(test::are_asleep<test::portable>(1));
    c.close();
    late.join();
    CHECK(back);
}

TEMPLATE_TEST_CASE("channels: a wait that ends early has no effect on the waits behind it", "",
                   BIDE_EACH_KIND) {
    using kind = typename TestType::type;
    const way how = GENERATE(way::stopped, way::late, way::destroyed, way::withdrawn);
    for (std::size_t capacity = kind::least; capacity < 2; ++capacity) {
        errc why = how == way::late ? errc::timeout : errc::stopped;
        const errc expected = why;
        kind c(capacity);
        ending<std::optional<parcel>> got[2];
        std::vector<held> behind;
        CHECK(leaves(
            how, c.rx().async_recv(),
            [&] {
                for (auto& end : got) {
                    behind.push_back(forms::start(c.rx().async_recv(), end));
                }
            },
            why));
        CHECK(why == expected);
        for (int i = 0; i < 2; ++i) {
            CHECK_FALSE(got[i].done);
            REQUIRE(forms::sends(5, c.tx(), i));
            CHECK((got[i].done && (*got[i].out)->n == i));
        }
        CHECK(c.rx().empty());
        if constexpr (kind::sends_wait) {
            for (std::size_t i = 0; i < capacity; ++i) {
                REQUIRE(forms::sends(5, c.tx(), 1));
            }
            ending<bide::result<void, bide::send_error<parcel>>> sent[2];
            CHECK(leaves(
                how, c.tx().async_send(parcel(9)),
                [&] {
                    for (auto& end : sent) {
                        behind.push_back(forms::start(c.tx().async_send(parcel(2)), end));
                    }
                },
                why));
            CHECK(why == expected);
            for (std::size_t i = 0; i < capacity + 2; ++i) {
                CHECK(c.rx().try_recv()->n == (i < capacity ? 1 : 2));
            }
            CHECK((sent[0].done && sent[0].out->has_value() && sent[1].done));
            CHECK_FALSE(c.rx().try_recv());
        }
    }
    CHECK(parcel::alive == 0);
}

TEMPLATE_TEST_CASE(
    "channels: an item that came to a destroyed coroutine goes to the next receiver, "
    "or back, but not into a closed channel",
    "[promise.item-of-destroyed-coroutine]", BIDE_EACH_KIND, bounded_handles, unbounded_handles) {
    forms::destroyed_receiver_passes_on<typename TestType::platform, typename TestType::type>();
    CHECK(parcel::alive == 0);
}

TEMPLATE_TEST_CASE("channels: no wait allocates", "[promise.no-wait-allocates]", BIDE_EACH_KIND) {
    using kind = typename TestType::type;
    bide::timer_service<watched>(); // its thread, once
    kind empty(1);
    kind full(1);
    std::stop_source stop = test::new_stop();
    std::size_t made[forms::waiting_takes] = {};
    std::size_t late = 0;
    test::team threads(forms::waiting_takes, [&](int i) {
        std::vector<parcel> out;
        out.reserve(1);
        const std::size_t before = test::allocations_here();
        switch (i) { // without the selector, which allocates its cases
        case 0: static_cast<void>(empty.rx().recv()); break;
        case 1: static_cast<void>(empty.rx().recv(stop.get_token())); break;
        case 2: static_cast<void>(empty.rx().try_recv_for(1h)); break;
        case 3: static_cast<void>(bide::select(bide::on_recv(empty.rx()))); break;
        case 4: static_cast<void>(empty.rx().begin()); break;
        default: empty.rx().recv_n(out, 1);
        }
        made[i] = test::allocations_here() - before;
    });
    REQUIRE(test::are_asleep<test::native>(forms::waiting_takes));
    ending<std::optional<parcel>> plain;
    ending<bide::result<std::optional<parcel>>> limited;
    held frames[] = {
        test::channel_waits::await_as<held>(empty.rx().async_recv(), plain),
        test::channel_waits::await_as<held>(
            empty.rx().async_recv().with_stop(stop.get_token()).with_timeout(1h), limited)};
    const std::size_t before = test::allocations_here();
    late += empty.rx().try_recv_for(1us) ? 1u : 0u;
    for (held& frame : frames) {
        frame.start();
    }
    const std::size_t here = test::allocations_here() - before;
    CHECK(here == 0);
    for (int i = 0; i < forms::waiting_takes + 2; ++i) {
        REQUIRE(empty.tx().try_send(parcel(i)));
    }
    CHECK(late == 0);
    CHECK((plain.done && limited.done));
    threads.join();
    for (const std::size_t n : made) {
        CHECK(n == 0);
    }
    if constexpr (kind::sends_wait) {
        REQUIRE(full.tx().try_send(parcel(1)));
        std::atomic<bool> gave_up{false};
        test::team senders(5, [&](int i) {
            const std::size_t start = test::allocations_here();
            parcel value(i);
            switch (i) {
            case 0: static_cast<void>(full.tx().send(parcel(i))); break;
            case 1: static_cast<void>(full.tx().send(stop.get_token(), parcel(i))); break;
            case 2: static_cast<void>(full.tx().try_send_for(parcel(i), 1h)); break;
            case 3: static_cast<void>(full.tx().try_send_for(parcel(i), 1us)); break;
            default: static_cast<void>(bide::select(bide::on_send(full.tx(), value)));
            }
            made[i] = test::allocations_here() - start;
            if (i == 3) {
                gave_up = true;
            }
        });
        REQUIRE(test::eventually([&gave_up] { return gave_up.load(); }));
        REQUIRE(test::are_asleep<test::native>(4));
        ending<bide::result<void, bide::send_error<parcel>>> sent;
        held frame = test::channel_waits::await_as<held>(
            full.tx().async_send(parcel(6)).with_timeout(1h), sent);
        const std::size_t start = test::allocations_here();
        frame.start();
        for (int i = 0; i < 5; ++i) {
            static_cast<void>(full.rx().try_recv());
        }
        CHECK(test::allocations_here() - start == 0);
        CHECK(sent.done);
        senders.join();
        CHECK(std::accumulate(made, made + 5, std::size_t{0}) == 0);
    }
}

TEMPLATE_TEST_CASE("channels: the destructor of an item may use its channel, also the dying one",
                   "", BIDE_EACH_KIND) {
    using item = meddler<TestType>;
    const std::size_t capacity = GENERATE(1u, 2u, 5u);
    const int all = static_cast<int>(capacity);
    int died = 0;
    {
        typename item::home c(capacity);
        const auto fill = [&] {
            for (int i = 0; i < all; ++i) {
                REQUIRE(c.tx().send(item(&c, died)));
            }
        };
        SECTION("left inside") { fill(); }
        SECTION("left inside, closed") {
            fill();
            c.tx().close();
        }
        SECTION("received") {
            fill();
            static_cast<void>(c.rx().try_recv());
        }
        SECTION("a loop went past it") {
            fill();
            for ([[maybe_unused]] const item& it : c.rx()) {
            }
        }
        SECTION("came back, or made another leave") {
            fill();
            static_cast<void>(c.tx().try_send(item(&c, died)));
        }
        SECTION("its send was never awaited") {
            [[maybe_unused]] const auto send = c.tx().async_send(item(&c, died));
        }
        SECTION("a coroutine left it behind") {
            test::manual_executor later;
            ending<std::optional<item>> none;
            const bool full = GENERATE(false, true);
            held gone = forms::start(c.rx().async_recv().resume_on(later), none);
            REQUIRE(c.tx().send(item(&c, died)));
            if (full) {
                fill();
            } else {
                c.tx().close();
            }
            later.drop_all();
            gone.destroy();
        }
        // The last that has a home closes it.
    }
    CHECK(died > 0);
}

TEMPLATE_TEST_CASE("channels: a receiver that has its items, or is told of the close, may destroy "
                   "the channel before the other side returns",
                   "[promise.destroy-channel]", (bide::basic_unbounded_channel<int, test::jittery>),
                   (bide::basic_priority_channel<int, std::less<>, test::jittery>),
                   (bide::basic_sliding_channel<int, test::jittery>)) {
    using channel = TestType;
    std::atomic<int> wrong{0};
    const auto make = [](void* place, int) {
        return ::new (place) channel(forms::made<channel>(2));
    };
    int touched = test::late_touches<channel>(
        2, 500, make, [&](channel& c) { wrong += c.send(3) ? 0 : 1; },
        [&](channel& c, int round) {
            for (int i = 0; i < 2; ++i) { // both have sent then
                const auto got = round % 2 == 0 ? c.recv() : std::optional(*c.try_recv_for(1h));
                wrong += got == 3 ? 0 : 1;
            }
        });
    touched += test::late_touches<channel>(
        1, 500, make, [](channel& c) { c.close(); },
        [&](channel& c, int) { wrong += c.recv() ? 1 : 0; });
    CHECK(touched == 0);
    CHECK(wrong == 0);
}

#if BIDE_TESTS_CAN_DIE
TEMPLATE_TEST_CASE("channels: destroying one while there are waiters terminates with its name and "
                   "their number",
                   "", BIDE_EACH_KIND) {
    const std::string said = test::dies([] {
        std::optional<typename TestType::type> c(std::in_place, 1u);
        ending<std::optional<parcel>> none[3];
        std::vector<held> frames;
        for (auto& end : none) {
            frames.push_back(forms::start(c->rx().async_recv(), end));
        }
        frames[1].destroy();
        c.reset();
    });
    CAPTURE(said);
    CHECK(test::contains(said, std::is_same_v<TestType, unbounded>  ? "bide: unbounded_channel 0x"
                               : std::is_same_v<TestType, priority> ? "bide: priority_channel 0x"
                               : std::is_same_v<TestType, sliding>  ? "bide: sliding_channel 0x"
                                                                    : "bide: channel 0x"));
    CHECK(test::contains(said, "destroyed with 2 waiting"));
}

TEMPLATE_TEST_CASE(
    "channels: destroying one while a sender waits terminates; without waiters it is "
    "allowed",
    "", bounded, priority) {
    const bool waits = GENERATE(true, false);
    const std::string said = test::dies([waits] {
        std::optional<typename TestType::type> c(std::in_place, 1u);
        static_cast<void>(c->tx().try_send(parcel(1)));
        ending<bide::result<void, bide::send_error<parcel>>> none;
        held frame = forms::start(c->tx().async_send(parcel(2)), none);
        if (!waits) {
            frame.destroy();
        }
        c.reset();
    });
    CHECK(test::contains(said, waits ? "destroyed with 1 waiting" : "[it lives on]"));
}
#endif
