#ifndef BIDE_TESTS_SUPPORT_CRASH_HARNESS_HPP
#define BIDE_TESTS_SUPPORT_CRASH_HARNESS_HPP

// A storm over one durable lock: processes acquire, use a resource, and release, while their parent
// kills and stops them. support/crash_arena.hpp checks exclusion; here are the processes and the
// parent. Linux only.
//
//   const crash_report found = crash_storm([] { return bide::slot_ref(...); }, options);
//
// The function opens one more slot object in the calling process. No other thread may run, because
// the processes are forked. They may run in two containers, each with its own boot id, clock and
// pids; then this process must not have used a durable lock before. BIDE_CRASH_KILLS and
// BIDE_CRASH_PAUSES set the number of kills and pauses, instead of a short time.
// BIDE_CRASH_SLOTS=file,sqlite selects slots.

#include <bide/core/result.hpp>
#include <bide/durable/errors.hpp>
#include <bide/durable/locks.hpp>
#include <bide/durable/options.hpp>
#include <bide/durable/process.hpp>
#include <bide/durable/slot.hpp>
#include <support/children.hpp>
#include <support/containers.hpp>
#include <support/crash_arena.hpp>
#include <support/jitter.hpp>
#include <support/stress.hpp>
#include <support/temp_directory.hpp>
#include <support/test.hpp>

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

// Under ThreadSanitizer the child of a process with threads cannot start threads.
#define BIDE_TESTS_FORKS_NO_THREADS 0
#if defined(__SANITIZE_THREAD__)
#undef BIDE_TESTS_FORKS_NO_THREADS
#define BIDE_TESTS_FORKS_NO_THREADS 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#undef BIDE_TESTS_FORKS_NO_THREADS
#define BIDE_TESTS_FORKS_NO_THREADS 1
#endif
#endif

namespace test {

struct crash_options {
    int workers = 6;
    std::int64_t permits = 1; // 1: a durable_mutex; more: a durable_semaphore

    // True: the death of a holder is detected at once. False: only its lease ends the hold.
    bool process_bound = true;
    std::chrono::milliseconds lease{200};
    std::chrono::milliseconds waiter_ttl{200};

    // True: guards renew their leases.
    bool renews = true;

    // True: the resource checks tokens. False: a stopped holder does damage; a control of the
    // harness.
    bool is_gated = true;

    // Stops only a process inside the lock, and always continues it.
    bool pauses_holders_only = false;

    // True: the processes run in two containers. The parent runs in neither.
    bool in_containers = false;

    // True: each process uses its own clock for all times of the record. In containers this is a
    // control.
    bool has_clock_of_its_own = false;

    // True: the storm ends when two processes held the lock at once. A control needs no more.
    bool ends_with_overlap = false;

    // The smallest numbers of kills and pauses, and the shortest time. With 0 kills and 0 pauses no
    // process is harmed.
    long kills = 12;
    long pauses = 2;
    std::chrono::milliseconds time = stress_time::length();

    // The longest time until the next grant after any event, besides lease and waiter_ttl.
    std::chrono::milliseconds slack{20'000};
    std::uint32_t seed = run_seed();

    static std::optional<long> from_environment(const char* name) {
        const char* const given = std::getenv(name);
        return given != nullptr ? std::optional(std::strtol(given, nullptr, 10)) : std::nullopt;
    }
    void hear_environment() {
        const auto more_kills = from_environment("BIDE_CRASH_KILLS");
        const auto more_pauses = from_environment("BIDE_CRASH_PAUSES");
        kills = more_kills.value_or(kills);
        pauses = more_pauses.value_or(pauses);
        if (more_kills || more_pauses) {
            time = {};
        }
    }
};

// True if BIDE_CRASH_SLOTS is not set, or names the slot.
inline bool crash_wants(std::string_view slot) {
    const char* const given = std::getenv("BIDE_CRASH_SLOTS");
    const std::string all = ',' + std::string(given != nullptr ? given : "") + ',';
    return given == nullptr || all.find(',' + std::string(slot) + ',') != std::string::npos;
}

struct crash_report {
    long kills = 0;
    long holders_killed = 0; // of the kills, those of a process that stood still inside
    long pauses = 0;
    std::int64_t acquisitions = 0;
    std::int64_t overlaps = 0;
    std::int64_t stale_attempted = 0;
    std::int64_t stale_accepted = 0;
    std::int64_t told_lost = 0;
    std::int64_t longest_gap_us = 0; // the longest time without a grant
    std::uint32_t seed = 0;

