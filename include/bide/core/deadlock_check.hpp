// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_CORE_DEADLOCK_CHECK_HPP
#define BIDE_CORE_DEADLOCK_CHECK_HPP

/// \file
/// Reports deadlocks and dumps all waits, in a program that is compiled with BIDE_DEADLOCK_CHECK.
///
/// With the macro, each wait of a thread or a coroutine is noted: the thread or task, the
/// primitive, and the time at which the wait began. The holders of each mutex, adaptive_mutex,
/// shared_mutex and biased_shared_mutex are noted, too. One lock guards all notes, and each note
/// allocates memory, so the check is for debug builds. All files of a program must agree on the
/// macro. If two files that share a primitive disagree, the program does not link. Without the
/// macro nothing is noted, and the names of primitives are dropped.
///
/// - If a wait closes a cycle of waits among threads and tasks, the whole cycle is reported before
///   that wait begins. If the holder of a mutex locks it again, this is a cycle of one wait.
/// - A cycle is not reported if one of its waits may end early: a wait with a time-out or a stop
///   token, or the wait of a task with a deadline. A cycle of tasks is reported even though another
///   task could cancel one of them.
/// - A wait for a condition_variable acquires the released lock again before it returns. So from
///   its beginning on, it counts as a wait for that lock, and a cycle through that lock is
///   reported.
/// - By default the report is printed and the program terminates. See set_deadlock_handler().
/// - The thread or task that locks a mutex counts as its holder until the mutex is unlocked. If the
///   lock is given to another thread or task, call forget_holder() to prevent a wrong report.
/// - Some holders are not known: a coroutine that is part of no task; an upgradable reader; the
///   holder of a lock that a select has taken; the holder of a key of a keyed_mutex; the caller
///   that initialises a once_flag. A cycle through such a holder is not found.
/// - A cycle through a semaphore, a channel or a join is not found either. Nor is a cycle through a
///   reader that waits behind a writer while other readers hold the lock. Waits by callbacks are
///   not noted.
/// - A static primitive with a name is initialised at run time, so that the name is kept. Such a
///   primitive cannot be constinit. A static primitive without a name may be initialised at compile
///   time. Then a dump shows only the address of the primitive and the kind of its queue.
/// - If a coroutine is destroyed while a release on another thread resumes it, the program
///   terminates with a message (core/async_op.hpp).

#include <bide/core/detail/noted.hpp>

#include <cstdio>

#if defined(BIDE_DEADLOCK_CHECK)
#include <bide/core/detail/os_thread.hpp>
#include <bide/core/detail/probe.hpp>
#include <bide/core/detail/task_context.hpp>
#include <bide/core/errc.hpp>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <map>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <unordered_map>
#include <vector>

namespace bide { inline namespace BIDE_ABI { namespace detail {

// ---- The notes
//
// There are two kinds of notes: a thread or task waits for a primitive; a thread or task holds a
// lock.
//
// One lock guards all notes, so the order in which they are written is the same for all threads:
//
//   a wait    is noted before it can block, and its note is removed after it has ended
//   a holder  is noted after it has acquired the lock, and its note is removed before the release
//
// No report is wrong. If a note says that A holds a lock, A does hold it. Consider a cycle of
// notes, in which each member waits for a lock that the next member holds. The note of a wait may
// stay for some time after the wait has ended. But a wait for a lock is granted only after the note
// of the lock's holder was removed. So no wait of the cycle has been granted, and no member can
// release the lock that the previous member waits for. The cycle is found when its last wait is
// noted.
//
// If readers hold a lock, another reader waits for the lock only because a writer waits in front of
// that reader. The wait of the writer may end early. So the reader's wait never counts as a part of
// a cycle.
//
// Before a wait for a condition_variable returns, the waiter acquires its lock again, and no
// time-out ends this acquisition. So from its beginning on, the wait is noted as a wait for that
// lock, even if it has a time-out. While the wait begins, the waiter still holds that lock itself;
// this does not count as a cycle.
//
// The head of this file lists the holders that are not known and therefore not noted.

// Identifies a thread or a task. A thread has an odd number, which is never used for another
// thread. A task is identified by its address, and its notes are removed when it ends.
class BIDE_SHARED actor {
public:
    actor() noexcept = default; // a coroutine that is part of no task
    explicit actor(const basic_task_context<native_platform>* of) noexcept
        : id_(reinterpret_cast<std::uintptr_t>(of)) {}

