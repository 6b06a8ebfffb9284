// The face of std::atomic, as far as it is not the library's own need.

#include <model/check.hpp>
#include <support/test.hpp>

namespace {

using model::platform;
template <class T> using atomic = platform::atomic<T>;

constexpr auto acquire = std::memory_order_acquire;
constexpr auto relaxed = std::memory_order_relaxed;
constexpr auto release = std::memory_order_release;

// Says the same of both.
template <template <class> class Atomic> bool has_the_values_of_the_standard() {
    bool holds = true;
    const auto expect = [&](bool is) { holds = holds && is; };

    Atomic<int> a{1};
    expect(a.load() == 1 && a == 1);
    expect(a.exchange(2) == 1);
    expect(a.fetch_add(3) == 2);
    int seen = 4;
    expect(!a.compare_exchange_strong(seen, 6) && seen == 5);
    expect(a.compare_exchange_weak(seen, 6) && a.load() == 6);
    expect(a++ == 6 && ++a == 8 && a-- == 8 && --a == 6);
    expect((a += 4) == 10 && (a -= 2) == 8 && (a |= 3) == 11 && (a &= 9) == 9 && (a ^= 1) == 8);
    expect((a = 7) == 7 && a.fetch_sub(8) == 7 && a.load() == -1);

    Atomic<unsigned char> byte{250};
    expect(byte.fetch_add(10) == 250 && byte.load() == 4);
    expect(byte.fetch_sub(5) == 4 && byte.load() == 255);

    int places[4] = {};
    Atomic<int*> at{places};
    expect(at++ == places && at.fetch_add(2) == places + 1 && at.load() == places + 3);
    expect((at -= 2) == places + 1 && --at == places);

    enum class state : short { idle, busy };
    Atomic<state> s{state::idle};
    expect(s.exchange(state::busy) == state::idle && s.load() == state::busy);

    struct place { // two fields, and no place that is none
        unsigned row;
        unsigned column;
        place(unsigned r, unsigned c) : row(r), column(c) {}
    };
    Atomic<place> p{place(1, 2)};
    place old = p.load();
    expect(p.compare_exchange_strong(old, place(3, 4)) && p.load().row == 3);
    expect(!p.compare_exchange_strong(old, place(5, 6)) && old.row == 3 && old.column == 4);

    Atomic<double> real{1.5};
    double was = 1.5;
    expect(real.compare_exchange_strong(was, -2.25) && real.load() == -2.25);
    expect(real.fetch_add(0.5) == -2.25 && real.fetch_sub(1) == -1.75 && (real += 4) == 1.25);
    Atomic<float> half{0.5F};
    expect((half -= 2) == -1.5F && half.fetch_add(0.25F) == -1.5F && half.load() == -1.25F);

    a.wait(0);
    a.notify_one();
    return holds && a.is_lock_free() && Atomic<int>::is_always_lock_free;
}

} // namespace

TEST_CASE("atomic: one of the checker has the values that std::atomic has") {
    CHECK(has_the_values_of_the_standard<std::atomic>());
    model::check("one thread", [] { MODEL_REQUIRE(has_the_values_of_the_standard<atomic>()); });
}

TEST_CASE("atomic: a wait ends when it is notified of another value") {
    const auto wait_for_one = [](bool notified) {
        atomic<int> flag{0};
        model::var<int> data{0};
        model::thread waiter([&] {
            flag.wait(0, acquire);
            MODEL_REQUIRE(data == 7);
        });
        data = 7;
        flag.store(1, release);
        if (notified) {
            flag.notify_one();
        }
    };
    model::check("notified", [&] { wait_for_one(true); });
    model::find("not notified", model::failure::lost_wakeup, [&] { wait_for_one(false); });
    model::check("of eight bytes, the upper ones are others", [] {
        atomic<std::uint64_t> word{7};
        model::thread waiter([&] { word.wait(7, acquire); });
        word.store(7 | std::uint64_t{1} << 32, release);
        word.notify_one();
    });
    model::check("two waiters, all notified", [] {
        atomic<int> flag{0};
        model::thread first([&] { flag.wait(0, relaxed); });
        model::thread second([&] { flag.wait(0, relaxed); });
        flag.store(1, relaxed);
        flag.notify_all();
    });
    model::find("two waiters, one notified", model::failure::lost_wakeup, [] {
        atomic<int> flag{0};
        model::thread first([&] { flag.wait(0, relaxed); });
        model::thread second([&] { flag.wait(0, relaxed); });
        flag.store(1, relaxed);
        flag.notify_one();
    });
}

TEST_CASE("atomic: a flag locks") {
    const auto locked = [](std::memory_order unlock) {
        return [unlock] {
            model::atomic_flag held;
            model::var<int> sum{0};
            const auto add = [&] {
                while (held.test_and_set(acquire)) {
                    held.wait(true, relaxed);
                }
                ++sum;
                sum += 1;
                held.clear(unlock);
                held.notify_one();
            };
            model::thread other(add);
            add();
            other.join();
            MODEL_REQUIRE(sum-- == 4 && sum == 3 && !held.test());
        };
    };
    model::check("a lock of a flag", locked(release));
    model::find("a lock of a flag that unlocks relaxed", model::failure::race, locked(relaxed));
}