    // A sentence for each broken promise. Stale writes are not included.
    std::vector<std::string> faults{};

    std::string summary(std::string_view name) const {
        std::ostringstream out;
        out << name << ": " << kills << " kills (" << holders_killed << " of a holder inside), "
            << pauses << " pauses, " << acquisitions << " acquisitions, " << overlaps
            << " overlaps, stale writes " << stale_attempted << " attempted " << stale_accepted
            << " accepted, " << told_lost
            << " told that it was lost; longest without an acquisition " << longest_gap_us / 1'000
            << " ms; seed " << seed;
        return out.str();
    }
    std::string all_faults() const {
        std::string all;
        for (const std::string& fault : faults) {
            all += fault + '\n';
        }
        return all;
    }
};

template <class Lock> class crash_worker {
public:
    crash_worker(Lock& lock, crash_arena& arena, int me, const crash_options& o, std::uint32_t seed)
        : lock_(lock), arena_(arena), me_(me), options_(o), chance_(seed) {}

    // Acquires and releases until the parent says to end, and once more.
    void run() {
        while (!arena_.is_ending) {
            ::alarm(children::longest_life);
            if (!turn(chance_.below(8))) {
                std::this_thread::yield();
            }
        }
        arena_.cell[static_cast<std::size_t>(me_)].has_finished = turn(2);
    }

private:
    using guard = bide::durable_guard;

    bool turn(std::uint32_t kind) {
        const std::int64_t newest = arena_.newest_grant;
        bide::acquire_request request;
        request.timeout = options_.lease + options_.waiter_ttl + options_.slack;
        if (kind == 1) {
            request.timeout = std::chrono::microseconds(chance_.below(5'000));
        }
        auto got = kind == 0 ? lock_.try_acquire() : lock_.acquire(std::move(request));
        if (!got) {
            const bool is_late =
                got.error() == bide::errc::timeout || got.error() == bide::durable_errc::no_answer;
            if (kind > 1 || !is_late) {
                arena_.complain("acquire", got.error().message());
            }
            return false;
        }

        guard& held = *got;
        arena_.enter(me_, held.fence(), held.lane(), until(held), newest);
        std::uint32_t acts = chance_.below(16) == 0 ? 30 : 1 + chance_.below(4);
        for (; acts != 0; --acts) {
            arena_.act(me_, until(held));
            stand_still(held);
            chance_.dawdle(17);
        }
        arena_.leave(me_);
        if (chance_.below(4) != 0) {
            const auto released = held.release();
            if (!released && released.error() == bide::durable_errc::lock_lost) {
                ++arena_.told_lost;
            } else if (!released) {
                arena_.complain("release", released.error().message());
            }
        }
        return true;
    }

    // Errs on the early side.
    static std::int64_t until(const guard& held) {
        const std::int64_t now = boottime_ns();
        return now + std::chrono::nanoseconds(held.remaining()).count();
    }

    // If the parent ordered it, stands still until the parent cancels the order, or until it is
    // killed.
    void stand_still(guard& held) {
        int nobody = crash_arena::anybody;
        if (!arena_.stand_still.compare_exchange_strong(nobody, me_ + 1)) {
            return;
        }
        while (arena_.stand_still == me_ + 1) {
            arena_.act(me_, until(held));
            std::this_thread::sleep_for(std::chrono::microseconds(200));
        }
        // The process was stopped for longer than its lease, and other processes held the lock. It
        // does not know that, and writes.
        arena_.act(me_, until(held));
        arena_.believers += held.is_held() ? 1 : 0;
        const auto lost = held.lost();
        arena_.deaf += eventually([&] { return lost.stop_requested(); }) ? 0 : 1;
    }

    Lock& lock_;
    crash_arena& arena_;
    const int me_;
    const crash_options& options_;
    jitter chance_;
};

inline bide::durable_options crash_lock_options(const crash_options& o) {
    bide::durable_options told{.lease = o.lease,
                               .waiter_ttl = o.waiter_ttl,
                               .auto_renew = o.renews,
                               .process_bound = o.process_bound};
    if (o.has_clock_of_its_own) {
        told.clock = bide::lock_clock::caller;
        told.now = [] { return std::chrono::milliseconds(bide::durable::boottime_ms()); };
    }
    return told;
}

// Calls f with a lock over a new slot object.
template <class Open, class F> void with_crash_lock(const Open& open, const crash_options& o, F f) {
    if (o.permits == 1) {
        bide::durable_mutex lock(open(), crash_lock_options(o));
        f(lock);
    } else {
        bide::durable_semaphore lock(open(), o.permits, crash_lock_options(o));
        f(lock);
    }
}

template <class Open> class crash_director {
public:
    crash_director(Open open, const crash_options& o)
        : open_(std::move(open)), options_(o), chance_(o.seed) {
        arena_->is_gated = o.is_gated;
        arena_->lease_outlives_kill = !o.process_bound;
        report_.seed = o.seed;
    }

    crash_report run() {
        good_ = build_containers();
        if (good_) {
            use_once(); // a child must not take cached data of its parent for its own
        }
        arena_->last_grant_at = boottime_ns();
        workers_.resize(static_cast<std::size_t>(options_.workers));
        for (worker& w : workers_) {
            spawn(w);
        }
        const auto end = std::chrono::steady_clock::now() + options_.time;
        while (good_ && !(options_.ends_with_overlap && arena_->overlaps != 0) &&
               (report_.kills < options_.kills || report_.pauses < options_.pauses ||
                std::chrono::steady_clock::now() < end)) {
            doze(chance_.below(6'000));
            next();
        }
        if (good_) {
            finish();
        }
        for (worker& w : workers_) {
            if (w.pid > 0) {
                ::kill(w.pid, SIGKILL);
                ::waitpid(w.pid, nullptr, 0);
            }
        }
        if (good_) {
            look_at_record();
        }
        conclude();
        return std::move(report_);
    }

private:
    struct worker {
        pid_t pid = 0;
        int cell = -1;
    };

    void fault(const std::string& what) { report_.faults.push_back(what); }

    static void doze(std::uint32_t us) {
        std::this_thread::sleep_for(std::chrono::microseconds(us));
    }

    std::chrono::milliseconds limit() const {
        return options_.lease + options_.waiter_ttl + options_.slack;
    }

    // Waits until the question is true, and watches the processes. If it is not true in time, ends
    // the storm.
    template <class Question> bool await(const char* what, Question question) {
        const auto end = std::chrono::steady_clock::now() + limit();
        while (good_ && !question()) {
            for (worker& w : workers_) {
                int status = 0;
                if (w.pid > 0 && !is_expected_to_end_ &&
                    ::waitpid(w.pid, &status, WNOHANG) == w.pid) {
                    fault("a process ended by itself, with status " + std::to_string(status));
                    w.pid = 0;
                    good_ = false;
                }
            }
            if (std::chrono::steady_clock::now() > end) {
                fault(std::string("stuck: ") + what);
                good_ = false;
            }
            doze(100);
        }
        return good_;
    }

    bool await_grant_after(std::int64_t acquisitions) {
        return await("nobody acquires the lock any more",
                     [&] { return arena_->acquisitions > acquisitions; });
    }

    // Runs f in this process. Runs it in a child under ThreadSanitizer, which allows no fork after
    // threads, and with containers, which would inherit this process's cached boot id.
    template <class F> void with_lock(F f) {
        const auto in_words = [&] {
            try {
                with_crash_lock(open_, options_, f);
            } catch (const std::exception& e) {
                arena_->complain("exception", e.what());
            }
        };
        if (BIDE_TESTS_FORKS_NO_THREADS || options_.in_containers) {
            const pid_t apart = ::fork();
            if (apart == 0) {
                ::alarm(children::longest_life);
                in_words();
                ::_exit(0);
            }
            int status = -1;
            ::waitpid(apart, &status, 0);
            if (status != 0) {
                arena_->complain("status of a process", std::to_string(status));
            }
        } else {
            in_words();
        }
        good_ = good_ && arena_->errors == 0;
    }

    void use_once() {
        with_lock([this](auto& lock) {
            const auto got = lock.acquire();
            if (!got) {
                arena_->complain("the parent's acquire", got.error().message());
            }
        });
    }

    bool build_containers() {
#if BIDE_TESTS_HAVE_CONTAINERS
        for (int i = 0; i < (options_.in_containers ? 2 : 0) && report_.faults.empty(); ++i) {
            container_shape shape;
            shape.boot_id.back() = static_cast<char>('1' + i);
            shape.boottime_s = 86'400 * (1 + 2 * i);
            containers_.push_back(std::make_unique<container>(containers_in_, shape));
            if (!containers_.back()->is_running()) {
                fault(containers_.back()->trouble());
            }
        }
#else
        if (options_.in_containers) {
            fault("this system has no containers");
        }
#endif
        return report_.faults.empty();
    }

    // Like fork(2), in the worker's container.
    pid_t fork_for([[maybe_unused]] const worker& w) {
#if BIDE_TESTS_HAVE_CONTAINERS
        if (options_.in_containers) {
            const auto number = static_cast<std::size_t>(&w - workers_.data());
            const container& home = *containers_[number % containers_.size()];
            const pid_t id = home.fork();
            if (id == 0) {
                boottime_ahead_ns() = home.shape().boottime_s * 1'000'000'000;
                if (bide::durable::this_boot().find(home.shape().boot_id) != 0) {
                    arena_->complain("a container's boot id", bide::durable::this_boot());
                }
            }
            return id;
        }
#endif
        return ::fork();
    }

    void spawn(worker& w) {
        await("no cell is free", [&] { return (w.cell = arena_->take_cell()) >= 0; });
        const std::uint32_t seed = options_.seed + ++spawned_ * 7'919;
        const pid_t parent = ::getpid();
        w.pid = good_ ? fork_for(w) : 0;
        if (w.pid < 0) {
            fault("no process could be started");
            good_ = false;
        }
        if (w.pid == 0 && good_) {
            ::prctl(PR_SET_PDEATHSIG, SIGKILL);
            if (!options_.in_containers &&
                ::getppid() != parent) { // processes of a container end with its first process
                ::_exit(1);
            }
            ::_exit(live(w.cell, seed));
        }
    }

    int live(int cell, std::uint32_t seed) {
        ::signal(SIGALRM, SIG_DFL);
        ::alarm(children::longest_life);
        try {
            with_crash_lock(open_, options_, [&](auto& lock) {
                crash_worker(lock, *arena_, cell, options_, seed).run();
            });
        } catch (const std::exception& e) {
            arena_->complain("exception", e.what());
            return 3;
        }
        return 0;
    }

    worker& any() { return workers_[chance_.below(static_cast<std::uint32_t>(workers_.size()))]; }
    worker* in_cell(int cell) {
        const auto it = std::find_if(workers_.begin(), workers_.end(),
                                     [&](const worker& w) { return w.cell == cell; });
        return it != workers_.end() ? &*it : nullptr;
    }

    // Returns the process that obeyed an order to stand still inside; nullptr: the storm has ended.
    worker* freeze_holder() {
        arena_->stand_still = crash_arena::anybody;
        const bool obeyed =
            await("nobody is inside any more", [&] { return arena_->stand_still > 0; });
        return obeyed ? in_cell(arena_->stand_still - 1) : nullptr;
    }

    void next() {
        if (options_.kills + options_.pauses == 0) {
            return;
        }
        const long kills_left = std::max(options_.kills - report_.kills, 0L);
        const long pauses_left = std::max(options_.pauses - report_.pauses, 0L);
        const long all = kills_left + pauses_left;
        const bool is_pause =
            all != 0
                ? static_cast<long>(chance_.below(static_cast<std::uint32_t>(all))) < pauses_left
                : chance_.below(32) == 0;
        const bool is_holder =
            chance_.below(2) == 0 ||
            (is_pause && (chance_.below(4) != 0 || options_.pauses_holders_only));
        const std::int64_t before = arena_->acquisitions;
        worker* const victim = is_holder ? freeze_holder() : &any();
        if (victim == nullptr) {
            return;
        }
        if (is_pause) {
            pause(*victim);
        } else {
            kill(*victim, before);
        }
    }

    enum class then { await_grant, go_on };

    // Sometimes leaves a zombie until another process has acquired.
    void kill(worker& victim, std::int64_t before, then what = then::await_grant) {
        crash_cell& c = arena_->cell[static_cast<std::size_t>(victim.cell)];
        const bool is_inside = arena_->stand_still == victim.cell + 1;
        const bool is_reaped_late = chance_.below(4) == 0;
        if (is_inside) {
            ++report_.holders_killed;
            before = arena_->acquisitions;
        }
        c.is_doomed = true;
        ::kill(victim.pid, SIGKILL);
        const pid_t pid = std::exchange(victim.pid, 0);
        if (!is_reaped_late) {
            ::waitpid(pid, nullptr, 0);
        }
        if (is_inside) {
            arena_->stand_still = 0;
        }
        ++report_.kills;
        if (what == then::await_grant) {
            await_grant_after(before);
        }
        if (is_reaped_late) {
            ::waitpid(pid, nullptr, 0);
        }
        c.is_taken = false;
        spawn(victim);
    }

    // Stops a process for 1.5 leases, at any point. It, or its renewal thread, may hold the store's
    // own lock; then no process makes progress until it continues. Otherwise another process
    // acquires.
    void pause(worker& victim) {
        const bool is_inside = arena_->stand_still == victim.cell + 1;
        ::kill(victim.pid, SIGSTOP);
        const auto end = std::chrono::steady_clock::now() + options_.lease * 3 / 2;
        await("a process does not stop", [&] {
            int status = 0;
            return ::waitpid(victim.pid, &status, WUNTRACED | WNOHANG) == victim.pid;
        });
        ++report_.pauses;
        if (chance_.below(2) == 0) { // also kills another process meanwhile
            worker& other = any();
            if (good_ && &other != &victim) {
                kill(other, 0, then::go_on);
            }
        }
        std::this_thread::sleep_until(end);
        if (is_inside) {
            const std::int64_t others = arena_->acquisitions;
            const auto enough = end + std::chrono::seconds(1);
            await("never: the time is over before", [&] {
                return arena_->acquisitions > others || std::chrono::steady_clock::now() > enough;
            });
            arena_->stand_still = 0;
        }
        const std::int64_t before = arena_->acquisitions;
        if (is_inside && chance_.below(8) == 0 && !options_.pauses_holders_only) {
            kill(victim, before);
        } else {
            ::kill(victim.pid, SIGCONT);
            await_grant_after(before);
        }
    }

    // Every process acquires once more and ends.
    void finish() {
        is_expected_to_end_ = true;
        arena_->is_ending = true;
        for (worker& w : workers_) {
            int status = -1;
            if (!await("a process does not come to its end",
                       [&] { return ::waitpid(w.pid, &status, WNOHANG) == w.pid; })) {
                return;
            }
            w.pid = 0;
            if (status != 0) {
                fault("a process ended with status " + std::to_string(status));
            } else if (!arena_->cell[static_cast<std::size_t>(w.cell)].has_finished) {
                fault("a process could not acquire once more");
            }
        }
    }

    // The last dead processes stay in the record until their time expires.
    void look_at_record() {
        with_lock([this](auto& lock) {
            std::string last = "entries do not expire";
            if (!await("the record is not empty in the end", [&] {
                    const auto seen = lock.inspect();
                    last = seen ? last : seen.error().message();
                    return seen && *seen && (*seen)->live.holders.empty() &&
                           (*seen)->live.waiters.empty();
                })) {
                arena_->complain("the record in the end", last);
            }
        });
    }

    void conclude() {
        report_.acquisitions = arena_->acquisitions;
        report_.overlaps = arena_->overlaps;
        report_.stale_attempted = arena_->stale_attempted;
        report_.stale_accepted = arena_->stale_accepted;
        report_.told_lost = arena_->told_lost;
        report_.longest_gap_us = arena_->longest_gap / 1'000;
        const auto none = [&](std::int64_t count, const std::string& what) {
            if (count != 0) {
                fault(std::to_string(count) + " times: " + what);
            }
        };
        none(arena_->overlaps, std::string("two held at once; first ") + arena_->first_overlap);
        none(arena_->fences_not_later,
             "a fence was not later than one granted before it was asked for");
        none(arena_->fences_twice, "a fence was granted twice");
        none(arena_->wrong_lanes, "a lane was not one of the lock's");
        none(arena_->refused_in_time, "the gate refused a holder in its lease");
        none(arena_->believers, "a guard took a lost lock for held");
        none(arena_->deaf, "a guard did not say that its lock was lost");
        none(arena_->errors, std::string("an operation failed; first ") + arena_->first_error);
        if (report_.longest_gap_us > std::chrono::microseconds(limit()).count()) {
            fault("nobody acquired for " + std::to_string(report_.longest_gap_us) + " us");
        }
    }

    Open open_;
    const crash_options options_;
    jitter chance_;
    shared_with_children<crash_arena> arena_;
#if BIDE_TESTS_HAVE_CONTAINERS
    const temp_directory containers_in_{"containers"};
    std::vector<std::unique_ptr<container>> containers_;
#endif
    std::vector<worker> workers_;
    std::uint32_t spawned_ = 0;
    bool good_ = true;
    bool is_expected_to_end_ = false;
    crash_report report_;
};

// Runs a storm and prints its result.
template <class Open>
crash_report crash_storm(std::string_view name, Open open, const crash_options& o) {
    crash_report found = crash_director<Open>(std::move(open), o).run();
    std::fprintf(stderr, "%s\n", found.summary(name).c_str());
    return found;
}

// True if the test may make containers. Otherwise reports on stderr that the test is skipped.
inline bool has_containers() {
    std::string why = "this system has none";
#if BIDE_TESTS_HAVE_CONTAINERS
    const temp_directory in("container");
    why = container(in, {}).trouble();
#endif
    if (!why.empty()) {
        std::fprintf(stderr, "skipped: no containers can be made here: %s\n", why.c_str());
    }
    return why.empty();
}

// Checks every promise of the lock, and that the storm did enough to test them. The name is the
// slot's, a comma, and the variant. Does nothing if BIDE_CRASH_SLOTS excludes the slot.
template <class Open>
void check_survival(std::string_view name, Open open, const crash_options& o) {
    if (!crash_wants(name.substr(0, name.find(',')))) {
        return;
    }
    const crash_report found = crash_storm(name, std::move(open), o);
    INFO(found.summary(name));
    INFO(found.all_faults());
    CHECK(found.faults.empty());
    CHECK(found.stale_accepted == 0);
    CHECK(found.kills >= o.kills);
    CHECK(found.pauses >= o.pauses);
    CHECK(found.acquisitions > found.kills);
}

} // namespace test

#endif
