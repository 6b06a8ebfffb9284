// Durable locks under threads and coroutines of one process. The tests count guarded increments,
// record the order of grants, and check that the record is empty at the end.

#include <bide/core/result.hpp>
#include <bide/durable/errors.hpp>
#include <bide/durable/locks.hpp>
#include <bide/durable/record_json.hpp>
#include <bide/durable/slot.hpp>
#include <bide/durable/slots/file.hpp>
#include <bide/durable/slots/memory.hpp>
#include <bide/sched/scheduler.hpp>
#include <bide/task/task.hpp>
#include <support/stress.hpp>
#include <support/temp_directory.hpp>
#include <support/test.hpp>
#include <support/unhurried.hpp>

#include <unistd.h>

namespace {

using answer = bide::result<bide::durable_guard, std::error_code>;

class in_memory {
public:
    bide::slot_ref open() { return bide::slot_ref(memory_); }

private:
    bide::memory_slot memory_;
};

class in_file {
public:
    bide::slot_ref open() { return bide::slot_ref(bide::file_slot(directory_.path() + "/lock")); }

private:
    test::temp_directory directory_{"durable"};
};

bide::durable_options quick() {
    bide::durable_options o{.lease = 20s, .poll_most = 20ms};
    return test::unhurried(o);
}

// Reads the record without a lock object.
bide::durable::record record_of(bide::slot_ref slot) {
    const auto there = slot->load();
    if (!there || there->version == 0) {
        return {};
    }
    auto decoded = bide::durable::decode(there->value);
    return decoded ? *decoded : bide::durable::record{};
}
template <class Place> bool nothing_is_left(Place& place) {
    const bide::durable::record left = record_of(place.open());
    return left.fence > 1 && left.holders.empty() && left.waiters.empty();
}

// Not atomic, so that a failure of exclusion is a wrong sum, and a race for a sanitizer. Between
// threads of one lock object, a release always synchronizes with the next grant.
struct guarded {
    std::uint64_t sum = 0;
    std::int64_t last_fence = 0;
    std::uint64_t fences_back = 0;
    std::atomic<std::uint64_t> expected{0};
    std::atomic<std::uint64_t> failures{0};

