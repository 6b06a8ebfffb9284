#include "support/alloc.hpp"
#include "support/death.hpp"
#include "support/observing.hpp"
#include "support/platforms.hpp"
#include "support/test.hpp"

#include <bide/channel/select.hpp>
#include <bide/sync/keyed_mutex.hpp>

static_assert(!std::is_copy_constructible_v<bide::keyed_mutex<int>>);
static_assert(!std::is_move_constructible_v<bide::keyed_mutex<int>>);
static_assert(!std::is_copy_constructible_v<bide::keyed_mutex<int>::key_lock>);
static_assert(std::is_nothrow_move_constructible_v<bide::keyed_mutex<int>::key_lock>);

namespace {

template <class Platform>
using keyed_on = bide::keyed_mutex<int, std::hash<int>, std::equal_to<int>, Platform>;

// All keys in one bucket; a number that throws.
struct bad_hash {
    std::size_t operator()(int key) const {
        if (key < 0) {
            throw key;
        }
        return 0;
    }
};

// A key whose copy and comparison throw on demand: when `left` calls have been made.
struct fragile {
    int number;

    explicit fragile(int n) : number(n) { ++alive; }
    fragile(const fragile& other) : number(other.number) {
        use(copies_left);
        ++alive;
    }
    fragile& operator=(const fragile&) = delete;
    ~fragile() { --alive; }
    void operator&() const = delete;

    static void use(int& left) {
        if (left >= 0 && left-- == 0) {
            throw std::runtime_error("fragile");
        }
    }

    inline static int copies_left = -1, looks_left = -1, alive = 0;
};
struct same_hash {
    std::size_t operator()(const fragile&) const { return 1; }
};
struct equal_fragile {
    bool operator()(const fragile& a, const fragile& b) const {
        fragile::use(fragile::looks_left);
        return a.number == b.number;
    }
};

} // namespace

TEST_CASE("keyed_mutex: a key has one holder, and keys do not wait for each other") {
    keyed_on<test::native> m;
    auto one = m.lock(1);
    REQUIRE(one);
    CHECK(one.key() == 1);
    auto two = m.try_lock(2);
    CHECK(two);
    CHECK_FALSE(m.try_lock(1));
    CHECK_FALSE(m.try_lock_for(1, 1ms));
    CHECK_FALSE(m.try_lock_for(1, 0s));
    CHECK_FALSE(m.try_lock_until(1, std::chrono::steady_clock::now() + 1ms));
    std::stop_source stop;
    stop.request_stop();
    const auto stopped = m.lock(stop.get_token(), 1);
    CHECK((!stopped && stopped.error() == bide::errc::stopped));
    CHECK(m.lock(stop.get_token(), 3)); // free
    one.unlock();
    CHECK_FALSE(one);
    one.unlock();
    one = m.lock(1);
    two = std::move(one);
    CHECK(two.key() == 1);
    CHECK(m.try_lock(2));
    auto moved = std::move(two);
    CHECK_FALSE(two);
    CHECK_FALSE(m.try_lock(1));
}

TEST_CASE("keyed_mutex: a key is a case of a select") {
    bide::keyed_mutex<std::string> m;
    auto held = m.lock("a");
    CHECK(bide::select(bide::on_lock(m, "a"), bide::on_timeout(1ms)).index() == 1);
    {
        auto chosen = bide::select(bide::on_lock(m, "a"), bide::on_lock(m, "b"));
        CHECK(chosen.index() == 1);
        CHECK(chosen.get<1>().key() == "b");
        CHECK_FALSE(m.try_lock("b"));
    }
    CHECK(m.try_lock("b"));
    held.unlock();
    CHECK(m.try_lock("a"));
}

TEST_CASE("keyed_mutex: a key takes memory only while it is in use, and a wait takes none",
          "[promise.keyed-mutex]") {
    keyed_on<test::observing<test::native>> m(2);
    const std::size_t at_first = test::live_allocations();
    {
        std::vector<bide::basic_key_lock<int, test::observing<test::native>>> held;
        held.reserve(1'000);
        for (int key = 0; key < 1'000; ++key) {
            held.push_back(m.lock(key));
        }
        bool all = true;
        for (int key = 0; key < 1'000; ++key) {
            all = all && !m.try_lock(key);
        }
        CHECK(all);
        std::size_t made = 1;
        test::team waiting(1, [&](int) {
            const std::size_t before = test::allocations_here();
            static_cast<void>(m.lock(7));
            made = test::allocations_here() - before;
        });
        REQUIRE(test::are_asleep<test::native>(1));
        held[7].unlock();
        waiting.join();
        CHECK(made == 0);
        for (std::size_t i = 0; i < held.size(); i += 2) {
            held[i].unlock();
        }
        for (int key = 0; key < 1'000; ++key) {
            const bool is_free = static_cast<bool>(m.try_lock(key));
            all = all && (is_free == (key % 2 == 0 || key == 7));
        }
        CHECK(all);
    }
    CHECK(test::live_allocations() == at_first);
}

TEST_CASE("keyed_mutex: equal hashes are told apart, and what Hash throws locks nothing",
          "[promise.user-exception]") {
    bide::keyed_mutex<int, bad_hash> m;
    auto one = m.lock(1);
    auto two = m.try_lock(2);
    CHECK(two);
    CHECK_FALSE(m.try_lock(1));
    CHECK_THROWS_AS(m.lock(-1), int);
    CHECK_THROWS_AS(m.async_lock(-1), int);
    one.unlock();
    CHECK(m.try_lock(1));
    static_cast<void>(m.async_lock(4)); // an operation that is not awaited locks nothing
    CHECK(m.try_lock(4));
}

TEST_CASE("keyed_mutex: what Equal or the copy of a key throws locks nothing and loses no key",
          "[promise.user-exception]") {
    {
        bide::keyed_mutex<fragile, same_hash, equal_fragile> m(1);
        const fragile a(1);
        const fragile b(2);
        const auto held = m.lock(a);
        const auto fails = [&](int& left, int at) {
            const auto once = [&](auto call) {
                left = at;
                bool threw = false;
                try {
                    static_cast<void>(call());
                } catch (const std::runtime_error&) {
                    threw = true;
                }
                left = -1;
                return threw;
            };
            return once([&] { return m.lock(b); }) && once([&] { return m.try_lock(b); }) &&
                   once([&] { return m.try_lock_for(b, 1ms); }) &&
                   once([&] { return m.lock(std::stop_token(), b); }) &&
                   once([&] { return m.async_lock(b); });
        };
        CHECK(fails(fragile::looks_left, 0));
        CHECK(fails(fragile::looks_left, 1)); // the second look, with the key that was made
        CHECK(fails(fragile::copies_left, 0));
        CHECK(fragile::alive == 3); // a, b and the copy of a
        CHECK_FALSE(m.try_lock(a));
        const auto other = m.lock(b);
        CHECK_FALSE(m.try_lock(other.key()));
    }
    CHECK(fragile::alive == 0);
}

#if BIDE_TESTS_CAN_DIE

TEST_CASE("keyed_mutex: destroying it while a key is in use terminates with its name",
          "[promise.misuse-refused]") {
    const std::string said = test::dies([] {
        std::optional<bide::keyed_mutex<int>> m(std::in_place);
        auto held = m->lock(1);
        m.reset();
    });
    CHECK(test::contains(said, "keyed_mutex"));
    CHECK(test::contains(said, "destroyed while a key is in use"));
}

#endif