    // Returns the running task. If no task runs, returns the calling thread.
    static actor here() noexcept {
        if (auto* const task = worker_local<native_platform>::get().running) {
            return actor(task);
        }
        actor thread;
        thread.id_ = thread_number::of_this();
        return thread;
    }

    explicit operator bool() const noexcept { return id_ != 0; }
    bool is_task() const noexcept { return id_ != 0 && id_ % 2 == 0; }
    friend bool operator==(actor, actor) noexcept = default;

    // Requires: the actor is the calling thread, or a task that has not ended.
    std::string text() const {
        if (id_ == 0) {
            return "a coroutine";
        }
        if (!is_task()) {
            const unsigned long shown = os_thread::number_of_this();
            return "thread " + std::to_string(shown != 0 ? shown : id_ / 2);
        }
        const auto* const task = reinterpret_cast<const basic_task_context<native_platform>*>(id_);
        const char* const name = task->name();
        return name != nullptr ? "task '" + std::string(name) + "'" : "a task without a name";
    }

private:
    struct thread_number {
        std::uintptr_t number = 0;

        static std::uintptr_t of_this() noexcept {
            static constinit native_platform::atomic<std::uintptr_t> next{1};
            auto& mine = native_platform::local<thread_number>();
            if (mine.number == 0) {
                // Order: relaxed; the numbers only have to differ.
                mine.number = next.fetch_add(2, std::memory_order_relaxed);
            }
            return mine.number;
        }
    };

    std::uintptr_t id_ = 0;
};

// All notes of the program. The comment of each function says when it is called.
class BIDE_SHARED wait_notes {
public:
    enum class mode : unsigned char { exclusive, shared };

    static wait_notes& all() noexcept {
        static never_destroyed<wait_notes> notes;
        return notes.object;
    }

    // ---- Primitives

    // Called in a constructor. `name` may be nullptr.
    void made(const void* primitive, std::size_t size, const char* kind,
              const char* name) noexcept {
        write([&] {
            primitives_[address_of(primitive)] = {size, kind, name != nullptr ? name : ""};
        });
    }
    // Called in a destructor.
    void gone(const void* primitive) noexcept {
        write([&] {
            primitives_.erase(address_of(primitive));
            holders_.erase(primitive);
        });
    }

    // ---- Holders

    // Called after `by` has acquired the lock.
    void locked(const void* lock, mode how, actor by) noexcept {
        if (by) {
            write([&] {
                auto& of = holders_[lock];
                if (how == mode::exclusive) {
                    of.clear();
                }
                of.push_back({by, by.text(), how});
            });
        }
    }
    // Called before the lock is released, possibly on another thread than the one that acquired it.
    void unlocked(const void* lock, mode how) noexcept {
        write([&] {
            const auto noted = holders_.find(lock);
            if (noted == holders_.end()) {
                return;
            }
            auto& of = noted->second;
            const auto mine = std::find_if(of.begin(), of.end(), [&](const holder& h) {
                return h.who == actor::here() && h.how == mode::shared;
            });
            if (how == mode::shared && mine != of.end()) {
                of.erase(mine);
            } else { // it is not known which holder has ended
                of.clear();
            }
            if (of.empty()) {
                holders_.erase(noted);
            }
        });
    }

    // ---- Waits

