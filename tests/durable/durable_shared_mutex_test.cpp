#include <bide/durable/locks.hpp>

#include <bide/durable/slots/memory.hpp>
#include <bide/task/task.hpp>

#include <support/durable_locks.hpp>
#include <support/unhurried.hpp>

using namespace bide;

TEST_CASE("durable_shared_mutex: readers share it, and a writer holds it alone") {
    durable_shared_mutex m(memory_slot{}, test::unhurried());
    {
        const auto one = m.acquire_shared();
        const auto two = sync_wait(m.async_acquire_shared());
        REQUIRE(one.has_value());
        REQUIRE(two.has_value());
        REQUIRE(one->lane() != two->lane());
        REQUIRE(m.try_acquire().error() == errc::timeout);
        REQUIRE(m.try_acquire_shared().has_value());
    }
    const auto writer = test::acquired(m);
    REQUIRE(writer->lane() == 0);
    REQUIRE(m.try_acquire_shared().error() == errc::timeout);
    REQUIRE(m.try_acquire().error() == errc::timeout);
}

TEST_CASE("durable_shared_mutex: a reader waits behind a waiting writer") {
    durable_shared_mutex m(memory_slot{}, test::unhurried());
    auto reader = m.acquire_shared();
    std::atomic<int> order{0};
    int writer_was = -1;
    int reader_was = -1;
    std::thread writer([&] {
        const auto g = m.acquire();
        writer_was = order++;
    });
    REQUIRE(test::comes_to_wait(m, 1));
    REQUIRE(m.try_acquire_shared().error() == errc::timeout);
    std::thread late([&] {
        const auto g = m.acquire_shared();
        reader_was = order++;
    });
    REQUIRE(test::comes_to_wait(m, 2));
    REQUIRE(reader->release().has_value());
    writer.join();
    late.join();
    REQUIRE(writer_was == 0);
    REQUIRE(reader_was == 1);
}

TEST_CASE("durable_shared_mutex: admits max_readers readers at once, and no more") {
    const memory_slot slot;
    durable_shared_mutex m(slot, {}, 2);
    const auto one = m.acquire_shared();
    const auto two = m.acquire_shared();
    REQUIRE(m.try_acquire_shared().error() == errc::timeout);
    durable_shared_mutex other(slot);
    REQUIRE(other.try_acquire_shared().error() == durable_errc::permits_mismatch);
}

TEST_CASE("durable_shared_mutex: a reader's ticket weighs 1 permit, a writer's all") {
    durable_shared_mutex m(memory_slot{}, test::unhurried());
    durable_ticket writer = m.ticket("w");
    durable_ticket reader = m.shared_ticket("r");
    REQUIRE(m.try_acquire(reader)->acquired);
    REQUIRE_FALSE(m.try_acquire(writer)->acquired);
    REQUIRE(m.release(reader).value());
    REQUIRE(m.try_acquire(writer)->acquired);
    durable_ticket second = m.shared_ticket("r");
    REQUIRE_FALSE(m.try_acquire(second)->acquired);
}
