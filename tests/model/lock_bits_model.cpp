#include <bide/core/lock_bits.hpp>
#include <model/check.hpp>
#include <support/test.hpp>

// The lock in two bits of a word: one thread at a time holds it, each sleeping waiter is woken, and
// the other bits stay unchanged.

namespace {

using model::platform;
template <class T> using var = platform::var<T>;

using lock = bide::lock_bits<platform, std::uint32_t>;
using lock64 = bide::lock_bits<platform, std::uint64_t>;

template <class Lock = lock> struct counter {
    typename Lock::atomic word{0};
    var<int> value{0};

    void step() noexcept {
        Lock::acquire(word);
        value = value + 1;
        Lock::release(word);
    }
    void step_as() noexcept {
        Lock::acquire(word);
        value = value + 1;
        Lock::release_as(word, 0);
    }
};

// Threads that hold the lock once for each letter of their text; the last thread is the body. Those that write "a"
// release it by release_as(), those that write "r" by release().
template <class Lock = lock> model::body threads(std::vector<std::string> texts) {
    return [texts] {
        counter<Lock> c;
        const auto run = [&c](const std::string& text) {
            for (const char step : text) {
                step == 'a' ? c.step_as() : c.step();
            }
        };
        std::size_t steps = texts.back().size();
        {
            std::vector<model::thread> others;
            for (std::size_t i = 0; i + 1 < texts.size(); ++i) {
                steps += texts[i].size();
                others.emplace_back([&, i] { run(texts[i]); });
            }
            run(texts.back());
        }
        MODEL_REQUIRE(c.value == static_cast<int>(steps));
        MODEL_REQUIRE(c.word.load() == 0);
    };
}

} // namespace

TEST_CASE("lock_bits: two threads never hold it at once") {
    model::check("two threads, two rounds", threads({"rr", "rr"}));
    model::check("two threads, spurious", {.spurious = 1, .weak_failures = 1},
                 threads({"r", "rr"}));
    model::check("two threads, two rounds, release of the whole word",
                 threads<lock64>({"aa", "aa"}));
}

TEST_CASE("lock_bits: three threads never hold it at once, and each acquires it", "[long]") {
    model::check("three threads", threads({"r", "r", "r"}));
    model::check("three threads, release of the whole word",
                 model::brief_or_long({}, {.spurious = 1}), threads({"a", "r", "a"}));
    using awake = bide::lock_bits<model::platform_without_lock_sleep, std::uint32_t>;
    model::check("three threads that do not sleep", {.weak_failures = 1},
                 threads<awake>({"r", "a", "r"}));
}

TEST_CASE("lock_bits: four threads at random") {
    const model::options random{
        .how = model::options::method::pct, .depth = 4, .runs = 10'000, .spurious = 1};
    model::check("four threads, two rounds", random, threads({"ra", "ra", "ra", "ra"}));
}

TEST_CASE("lock_bits: changes of other threads to the word stay and publish their writes") {
    constexpr std::uint32_t flag = 4;
    model::check("a flag set beside the lock", {.weak_failures = 1}, [] {
        counter<> c;
        var<int> news{0};
        model::thread outsider(
            model::after_writing(news, [&] { c.word.fetch_or(flag, std::memory_order_release); }));
        model::thread holder([&] { c.step(); });
        const std::uint32_t seen = lock::acquire(c.word);
        c.value = c.value + 1;
        if ((seen & flag) != 0) {
            MODEL_REQUIRE(news == 1);
        }
        lock::release(c.word);
        outsider.join();
        holder.join();
        MODEL_REQUIRE(c.value == 2);
        MODEL_REQUIRE(c.word.load() == flag);
    });
}

TEST_CASE("lock_bits: the next holder finds the word that release_as stored") {
    constexpr std::uint32_t one = 4;
    model::check("a number in the word", {.spurious = 1}, [] {
        lock::atomic word{0};
        var<int> same{0};
        const auto step = [&] {
            const std::uint32_t seen = lock::acquire(word) & ~lock::both;
            MODEL_REQUIRE(seen / one == static_cast<std::uint32_t>(static_cast<int>(same)));
            same = same + 1;
            lock::release_as(word, seen + one);
        };
        model::thread other([&] {
            step();
            step();
        });
        step();
        other.join();
        MODEL_REQUIRE(word.load() == 3 * one);
    });
}

// A fast path releases data into the word. A holder takes that data out by release_as(). A third
// thread sees both through the holder.
TEST_CASE("lock_bits: release_as keeps the releases of other threads visible") {
    constexpr std::uint32_t posted = 4;
    constexpr std::uint32_t taken = 8;
    model::check("released into the word, passed on", [] {
        lock::atomic word{0};
        var<int> news{0};
        model::thread poster([&] {
            news = 1;
            std::uint32_t seen = 0;
            word.compare_exchange_strong(seen, posted, std::memory_order_release,
                                         std::memory_order_relaxed);
        });
        model::thread taker([&] {
            const std::uint32_t seen = lock::acquire(word) & ~lock::both;
            lock::release_as(word, seen == posted ? taken : seen);
        });
        if ((lock::acquire(word) & (posted | taken)) != 0) {
            MODEL_REQUIRE(news == 1);
        }
        lock::release(word);
    });
}

// The primitives do this: one CAS changes their bits and releases the lock.
TEST_CASE("lock_bits: a primitive's own step that releases wakes a sleeping waiter") {
    constexpr std::uint32_t one = 4;
    model::check("let go by a CAS", {.spurious = 1, .weak_failures = 1}, [] {
        lock::atomic word{0};
        var<int> value{0};
        const auto step = [&] {
            std::uint32_t seen = lock::acquire(word);
            value = value + 1;
            while (!word.compare_exchange_weak(seen, (seen + one) & ~lock::both,
                                               std::memory_order_release,
                                               std::memory_order_relaxed)) {
            }
            lock::wake_after(&word, seen);
        };
        model::thread other([&] {
            step();
            step();
        });
        step();
        other.join();
        MODEL_REQUIRE(value == 3);
        MODEL_REQUIRE(word.load() == 3 * one);
    });
}

TEST_CASE("lock_bits: the release is the last access to the word") {
    const auto body = [](auto let_go) {
        return [let_go] {
            auto c = std::make_unique<counter<>>();
            lock::acquire(c->word);
            model::thread last([&c] {
                lock::acquire(c->word);
                MODEL_REQUIRE(c->value == 1);
                c.reset();
            });
            counter<>* const mine = c.get();
            mine->value = 1;
            let_go(mine->word);
        };
    };
    model::check("the next holder destroys the word", {.spurious = 1},
                 body([](lock::atomic& word) { lock::release(word); }));
    model::check("the next holder destroys the word stored by release_as", {.spurious = 1},
                 body([](lock::atomic& word) { lock::release_as(word, 4); }));
    model::find("a read of the word after the release", model::failure::lifetime, {},
                body([](lock::atomic& word) {
                    lock::release(word);
                    lock::wake_after(&word, word.load(std::memory_order_relaxed));
                }));
}
