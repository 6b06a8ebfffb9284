// Coroutines that destroy other waiters of the same primitive: queued, granted, or about to resume.

#include <bide/channel/select.hpp>
#include <bide/sync/event.hpp>
#include <bide/sync/mutex.hpp>
#include <bide/sync/semaphore.hpp>
#include <bide/sync/shared_mutex.hpp>
#include <support/sched.hpp>

using namespace bide;
using test::rounds;
using test::seed_of;

namespace {

// The coroutines of one thread. A coroutine that resumes destroys some that wait or are about to
// resume. It must not destroy itself, nor a coroutine that is being started. All other coroutines
// wait: a release in a resumed coroutine resumes waiters only when that coroutine waits again.
class nest {
public:
    explicit nest(std::uint32_t seed) : chance(seed) {}
    nest(const nest&) = delete;
    nest& operator=(const nest&) = delete;
    ~nest() { clear(); }

    // make(seat) makes a coroutine, which starts in each seat that is empty.
    template <class F> void fill(F make) {
        for (std::size_t i = 0; i < seats_.size(); ++i) {
            seat& at = seats_[i];
            if (!at.frame || at.gone || at.frame->done()) {
                at.frame.reset();
                at.gone = false;
                starting_ = i;
                at.frame.emplace(make(i)).start();
                starting_ = seats_.size();
            }
        }
    }

    void goes_on(std::size_t me) noexcept {
        for (std::uint32_t n = chance.below(3); n != 0; --n) {
            const std::size_t which = chance.below(static_cast<std::uint32_t>(seats_.size()));
            if (which != me && which != starting_) {
                destroy(seats_[which]);
            }
        }
    }
    void clear() noexcept {
        for (seat& at : seats_) {
            destroy(at);
        }
    }

    test::jitter chance;

private:
    struct seat {
        std::optional<test::held> frame;
        bool gone = false;
    };

    static void destroy(seat& at) noexcept {
        if (at.frame && !std::exchange(at.gone, true)) {
            at.frame->destroy();
        }
    }

    std::array<seat, 7> seats_;
    std::size_t starting_ = seats_.size();
};

test::held take_permits(nest& in, std::size_t me, semaphore& from) {
    for (int lap = 0; lap < 3; ++lap) {
        const auto n = 1 + static_cast<std::ptrdiff_t>(in.chance.below(2));
        auto got = co_await from.async_acquire(n).with_timeout(std::chrono::hours(1));
        in.goes_on(me);
        if (got && in.chance.below(2) == 0) {
            got->reset();
        }
    }
}

template <class Mutex> test::held take_locks(nest& in, std::size_t me, Mutex& what) {
    for (int lap = 0; lap < 3; ++lap) {
        const auto got = co_await what.async_lock();
        in.goes_on(me);
    }
}

test::held share_locks(nest& in, std::size_t me, shared_mutex& what) {
    for (int lap = 0; lap < 3; ++lap) {
        const auto got = co_await what.async_lock_shared();
        in.goes_on(me);
    }
}

// What became of each item.
struct goods {
    static constexpr std::size_t most = 4'096;
    test::tally lives;
    std::size_t next = 0;
    std::vector<char> sent = std::vector<char>(most);
    std::vector<char> received = std::vector<char>(most);

