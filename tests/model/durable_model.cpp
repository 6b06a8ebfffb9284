// The protocols between the threads of durable locks: a waiter for a change is told of every change
// that its read has not seen, also if all waiters of a process share one descriptor; a fence_gate
// admits no token after a larger one.

#include <bide/durable/detail/change_watch.hpp>
#include <bide/durable/fence_gate.hpp>
#include <model/sync_support.hpp>
#include <support/catch.hpp>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <system_error>
#include <vector>

using namespace sync_model;

namespace {

using change_signal = bide::detail::basic_change_signal<platform>;
using fence_gate = bide::basic_fence_gate<platform>;

// A record whose store is relaxed: only the signal orders it.
struct place {
    platform::atomic<int> record{0};
    change_signal changes;
    // All of them are kept up to the end: how the standard library counts references is not checked
    // here.
    std::vector<std::shared_ptr<change_signal::event>> taken;

    void change(int to) {
        record.store(to, std::memory_order_relaxed);
        changes.signal();
    }
    void await(int wanted) {
        for (;;) {
            const auto change = taken.emplace_back(changes.next());
            if (record.load(std::memory_order_relaxed) >= wanted) {
                return;
            }
            change->wait();
        }
    }
};

// The descriptor of a slot, as poll(2) and a one-shot epoll(7) report it.
struct kernel {
    bide::basic_mutex<platform> lock;
    bool is_readable = false, is_armed = false; // under lock
    bide::basic_semaphore<platform> epoll{0};   // wakes the monitor to check both
    std::shared_ptr<change_signal> told;

    void set(bool& what) {
        const std::lock_guard held(lock);
        what = true;
        if (is_readable && is_armed) {
            epoll.release();
        }
    }
    // What the lease monitor does when epoll_wait(2) returns.
    void tell() {
        {
            const std::lock_guard held(lock);
            if (!is_readable || !is_armed) {
                return; // drained meanwhile
            }
            is_armed = false;
        }
        told->signal();
    }
};

struct model_system {
    using signal = change_signal;
    struct descriptors {
        kernel* of = nullptr;

        bool add(int, const std::shared_ptr<signal>& who) const {
            if (of != nullptr) { // the descriptor of a process is not notified here
                of->told = who;
                of->set(of->is_armed);
            }
            return of != nullptr;
        }
        void rearm(int) const { of->set(of->is_armed); }
        void remove(int) const {
            const std::lock_guard held(of->lock);
            of->is_armed = false;
        }
    };
    static descriptors& monitor() {
        static descriptors one;
        return one;
    }
    static constexpr bool sees_files = true;
    static bool is_silent(int) {
        const std::lock_guard held(monitor().of->lock);
        return !monitor().of->is_readable;
    }
};

struct watched_slot {
    struct watch_of final : bide::slot_watch {
        int fd() const noexcept override { return 0; }
        std::error_code drain() noexcept override {
            kernel& k = *model_system::monitor().of;
            const std::lock_guard held(k.lock);
            k.is_readable = false;
            return {};
        }
    };

    bide::result<bide::slot_snapshot, std::error_code> load() { return bide::slot_snapshot{}; }
    bide::cas_result compare_exchange(std::uint64_t, std::string_view) { return {}; }
    static constexpr bide::slot_guarantees guarantees{.keeps_acknowledged = true};
    bide::result<std::unique_ptr<bide::slot_watch>, std::error_code> watch() {
        return std::unique_ptr<bide::slot_watch>(new watch_of);
    }
};

// A process that waits for the changes of other processes.
struct process {
    kernel file;
    platform::atomic<int> record{0};
    bide::basic_mutex<platform> turn;
    bide::slot_ref slot{watched_slot()};
    std::shared_ptr<change_signal> changes = std::make_shared<change_signal>();
    std::vector<std::shared_ptr<change_signal::event>> taken; // under turn; up to the end
    bide::detail::basic_change_watch<model_system> watch{changes};

    process() {
        model_system::monitor().of = &file;
        watch.open(slot);
    }
    ~process() { watch.close(); }