    // Called before the wait of `by` can block. If the wait closes a cycle, reports the cycle.
    void waits(const void* node, actor by, const wait_subject& on, bool may_end_early) noexcept {
        const bool relocks = on.relock != nullptr;
        std::string report;
        handler tell = nullptr;
        write([&] {
            const auto at = waits_.insert_or_assign(
                node, wait{by, by.text(), text_of(on), relocks ? on.relock : on.primitive,
                           relocks ? on.relock_amount : on.amount, relocks,
                           may_end_early && !relocks, native_platform::now(), nullptr});
            report = cycle_of(at.first->second);
            tell = tell_;
        });
        if (report.empty()) {
            return;
        }
        if (tell != nullptr) {
            tell(report.c_str());
        } else {
            fatal(report.c_str() + std::strlen("bide: "));
        }
    }
    // Called after the wait. If the waiting coroutine was destroyed, `destroyer` is the
    // thread_mark() of the thread that destroys it. Terminates if the note says that another thread
    // runs the waker.
    void waits_no_more(const void* node, const void* destroyer = nullptr) noexcept {
        const void* by = nullptr;
        write([&] {
            if (const auto found = waits_.find(node); found != waits_.end()) {
                by = found->second.woken_by;
                waits_.erase(found);
            }
        });
        if (destroyer != nullptr && by != nullptr && by != destroyer) {
            fatal(destroyed_while_woken);
        }
    }
    // Called before the waker of a coroutine runs. `thread` is the thread_mark() of the thread that
    // runs the waker. Terminates if the wait is not noted, because then the coroutine was
    // destroyed.
    void wakes(const void* node, const void* thread) noexcept {
        bool waits = false;
        write([&] {
            if (const auto found = waits_.find(node); found != waits_.end()) {
                found->second.woken_by = thread;
                waits = true;
            }
        });
        if (!waits) {
            fatal(destroyed_while_woken);
        }
    }
    // Called after the waker has run. The woken wait may be over then, and the node of another wait
    // may be at the same address.
    void wakes_no_more(const void* node, const void* thread) noexcept {
        write([&] {
            const auto found = waits_.find(node);
            if (found != waits_.end() && found->second.woken_by == thread) {
                found->second.woken_by = nullptr;
            }
        });
    }

    // Called at the end of a task.
    void ended(actor task) noexcept {
        write([&] {
            for (auto at = holders_.begin(); at != holders_.end();) {
                std::erase_if(at->second, [&](const holder& h) { return h.who == task; });
                at = at->second.empty() ? holders_.erase(at) : std::next(at);
            }
        });
    }

    // Returns what an actor waits for, such as "mutex 'accounts', held by task 'writer'"; "" if its
    // wait is not noted. Throws: std::bad_alloc.
    std::string what_for(actor who) {
        const std::lock_guard lock(mutex_);
        const wait* const w = wait_of(who);
        return w != nullptr ? with_holders(*w) : std::string();
    }

    // ---- Reports

    using handler = void (*)(const char* report);

    handler set_handler(handler tell) noexcept {
        const std::lock_guard lock(mutex_);
        return std::exchange(tell_, tell);
    }

    // The type of a function that dumps another part of the program.
    using dumper = void (*)(const void* part, std::FILE* to);
    void add_part(const void* part, dumper how) noexcept {
        made_or_fatal(out_of_memory, [&] {
            const std::lock_guard lock(parts_mutex_);
            parts_.emplace(part, how);
        });
    }
    void remove_part(const void* part) noexcept {
        const std::lock_guard lock(parts_mutex_);
        parts_.erase(part);
    }

    void dump(std::FILE* to) {
        {
            const std::lock_guard lock(mutex_);
            std::fprintf(to, "bide: %zu waits\n", waits_.size());
            for (const auto& [node, w] : waits_) {
                std::fprintf(to, "  %s\n", description(w).c_str());
            }
        }
        const std::lock_guard lock(parts_mutex_);
        for (const auto& [part, how] : parts_) {
            how(part, to);
        }
    }

private:
    static constexpr const char* destroyed_while_woken =
        "a coroutine was destroyed while a release on another thread resumes it "
        "(core/async_op.hpp)";
    static constexpr const char* out_of_memory = "no memory for the notes of BIDE_DEADLOCK_CHECK";