    void use(const bide::durable_guard& held) {
        ++sum;
        fences_back += held.fence() <= last_fence ? 1 : 0;
        last_fence = held.fence();
        expected.fetch_add(1, std::memory_order_relaxed);
    }
};

bide::task<void> by_task(bide::durable_mutex& m, guarded& g) {
    const answer got = co_await m.async_acquire();
    if (got) {
        g.use(*got);
    } else {
        ++g.failures;
    }
}

bide::task<void> by_task_with(bide::durable_mutex& m, guarded& g, bide::acquire_request request) {
    const answer got = co_await m.async_acquire(std::move(request));
    if (got) {
        g.use(*got);
    } else if (got.error() != bide::errc::timeout && got.error() != bide::errc::stopped) {
        ++g.failures;
    }
}

void one_turn(bide::durable_mutex& m, guarded& g, test::jitter& chance) {
    bide::acquire_request request;
    const std::uint32_t kind = chance.below(8);
    std::stop_source source;
    std::thread stopping;
    if (kind == 0) {
        request.timeout = std::chrono::microseconds(chance.below(2'000));
    } else if (kind == 1) {
        request.stop = source.get_token();
        stopping = std::thread([&source] { source.request_stop(); });
    } else if (kind == 2) {
        bide::sync_wait(by_task(m, g));
        return;
    } else if (kind == 3) {
        request.timeout = std::chrono::microseconds(chance.below(2'000));
        bide::sync_wait(by_task_with(m, g, std::move(request)));
        return;
    }
    answer got = kind == 4 ? m.try_acquire() : m.acquire(std::move(request));
    if (got) {
        g.use(*got);
        if (chance.below(2) == 0) {
            g.failures += got->renew() ? 0 : 1;
        }
        if (chance.below(2) == 0) {
            g.failures += got->release() ? 0 : 1;
        }
    } else if (kind > 4 ||
               (got.error() != bide::errc::timeout && got.error() != bide::errc::stopped)) {
        ++g.failures;
    }
    if (stopping.joinable()) {
        stopping.join();
    }
}

// The store orders the writes of different lock objects, and a sanitizer cannot always see that. So
// all threads share one lock object here; further down they do not.
template <class Place> void storm(int threads, int turns) {
    const test::stress_time time;
    Place place;
    bide::durable_mutex m(place.open(), quick());
    guarded g;
    do {
        test::players(threads, [&](int, test::jitter& chance) {
            for (int turn = 0; turn < turns; ++turn) {
                one_turn(m, g, chance);
            }
        });
    } while (time.is_left());
    CHECK(g.sum == g.expected);
    CHECK(g.failures == 0);
    CHECK(g.fences_back == 0);
    CHECK(nothing_is_left(place));
}

} // namespace

TEST_CASE("durable_mutex: guarded increments are not lost, in many short runs") {
    storm<in_memory>(4, 20);
}

TEST_CASE("durable_mutex: guarded increments are not lost, over a file") { storm<in_file>(3, 10); }

TEST_CASE("durable_mutex: coroutines of a scheduler exclude each other") {
    const test::stress_time time;
    in_memory place;
    guarded g;
    {
        bide::scheduler s;
        bide::durable_options options = quick();
        bide::durable_mutex m(place.open(), options);
        do {
            std::vector<bide::join_handle<void>> all;
            for (int i = 0; i < 24; ++i) {
                all.push_back(s.spawn(by_task(m, g)));
            }
            for (auto& one : all) {
                std::move(one).join();
            }
        } while (time.is_left());
    }
    CHECK(g.sum == g.expected);
    CHECK(g.failures == 0);
    CHECK(g.fences_back == 0);
    CHECK(nothing_is_left(place));
}

TEMPLATE_TEST_CASE("durable_semaphore: contenders are granted in the order of their arrival", "",
                   in_memory, in_file) {
    // Each contender takes its place in one step, one after the other. Then all poll at the same
    // time.
    const test::stress_time time;
    TestType place;
    std::uint64_t inversions = 0;
    std::uint64_t failures = 0;
    do {
        constexpr int contenders = 6;
        bide::durable_mutex first(place.open(), quick());
        auto held = first.try_acquire();
        std::deque<bide::durable_mutex> locks;
        std::vector<bide::durable_ticket> tickets;
        for (int i = 0; i < contenders; ++i) {
            locks.emplace_back(place.open(), quick());
            tickets.push_back(locks.back().ticket("contender " + std::to_string(i)));
            const auto a = locks.back().try_acquire(tickets.back());
            failures += a && !a->acquired && a->position == i ? 0 : 1;
        }
        std::array<std::int64_t, contenders> fence{};
        std::atomic<int> failed{0};
        test::team all(contenders, [&](int i) {
            const auto n = static_cast<std::size_t>(i);
            bide::acquire_request request;
            request.ticket = tickets[n];
            request.timeout = test::patience;
            answer got = locks[n].acquire(std::move(request));
            failed += got ? 0 : 1;
            fence[n] = got ? got->fence() : 0;
        });
        failures += held && held->release() ? 0 : 1;
        all.join();
        failures += static_cast<std::uint64_t>(failed.load());
        for (std::size_t i = 1; i < fence.size(); ++i) {
            inversions += fence[i] <= fence[i - 1] ? 1 : 0;
        }
    } while (time.is_left());
    CHECK(inversions == 0);
    CHECK(failures == 0);
    CHECK(nothing_is_left(place));
}

TEMPLATE_TEST_CASE(
    "durable_semaphore: three permits have at most three holders, each in its own lane", "",
    in_memory, in_file) {
    const test::stress_time time;
    constexpr std::int64_t permits = 3;
    TestType place;
    std::array<std::atomic<int>, permits> in_lane{};
    std::atomic<std::int64_t> inside{0};
    std::atomic<int> faults{0};
    do {
        test::players(5, [&](int, test::jitter& chance) {
            bide::durable_semaphore s(place.open(), permits, quick());
            for (int turn = 0; turn < 8; ++turn) {
                bide::acquire_request request;
                request.weight = 1 + static_cast<std::int64_t>(chance.below(8) / 6);
                request.timeout = chance.below(6) == 0
                                      ? std::chrono::nanoseconds(chance.below(1'000'000))
                                      : std::chrono::nanoseconds(test::patience);
                const std::int64_t weight = request.weight;
                answer got = s.acquire(std::move(request));
                if (!got) {
                    faults += got.error() == bide::errc::timeout ? 0 : 1;
                    continue;
                }
                const auto lane = static_cast<std::size_t>(got->lane());
                faults += lane < in_lane.size() ? 0 : 1;
                faults += in_lane[lane % in_lane.size()].fetch_add(1) == 0 ? 0 : 1;
                faults += inside.fetch_add(weight) + weight <= permits ? 0 : 1;
                chance();
                inside.fetch_sub(weight);
                in_lane[lane % in_lane.size()].fetch_sub(1);
                if (chance.below(2) == 0) {
                    faults += got->release() ? 0 : 1;
                }
            }
        });
    } while (time.is_left());
    CHECK(faults == 0);
    CHECK(nothing_is_left(place));
}

TEMPLATE_TEST_CASE("durable_shared_mutex: a writer excludes readers and writers", "", in_memory,
                   in_file) {
    const test::stress_time time;
    TestType place;
    std::atomic<int> readers{0};
    std::atomic<int> writers{0};
    std::atomic<int> faults{0};
    do {
        test::players(4, [&](int, test::jitter& chance) {
            bide::durable_shared_mutex m(place.open(), quick(), 8);
            for (int turn = 0; turn < 8; ++turn) {
                if (chance.below(3) == 0) {
                    const answer got = m.acquire();
                    faults += got ? 0 : 1;
                    faults += writers.fetch_add(1) != 0 || readers.load() != 0 ? 1 : 0;
                    chance();
                    writers.fetch_sub(1);
                } else {
                    const answer got = m.acquire_shared();
                    faults += got ? 0 : 1;
                    readers.fetch_add(1);
                    faults += writers.load() != 0 ? 1 : 0;
                    chance.dawdle(16);
                    readers.fetch_sub(1);
                }
            }
        });
    } while (time.is_left());
    CHECK(faults == 0);
    CHECK(nothing_is_left(place));

    bide::durable_shared_mutex m(place.open(), quick(), 8);
    bide::durable_shared_mutex other(place.open(), quick(), 8);
    const answer reader = m.acquire_shared();
    const answer another = other.try_acquire_shared();
    CHECK(reader);
    CHECK(another);
    CHECK_FALSE(other.try_acquire());
}

TEST_CASE("durable_guard: a renewal that races with the release does not bring the hold back",
          "[promise.durable-renewal]") {
    const test::stress_time time;
    in_memory place;
    bide::durable_options options = quick();
    options.auto_renew = false;
    bide::durable_mutex m(place.open(), options);
    std::uint64_t resurrected = 0;
    std::uint64_t failures = 0;
    std::atomic<std::uint64_t> renewed_late{0};
    std::array<bide::durable_ticket, 256> tickets;
    do {
        for (auto& t : tickets) {
            t = m.ticket();
        }
        std::atomic<std::size_t> current{0}; // the index of the held ticket, plus 1
        std::atomic<bool> is_over{false};
        std::array<std::atomic<bool>, 256> released{};
        test::team two(2, [&](int i) {
            if (i == 0) {
                for (std::size_t n = 0; n < tickets.size(); ++n) {
                    const auto a = m.try_acquire(tickets[n]);
                    failures += a && a->acquired ? 0 : 1;
                    current = n + 1;
                    const auto gone = m.release(tickets[n]);
                    released[n] = true;
                    failures += gone && *gone ? 0 : 1;
                    const auto now = m.inspect();
                    resurrected += now && *now && (*now)->live.holders.empty() ? 0 : 1;
                }
                is_over = true;
            } else {
                while (!is_over) {
                    if (const std::size_t n = current) {
                        const bool was_released = released[n - 1];
                        const auto renewed = m.renew(tickets[n - 1]);
                        renewed_late += was_released && renewed && *renewed ? 1 : 0;
                    }
                }
            }
        });
        two.join();
    } while (time.is_left());
    CHECK(failures == 0);
    CHECK(resurrected == 0);
    CHECK(renewed_late == 0);
    CHECK(nothing_is_left(place));
}

TEST_CASE(
    "durable_guard: renewals in the background survive many short holds, and are not a loss") {
    const test::stress_time time;
    in_memory place;
    bide::durable_options options = quick();
    options.lease = 12ms; // renewed every 4 ms
    options.margin = 1ms;
    bide::durable_mutex m(place.open(), options);
    test::jitter chance(test::run_seed());
    std::uint64_t released = 0;
    std::uint64_t said_lost = 0;
    do {
        answer got = m.acquire();
        if (!got) {
            continue;
        }
        const auto lost = got->lost();
        std::this_thread::sleep_for(std::chrono::microseconds(chance.below(9'000)));
        if (got->release()) {
            ++released;
            said_lost += lost.stop_requested() ? 1 : 0;
        }
    } while (time.is_left() || released == 0);
    CHECK(said_lost == 0);
    CHECK(nothing_is_left(place));
}

TEMPLATE_TEST_CASE("durable_mutex: a cancelled or timed-out contender leaves no entry",
                   "[promise.durable-giving-up]", in_memory, in_file) {
    const test::stress_time time;
    TestType place;
    bide::durable_mutex keeper(place.open(), quick());
    answer held = keeper.acquire();
    REQUIRE(held);
    std::atomic<int> faults{0};
    do {
        test::players(4, [&](int, test::jitter& chance) {
            bide::durable_mutex m(place.open(), quick());
            for (int turn = 0; turn < 4; ++turn) {
                bide::acquire_request request;
                std::stop_source source;
                std::thread stopping;
                const bool by_stop = chance.below(2) == 0;
                if (by_stop) {
                    request.stop = source.get_token();
                    const auto after = std::chrono::microseconds(chance.below(2'000));
                    stopping = std::thread([&source, after] {
                        std::this_thread::sleep_for(after);
                        source.request_stop();
                    });
                } else {
                    request.timeout = std::chrono::microseconds(1 + chance.below(2'000));
                }
                const auto expected = by_stop ? bide::errc::stopped : bide::errc::timeout;
                const bool as_task = chance.below(2) == 0;
                answer got = as_task ? bide::sync_wait(m.async_acquire(std::move(request)))
                                     : m.acquire(std::move(request));
                faults += !got && got.error() == expected ? 0 : 1;
                if (stopping.joinable()) {
                    stopping.join();
                }
            }
        });
        const bide::durable::record now = record_of(place.open());
        faults += now.holders.size() == 1 && now.waiters.empty() ? 0 : 1;
    } while (time.is_left());
    CHECK(faults == 0);
    CHECK(held->release());
    CHECK(nothing_is_left(place));
}