    // A change by another process: first the record, then the descriptor.
    void change(int to) {
        record.store(to, std::memory_order_release);
        file.set(file.is_readable);
    }
    // Returns true if the record is as wanted; otherwise there is an event to wait for.
    bool look(int wanted, std::shared_ptr<change_signal::event>& until) {
        until = changes->next();
        const std::lock_guard held(turn);
        taken.push_back(until);
        watch.drain();
        if (record.load(std::memory_order_acquire) >= wanted) {
            return true;
        }
        watch.follow({}, {});
        return false;
    }
    void await(int wanted) {
        for (std::shared_ptr<change_signal::event> change; !look(wanted, change);) {
            change->wait();
        }
    }
};

// One waiter waits for the last of `changes`, while `others` waiters read once each.
void listen(int others, int changes) {
    process p;
    platform::atomic<bool> over{false};
    model::thread lease_monitor([&] {
        for (p.file.epoll.acquire(); !over.load(std::memory_order_acquire);
             p.file.epoll.acquire()) {
            p.file.tell();
        }
    });
    model::thread changing([&] {
        for (int i = 1; i <= changes; ++i) {
            p.change(i);
        }
    });
    model::thread looking([&] {
        for (int i = 0; i < others; ++i) {
            std::shared_ptr<change_signal::event> change;
            p.look(1000, change);
        }
    });
    p.await(changes);
    changing.join();
    looking.join();
    over.store(true, std::memory_order_release);
    p.file.epoll.release();
    lease_monitor.join();
}

} // namespace

TEST_CASE(
    "durable: a change that one reader drains is signalled to the other waiters of the process",
    "[durable]") {
    model::check("durable: one waits, another looks", random(10'000), [] { listen(1, 1); });
    model::check("durable: the other looks twice", random(10'000), [] { listen(2, 1); });
    model::check("durable: there are two changes", random(10'000), [] { listen(1, 2); });
}

TEST_CASE("durable: a waiter is told of each change that its read has not seen", "[durable]") {
    model::check("durable: one waits, one changes", {}, [] {
        place p;
        model::thread changing([&] { p.change(1); });
        p.await(1);
        changing.join();
    });
    using method = model::options::method;
    const model::options few{.how = method::bounded, .preemptions = 1};
    const model::options some{.how = method::pct, .runs = 20'000};
    model::check("durable: one waits for the second of two changes", few, [] {
        place p;
        model::thread changing([&] {
            p.change(1);
            p.change(2);
        });
        p.await(2);
        changing.join();
    });
    model::check("durable: two wait, one changes", some, [] {
        place p;
        model::thread other([&] { p.await(1); });
        model::thread changing([&] { p.change(1); });
        p.await(1);
        other.join();
        changing.join();
    });
}

TEST_CASE("durable: fence_gate admits no token after a larger one", "[durable]") {
    model::check("durable: two at a gate", {.weak_failures = 1}, [] {
        fence_gate gate;
        model::thread older([&] {
            if (!gate.admit(1)) {
                MODEL_REQUIRE(gate.highest() == 2);
            }
        });
        MODEL_REQUIRE(gate.admit(2));
        MODEL_REQUIRE(gate.highest() == 2);
        MODEL_REQUIRE(!gate.admit(1));
        older.join();
        MODEL_REQUIRE(gate.highest() == 2);
    });
}

TEST_CASE("durable: a caller of fence_gate sees what was done before earlier admissions",
          "[durable]") {
    model::check("durable: the next one sees it", {.weak_failures = 1}, [] {
        fence_gate gate;
        var<int> data{0};
        platform::atomic<int> was_in{0};
        model::thread older([&] {
            data = 1;
            if (gate.admit(1)) {
                was_in.store(1, std::memory_order_relaxed);
            }
        });
        gate.admit(2);
        if (was_in.load(std::memory_order_relaxed) == 1) {
            MODEL_REQUIRE(data == 1);
        }
        older.join();
    });
    model::check("durable: what was done before the same token came again, too", {}, [] {
        fence_gate gate;
        var<int> data{0};
        platform::atomic<int> was_in{0};
        model::thread older([&] {
            gate.admit(1);
            data = 1;
            if (gate.admit(1)) {
                was_in.store(1, std::memory_order_relaxed);
            }
        });
        gate.admit(2);
        if (was_in.load(std::memory_order_relaxed) == 1) {
            MODEL_REQUIRE(data == 1);
        }
        older.join();
    });
    model::check("durable: a refused caller sees it", {.weak_failures = 1}, [] {
        fence_gate gate;
        var<int> data{0};
        model::thread newer([&] {
            data = 1;
            gate.admit(2);
        });
        if (!gate.admit(1)) {
            MODEL_REQUIRE(data == 1);
        }
        newer.join();
    });
    model::check("durable: a caller of highest() sees it", {}, [] {
        fence_gate gate;
        var<int> data{0};
        model::thread newer([&] {
            data = 1;
            gate.admit(2);
        });
        if (gate.highest() == 2) {
            MODEL_REQUIRE(data == 1);
        }
        newer.join();
    });
}
