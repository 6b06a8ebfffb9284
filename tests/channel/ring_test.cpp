#include "support/counted.hpp"
#include "support/platforms.hpp"
#include "support/test.hpp"

#include <bide/channel/ring.hpp>

using bide::attempt;

static_assert(!std::is_copy_constructible_v<bide::basic_ring<int>>);
static_assert(!std::is_move_constructible_v<bide::basic_ring<int>>);
static_assert(!std::is_default_constructible_v<bide::basic_ring<int>>);
static_assert(!std::is_convertible_v<std::size_t, bide::basic_ring<int>>);
static_assert(bide::basic_ring<char>::max_capacity() > std::size_t{1} << 50);
static_assert(bide::basic_ring<char, test::native, std::uint16_t>::max_capacity() == 4'094);
static_assert(bide::basic_ring<char, test::native, std::uint8_t>::max_capacity() == 14);

namespace {

template <class T, class Platform, class Stamp, class... Args>
attempt push(bide::basic_ring<T, Platform, Stamp>& r, Args&&... args) {
    typename bide::basic_ring<T, Platform, Stamp>::claim c;
    const attempt a = r.begin_push(c);
    if (a == attempt::done) {
        ::new (r.place(c)) T(std::forward<Args>(args)...);
        r.end(c);
    }
    return a;
}

template <class T, class Platform, class Stamp>
attempt pop(bide::basic_ring<T, Platform, Stamp>& r, std::vector<T>& out) {
    typename bide::basic_ring<T, Platform, Stamp>::claim c;
    const attempt a = r.begin_pop(c);
    if (a == attempt::done) {
        out.push_back(std::move(r.item(c)));
        r.item(c).~T();
        r.end(c);
    }
    return a;
}

// As many as there is room for, of those from `first` on. Says how many.
template <class Ring> std::size_t push_n(Ring& r, int first, std::size_t most) {
    typename Ring::claim c;
    if (r.begin_push(c, most) != attempt::done) {
        return 0;
    }
    auto slot = r.cells(c);
    for (std::size_t i = 0; i < c.size(); ++i, ++slot) {
        ::new (slot.place()) int(first + static_cast<int>(i));
    }
    slot = r.cells(c);
    for (std::size_t i = 0; i < c.size(); ++i, ++slot) {
        slot.end();
    }
    return c.size();
}

template <class Ring> std::size_t pop_n(Ring& r, std::vector<int>& out, std::size_t most) {
    typename Ring::claim c;
    if (r.begin_pop(c, most) != attempt::done) {
        return 0;
    }
    auto slot = r.cells(c);
    for (std::size_t i = 0; i < c.size(); ++i, ++slot) {
        out.push_back(*std::launder(static_cast<int*>(slot.place())));
        slot.end();
    }
    return c.size();
}

std::vector<int> numbers(int from, int to) {
    std::vector<int> all(static_cast<std::size_t>(to - from));
    std::iota(all.begin(), all.end(), from);
    return all;
}

} // namespace

TEMPLATE_TEST_CASE("ring: any sequence of pushes and pops gives what a deque of its capacity gives",
                   "", std::uint8_t, std::uint16_t, std::uint64_t) {
    for (std::size_t capacity = 1; capacity <= 9; ++capacity) {
        CAPTURE(capacity);
        bide::basic_ring<int, test::native, TestType> r(capacity);
        test::jitter chance(test::run_seed() + static_cast<std::uint32_t>(capacity));
        std::deque<int> inside;
        std::vector<int> out;
        int pushed = 0;
        const auto take = [&](std::size_t n) {
            bool right = out.size() == n;
            for (std::size_t i = 0; i < n && right; ++i) {
                right = out[i] == inside.front();
                inside.pop_front();
            }
            out.clear();
            return right;
        };
        bool right = r.capacity() == capacity && !r.is_closed();
        // A lap has at least 9 of 32 positions: this is round all of 65,536 three times.
        for (int step = 0; step < 120'000 && right; ++step) {
            const bool full = inside.size() == capacity;
            const bool empty = inside.empty();
            right = r.is_full() == full && r.is_empty() == empty && r.size() == inside.size();
            const std::size_t most = 1 + chance.below(static_cast<std::uint32_t>(capacity));
            switch (chance.below(8)) {
            case 0: {
                const std::size_t n = push_n(r, pushed, most);
                right = right && n == std::min(most, capacity - inside.size());
                for (std::size_t i = 0; i < n; ++i) {
                    inside.push_back(pushed++);
                }
                break;
            }
            case 1: {
                const std::size_t n = pop_n(r, out, most);
                right = right && n == std::min(most, inside.size()) && take(n);
                break;
            }
            case 2:
            case 3:
            case 4:
                right = right && push(r, pushed) == (full ? attempt::not_now : attempt::done);
                if (!full) {
                    inside.push_back(pushed++);
                }
                break;
            default:
                right = right && pop(r, out) == (empty ? attempt::not_now : attempt::done) &&
                        take(empty ? 0 : 1);
            }
        }
        REQUIRE(right);

        // Closed for pushes at once, for pops when nothing is inside.
        REQUIRE(r.close());
        REQUIRE_FALSE(r.close());
        REQUIRE(r.is_closed());
        REQUIRE(push(r, 99) == attempt::closed);
        REQUIRE_FALSE(r.is_full()); // a closed ring is no reason to wait
        while (!inside.empty()) {
            REQUIRE(r.size() == inside.size());
            REQUIRE_FALSE(r.is_empty());
            REQUIRE(pop(r, out) == attempt::done);
            REQUIRE(take(1));
        }
        REQUIRE(r.is_empty());
        REQUIRE(pop(r, out) == attempt::closed);
    }
}

TEST_CASE("ring: without a capacity it is full and empty, open or closed") {
    bide::basic_ring<int> r(0);
    std::vector<int> out;
    CHECK(r.capacity() == 0);
    CHECK(r.size() == 0);
    CHECK(r.is_empty());
    CHECK(r.is_full());
    CHECK(push(r, 1) == attempt::not_now);
    CHECK(pop(r, out) == attempt::not_now);
    CHECK(r.close());
    CHECK(push(r, 1) == attempt::closed);
    CHECK(pop(r, out) == attempt::closed);
    CHECK(r.size() == 0);
    CHECK(out.empty());
}

TEST_CASE("ring: a capacity that positions or memory cannot hold throws std::length_error") {
    using small = bide::basic_ring<int, test::native, std::uint16_t>;
    using large = bide::basic_ring<int>;
    using huge = bide::basic_ring<std::array<char, 65'536>>;
    CHECK_THROWS_AS(small(small::max_capacity() + 1), std::length_error);
    CHECK_THROWS_AS(small(65'535), std::length_error);
    CHECK_THROWS_AS(small(65'536), std::length_error); // 0, in 16 bits
    CHECK_THROWS_AS(small(65'537), std::length_error);
    CHECK_THROWS_AS(large(large::max_capacity() + 1), std::length_error);
    CHECK_THROWS_AS(large(std::numeric_limits<std::size_t>::max()), std::length_error);
    CHECK_THROWS_AS(large(std::numeric_limits<std::size_t>::max() / 2 + 1), std::length_error);
    CHECK_THROWS_AS(huge(huge::max_capacity() + 1), std::length_error);
}

TEMPLATE_TEST_CASE("ring: the largest capacity of its stamp is exact", "", std::uint8_t,
                   std::uint16_t) {
    using ring = bide::basic_ring<int, test::native, TestType>;
    const std::size_t capacity = ring::max_capacity();
    ring r(capacity);
    std::vector<int> out;
    const int laps = 20; // the stamp has room for 8
    for (int lap = 0; lap < laps; ++lap) {
        const int first = lap * static_cast<int>(capacity);
        REQUIRE(push_n(r, first, capacity) == capacity);
        REQUIRE(r.is_full());
        REQUIRE(r.size() == capacity);
        REQUIRE(push(r, -1) == attempt::not_now);
        REQUIRE(pop_n(r, out, capacity) == capacity);
        REQUIRE(r.is_empty());
    }
    CHECK(out == numbers(0, laps * static_cast<int>(capacity)));
}

TEST_CASE("ring: a slot that is claimed is counted, and busy until it is published") {
    bide::basic_ring<int> r(2);
    std::vector<int> out;
    bide::basic_ring<int>::claim first;

    REQUIRE(r.begin_push(first) == attempt::done);
    CHECK(r.size() == 1);
    CHECK_FALSE(r.is_empty());
    CHECK(pop(r, out) == attempt::busy);
    REQUIRE(push(r, 2) == attempt::done); // the next need not wait for it
    CHECK(r.is_full());
    CHECK(pop(r, out) == attempt::busy); // first in, first out
    ::new (r.place(first)) int(1);
    r.end(first);

    bide::basic_ring<int>::claim leaving;
    REQUIRE(r.begin_pop(leaving) == attempt::done);
    CHECK(r.size() == 1);
    CHECK_FALSE(r.is_full());
    CHECK(push(r, 3) == attempt::busy);
    CHECK(r.item(leaving) == 1);
    REQUIRE(pop(r, out) == attempt::done);
    CHECK(push(r, 3) == attempt::busy);
    CHECK(r.is_empty());
    r.end(leaving);
    CHECK(push(r, 3) == attempt::done);
    CHECK(pop(r, out) == attempt::done);
    CHECK(out == std::vector<int>{2, 3});
}

TEST_CASE("ring: what was claimed before it was closed is still published and popped") {
    bide::basic_ring<int> r(3);
    std::vector<int> out;
    bide::basic_ring<int>::claim c;
    REQUIRE(r.begin_push(c) == attempt::done);
    REQUIRE(r.close());
    CHECK(pop(r, out) == attempt::busy); // and not closed
    CHECK(r.size() == 1);
    ::new (r.place(c)) int(7);
    r.end(c);
    CHECK(pop(r, out) == attempt::done);
    CHECK(pop(r, out) == attempt::closed);
    CHECK(out == std::vector<int>{7});
}

TEST_CASE("ring: a batch ends before a slot that is busy") {
    bide::basic_ring<int> r(4);
    std::vector<int> out;
    bide::basic_ring<int>::claim second;
    push(r, 1);
    REQUIRE(r.begin_push(second) == attempt::done);
    push(r, 3);
    CHECK(pop_n(r, out, 4) == 1);
    CHECK(pop_n(r, out, 4) == 0);
    ::new (r.place(second)) int(2);
    r.end(second);
    CHECK(pop_n(r, out, 4) == 2);
    CHECK(out == std::vector<int>{1, 2, 3});
}

TEST_CASE("ring: it neither constructs nor destroys items") {
    test::tally in;
    alignas(test::counted) std::byte last[sizeof(test::counted)];
    {
        bide::basic_ring<test::counted> r(3);
        CHECK(in.made == 0);
        push(r, in, 1);
        push(r, in, 2);
        CHECK(in.made == 2);
        bide::basic_ring<test::counted>::claim c;
        REQUIRE(r.begin_pop(c) == attempt::done);
        ::new (last) test::counted(std::move(r.item(c)));
        r.item(c).~counted();
        r.end(c);
        REQUIRE(r.begin_pop(c) == attempt::done);
        r.item(c).~counted();
        r.end(c);
    }
    CHECK(in.alive() == 1);
    std::launder(reinterpret_cast<test::counted*>(last))->~counted();
    CHECK(in.alive() == 0);
}

// Producers push numbers of their own, one by one or in batches, consumers write down what they pop;
// another thread calls size() all the while.