    struct known {
        std::size_t size;
        const char* kind;
        std::string name;
    };
    struct holder {
        actor who;
        std::string text;
        mode how;
    };
    struct wait {
        actor who;
        std::string text;
        std::string on;        // what it waits for
        const void* lock;      // the awaited primitive, or the lock that the waiter acquires again
        std::ptrdiff_t amount; // the units of `lock` that the wait asks for
        bool relocks;          // the waiter held `lock` when the wait began
        bool may_end_early;
        std::int64_t since;
        const void* woken_by = nullptr; // identifies a thread (thread_mark())
    };

    template <class Write> void write(Write&& change) noexcept {
        made_or_fatal(out_of_memory, [&] {
            const std::lock_guard held(mutex_);
            change();
        });
    }

    static std::uintptr_t address_of(const void* p) noexcept {
        return reinterpret_cast<std::uintptr_t>(p);
    }

    // Returns "mutex 'accounts'", "mutex 0x7ffc...", or "a select". `kind` is used if the primitive
    // was not noted.
    std::string text_of(const void* primitive, const char* kind, const char* name) const {
        std::string called = name != nullptr ? name : "";
        if (const auto next = primitives_.upper_bound(address_of(primitive));
            next != primitives_.begin()) {
            const auto& [begin, p] = *std::prev(next);
            if (address_of(primitive) - begin < p.size) {
                kind = p.kind;
                called = p.name.empty() ? called : p.name;
            }
        }
        std::string text = kind != nullptr ? kind : "something";
        if (!called.empty()) {
            text += " '" + called + "'";
        } else if (primitive != nullptr) {
            char address[24];
            std::snprintf(address, sizeof address, " %p", primitive);
            text += address;
        }
        return text;
    }
    std::string text_of(const wait_subject& on) const {
        const std::string text = text_of(on.primitive, on.kind, on.name);
        return on.relock == nullptr ? text : text + " with " + text_of(on.relock, "lock", nullptr);
    }

    std::string holders_of(const void* lock) const {
        std::string text;
        if (const auto found = holders_.find(lock); found != holders_.end()) {
            for (const holder& h : found->second) {
                text += (text.empty() ? "" : " and ") + h.text;
            }
        }
        return text;
    }

    std::string with_holders(const wait& w) const {
        const std::string held = holders_of(w.lock);
        return held.empty() ? w.on : w.on + ", held by " + held;
    }

    std::string description(const wait& w) const {
        char since[40];
        std::snprintf(since, sizeof since, ", for %.3f ms",
                      static_cast<double>(native_platform::now() - w.since) / 1e6);
        return w.text + " waits for " + with_holders(w) + since;
    }

    // Returns the wait of an actor; nullptr if it has none.
    const wait* wait_of(actor who) const {
        for (const auto& [node, w] : waits_) {
            if (w.who == who) {
                return &w;
            }
        }
        return nullptr;
    }

    // Looks for a path of waits from `at` back to the actor `first`. A step leads from a wait to a
    // holder of its primitive, and from that holder to the holder's wait. Visits each wait at most
    // once (`seen`). If there is a path, fills `way` with its waits and returns true.
    bool leads_back(const wait& at, actor first, std::vector<const wait*>& way,
                    std::vector<const wait*>& seen) const {
        way.push_back(&at);
        seen.push_back(&at);
        if (const auto found = holders_.find(at.lock); found != holders_.end()) {
            for (const holder& h : found->second) {
                if (h.how == mode::shared && at.amount == 1) {
                    continue; // `at` is a reader behind a writer, whose wait may end early
                }
                if (h.who == at.who && at.relocks) {
                    continue; // the waiter has not released its lock yet, or keeps it
                }
                if (h.who == first) {
                    return true;
                }
                const wait* const next = wait_of(h.who);
                if (next != nullptr && !next->may_end_early &&
                    std::find(seen.begin(), seen.end(), next) == seen.end() &&
                    leads_back(*next, first, way, seen)) {
                    return true;
                }
            }
        }
        way.pop_back();
        return false;
    }