    test::counted_once make() { return test::counted_once(lives, static_cast<int>(next++ % most)); }
    void note_sent(int which) { sent[static_cast<std::size_t>(which)] = 1; }
    void note(const test::counted_once& item) {
        ++received[static_cast<std::size_t>(item.number())];
    }
    // Each item was received at most once; with `exact`, each item that was sent.
    bool are_right(bool exact) const {
        bool right = lives.alive() == 0;
        for (std::size_t i = 0; i < most; ++i) {
            right = right && received[i] <= 1 && (!exact || received[i] >= sent[i]);
        }
        return right;
    }
};

test::held receive_some(nest& in, std::size_t me, goods& all, channel<test::counted_once>& from) {
    for (int lap = 0; lap < 3; ++lap) {
        const auto got = co_await from.async_recv();
        if (got) {
            all.note(*got);
        }
        in.goes_on(me);
    }
}

test::held send_some(nest& in, std::size_t me, goods& all, channel<test::counted_once>& to) {
    for (int lap = 0; lap < 3; ++lap) {
        auto item = all.make();
        const int which = item.number();
        const auto sent = co_await to.async_send(std::move(item));
        if (sent) {
            all.note_sent(which);
        }
        in.goes_on(me);
    }
}

test::held pass_event(nest& in, std::size_t me, event& set) {
    for (int lap = 0; lap < 3; ++lap) {
        co_await set.async_wait();
        in.goes_on(me);
        set.reset();
    }
}

test::held select_some(nest& in, std::size_t me, goods& all, channel<test::counted_once>& from,
                       semaphore& some, event& set) {
    for (int lap = 0; lap < 3; ++lap) {
        auto any = async_select(on_recv(from), on_acquire(some, 2), on_event(set));
        auto got = co_await std::move(any);
        if (got.index() == 0 && got.get<0>()) {
            all.note(*got.get<0>());
        }
        in.goes_on(me);
        if (got.index() == 2) {
            set.reset();
        }
    }
}

bool permits_come_back(std::uint32_t seed) {
    semaphore some(0);
    std::ptrdiff_t owned = 0;
    nest all(seed);
    for (int i = 0; i < 60; ++i) {
        all.fill([&](std::size_t me) { return take_permits(all, me, some); });
        some.release(3);
        owned += 3 - some.forget_permits(static_cast<std::ptrdiff_t>(all.chance.below(4)));
    }
    all.clear();
    return some.waiters() == 0 && some.available() == owned;
}

template <class Mutex> bool locks_come_back(std::uint32_t seed) {
    Mutex what;
    nest all(seed);
    for (int i = 0; i < 60; ++i) {
        const std::unique_lock<Mutex> first(what, std::try_to_lock);
        all.fill([&](std::size_t me) {
            if constexpr (requires { what.async_lock_shared(); }) {
                if (me % 2 == 0) {
                    return share_locks(all, me, what);
                }
            }
            return take_locks(all, me, what);
        });
    }
    all.clear();
    const std::unique_lock<Mutex> last(what, std::try_to_lock);
    return last.owns_lock();
}

bool items_come_through(std::size_t capacity, std::uint32_t seed) {
    goods of;
    bool right = true;
    {
        channel<test::counted_once> items(capacity);
        nest all(seed);
        for (int i = 0; i < 60; ++i) {
            all.fill([&](std::size_t me) {
                return me % 2 == 0 ? receive_some(all, me, of, items)
                                   : send_some(all, me, of, items);
            });
            auto one = of.make();
            const int which = one.number();
            if (items.try_send(std::move(one))) {
                of.note_sent(which);
            }
        }
        all.clear();
        while (const auto left = items.try_recv()) {
            of.note(*left);
        }
    }
    right = right && of.next < goods::most && of.are_right(capacity > goods::most);
    return right;
}

bool events_let_through(std::uint32_t seed) {
    event set;
    nest all(seed);
    for (int i = 0; i < 60; ++i) {
        all.fill([&](std::size_t me) { return pass_event(all, me, set); });
        set.set();
    }
    all.clear();
    return true; // no waiter is left, as the destructor of the event requires
}

bool selects_choose_once(std::uint32_t seed) {
    goods of;
    bool right = true;
    {
        channel<test::counted_once> items(goods::most + 1);
        semaphore some(0);
        event set;
        nest all(seed);
        for (int i = 0; i < 60; ++i) {
            all.fill([&](std::size_t me) { return select_some(all, me, of, items, some, set); });
            switch (all.chance.below(3)) {
            case 0: set.set(); break;
            case 1: some.release(3); break;
            default:
                for (int n = 0; n < 3; ++n) {
                    auto one = of.make();
                    of.note_sent(one.number());
                    static_cast<void>(items.try_send(std::move(one)));
                }
            }
        }
        all.clear();
        const std::ptrdiff_t left = some.available();
        right = some.waiters() == 0 && left % 3 == 0;
        while (const auto inside = items.try_recv()) {
            of.note(*inside);
        }
    }
    return right && of.are_right(true);
}

} // namespace

TEST_CASE("destroying: a resumed waiter may destroy other waiters of the same primitive") {
    rounds([](std::uint32_t round) {
        std::array<bool, 3> right{};
        test::run_threads(3, [&](int me) {
            const std::uint32_t seed = seed_of(16 * round + static_cast<std::uint32_t>(me));
            bool& mine = right[static_cast<std::size_t>(me)];
            mine = permits_come_back(seed);
            mine = locks_come_back<mutex>(seed + 1) && mine;
            mine = locks_come_back<shared_mutex>(seed + 2) && mine;
            mine = items_come_through(goods::most + 1, seed + 3) && mine;
            mine = items_come_through(seed % 3, seed + 4) && mine;
            mine = events_let_through(seed + 5) && mine;
            mine = selects_choose_once(seed + 6) && mine;
        });
        for (const bool all_right : right) {
            REQUIRE(all_right);
        }
    });
}
