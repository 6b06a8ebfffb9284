// All kinds of senders and receivers meet in one channel and give up in every way. One of them closes
// it meanwhile. At the end the items are counted.

#include <support/sched.hpp>

#include <bide/channel/priority_channel.hpp>
#include <bide/channel/sliding_channel.hpp>
#include <bide/channel/unbounded_channel.hpp>
#include <bide/core/callback_wait.hpp>

namespace {

using namespace bide;

constexpr std::size_t capacities[] = {0, 1, 2, 3, 5, 6, 7, 64, 1'000};

constexpr std::uint32_t levels = 3; // of priority

// A number of a sender's. It shows when half of one was mixed with half of another, and some take
// their time to move, which widens the windows between claiming a slot and publishing it.
class parcel {
public:
    parcel(std::uint32_t from, std::uint32_t number) noexcept
        : from_(from), number_(number), check_(check()) {
        alive.fetch_add(1, std::memory_order_relaxed);
    }
    parcel(parcel&& other) noexcept : from_(other.from_) {
        for (int left = other.number_ % 16 == 0 ? 200 : 0; left > 0; --left) {
            native_platform::pause();
        }
        number_ = other.number_;
        check_ = std::exchange(other.check_, 0);
        alive.fetch_add(1, std::memory_order_relaxed);
    }
    parcel& operator=(parcel&& other) noexcept {
        from_ = other.from_;
        number_ = other.number_;
        check_ = std::exchange(other.check_, 0);
        return *this;
    }
    ~parcel() { alive.fetch_sub(1, std::memory_order_relaxed); }

    bool is_intact() const noexcept { return check_ == check(); }
    std::uint32_t from() const noexcept { return from_; }
    std::uint32_t number() const noexcept { return number_; }
    std::uint64_t name() const noexcept { return std::uint64_t{from_} << 32 | number_; }

    struct less {
        bool operator()(const parcel& a, const parcel& b) const noexcept {
            return a.number_ % levels < b.number_ % levels;
        }
    };

    inline static std::atomic<int> alive{0};

private:
    std::uint64_t check() const noexcept { return (name() + 1) * 0x9e37'79b9'7f4a'7c15u | 1u; }

    std::uint32_t from_;
    std::uint32_t number_;
    std::uint64_t check_;
};

using sent = result<void, send_error<parcel>>;

struct sender {
    explicit sender(std::uint32_t n) : name(n) {}
    const std::uint32_t name;
    std::uint32_t next = 0;
    std::vector<std::uint64_t> went;
    std::vector<std::uint64_t> displaced; // by it, from a sliding channel
    test::stoppable stop;
    bool good = true;
    bool closed = false;

    parcel make() const { return parcel(name, next); }

    // What did not go came back whole, and may be tried again.
    void note(const sent& got, test::jitter& chance) {
        if (got) {
            went_one();
            return;
        }
        const auto& [why, value] = got.error();
        good = good && value.is_intact() && value.name() == make().name();
        closed = why == errc::closed;
        next += chance.below(2);
    }
    void went_one() { went.push_back(parcel(name, next++).name()); }
};

struct receiver {
    std::vector<std::uint64_t> came;
    test::stoppable stop;
    bool good = true;
    bool told = false; // that it is closed and drained

    void note(const parcel& p) {
        good = good && p.is_intact();
        came.push_back(p.name());
    }
    void note(const std::vector<parcel>& some) {
        for (const parcel& p : some) {
            note(p);
        }
    }
};

template <class Channel> task<void> send_in_task(Channel& ch, sender& s, test::jitter& chance) {
    auto op = ch.async_send(s.make());
    switch (chance.below(3)) {
    case 0: {
        const auto got = co_await std::move(op);
        s.note(got, chance);
        break;
    }
    case 1: {
        const auto got = co_await std::move(op).with_timeout(microseconds(chance.below(100)));
        s.note(got, chance);
        break;
    }
    default: {
        const auto got = co_await std::move(op).with_stop(s.stop.token());
        s.note(got, chance);
    }
    }
}

template <class Channel> void send_once(Channel& ch, sender& s, test::jitter& chance) {
    switch (chance.below(8)) {
    case 0: s.note(ch.try_send(s.make()), chance); break;
    case 1: s.note(ch.try_send_for(s.make(), microseconds(chance.below(60))), chance); break;
    case 2: {
        const auto when = steady_clock::now() + microseconds(chance.below(60));
        s.note(ch.try_send_until(s.make(), when), chance);
        break;
    }
    case 3: s.note(ch.send(s.stop.token(), s.make()), chance); break;
    case 4: {
        std::vector<parcel> some;
        const std::uint32_t first = s.next;
        for (std::uint32_t n = 1 + chance.below(5); n > 0; --n) {
            some.emplace_back(s.name, first + static_cast<std::uint32_t>(some.size()));
        }
        const std::size_t n = ch.try_send_n(some);
        for (std::size_t i = 0; i < some.size(); ++i) {
            if (i < n) {
                s.went_one();
            } else {
                s.good = s.good && some[i].is_intact() && some[i].number() == first + i;
            }
        }
        break;
    }
    case 5: sync_wait(send_in_task(ch, s, chance)); break;
    default: s.note(ch.send(s.make()), chance); break;
    }
}

// Of a sliding channel: no send waits, and what makes room comes back.
template <class P> void send_once(basic_sliding_channel<parcel, P>& ch, sender& s, test::jitter&) {
    const auto got = ch.replace(s.make());
    if (!got) {
        s.good = s.good && got.error().value.name() == s.make().name();
        s.closed = true;
        return;
    }
    s.went_one();
    if (*got) {
        s.good = s.good && (*got)->is_intact();
        s.displaced.push_back((*got)->name());
    }
}

template <class Channel> task<bool> recv_in_task(Channel& ch, receiver& r, test::jitter& chance) {
    std::optional<parcel> item;
    switch (chance.below(4)) {
    case 0: {
        std::optional<parcel> got = co_await ch.async_recv();
        if (!got) {
            co_return false;
        }
        r.note(*got);
        break;
    }
    case 1: {
        const microseconds rest(chance.below(100));
        auto got = co_await ch.async_recv().with_timeout(rest);
        if (got && !*got) {
            co_return false;
        }
        if (got) {
            r.note(**got);
        }
        break;
    }
    case 2: {
        const std::stop_token token = r.stop.token();
        auto got = co_await ch.async_recv().with_stop(token);
        if (got && !*got) {
            co_return false;
        }
        if (got) {
            r.note(**got);
        }
        break;
    }
    default: {
        std::vector<parcel> some;
        const std::size_t n = co_await ch.async_recv_n(some, 1 + chance.below(5));
        r.good = r.good && n == some.size();
        r.note(some);
        co_return n != 0;
    }
    }
    co_return true;
}

// Waits as an event loop does, and sometimes gives up.
template <class P>
bool recv_by_callback(basic_async_op<std::optional<parcel>, P> op, receiver& r,
                      test::jitter& chance) {
    std::atomic<int> wakes{0};
    const auto wake = [](void* n) noexcept { ++*static_cast<std::atomic<int>*>(n); };
    basic_callback_wait<std::optional<parcel>, P> w(waker(wake, &wakes));
    w.begin(std::move(op));
    chance();
    if (!w.is_complete() && chance.below(3) == 0 && w.cancel()) {
        return true;
    }
    while (!w.is_complete()) {
        std::this_thread::yield();
    }
    const auto got = w.take().value();
    r.good = r.good && wakes <= 1;
    if (got) {
        r.note(*got);
    }
    return got.has_value();
}

// False: closed and drained.
template <class Channel> bool recv_once(Channel& ch, receiver& r, test::jitter& chance) {
    const auto note = [&r](const result<parcel>& got) {
        if (got) {
            r.note(*got);
        }
        return got || got.error() != errc::closed;
    };
    switch (chance.below(9)) {
    case 0: return note(ch.try_recv());
    case 1: return note(ch.try_recv_for(microseconds(chance.below(60))));
    case 2: return note(ch.try_recv_until(steady_clock::now() + microseconds(chance.below(60))));
    case 3: return note(ch.recv(r.stop.token()));
    case 4: {
        std::vector<parcel> some;
        const std::size_t most = 1 + chance.below(5);
        const bool waits = chance.below(2) == 0;
        const std::size_t n = waits ? ch.recv_n(some, most) : ch.try_recv_n(some, most);
        r.good = r.good && n == some.size() && n <= most;
        r.note(some);
        return !waits || n != 0;
    }
    case 5: return sync_wait(recv_in_task(ch, r, chance));
    case 6: return recv_by_callback(ch.async_recv(), r, chance);
    default: {
        const std::optional<parcel> got = ch.recv();
        if (got) {
            r.note(*got);
        }
        return got.has_value();
    }
    }
}

// ---- Detached coroutines: they say when they have ended.

template <class Channel>
test::detached send_all(Channel& ch, sender& s, int n, test::jitter chance, bool elsewhere,
                        test::thread_executor& where, std::atomic<int>& running) {
    for (int i = 0; i < n && !s.closed; ++i) {
        auto op = ch.async_send(s.make());
        if (elsewhere) {
            const auto got = co_await std::move(op).resume_on(where);
            s.note(got, chance);
        } else if (chance.below(3) != 0) {
            const auto got = co_await std::move(op);
            s.note(got, chance);
        } else {
            const auto got = co_await std::move(op).with_timeout(microseconds(chance.below(200)));
            s.note(got, chance);
        }
    }
    running.fetch_sub(1);
}

template <class Channel>
test::detached recv_all(Channel& ch, receiver& r, int n, bool elsewhere,
                        test::thread_executor& where, std::atomic<int>& running) {
    for (; n != 0 && !r.told; --n) {
        auto op = ch.async_recv();
        std::optional<parcel> got;
        if (elsewhere) {
            got = co_await std::move(op).resume_on(where);
        } else {
            got = co_await std::move(op);
        }
        r.told = !got;
        if (got) {
            r.note(*got);
        }
    }
    running.fetch_sub(1);
}

struct crowd {
    int senders; // threads of each kind
    int receivers;
    int coroutines; // of each kind
    int turns;
};

// If receivers stay until it is closed, all is received. If they leave, items may be left.
enum class mood { all_stay, some_leave, all_leave };

template <class Channel> inline constexpr bool is_sliding = false;
template <class P> inline constexpr bool is_sliding<basic_sliding_channel<parcel, P>> = true;
// Items of one sender and one level come in their order.
template <class Channel> inline constexpr std::uint32_t levels_of = 1;
template <class P>
inline constexpr std::uint32_t levels_of<basic_priority_channel<parcel, parcel::less, P>> = levels;

template <class Channel> class storm {
public:
    storm(std::size_t capacity, crowd who, std::uint32_t seed, test::thread_executor& where)
        : ch_(made(capacity)), who_(who), seed_(seed), where_(where) {
        for (int i = 0; i < who.senders + who.coroutines; ++i) {
            senders_.emplace_back(static_cast<std::uint32_t>(i));
        }
        receivers_.resize(static_cast<std::size_t>(who.receivers + who.coroutines));
    }

    // Where all stay it is closed when all has been sent, else at any time.
    void rage(mood how) {
        const bool patient = how == mood::all_stay;
        const auto turns_of = [this, how](int i) {
            return how == mood::all_stay || (how == mood::some_leave && i % 2 == 0)
                       ? -1
                       : who_.turns / 2;
        };
        sending_ = who_.senders;
        running_ = 2 * who_.coroutines;
        for (int i = 0; i < who_.coroutines; ++i) {
            recv_all(ch_, receivers_[at(who_.receivers + i)], turns_of(i), i % 2 == 0, where_,
                     running_);
            if constexpr (is_sliding<Channel>) {
                running_.fetch_sub(1);
            } else {
                send_all(ch_, senders_[at(who_.senders + i)], who_.turns, chance_of(1'000 + i),
                         i % 2 == 0, where_, running_);
            }
        }
        test::run_threads(1 + who_.senders + who_.receivers, [&, patient](int i) {
            test::jitter chance = chance_of(i);
            if (i == 0) {
                end_it(patient, chance);
            } else if (i <= who_.senders) {
                sender& mine = senders_[at(i - 1)];
                for (int turn = 0; turn < who_.turns && !mine.closed; ++turn) {
                    send_once(ch_, mine, chance);
                }
                sending_.fetch_sub(1);
            } else {
                receiver& mine = receivers_[at(i - 1 - who_.senders)];
                for (int left = turns_of(i); left != 0 && !mine.told; --left) {
                    mine.told = !recv_once(ch_, mine, chance);
                }
            }
        });
        if (!test::eventually([this] { return running_.load() == 0; })) {
            test::give_up(test::where(), "coroutines wait for ever");
        }
    }

    // Each sent item is received or left, once; no receiver sees two of one sender in the wrong order.
    bool is_balanced() {
        bool good = fits_;
        receiver rest;
        while (const auto got = ch_.try_recv()) {
            rest.note(*got);
        }
        for (const receiver& r : receivers_) { // a receiver that was told "closed" was told so
            rest.good = rest.good && (!r.told || rest.came.empty());
        }
        receivers_.emplace_back().came = rest.came;
        std::vector<std::uint64_t> went;
        std::vector<std::uint64_t> came;
        for (const sender& s : senders_) {
            good = good && s.good && std::is_sorted(s.went.begin(), s.went.end());
            went.insert(went.end(), s.went.begin(), s.went.end());
            came.insert(came.end(), s.displaced.begin(), s.displaced.end());
        }
        for (const receiver& r : receivers_) {
            constexpr std::uint32_t kept = levels_of<Channel>;
            std::vector<std::uint64_t> last(senders_.size() * kept, 0);
            for (const std::uint64_t name : r.came) {
                const auto level = static_cast<std::uint32_t>(name) % kept;
                std::uint64_t& before = last[static_cast<std::size_t>(name >> 32) * kept + level];
                good = good && name + 1 > before;
                before = name + 1;
            }
            good = good && r.good;
            came.insert(came.end(), r.came.begin(), r.came.end());
        }
        std::sort(went.begin(), went.end());
        std::sort(came.begin(), came.end());
        return good && rest.good && went == came && ch_.empty();
    }

private:
    static Channel made(std::size_t capacity) {
        if constexpr (is_sliding<Channel> || levels_of<Channel> != 1) {
            return Channel(std::max<std::size_t>(capacity, 1));
        } else if constexpr (std::is_constructible_v<Channel, std::size_t>) {
            return Channel(capacity);
        } else {
            return Channel();
        }
    }
    static std::size_t at(int i) { return static_cast<std::size_t>(i); }
    test::jitter chance_of(int i) const {
        return test::jitter(seed_ + static_cast<std::uint32_t>(i) * 7'919u);
    }

    // Looks on, requests stops, and closes.
    void end_it(bool patient, test::jitter& chance) {
        for (std::uint32_t left = chance.below(300); patient ? sending_ != 0 : left != 0; --left) {
            fits_ = fits_ && ch_.size() <= ch_.capacity();
            const std::uint32_t who = chance.below(64);
            if (who < senders_.size()) {
                senders_[who].stop.stop();
            } else if (who - senders_.size() < receivers_.size()) {
                receivers_[who - senders_.size()].stop.stop();
            } else {
                chance();
            }
        }
        if (patient) { // the coroutines have to come to their end, too
            test::eventually([this] { return running_.load() <= who_.coroutines; });
        }
        ch_.close();
    }

    Channel ch_;
    const crowd who_;
    const std::uint32_t seed_;
    test::thread_executor& where_;
    std::deque<sender> senders_;
    std::deque<receiver> receivers_;
    std::atomic<int> sending_{0};
    std::atomic<int> running_{0};
    bool fits_ = true;
};

template <class Channel> void storms(crowd who) {
    const test::stress_time time;
    const int before = parcel::alive;
    std::uint32_t round = 0;
    {
        test::thread_executor where;
        do {
            for (const std::size_t capacity : capacities) {
                CAPTURE(capacity, round);
                const std::uint32_t seed = test::run_seed() + ++round * 104'729u;
                storm<Channel> one(capacity, who, seed, where);
                one.rage(static_cast<mood>(round % 3));
                REQUIRE(one.is_balanced());
            }
        } while (time.is_left());
    }
    CHECK(parcel::alive == before); // each constructed was destroyed, once
}

using native_channel = channel<parcel>;
using jittery_channel = basic_channel<parcel, test::jittery, std::uint16_t>;
using native_unbounded = unbounded_channel<parcel>;
using jittery_unbounded = basic_unbounded_channel<parcel, test::jittery>;
using native_priority = priority_channel<parcel, parcel::less>;
using jittery_priority = basic_priority_channel<parcel, parcel::less, test::jittery>;
using native_sliding = sliding_channel<parcel>;
using jittery_sliding = basic_sliding_channel<parcel, test::jittery>;

template <class Make> void handle_storm(Make make) {
    const test::stress_time time;
    const int before = parcel::alive;
    std::uint64_t rounds = 0;
    int wrong = 0;
    do {
        const bool drain = rounds % 2 == 0; // or receivers leave early
        std::atomic<int> went{0};
        std::atomic<int> received{0};
        {
            auto [tx, rx] = make(1 + rounds % 3);
            std::array<std::optional<decltype(tx)>, 2> sends{tx, std::move(tx)};
            std::array<std::optional<decltype(rx)>, 2> receives{rx, std::move(rx)};
            test::players(
                4,
                [&](int i, test::jitter& chance) {
                    const auto at = static_cast<std::size_t>(i / 2);
                    if (i % 2 == 0) {
                        const int n = static_cast<int>(chance.below(30));
                        for (int k = 0; k < n; ++k) {
                            auto copy = *sends[at];
                            if (!copy.send(parcel(static_cast<std::uint32_t>(i),
                                                  static_cast<std::uint32_t>(k)))) {
                                break;
                            }
                            went.fetch_add(1);
                            *sends[at] = std::move(copy);
                        }
                        sends[at].reset();
                    } else {
                        const int n = static_cast<int>(chance.below(20));
                        auto mine = std::move(*receives[at]);
                        receives[at].reset();
                        for (int k = 0; drain || k < n; ++k) {
                            const auto copy = mine;
                            if (!mine.recv()) {
                                break;
                            }
                            received.fetch_add(1);
                        }
                    }
                },
                static_cast<std::uint32_t>(rounds));
        }
        wrong += drain ? (went != received ? 1 : 0) : (went < received ? 1 : 0);
        wrong += parcel::alive != before ? 1 : 0;
        ++rounds;
    } while (time.is_left());
    INFO("seed " << test::run_seed() << ", rounds " << rounds);
    CHECK(wrong == 0);
}

// What becomes of each number: received, or destroyed on the way.
class ledger {
public:
    explicit ledger(std::uint32_t items) : received_(items), lost_(items) {}

    void receive(std::uint32_t n) noexcept { received_[n].fetch_add(1); }
    void lose(std::uint32_t n) noexcept { lost_[n].fetch_add(1); }

    std::size_t received() const noexcept { return sum_of(received_); }
    std::size_t lost() const noexcept { return sum_of(lost_); }
    bool has_each_once() const noexcept {
        bool good = true;
        for (std::size_t n = 0; n < received_.size(); ++n) {
            good = good && received_[n] + lost_[n] == 1;
        }
        return good;
    }

private:
    using counts = std::vector<std::atomic<int>>;
    static std::size_t sum_of(const counts& all) noexcept {
        return std::accumulate(all.begin(), all.end(), std::size_t{0},
                               [](std::size_t sum, const auto& n) {
                                   return sum + static_cast<std::size_t>(n.load());
                               });
    }

    counts received_;
    counts lost_;
};

// Writes down that it was destroyed, unless it was received or moved from.
class entry {
public:
    entry(ledger& in, std::uint32_t n) noexcept : in_(&in), number_(n) {}
    entry(entry&& other) noexcept
        : in_(std::exchange(other.in_, nullptr)), number_(other.number_) {}
    entry& operator=(entry&&) = delete;
    ~entry() {
        if (in_ != nullptr) {
            in_->lose(number_);
        }
    }
    void receive() noexcept { std::exchange(in_, nullptr)->receive(number_); }

private:
    ledger* in_;
    std::uint32_t number_;
};

template <class Channel> test::held recv_on(test::manual_executor& where, Channel& ch) {
    std::optional<entry> got = co_await ch.async_recv().resume_on(where);
    if (got) {
        got->receive();
    }
}
template <class Channel> test::held recv_many_on(test::manual_executor& where, Channel& ch) {
    std::vector<entry> some;
    static_cast<void>(co_await ch.async_recv_n(some, 3).resume_on(where));
    for (entry& e : some) {
        e.receive();
    }
}

// Waits again and again, and is destroyed with what came, or goes on, until the channel is closed.
template <class Channel> void quit(Channel& ch, test::jitter chance) {
    while (!ch.is_closed()) {
        test::manual_executor mine;
        auto waiting = chance.below(2) == 0 ? recv_on(mine, ch) : recv_many_on(mine, ch);
        waiting.start();
        while (!waiting.done() && mine.size() == 0) { // else its release may not be over
            std::this_thread::yield();
        }
        chance();
        if (chance.below(8) == 0) {
            mine.run_all();
        }
    }
}

// Two send, one receives, and two quit; closed when each item has been received or destroyed.
// Returns how many were destroyed.
template <class Channel> std::size_t quitters(Channel& ch, std::uint32_t seed) {
    constexpr std::uint32_t items = 300;
    constexpr int senders = 2;
    ledger all(items * senders);
    bool done = false;
    test::run_threads(senders + 4, [&](int i) {
        test::jitter chance(seed + static_cast<std::uint32_t>(i) * 7'919u);
        const auto me = static_cast<std::uint32_t>(i);
        if (i < senders) {
            for (std::uint32_t n = 0; n < items; ++n) {
                static_cast<void>(ch.send(entry(all, me * items + n)));
            }
        } else if (i == senders) {
            while (std::optional<entry> got = ch.recv()) {
                got->receive();
            }
        } else if (i == senders + 1) {
            done = test::eventually([&] { return all.received() + all.lost() == items * senders; });
            ch.close();
        } else {
            quit(ch, chance);
        }
    });
    CHECK(done); // else one was left inside beside a receiver that waits
    CHECK(all.has_each_once());
    CHECK(ch.empty());
    return all.lost();
}

} // namespace

TEMPLATE_TEST_CASE("channel: nothing is lost or doubled in storms of threads and coroutines",
                   "[promise.item-once][promise.callback-grants]", native_channel,
                   native_unbounded) {
    storms<TestType>({2, 2, 2, 60});
}

TEMPLATE_TEST_CASE(
    "channel: nothing is lost or doubled in storms with random delays and spurious wakes", "",
    jittery_channel, jittery_unbounded) {
    storms<TestType>({2, 2, 2, 30});
}

TEST_CASE("channel: nothing is lost or doubled with many more threads than processors",
          "[promise.item-once]") {
    storms<native_channel>({32, 32, 4, 10});
}

TEMPLATE_TEST_CASE("channel: nothing is lost or doubled on a single processor",
                   "[promise.item-once]", native_channel, native_unbounded) {
    const test::on_one_processor one;
    storms<TestType>({3, 3, 2, 40});
}

TEMPLATE_TEST_CASE(
    "priority_channel: no item is lost, doubled or overtaken by an equal one in storms",
    "[promise.priority-order]", native_priority, jittery_priority) {
    storms<TestType>({2, 2, 2, 40});
}

TEMPLATE_TEST_CASE("sliding_channel: each item is received or displaced once in storms",
                   "[promise.sliding-displaces]", native_sliding, jittery_sliding) {
    storms<TestType>({3, 3, 2, 60});
}

TEST_CASE("handles: copied, used and dropped in a storm, they lose no item and no channel") {
    handle_storm([](std::size_t) { return make_unbounded_channel<parcel, test::jittery>(); });
    handle_storm([](std::size_t n) { return make_channel<parcel, test::jittery>(n - 1); });
}

// No other thread comes that could wake a waiter that a lost wakeup left asleep.
TEMPLATE_TEST_CASE("channel: every request gets its reply, by a thread or by a coroutine", "",
                   test::native, test::jittery) {
    using any_channel = basic_channel<parcel, TestType>;
    const test::stress_time time;
    do {
        for (const std::size_t capacity : {0u, 1u, 3u, 16u}) {
            any_channel there(capacity);
            any_channel back(capacity);
            std::atomic<int> running{0};
            const bool by_thread = capacity % 2 == 1;
            if (!by_thread) {
                running = 1;
                [](any_channel& in, any_channel& out, std::atomic<int>& left) -> test::detached {
                    for (bool open = true; open;) {
                        std::optional<parcel> got = co_await in.async_recv();
                        open = got.has_value();
                        if (got) {
                            const auto went = co_await out.async_send(std::move(*got));
                            open = went.has_value();
                        }
                    }
                    left.fetch_sub(1);
                }(there, back, running);
            }
            constexpr std::uint32_t n = 500;
            std::uint32_t answered = 0;
            test::run_threads(by_thread ? 2 : 1, [&](int i) {
                if (i == 0) {
                    for (std::uint32_t k = 0; k < n; ++k) {
                        const bool asked = there.send(parcel(1, k)).has_value();
                        const std::optional<parcel> answer = back.recv();
                        answered += asked && answer && answer->number() == k ? 1 : 0;
                    }
                    there.close();
                } else {
                    for (parcel p : there) {
                        static_cast<void>(back.send(std::move(p)));
                    }
                }
            });
            REQUIRE(test::eventually([&] { return running == 0; }));
            REQUIRE(answered == n);
        }
    } while (time.is_left());
}

TEMPLATE_TEST_CASE(
    "channel: a thread that has sent finds it not empty, and has something to receive",
    "[promise.attempt-fails-rightly]", test::native, test::jittery) {
    const test::stress_time time;
    constexpr int threads = 4;
    do {
        basic_channel<int, TestType, std::uint16_t> ch(threads);
        std::array<bool, threads> good{};
        good.fill(true);
        test::run_threads(threads, [&](int i) {
            bool& mine = good[static_cast<std::size_t>(i)];
            for (int k = 0; k < 2'000; ++k) {
                // Each takes one for each that it puts in: there is room, and one is left for it.
                mine = mine && (k % 2 == 0 ? ch.send(k) : ch.try_send(k)).has_value();
                mine = mine && !ch.empty() && ch.size() <= threads;
                mine = mine && ch.try_recv().has_value();
            }
        });
        REQUIRE(std::all_of(good.begin(), good.end(), [](bool g) { return g; }));
        REQUIRE(ch.empty());
    } while (time.is_left());
}

TEMPLATE_TEST_CASE("channel: coroutines that are destroyed lose no item for which there is room",
                   "", test::native, test::jittery) {
    const test::stress_time time;
    std::uint32_t round = 0;
    do {
        for (const std::size_t capacity : {0u, 1u, 2u, 7u, 1'000u}) {
            CAPTURE(capacity, round);
            basic_channel<entry, TestType, std::uint16_t> ch(capacity);
            const std::size_t lost = quitters(ch, test::run_seed() + ++round * 104'729u);
            REQUIRE((lost == 0 || capacity < 600)); // it is never full
        }
        basic_unbounded_channel<entry, TestType> unbounded;
        REQUIRE(quitters(unbounded, test::run_seed() + ++round * 104'729u) == 0);
    } while (time.is_left());
}