    // Returns the report of the cycle that a wait closes; "" if it closes none.
    std::string cycle_of(const wait& last) const {
        std::vector<const wait*> way;
        std::vector<const wait*> seen;
        if (last.may_end_early || !last.who || !leads_back(last, last.who, way, seen)) {
            return {};
        }
        if (way.size() == 1) {
            return "bide: " + last.on + " is locked again by its holder, " + last.text;
        }
        std::string report = "bide: deadlock";
        for (const wait* const w : way) {
            report += "\n  " + w->text + " waits for " + with_holders(*w);
        }
        return report;
    }

    std::mutex mutex_;
    std::map<std::uintptr_t, known> primitives_; // by address
    std::unordered_map<const void*, std::vector<holder>> holders_;
    std::unordered_map<const void*, wait> waits_; // by node
    handler tell_ = nullptr;

    std::mutex parts_mutex_;
    std::map<const void*, dumper> parts_;
};

// ---- What waits and primitives note. Only the primitives of the native platform are noted.

template <class Platform>
inline constexpr bool is_noted = std::is_same_v<Platform, native_platform>;

template <class Platform> void note_end_of(const basic_task_context<Platform>& task) noexcept {
    if constexpr (is_noted<Platform>) {
        wait_notes::all().ended(actor(&task));
    }
}

// Notes the wait of a thread while this object lives.
template <class Platform> class noted_wait {
public:
    noted_wait(const void* its_node, const wait_subject& on, bool may_end_early) noexcept
        : node_(its_node) {
        if constexpr (is_noted<Platform>) {
            wait_notes::all().waits(its_node, actor::here(), on, may_end_early);
        }
    }
    noted_wait& operator=(noted_wait&&) = delete;
    ~noted_wait() {
        if constexpr (is_noted<Platform>) {
            wait_notes::all().waits_no_more(node_);
        }
    }

private:
    const void* node_;
};

// Notes, while this object lives, that the waker of a coroutine runs on this thread. A stop or a
// time-out needs no such note: the thread that destroys the coroutine waits until the stop callback
// or the time-out has ended.
template <class Platform> class noted_wake {
public:
    explicit noted_wake(const void* node) noexcept : node_(node) {
        if constexpr (is_noted<Platform>) {
            const bool counts = !Platform::template near_local<resume_state>().is_away;
            wait_notes::all().wakes(node, counts ? thread_mark<Platform>() : nullptr);
        }
    }
    noted_wake& operator=(noted_wake&&) = delete;
    ~noted_wake() {
        if constexpr (is_noted<Platform>) {
            wait_notes::all().wakes_no_more(node_, thread_mark<Platform>());
        }
    }
    // Keeps the note: the waker has posted the coroutine, and this thread resumes it later.
    void lasts() noexcept { node_ = nullptr; }

private:
    const void* node_; // the node may be destroyed meanwhile
};

// The task whose coroutine collects the outcome of its wait on this thread.
struct BIDE_SHARED collecting {
    actor who;
    static actor& here() noexcept { return native_platform::local<collecting>().who; }

    class scope {
    public:
        explicit scope(actor who) noexcept : outer_(std::exchange(here(), who)) {}
        scope& operator=(scope&&) = delete;
        ~scope() { here() = outer_; }

