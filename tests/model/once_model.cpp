// once_flag, once_cell: one caller initialises; the others see what it did, or get the turn if it
// failed. A caller that finds the flag set may destroy it.

#include <bide/sync/once.hpp>
#include <model/sync_support.hpp>
#include <support/test.hpp>

using namespace sync_model;

namespace {

using flag = bide::basic_once_flag<platform>;
using queue = bide::detail::basic_permit_queue<platform>;

TEST_CASE("once: one of two callers initialises, and both see it") {
    const auto two_call = [] {
        flag f;
        var<int> data{0};
        const auto call = [&] {
            f.call([&] { increment(data); });
            MODEL_REQUIRE(data == 1);
        };
        model::thread other(call);
        call();
        other.join();
        MODEL_REQUIRE(f.is_set());
    };
    model::check("once_flag: two call", two_call);
    model::check("once_flag: two call, steps that fail for no reason",
                 {.spurious = 1, .weak_failures = 1}, two_call);
    model::check("once_flag: one initialises, one looks and destroys it", [] {
        auto* const f = new flag;
        var<int> data{0};
        model::thread other([&, f] { f->call([&] { data = 1; }); });
        while (!f->is_set()) {
            platform::pause();
        }
        MODEL_REQUIRE(data == 1);
        delete f; // though the other call has not returned
    });
    model::check("once_cell: two make it, one uses it", [] {
        bide::once_cell<int, platform> cell;
        model::thread other([&] { MODEL_REQUIRE(cell.get_or_init([] { return 7; }) == 7); });
        if (const int* const seen = cell.get()) {
            MODEL_REQUIRE(*seen == 7);
        }
        MODEL_REQUIRE(cell.get_or_init([] { return 7; }) == 7);
    });
}

TEST_CASE("once: a caller that fails hands its turn on") {
    model::check("once_flag: one fails, one initialises", [] {
        flag f;
        var<int> data{0};
        model::thread failing([&] {
            if (auto turn = f.begin()) {
                increment(data); // and gives up
            }
        });
        if (auto turn = f.begin()) {
            increment(data);
            turn.set();
        }
        failing.join();
        MODEL_REQUIRE(f.is_set() && data >= 1 && data <= 2);
    });
    model::check("once_flag: one fails, two wait, one of them is stopped", [] {
        queue q(0); // the turn is taken
        var<int> data{0};
        queued a(q);
        queued b(q);
        model::thread failing([&] {
            increment(data);
            q.give(1);
        });
        model::thread stopping([&] { stop(q, a); });
        await(a);
        if (a.outcome() == wait_status::granted) {
            increment(data);
            q.close();
        }
        await(b);
        if (b.outcome() == wait_status::granted) {
            increment(data);
            q.close();
        }
        failing.join();
        stopping.join();
        MODEL_REQUIRE(q.is_closed() && data == 2);
    });
}

TEST_CASE("once: the turn that succeeds lets all waiters through") {
    model::check("once_flag: one waits, one comes, the turn is set", [] {
        flag f;
        var<int> data{0};
        auto turn = f.begin();
        model::thread other([&] {
            MODEL_REQUIRE(!f.begin());
            MODEL_REQUIRE(data == 1);
        });
        data = 1;
        turn.set();
        MODEL_REQUIRE(!f.begin());
    });
    model::check("once_flag: time-out against set()", {.timeouts = 1}, [] {
        flag f;
        var<int> data{0};
        auto turn = f.begin();
        model::thread other([&] {
            if (const auto got = f.begin_for(soon)) {
                MODEL_REQUIRE(!*got && data == 1);
            }
        });
        data = 1;
        turn.set();
    });
}

// Three call; the first call fails.
void three_call() {
    flag f;
    var<int> data{0};
    const auto call = [&](bool fails) {
        auto turn = f.begin();
        if (turn) {
            increment(data);
            if (!fails) {
                turn.set();
            }
        } else {
            MODEL_REQUIRE(data >= 1);
        }
    };
    model::thread a([&] { call(true); });
    model::thread b([&] { call(false); });
    call(false);
    a.join();
    b.join();
    MODEL_REQUIRE(f.is_set() && data <= 2);
}

TEST_CASE("once: of three callers one fails and one initialises", "[long]") {
    model::check("once_flag: three call", random_or_long(10'000), three_call);
}

} // namespace
