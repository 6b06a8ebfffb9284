// shared_mutex: a writer is alone, readers are not; no waiter is passed over.

#include <bide/sync/shared_mutex.hpp>
#include <model/sync_support.hpp>
#include <support/test.hpp>

using namespace sync_model;

namespace {

using shared_mutex = bide::basic_shared_mutex<platform>;
using permit_queue = bide::detail::basic_permit_queue<platform>;

constexpr std::ptrdiff_t all = permit_queue::max();
constexpr std::ptrdiff_t rest = all - (all / 2 + 1); // what an upgrade takes
constexpr auto all_of_them = static_cast<permit_queue::word>(all);

TEST_CASE("shared_mutex: a writer is alone") {
    model::check("shared_mutex: two writers", &two_lock_it<shared_mutex>);
    model::check("shared_mutex: a writer and a reader", {.weak_failures = 1},
                 [] { one_writes_one_reads<shared_mutex>(); });
    model::check("shared_mutex: a writer and a thread that tries to read",
                 &one_writes_one_tries_to_read<shared_mutex>);
    model::check("shared_mutex: a reader and a thread that tries to write",
                 &one_reads_one_tries_to_write<shared_mutex>);
}

TEST_CASE("shared_mutex: readers are inside together") {
    model::check("shared_mutex: two readers", &two_read<shared_mutex>);
    model::check("shared_mutex: two readers leave, a writer waits", [] {
        permit_queue q(all - 2);
        var<int> data{0};
        queued writer(q, all);
        const auto read_and_leave = [&] {
            MODEL_REQUIRE(data == 0);
            MODEL_REQUIRE(q.give(1, all_of_them));
        };
        model::thread a(read_and_leave);
        model::thread b(read_and_leave);
        await(writer);
        increment(data);
    });
    model::check("shared_mutex: all readers behind a writer enter at once", [] {
        permit_queue q(0);
        var<int> data{0};
        queued a(q);
        queued b(q);
        model::thread other([&] {
            await(a);
            MODEL_REQUIRE(data == 1);
        });
        increment(data);
        MODEL_REQUIRE(q.give(all_of_them, all_of_them));
        await(b); // whatever the other one does
        MODEL_REQUIRE(data == 1);
        other.join();
        MODEL_REQUIRE(q.available() == all - 2);
    });
}

TEST_CASE("shared_mutex: no reader overtakes a writer that waits") {
    model::check("shared_mutex: a reader that comes behind a writer", [] {
        permit_queue q(all - 1);
        var<int> data{0};
        queued writer(q, all);
        model::thread reader([&] {
            node mine(1);
            if (q.enqueue(mine) == wait_status::waiting) {
                await(mine);
            }
            MODEL_REQUIRE(data == 1);
        });
        MODEL_REQUIRE(!q.try_take(1));
        q.give(1, all_of_them);
        await(writer);
        increment(data);
        q.give(all_of_them, all_of_them);
        reader.join();
        MODEL_REQUIRE(q.available() == all - 1);
    });
}

TEST_CASE("shared_mutex: an upgrade passes the writers that wait") {
    model::check("shared_mutex: an upgrade and a writer", {.weak_failures = 1}, [] {
        shared_mutex m;
        var<int> data{0};
        model::thread writer([&] {
            const std::scoped_lock held(m);
            increment(data);
        });
        m.lock_upgradable();
        const int seen = data;
        m.upgrade();
        MODEL_REQUIRE(data == seen);
        increment(data);
        m.unlock();
        writer.join();
        MODEL_REQUIRE(data == 2);
    });
    const auto upgrade_and_reader = [](bool a_writer_waits) {
        permit_queue q(rest - 1); // an upgradable reader, and another reader
        var<int> data{0};
        var<int> read{0};
        std::optional<queued> writer;
        if (a_writer_waits) {
            writer.emplace(q, all);
        }
        model::thread reader(
            model::after_writing(read, [&] { MODEL_REQUIRE(q.give(1, all_of_them)); }));
        node upgrade(rest);
        if (q.enqueue_first(upgrade) == wait_status::waiting) {
            upgrade.park(deadline::never());
        }
        MODEL_REQUIRE(read == 1);
        if (writer) {
            MODEL_REQUIRE(!writer->is_complete());
            increment(data);
            MODEL_REQUIRE(q.give(all_of_them, all_of_them));
            await(*writer);
            MODEL_REQUIRE(data == 1);
        }
        MODEL_REQUIRE(q.available() == 0);
    };
    model::check("shared_mutex: an upgrade, and a reader that leaves",
                 [=] { upgrade_and_reader(false); });
    model::check("shared_mutex: an upgrade, a reader that leaves, a writer in the queue",
                 [=] { upgrade_and_reader(true); });
    model::check("shared_mutex: an upgrade that need not wait, and a reader at the same lock", [] {
        permit_queue q(rest + 1);
        model::thread reader([&] {
            node shared(1);
            MODEL_REQUIRE(q.enqueue(shared) == wait_status::granted);
        });
        node upgrade(rest);
        MODEL_REQUIRE(q.enqueue_first(upgrade) == wait_status::granted);
        reader.join();
        MODEL_REQUIRE(q.available() == 0);
    });
    model::check("shared_mutex: an upgrade that gives up, a reader, a writer in the queue",
                 {.timeouts = 1}, [] {
                     permit_queue q(rest - 1);
                     queued writer(q, all);
                     node upgrade(rest);
                     model::thread reader([&] { q.give(1, all_of_them); });
                     bool upgraded = q.enqueue_first(upgrade) == wait_status::granted;
                     if (!upgraded && (upgrade.park(deadline::at_ns(1)) ||
                                       !q.cancel(upgrade, wait_status::timed_out))) {
                         await(upgrade);
                         upgraded = true;
                     }
                     reader.join();
                     q.give(upgraded ? all_of_them : static_cast<permit_queue::word>(all - rest),
                            all_of_them);
                     await(writer);
                     MODEL_REQUIRE(q.available() == 0);
                 });
    model::check("shared_mutex: two upgradable readers, one after the other", [] {
        shared_mutex m;
        var<int> data{0};
        const auto work = [&] {
            m.lock_upgradable();
            const int seen = data;
            m.upgrade();
            MODEL_REQUIRE(data == seen);
            increment(data);
            m.unlock();
        };
        model::thread other(work);
        work();
        other.join();
        MODEL_REQUIRE(data == 2);
    });
}

TEST_CASE("shared_mutex: there is no moment between the writer and the reader it turns into") {
    model::check("shared_mutex: downgrade against a writer",
                 &one_downgrades_one_writes<shared_mutex>);
    model::check("shared_mutex: downgrade lets a reader in", [] {
        shared_mutex m;
        var<int> data{0};
        m.lock();
        model::thread reader([&] {
            m.lock_shared();
            MODEL_REQUIRE(data == 1);
            m.unlock_shared();
        });
        increment(data);
        m.unlock_and_lock_shared();
        reader.join(); // while it is held here
        m.unlock_shared();
        MODEL_REQUIRE(m.try_lock());
        m.unlock();
    });
}

TEST_CASE("shared_mutex: a writer that gives up lets the readers behind it in",
          "[promise.giving-up-passes-on]") {
    model::check("shared_mutex: a writer times out", {.timeouts = 1}, [] {
        permit_queue q(all - 1);
        queued writer(q, all);
        queued reader(q);
        model::thread waiting([&] {
            if (!writer.park(deadline::at_ns(1))) {
                MODEL_REQUIRE(q.cancel(writer, wait_status::timed_out));
            }
        });
        await(reader); // the reader that has the lock keeps it
        waiting.join();
        MODEL_REQUIRE(q.available() == all - 2);
    });
    model::check("shared_mutex: a writer is stopped while the last reader leaves", [] {
        permit_queue q(all - 1);
        var<int> data{0};
        queued writer(q, all);
        queued reader(q);
        model::thread stopping([&] { stop(q, writer); });
        model::thread leaving([&] {
            MODEL_REQUIRE(data == 0);
            q.give(1, all_of_them);
        });
        await(writer);
        if (writer.outcome() == wait_status::granted) {
            increment(data);
            q.give(all_of_them, all_of_them);
        }
        await(reader);
        MODEL_REQUIRE(data == (writer.outcome() == wait_status::granted ? 1 : 0));
        stopping.join();
        leaving.join();
        MODEL_REQUIRE(q.available() == all - 1);
    });
}

TEST_CASE("shared_mutex: readers pass a writer only when it gives up", "[.long]") {
    model::check("shared_mutex: a writer with a time-out", {.timeouts = 1}, [] {
        shared_mutex m;
        var<int> data{0};
        m.lock_shared();
        model::thread writer([&] {
            if (m.try_lock_for(soon)) {
                increment(data);
                m.unlock();
            }
        });
        // Before the writer, or behind it until it gives up: it cannot have it meanwhile.
        m.lock_shared();
        MODEL_REQUIRE(data == 0);
        m.unlock_shared();
        m.unlock_shared();
        writer.join();
        MODEL_REQUIRE(m.try_lock());
        m.unlock();
    });
}

TEST_CASE("shared_mutex: the last owner may destroy it") {
    model::check("shared_mutex: destroyed by a writer", &a_writer_destroys_it<shared_mutex>);
}

TEST_CASE("shared_mutex: two readers and two writers", "[long]") {
    model::check("shared_mutex: four threads", random_or_long(10'000, {.timeouts = 1}),
                 [] { two_readers_and_two_writers<shared_mutex>(); });
}

} // namespace