    private:
        const actor outer_;
    };
};

// Called in the constructors and destructors of primitives. `name` may be nullptr.
template <class Platform, class T>
constexpr void note_made(const T* primitive, const char* kind,
                         const char* name = nullptr) noexcept {
    if constexpr (is_noted<Platform>) {
        if (!std::is_constant_evaluated() || name != nullptr) { // a name is kept at run time only
            wait_notes::all().made(primitive, sizeof(T), kind, name);
        }
    }
}
template <class Platform> void note_gone(const void* primitive) noexcept {
    if constexpr (is_noted<Platform>) {
        wait_notes::all().gone(primitive);
    }
}

// Called in the functions of mutexes. note_locked() returns `is_locked`.
template <class Platform>
bool note_locked(const void* lock, bool is_locked,
                 wait_notes::mode how = wait_notes::mode::exclusive) noexcept {
    if constexpr (is_noted<Platform>) {
        if (is_locked) {
            wait_notes::all().locked(lock, how, actor::here());
        }
    }
    return is_locked;
}
template <class Platform>
void note_unlocked(const void* lock, wait_notes::mode how = wait_notes::mode::exclusive) noexcept {
    if constexpr (is_noted<Platform>) {
        wait_notes::all().unlocked(lock, how);
    }
}

template <class Mutex, class Mode> class mode_lock; // sync/shared_mutex.hpp

// How a lock of type L holds its mutex. An upgradable lock is not noted.
enum class lock_held { exclusive, shared, upgradable };
template <class L> inline constexpr lock_held lock_effect = lock_held::exclusive;
template <class M> inline constexpr lock_held lock_effect<std::shared_lock<M>> = lock_held::shared;
template <class M, class Mode>
inline constexpr lock_held lock_effect<mode_lock<M, Mode>> = lock_held::upgradable;

template <class L>
inline constexpr auto noted_mode =
    lock_effect<std::remove_const_t<L>> == lock_held::shared ? wait_notes::mode::shared
                                                             : wait_notes::mode::exclusive;

// Called after a coroutine's wait for a lock of type L was granted.
template <class L> void note_collected(const void* lock) noexcept {
    if constexpr (lock_effect<L> != lock_held::upgradable) {
        wait_notes::all().locked(lock, noted_mode<L>, collecting::here());
    }
}

}}} // namespace bide::BIDE_ABI::detail
#endif

namespace bide { inline namespace BIDE_ABI {

/// The type of a deadlock handler. Its argument is the report, a text of several lines. The handler
/// runs on the thread whose wait closes the cycle. When it returns, the wait begins.
/// Requires: the handler does not wait for a primitive of the cycle.
using deadlock_handler = void (*)(const char* report);

/// Sets the handler of deadlocks. nullptr sets the default handler, which prints the report on
/// stderr and terminates. Any thread may call this function at any time.
/// Returns: the previous handler; nullptr without BIDE_DEADLOCK_CHECK.
inline deadlock_handler set_deadlock_handler([[maybe_unused]] deadlock_handler tell) noexcept {
    BIDE_CHECKED(return detail::wait_notes::all().set_handler(tell);)
    return nullptr;
}

/// Tells the check that the caller gives the lock of a mutex to another thread or task. The holder
/// is then not known until the mutex is locked again.
template <class Mutex> void forget_holder([[maybe_unused]] const Mutex& held) noexcept {
    BIDE_CHECKED(detail::wait_notes::all().unlocked(&held, detail::wait_notes::mode::exclusive);)
}

/// Writes all waits. For each wait, writes the thread or task, the primitive, the holder of the
/// primitive if it is known, and the duration of the wait so far. Then writes the state of each
/// scheduler, as scheduler::dump() does. Without BIDE_DEADLOCK_CHECK, writes one line that says so.
/// Any thread may call this at any time, but no signal handler may.
/// Throws: std::bad_alloc.
inline void dump_all(std::FILE* to) {
    BIDE_CHECKED(return detail::wait_notes::all().dump(to);)
    std::fputs("bide: waits are not noted: the program was compiled without BIDE_DEADLOCK_CHECK\n",
               to);
}

}} // namespace bide::BIDE_ABI

#endif
