// Pools of objects: never more than the limit, each is made and destroyed once, whatever fails.

#include <support/sched.hpp>

#include <bide/task/acquire_object.hpp>

using namespace bide;

namespace {

// One for each pool.
struct census {
    std::atomic<int> alive{0};
    std::atomic<int> most{0};
    std::atomic<std::uint64_t> made{0};
    std::atomic<std::uint64_t> gone{0};
    std::atomic<std::uint64_t> shared{0}; // borrowed by two at a time
};
struct failure {};

class counted_object {
public:
    explicit counted_object(census& in) : in_(&in) {
        ++in.made;
        const int now = ++in.alive;
        for (int seen = in.most; seen < now && !in.most.compare_exchange_weak(seen, now);) {
        }
    }
    // For the factory that is a task; what was moved from is no object.
    counted_object(counted_object&& other) noexcept : in_(std::exchange(other.in_, nullptr)) {}
    counted_object& operator=(counted_object&&) = delete;
    ~counted_object() {
        if (in_ != nullptr) {
            --in_->alive;
            ++in_->gone;
        }
    }

    void use(test::jitter& chance) {
        in_->shared += borrowers_.fetch_add(1) != 0 ? 1 : 0;
        ++uses_; // plain: a sanitizer sees whether the borrowers are ordered
        chance();
        borrowers_.fetch_sub(1);
    }
    std::uint64_t uses() const noexcept { return uses_; }

private:
    census* in_;
    std::atomic<int> borrowers_{0};
    std::uint64_t uses_ = 0;
};

template <class Pool>
task<bool> borrow(Pool& p, std::uint32_t how, microseconds rest, test::jitter& chance) {
    if (how == 0) {
        auto held = co_await p.async_acquire();
        held->use(chance);
        co_return true;
    }
    auto held = co_await p.async_acquire().with_timeout(rest);
    if (held) {
        (*held)->use(chance);
    }
    co_return held.has_value();
}

task<counted_object> connect(census& all, std::atomic<std::uint32_t>& calls) {
    co_await this_task::yield();
    if (++calls % 7 == 0) {
        throw failure();
    }
    co_return counted_object(all);
}
task<std::uint64_t> borrow_often(object_pool<counted_object>& p, census& all,
                                 std::atomic<std::uint32_t>& calls, std::uint32_t seed) {
    test::jitter chance(seed);
    const auto make = [&all, &calls] { return connect(all, calls); };
    std::uint64_t borrowed = 0;
    for (int turn = 0; turn < 100; ++turn) {
        try {
            auto held = co_await async_acquire_object(p, make);
            held->use(chance);
            if (turn % 5 == 0) {
                co_await this_task::yield();
            }
            if (turn % 9 == 0) {
                held.discard();
            }
            ++borrowed;
        } catch (const failure&) {
        }
    }
    co_return borrowed;
}

} // namespace

TEMPLATE_TEST_CASE("object_pool: each object is made and destroyed once, and none is one too many",
                   "[promise.object-pool]", test::native, test::portable, test::jittery) {
    constexpr int threads = 4;
    const test::stress_time time;
    std::uint64_t borrowed[threads] = {};
    std::uint64_t failed[threads] = {};
    std::uint64_t rounds = 0;
    std::uint64_t wrong = 0;
    while (time.is_left() || std::ranges::count(failed, 0u) != 0) { // each thread has to fail once
        census all;
        const std::size_t limit = 1 + rounds % 3;
        const bool closes = rounds % 4 == 3;
        {
            object_pool_options options;
            options.limit = limit;
            options.keep = rounds % 2;
            if (rounds % 3 != 0) {
                options.idle_time = microseconds(rounds % 50);
            }
            std::atomic<std::uint32_t> calls{test::run_seed()};
            object_pool<counted_object, TestType> p(
                options,
                [&] {
                    if (++calls % 7 == 0) {
                        throw failure();
                    }
                    return counted_object(all);
                },
                [&](const counted_object& o) {
                    const std::uint32_t call = ++calls;
                    if (call % 31 == 0) {
                        throw failure();
                    }
                    return call % 11 != 0 && o.uses() < 40;
                });
            test::players(
                threads,
                [&](int i, test::jitter& chance) {
                    for (int turn = 0; turn < 200; ++turn) {
                        const microseconds rest(chance.below(50));
                        bool got = false;
                        try {
                            switch (chance.below(7)) {
                            case 0: got = sync_wait(borrow(p, 0, rest, chance)); break;
                            case 1: got = sync_wait(borrow(p, 1, rest, chance)); break;
                            case 2:
                                if (auto held = p.try_acquire_for(rest)) {
                                    held->use(chance);
                                    got = true;
                                }
                                break;
                            case 3:
                                if (auto held = p.try_acquire()) {
                                    held->use(chance);
                                    held.discard();
                                    got = true;
                                }
                                break;
                            case 4: p.trim(); break;
                            case 5:
                                if (auto held = p.acquire(std::stop_token())) {
                                    (*held)->use(chance);
                                    got = true;
                                }
                                break;
                            default: {
                                auto held = p.acquire();
                                held->use(chance);
                                got = true;
                            }
                            }
                        } catch (const failure&) {
                            ++failed[i];
                        } catch (const closed_error&) {
                        }
                        borrowed[i] += got ? 1 : 0;
                        if (closes && i == 0 && turn == 150) {
                            p.close();
                        }
                    }
                },
                static_cast<std::uint32_t>(rounds));
            wrong += p.size() != p.idle() ? 1 : 0;
            wrong += closes && p.size() != 0 ? 1 : 0;
        }
        wrong += all.alive != 0 || all.made != all.gone ? 1 : 0;
        wrong += static_cast<std::size_t>(all.most) > limit ? 1 : 0;
        wrong += all.shared != 0 ? 1 : 0;
        ++rounds;
    }
    CHECK(wrong == 0);
    std::uint64_t total = 0;
    for (const std::uint64_t n : borrowed) {
        total += n;
    }
    for (const std::uint64_t n : failed) {
        CHECK(n > 0);
    }
    CHECK(total > 0);
}

TEST_CASE("async_acquire_object: tasks make the objects, are cancelled, and lose no room") {
    const test::stress_time time;
    std::uint64_t rounds = 0;
    std::uint64_t wrong = 0;
    std::uint64_t borrowed = 0;
    while (time.is_left()) {
        census all;
        std::atomic<std::uint32_t> calls{test::run_seed()};
        {
            object_pool_options options;
            options.limit = 2;
            object_pool<counted_object> p(options, [&] { return counted_object(all); });
            scheduler s;
            std::vector<join_handle<std::uint64_t>> tasks;
            for (std::uint32_t i = 0; i < 6; ++i) {
                tasks.push_back(s.spawn(borrow_often(
                    p, all, calls, test::run_seed() + i + static_cast<std::uint32_t>(rounds))));
            }
            tasks[rounds % 6].cancel();
            for (auto& one : tasks) {
                try {
                    borrowed += std::move(one).join();
                } catch (const stopped_error&) { // one of the six
                }
            }
            wrong += p.size() != p.idle() ? 1 : 0;
        }
        wrong += all.alive != 0 || all.made != all.gone || all.most > 2 || all.shared != 0 ? 1 : 0;
        ++rounds;
    }
    CHECK(wrong == 0);
    CHECK(borrowed > 0);
    CHECK(rounds > 0);
}
