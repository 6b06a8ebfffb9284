// The flights of a single_flight: callers that join and leave, and works that land. A caller that
// waits sees the value of its flight, no caller joins a flight whose work is cancelled, and the last
// owner destroys the flight.

#include <bide/sched/single_flight.hpp>
#include <model/at_random.hpp>
#include <model/check.hpp>
#include <support/test.hpp>

namespace {

// The inner locks have a model of their own.
using platform = model::platform_without_lock_sleep;
template <class T> using var = platform::var<T>;

// What cancels a work: it counts the cancellations.
class canceller {
public:
    canceller() noexcept = default;
    explicit canceller(platform::atomic<int>& c) noexcept : count_(&c) {}
    void cancel() const noexcept {
        if (count_ != nullptr) {
            count_->fetch_add(1, std::memory_order_relaxed);
        }
    }

private:
    platform::atomic<int>* count_ = nullptr;
};

struct flight : bide::detail::basic_flight<int, flight, std::less<>, platform> {
    flight() noexcept { alive() = alive() + 1; }
    flight& operator=(flight&&) = delete;
    ~flight() { alive() = alive() - 1; }
    static int& alive() noexcept {
        static int count = 0; // the checker runs one thread at a time
        return count;
    }

    var<int> value{0};
    canceller work;
};

class scene {
public:
    scene() noexcept { flight::alive() = 0; }
    ~scene() {
        for (auto& one : works_) {
            one.reset(); // joins it
        }
        MODEL_REQUIRE(flight::alive() == 0);
    }
    scene& operator=(scene&&) = delete;

    // A caller, which is number 0 or 1. If it does not wait, it leaves at once. Returns true if it
    // began a flight.
    bool call(int number, bool waits) {
        const auto [f, is_first] = table_.join(7);
        if (is_first) {
            flight& mine = *f;
            platform::atomic<int>& cancels = cancels_[number];
            mine.work = canceller(cancels);
            works_[number] = std::make_unique<model::thread>([this, &mine, number] {
                mine.value = number + 1;
                table_.land(mine);
            });
        }
        if (waits) {
            f->landed.wait();
            const int value = f->value;
            MODEL_REQUIRE(value == 1 || value == 2);
            MODEL_REQUIRE(cancels_[value - 1].load(std::memory_order_relaxed) == 0);
        }
        table_.leave(*f).cancel();
        return is_first;
    }

    void forget() { table_.forget(7); }
    int cancels(int number) const noexcept {
        return cancels_[number].load(std::memory_order_relaxed);
    }

private:
    bide::detail::basic_flight_table<int, flight, std::less<>, platform> table_;
    platform::atomic<int> cancels_[2]{0, 0};
    std::unique_ptr<model::thread> works_[2];
};

// Two callers. `waits` says which of them wait for the value.
void two_call(bool first_waits, bool second_waits) {
    scene s;
    bool other = false;
    model::thread second([&] { other = s.call(1, second_waits); });
    const bool mine = s.call(0, first_waits);
    second.join();
    MODEL_REQUIRE(mine || other);
    MODEL_REQUIRE(s.cancels(0) <= 1 && s.cancels(1) <= 1);
    model::record(mine && other ? "two flights" : "one flight");
}

} // namespace

TEST_CASE("single_flight: a caller sees the value, or leaves and cancels what no other waits for",
          "[long]") {
    const std::uint64_t runs = model::is_long() ? 20'000 : 1'000;
    model::check_at_random("two wait", runs, [] { two_call(true, true); });
    model::check_at_random("one waits, one leaves", runs, [] { two_call(true, false); });
    model::check_at_random("two leave", runs, [] { two_call(false, false); });
    const model::options o{.how = model::options::method::pct, .runs = 500};
    CHECK(model::outcomes(o, [] { two_call(true, false); }) == "one flight two flights");
    model::check_at_random("one calls, one forgets", runs, [] {
        scene s;
        model::thread other([&] { s.forget(); });
        MODEL_REQUIRE(s.call(0, true));
        other.join();
    });
}

TEST_CASE("single_flight: one caller leaves while its work lands") {
    model::check("single_flight: leave, land", [] {
        scene s;
        MODEL_REQUIRE(s.call(0, false));
        model::record(s.cancels(0) != 0 ? "cancelled" : "landed");
    });
}
