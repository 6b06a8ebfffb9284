// ring: what is pushed is popped once, in order, and the popper sees what came before the push. The
// ring reports full, empty and closed only if it is.

#include <bide/channel/ring.hpp>
#include <model/channel_support.hpp>
#include <support/test.hpp>

using namespace channel_model;
using bide::attempt;

namespace {

template <class Stamp> struct basic_tube : bide::basic_ring<item, platform, Stamp> {
    using ring = bide::basic_ring<item, platform, Stamp>;
    using claim = typename ring::claim;
    using ring::ring;

    // The owner's duty.
    ~basic_tube() {
        while (pop() != 0) {
        }
    }

    attempt try_push(int v) noexcept {
        claim c;
        const attempt a = this->begin_push(c);
        if (a == attempt::done) {
            ::new (this->place(c)) item(v);
            this->end(c);
        }
        return a;
    }
    attempt try_pop(int& v) noexcept {
        claim c;
        const attempt a = this->begin_pop(c);
        if (a == attempt::done) {
            item& i = this->item(c);
            v = i.take();
            i.~item();
            this->end(c);
        }
        return a;
    }

    // Not busy.
    attempt push(int v) noexcept {
        for (;;) {
            if (const attempt a = try_push(v); a != attempt::busy) {
                return a;
            }
            platform::pause();
        }
    }
    // 0: empty, or closed.
    int pop(attempt* why = nullptr) noexcept {
        for (int v = 0;;) {
            if (const attempt a = try_pop(v); a != attempt::busy) {
                if (why != nullptr) {
                    *why = a;
                }
                return v;
            }
            platform::pause();
        }
    }

    void put(int v) noexcept {
        while (try_push(v) != attempt::done) {
            platform::pause();
        }
    }
    int get() noexcept {
        int v = 0;
        while (try_pop(v) != attempt::done) {
            platform::pause();
        }
        return v;
    }

    // As many as there is room for, numbered from `first` on.
    std::size_t push_some(int first, std::size_t most) noexcept {
        claim c;
        if (this->begin_push(c, most) != attempt::done) {
            return 0;
        }
        auto cell = this->cells(c);
        for (std::size_t i = 0; i < c.size(); ++i, ++cell) {
            ::new (cell.place()) item(first + static_cast<int>(i));
        }
        cell = this->cells(c);
        for (std::size_t i = 0; i < c.size(); ++i, ++cell) {
            cell.end();
        }
        return c.size();
    }
    // Adds them up.
    int pop_some(std::size_t most) noexcept {
        claim c;
        if (this->begin_pop(c, most) != attempt::done) {
            return 0;
        }
        int sum = 0;
        auto cell = this->cells(c);
        for (std::size_t i = 0; i < c.size(); ++i, ++cell) {
            item& it = *std::launder(static_cast<item*>(cell.place()));
            sum += it.take();
            it.~item();
            cell.end();
        }
        return sum;
    }
};

using tube = basic_tube<stamp>;

TEST_CASE("ring: items come out in the order in which one thread put them in") {
    check("ring: three through it", {1, 2}, {}, [](std::size_t capacity) {
        tube r(capacity);
        model::thread pushing([&] {
            for (int i = 1; i <= 3; ++i) {
                r.put(i);
            }
        });
        for (int i = 1; i <= 3; ++i) {
            MODEL_REQUIRE(r.get() == i);
        }
    });
}

TEST_CASE("ring: two push at once, and none is lost") {
    check("ring: two push", {1, 2}, {.weak_failures = 1}, [](std::size_t capacity) {
        tube r(capacity);
        attempt other{};
        model::thread pushing([&] { other = r.push(1); });
        const attempt mine = r.push(2);
        pushing.join();
        const bool both = other == attempt::done && mine == attempt::done;
        MODEL_REQUIRE(both == (capacity == 2) && r.size() == capacity);
        MODEL_REQUIRE(other == attempt::done || mine == attempt::done);
        const int sum = r.pop() + r.pop();
        MODEL_REQUIRE(sum == (both ? 3 : other == attempt::done ? 1 : 2));
    });
}

TEST_CASE("ring: two pop at once, and none comes twice") {
    check("ring: two pop", {1, 2}, {.weak_failures = 1}, [](std::size_t capacity) {
        tube r(capacity);
        for (std::size_t i = 1; i <= capacity; ++i) {
            r.push(static_cast<int>(i));
        }
        int other = 0;
        model::thread popping([&] { other = r.pop(); });
        const int mine = r.pop();
        popping.join();
        MODEL_REQUIRE(mine + other == (capacity == 1 ? 1 : 3));
        MODEL_REQUIRE(r.is_empty() && r.size() == 0);
    });
}

// What one thread does first another sees first: so "full" and "empty" are of an instant.
TEST_CASE("ring: is said to be full, or empty, only where it is") {
    struct row {
        const char* name;
        std::size_t capacity;
        int inside;
        std::string_view other; // what another thread does: + pushes, - pops
        char mine;              // has room, or finds an item
    };
    constexpr row rows[] = {
        {"ring: pop and push, never more than one inside", 2, 1, "-+", '+'},
        {"ring: push and pop, never less than one inside", 2, 1, "+-", '-'},
        {"ring: push, pop and push, never more than two inside", 3, 1, "+-+", '+'},
        {"ring: pop, push and pop, never less than one inside", 3, 2, "-+-", '-'},
    };
    for (const row& how : rows) {
        model::check(how.name, {}, [how] {
            tube r(how.capacity);
            for (int i = 1; i <= how.inside; ++i) {
                r.push(i);
            }
            model::thread other([&] {
                for (const char step : how.other) {
                    step == '+' ? static_cast<void>(r.push(10)) : static_cast<void>(r.pop());
                }
            });
            MODEL_REQUIRE(how.mine == '+' ? r.push(20) == attempt::done : r.pop() != 0);
        });
    }
    model::check("ring: size, between two and one", [] {
        tube r(2);
        r.push(1);
        model::thread other([&] {
            r.push(2);
            r.pop();
        });
        const std::size_t inside = r.size();
        MODEL_REQUIRE(inside == 1 || inside == 2);
    });
}

// Four threads: one pushes, one pops, and the two that look must agree on which came first.
TEST_CASE("ring: all see its positions move in the same order") {
    model::check("ring: two look at the size", [] {
        tube r(2);
        r.push(1);
        std::size_t here = 0;
        std::size_t there = 0;
        model::thread pushing([&] { r.push(2); });
        model::thread popping([&] { r.pop(); });
        model::thread looking([&] { there = r.size(); });
        here = r.size();
        looking.join();
        pushing.join();
        popping.join();
        MODEL_REQUIRE(here + there != 2 || here == there);
    });
    struct steps {
        std::size_t capacity;
        int inside;
        int pushed;
        int popped;
    };
    for (const steps n : {steps{2, 1, 1, 1}, steps{3, 1, 2, 1}, steps{3, 2, 1, 2}}) {
        model::check("ring: one finds it full, one empty", [n] {
            tube r(n.capacity);
            for (int i = 1; i <= n.inside; ++i) {
                r.push(i);
            }
            attempt full{};
            attempt empty{};
            model::thread pushing([&] {
                for (int i = 1; i <= n.pushed; ++i) {
                    r.push(10 + i);
                }
            });
            model::thread popping([&] {
                for (int i = 1; i <= n.popped; ++i) {
                    r.pop();
                }
            });
            model::thread looking([&] {
                int v = 0;
                empty = r.try_pop(v);
            });
            full = r.try_push(20);
            looking.join();
            pushing.join();
            popping.join();
            MODEL_REQUIRE(full != attempt::not_now || empty != attempt::not_now);
        });
    }
    // A thread that finds the position at an unpublished slot looks for a newer one.
    model::check("ring: full at a second look, one finds it empty", [] {
        tube r(2);
        r.push(1);
        r.push(2);
        attempt empty{};
        model::thread moving([&] {
            r.pop();
            r.push(3);
        });
        model::thread popping([&] { r.pop(); });
        model::thread looking([&] {
            int v = 0;
            empty = r.try_pop(v);
        });
        model::assume(r.size() == 1);
        const attempt full = r.try_push(4);
        looking.join();
        MODEL_REQUIRE(full != attempt::not_now || empty != attempt::not_now);
    });
    model::check("ring: empty at a second look, one finds it full", [] {
        tube r(2);
        attempt full{};
        model::thread moving([&] {
            r.push(1);
            r.pop();
        });
        model::thread pushing([&] { r.push(2); });
        model::thread looking([&] { full = r.try_push(3); });
        int v = 0;
        model::assume(r.size() == 1);
        const attempt empty = r.try_pop(v);
        looking.join();
        MODEL_REQUIRE(full != attempt::not_now || empty != attempt::not_now);
    });
}

TEST_CASE("ring: an item that is being moved is neither there nor gone") {
    model::check("ring: busy", [] {
        tube r(1);
        model::thread pushing([&] { r.push(1); });
        int v = 0;
        const attempt a = r.try_pop(v);
        const std::size_t inside = r.size();
        MODEL_REQUIRE(a != attempt::busy || inside == 1);
        MODEL_REQUIRE(a != attempt::done || inside == 0);
    });
}

TEST_CASE("ring: a batch is as many as there are") {
    model::check("ring: a batch against single pops", [] {
        tube r(2);
        model::thread pushing([&] { MODEL_REQUIRE(r.push_some(1, 2) == 2); });
        MODEL_REQUIRE(r.get() == 1);
        MODEL_REQUIRE(r.get() == 2);
    });
    model::check("ring: single pushes against a batch", [] {
        tube r(2);
        model::thread pushing([&] {
            r.push(1);
            r.push(2);
        });
        const int sum = r.pop_some(2);
        pushing.join();
        MODEL_REQUIRE(sum + r.pop() + r.pop() == 3);
    });
    model::check("ring: two batches that are pushed", [] {
        tube r(3);
        std::size_t other = 0;
        model::thread pushing([&] { other = r.push_some(1, 2); });
        const std::size_t mine = r.push_some(10, 2);
        pushing.join();
        MODEL_REQUIRE(mine + other == r.size());
        const int expected =
            (other > 0 ? 1 : 0) + (other > 1 ? 2 : 0) + (mine > 0 ? 10 : 0) + (mine > 1 ? 11 : 0);
        MODEL_REQUIRE(r.pop_some(3) == expected);
    });
    model::check("ring: two batches that are popped", [] {
        tube r(3);
        r.push_some(1, 3);
        int other = 0;
        model::thread popping([&] { other = r.pop_some(2); });
        const int mine = r.pop_some(2);
        popping.join();
        MODEL_REQUIRE(mine + other + r.pop() == 6);
    });
}

TEST_CASE("ring: what was pushed before it was closed is popped before closed is said") {
    model::check("ring: close against a push", [] {
        tube r(1);
        attempt pushed{};
        var<int> data{0};
        model::thread pushing([&] {
            pushed = r.push(1);
            MODEL_REQUIRE(pushed != attempt::closed || data == 1);
        });
        data = 1;
        MODEL_REQUIRE(r.close());
        attempt why{};
        const int v = r.pop(&why);
        MODEL_REQUIRE(v == 1 || why == attempt::closed);
        pushing.join();
        MODEL_REQUIRE((pushed == attempt::done) == (v == 1));
        MODEL_REQUIRE(v == 1 || pushed == attempt::closed);
    });
    model::check("ring: close against a pop", [] {
        tube r(1);
        r.push(1);
        var<int> data{0};
        model::thread closing(model::after_writing(data, [&] { MODEL_REQUIRE(r.close()); }));
        MODEL_REQUIRE(r.pop() == 1);
        attempt why{};
        MODEL_REQUIRE(r.pop(&why) == 0);
        MODEL_REQUIRE(why != attempt::closed || data == 1);
        closing.join();
        MODEL_REQUIRE(why == attempt::not_now || why == attempt::closed);
        MODEL_REQUIRE(r.is_closed() && r.push(2) == attempt::closed);
    });
    model::check("ring: close against a batch", [] {
        tube r(2);
        std::size_t pushed = 0;
        model::thread pushing([&] { pushed = r.push_some(1, 2); });
        r.close();
        attempt why{};
        int sum = 0;
        do {
            sum += r.pop(&why);
        } while (why == attempt::done);
        pushing.join();
        MODEL_REQUIRE(sum == (pushed == 2 ? 3 : 0));
    });
    model::check("ring: close against close", [] {
        tube r(1);
        bool other = false;
        model::thread closing([&] { other = r.close(); });
        MODEL_REQUIRE(r.close() != other || (closing.join(), !other));
    });
}

// The owner knows only that its own steps are over and what it popped or had room for.
TEST_CASE("ring: may be destroyed when what was pushed has come") {
    model::check("ring: destroyed by the thread that pops", [] {
        auto* const r = new tube(1);
        model::thread pushing([r] { r->push(1); });
        r->get();
        delete r;
    });
    model::check("ring: destroyed by the thread that pushes", [] {
        auto* const r = new tube(1);
        r->push(1);
        model::thread popping([r] { r->pop(); });
        r->put(2);
        delete r;
    });
}

TEST_CASE("ring: goes on where its positions wrap") {
    model::check("ring: eight laps are all of an eight-bit position", [] {
        basic_tube<std::uint8_t> r(14);
        for (int lap = 0; lap < 7; ++lap) {
            r.push_some(1, 14);
            r.pop_some(14);
        }
        r.push_some(1, 13);
        r.pop_some(13);
        model::thread pushing([&] {
            r.put(1);
            r.put(2);
            r.put(3);
        });
        MODEL_REQUIRE(r.get() == 1);
        MODEL_REQUIRE(r.get() == 2);
        MODEL_REQUIRE(r.get() == 3);
    });
}

void two_push_one_pops(std::size_t capacity) {
    tube r(capacity);
    model::thread a([&] { r.put(1); });
    model::thread b([&] { r.put(2); });
    const int first = r.get();
    MODEL_REQUIRE(first + r.get() == 3);
}

void one_pushes_two_pop(std::size_t capacity) {
    tube r(capacity);
    int other = 0;
    model::thread pushing([&] {
        r.put(1);
        r.put(2);
    });
    model::thread popping([&] { other = r.get(); });
    const int mine = r.get();
    popping.join();
    MODEL_REQUIRE(mine + other == 3);
}

// Two and two, in batches where they may be, and one of them closes.
void all_at_once() {
    const auto capacity = static_cast<std::size_t>(1 + model::choose(2));
    tube r(capacity);
    int in = 0;
    int out = 0;
    const auto push = [&](int first) {
        int sum = 0;
        for (int i = first; i < first + 3; ++i) {
            if (r.push(i) == attempt::done) {
                sum += i;
            }
        }
        return sum;
    };
    model::thread a([&] { in = push(1); });
    model::thread b([&] {
        for (int i = 0; i < 3; ++i) {
            out += capacity == 1 ? r.pop() : r.pop_some(2);
        }
    });
    model::thread c([&] {
        for (int i = 0; i < 2; ++i) {
            MODEL_REQUIRE(r.size() <= capacity);
        }
        r.close();
    });
    int sum = push(10);
    a.join();
    b.join();
    c.join();
    attempt why{};
    do {
        out += r.pop(&why);
    } while (why == attempt::done);
    MODEL_REQUIRE(why == attempt::closed);
    MODEL_REQUIRE(out == in + sum);
}

TEST_CASE("ring: two push and one pops, one pushes and two pop") {
    check("ring: two push, one pops", {1, 2}, {}, two_push_one_pops);
    check("ring: one pushes, two pop", {1, 2}, {}, one_pushes_two_pop);
}

TEST_CASE("ring: two push, two pop, one closes") {
    model::check("ring: four threads", random(10'000), all_at_once);
}

} // namespace
