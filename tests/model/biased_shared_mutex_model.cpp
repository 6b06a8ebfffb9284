// biased_shared_mutex: a writer is alone, whichever slots the readers come and leave by, and waits for
// none that has left.

#include <bide/sync/biased_shared_mutex.hpp>
#include <model/sync_support.hpp>
#include <support/test.hpp>

using namespace sync_model;

namespace {

using mutex = bide::basic_biased_shared_mutex<platform, 2>;
using narrow = bide::basic_biased_shared_mutex<platform, 1>; // biased again by one read
using permits = bide::detail::basic_biased_permits<platform, 2>;

// The slot of the calling thread from here on.
void read_by(std::uint32_t slot) noexcept {
    platform::near_local<bide::detail::reader_number>().value = slot;
}

// So that the next read that needs no wait makes it biased again.
template <class Mutex> void end_bias(Mutex& m) {
    m.lock();
    m.unlock();
    m.lock_shared();
    m.unlock_shared();
}

void take_all(permits& p) {
    node w(permits::all);
    if (p.enqueue(w) == wait_status::waiting) {
        await(w);
    }
}
void give_all(permits& p) {
    constexpr auto all = static_cast<std::uint64_t>(permits::all);
    MODEL_REQUIRE(p.in_queue().give(all, all));
}
// All permits are there, and none is in a slot.
void require_free(permits& p) {
    MODEL_REQUIRE(p.try_take_all());
    give_all(p);
    MODEL_REQUIRE(p.in_queue().available() == permits::all);
}

TEST_CASE("biased_shared_mutex: a writer is alone") {
    model::check("biased_shared_mutex: two writers", &two_lock_it<narrow>);
    model::check("biased_shared_mutex: two that try to write", &two_try_it<narrow>);
    model::check("biased_shared_mutex: a writer and a reader",
                 [] { one_writes_one_reads<mutex>(read_by); });
    model::check("biased_shared_mutex: a writer and a thread that tries to read",
                 &one_writes_one_tries_to_read<mutex>);
    model::check("biased_shared_mutex: a reader and a thread that tries to write",
                 &one_reads_one_tries_to_write<mutex>);
}

TEST_CASE("biased_shared_mutex: readers are inside together") {
    model::check("biased_shared_mutex: two readers by one slot", &two_read<mutex>);
    model::check("biased_shared_mutex: two readers leave, a writer waits", random(20'000), [] {
        permits p;
        var<int> data{0};
        MODEL_REQUIRE(p.try_take_one() && p.try_take_one());
        const auto read_and_leave = [&] {
            MODEL_REQUIRE(data == 0);
            MODEL_REQUIRE(p.give_one());
        };
        model::thread a(read_and_leave);
        model::thread b(read_and_leave);
        take_all(p);
        increment(data);
    });
    model::check("biased_shared_mutex: two readers leave by each other's slots", random(20'000),
                 [] {
                     permits p;
                     var<int> data{0};
                     MODEL_REQUIRE(p.try_take_one()); // by slot 0
                     read_by(1);
                     MODEL_REQUIRE(p.try_take_one());
                     const auto read_and_leave = [&] {
                         read_by(1);
                         MODEL_REQUIRE(data == 0);
                         MODEL_REQUIRE(p.give_one());
                     };
                     model::thread a(read_and_leave);
                     model::thread b(read_and_leave);
                     take_all(p);
                     increment(data);
                     give_all(p);
                     a.join();
                     b.join();
                     require_free(p);
                 });
}

TEST_CASE("biased_shared_mutex: a reader that leaves elsewhere gives its permit back") {
    model::check("biased_shared_mutex: a reader leaves by another slot, a writer comes", [] {
        permits p;
        var<int> data{0};
        MODEL_REQUIRE(p.try_take_one());
        model::thread reader([&] {
            read_by(1);
            MODEL_REQUIRE(data == 0);
            MODEL_REQUIRE(p.give_one());
        });
        take_all(p);
        increment(data);
        give_all(p);
        reader.join();
        require_free(p);
    });
    model::check("biased_shared_mutex: a reader leaves while another one comes and a writer tries",
                 [] {
                     permits p;
                     var<int> data{0};
                     read_by(1);
                     MODEL_REQUIRE(p.try_take_one());
                     model::thread other([&] {
                         if (p.try_take_one()) {
                             MODEL_REQUIRE(data == 0);
                             MODEL_REQUIRE(p.give_one());
                         }
                     });
                     read_by(0);
                     MODEL_REQUIRE(data == 0);
                     MODEL_REQUIRE(p.give_one()); // perhaps the permit of the other one
                     const bool mine = p.try_take_all();
                     if (mine) {
                         increment(data);
                         increment(data);
                         data = 0;
                         give_all(p);
                     }
                     other.join();
                     require_free(p);
                 });
}

TEST_CASE("biased_shared_mutex: it is biased again, and no writer is left behind") {
    model::check("biased_shared_mutex: a read that makes it biased, and a writer", [] {
        narrow m;
        var<int> data{0};
        m.lock();
        m.unlock();
        model::thread reader([&] {
            m.lock_shared();
            MODEL_REQUIRE(data <= 1);
            m.unlock_shared();
        });
        m.lock();
        increment(data);
        m.unlock();
        reader.join();
        MODEL_REQUIRE(m.try_lock());
        m.unlock();
    });
    model::check("biased_shared_mutex: two reads that would make it biased", [] {
        mutex m;
        var<int> data{0};
        m.lock();
        increment(data);
        m.unlock_and_lock_shared();
        m.unlock_shared();
        m.lock_shared();
        m.unlock_shared();
        const auto read = [&](std::uint32_t slot) {
            read_by(slot);
            m.lock_shared(); // by a slot that the other one has opened, perhaps
            MODEL_REQUIRE(data == 1);
            m.unlock_shared();
        };
        model::thread other([&] { read(1); });
        read(0);
        other.join();
        MODEL_REQUIRE(m.try_lock());
        m.unlock();
    });
    model::check("biased_shared_mutex: written by two, biased in between", random(20'000), [] {
        mutex m;
        var<int> data{0};
        end_bias(m);
        model::thread other([&] {
            const std::scoped_lock held(m);
            increment(data);
        });
        m.lock_shared();
        const int seen = data;
        MODEL_REQUIRE(seen <= 1);
        m.unlock_shared();
        m.lock();
        increment(data);
        m.unlock();
        other.join();
        MODEL_REQUIRE(data == 2);
    });
}

TEST_CASE("biased_shared_mutex: no reader overtakes a writer that waits") {
    model::check("biased_shared_mutex: a reader that comes behind a writer", [] {
        permits p;
        var<int> data{0};
        MODEL_REQUIRE(p.try_take_one());
        node writer(permits::all);
        MODEL_REQUIRE(p.enqueue(writer) == wait_status::waiting);
        model::thread reader([&] {
            read_by(1);
            if (!p.try_take_one()) {
                node mine(1);
                if (p.in_queue().enqueue(mine) == wait_status::waiting) {
                    await(mine);
                }
            }
            MODEL_REQUIRE(data == 1);
        });
        MODEL_REQUIRE(!p.try_take_one());
        MODEL_REQUIRE(p.give_one());
        await(writer);
        increment(data);
        give_all(p);
        reader.join();
        MODEL_REQUIRE(p.in_queue().available() == permits::all - 1);
    });
}

TEST_CASE("biased_shared_mutex: a writer that gives up lets the readers behind it in",
          "[promise.biased-writer-turn]") {
    model::check("biased_shared_mutex: a writer times out while a reader leaves", {.timeouts = 1},
                 [] {
                     mutex m;
                     var<int> data{0};
                     m.lock_shared();
                     model::thread writer([&] {
                         if (m.try_lock_for(soon)) {
                             increment(data);
                             m.unlock();
                         }
                     });
                     MODEL_REQUIRE(data == 0);
                     m.unlock_shared();
                     writer.join();
                     MODEL_REQUIRE(m.try_lock());
                     m.unlock();
                 });
    model::check("biased_shared_mutex: a writer times out, a reader waits behind it",
                 {.timeouts = 1}, [] {
                     permits p;
                     MODEL_REQUIRE(p.try_take_one());
                     node reader(1);
                     queued writer(p, permits::all);
                     p.in_queue().enqueue(reader);
                     model::thread waiting([&] {
                         if (!writer.park(deadline::at_ns(1))) {
                             MODEL_REQUIRE(p.cancel(writer, wait_status::timed_out));
                         }
                     });
                     await(reader); // the reader that has the lock keeps it
                     waiting.join();
                     MODEL_REQUIRE(p.in_queue().available() == permits::all - 2);
                 });
    model::check("biased_shared_mutex: a writer is stopped while the last reader leaves",
                 random(20'000), [] {
                     permits p;
                     var<int> data{0};
                     MODEL_REQUIRE(p.try_take_one());
                     node writer(permits::all);
                     model::thread stopping([&] { stop(p, writer); });
                     model::thread leaving([&] {
                         MODEL_REQUIRE(data == 0);
                         MODEL_REQUIRE(p.give_one());
                     });
                     wait_status what = p.enqueue(writer);
                     if (what == wait_status::waiting) {
                         await(writer);
                         what = writer.outcome();
                     }
                     if (what == wait_status::granted) {
                         increment(data);
                         give_all(p);
                     }
                     stopping.join();
                     leaving.join();
                     require_free(p);
                 });
}

TEST_CASE("biased_shared_mutex: a downgrade leaves no moment for a writer") {
    model::check("biased_shared_mutex: downgrade against a writer",
                 &one_downgrades_one_writes<mutex>);
}

TEST_CASE("biased_shared_mutex: the last owner may destroy it") {
    model::check("biased_shared_mutex: destroyed by a writer", &a_writer_destroys_it<mutex>);
    model::check("biased_shared_mutex: destroyed by a writer that tries", [] {
        auto* const m = new mutex;
        m->lock_shared();
        model::thread reader([m] {
            read_by(1);
            m->unlock_shared();
        });
        while (!m->try_lock()) {
            platform::pause();
        }
        delete m;
    });
}

// The readers come by two slots, and it is biased again in between.
TEST_CASE("biased_shared_mutex: two readers and two writers", "[long]") {
    model::check("biased_shared_mutex: four threads", random_or_long(10'000, {.timeouts = 1}),
                 [] { two_readers_and_two_writers<mutex>(read_by); });
}

} // namespace
