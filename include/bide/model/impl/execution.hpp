// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_MODEL_IMPL_EXECUTION_HPP
#define BIDE_MODEL_IMPL_EXECUTION_HPP

// Runs one execution of a body. Each thread of the body has a fiber. Before each step, a thread
// announces the step: it stores a description (struct request). A search then decides which thread
// makes its announced step next, and which of the possible outcomes the step has (struct outcome).

#include <bide/model/check.hpp>
#include <bide/model/detail/history.hpp>
#include <bide/model/impl/fiber.hpp>
#include <bide/model/impl/shadow.hpp>
#include <bide/model/impl/waiting.hpp>

#include <charconv>
#include <map>
#include <unordered_map>

namespace bide { inline namespace BIDE_ABI { namespace model::detail {

// The wait queue of a futex is modelled as an atomic object. Its value, called `line` below, lists
// the sleeping threads in the order in which they fell asleep. Each thread takes four bits, which
// contain its number plus 1. The thread that fell asleep first has the lowest bits.

inline int sleepers(bits line) { return (64 - std::countl_zero(line) + 3) / 4; }

inline bits joined(bits line, int thread) {
    return line | (static_cast<bits>(thread + 1) << (4 * sleepers(line)));
}

inline bits without(bits line, int thread) {
    bits out = 0;
    int at = 0;
    for (; line != 0; line >>= 4) {
        if (static_cast<int>(line & 15) != thread + 1) {
            out |= (line & 15) << at;
            at += 4;
        }
    }
    return out;
}

inline bool contains(bits line, int thread) { return without(line, thread) != line; }

struct model_thread {
    fiber stack;
    view knows;
    request wants;
    bits result = 0;
    int message = -1; // of the last read or write
    const std::function<void()>* run = nullptr;
    bool started = false;
    bool finished = false;
    bool is_daemon = false;
    int spawned = 0;
    std::int64_t now = 0;
    std::int64_t read_time = 0; // what it has read from its clock last
    std::map<const void*, void*> locals;
    waiting waits;                 // the loop in which it may be
    bool timed = false;            // its sleep has a time-out
    int calls = code_places::none; // the place where its current function was called
    options left;                  // how many of its steps may still fail, time out and so on
};

class execution;

// Removes a letter from the front of `from`. Returns false if another one is there.
inline bool take(std::string_view& from, char letter) {
    const bool is_there = from.starts_with(letter);
    from.remove_prefix(is_there ? 1 : 0);
    return is_there;
}

// Removes a number from the front of `from`, and returns it. Returns -1 if none is there.
inline int take_number(std::string_view& from) {
    int number = -1;
    if (from.starts_with('-')) {
        return number;
    }
    const auto end = std::from_chars(from.data(), from.data() + from.size(), number).ptr;
    from.remove_prefix(static_cast<std::size_t>(end - from.data()));
    return number;
}

// Assigns the numbers of threads. The name of a thread says which thread started it, and how many
// threads that thread had started before. A thread with the same name gets the same number in all
// executions of an exploration, in all processes.
class thread_names {
public:
    // Returns the number of the thread that `parent` starts after n others. If there are too many
    // threads, returns max_threads.
    int number(int parent, int n) noexcept {
        const auto name =
            (static_cast<std::uint32_t>(parent) << 16 | static_cast<std::uint32_t>(n)) + 1;
        for (int t = 1; t < max_threads; ++t) {
            std::uint32_t is = 0;
            // Order: relaxed; the processes pass only this number to each other.
            if (all_[index(t)].compare_exchange_strong(is, name, std::memory_order_relaxed) ||
                is == name) {
                return t;
            }
        }
        return max_threads;
    }
    // Returns the names of the threads whose numbers are lower than `below`, as text. If thread 0
    // has started all of these threads, the text is empty.
    std::string text(int below) const {
        std::string out;
        bool is_plain = true; // thread 0 has started all of them
        for (int t = 1; t < below && t < max_threads; ++t) {
            const std::uint32_t name = all_[index(t)].load(std::memory_order_relaxed);
            if (name == 0) {
                break;
            }
            is_plain = is_plain && (name - 1) >> 16 == 0;
            out += (out.empty() ? "" : ",") + std::to_string((name - 1) >> 16) + "." +
                   std::to_string((name - 1) & 0xffff);
        }
        return is_plain ? std::string() : out + ";";
    }
    // Sets the names from a text of text(). Returns false if the text is not valid.
    bool read(std::string_view text) {
        for (int t = 1; t < max_threads; ++t) {
            const int parent = take_number(text);
            const int n = take(text, '.') ? take_number(text) : -1;
            if (parent < 0 || parent >= max_threads || n < 0 || n > 0xffff) {
                return false;
            }
            all_[index(t)].store(static_cast<std::uint32_t>(parent << 16 | n) + 1,
                                 std::memory_order_relaxed);
            if (!take(text, ',')) {
                return text == ";";
            }
        }
        return false;
    }

private:
    // The names, by the number of the thread: (parent << 16 | n) + 1. A free number has the name 0.
    std::array<std::atomic<std::uint32_t>, max_threads> all_{};
};

// Is the strategy of an exploration. In each execution, it decides which thread makes the next
// step, and which outcome that step has.
class search {
public:
    search() = default;
    search(const search&) = delete;
    search& operator=(const search&) = delete;
    virtual ~search() = default;

    thread_names* names = &own_names_; // several searches of one body may share them
    // True if the search explores graphs (impl/exhaustive.hpp), and not schedules. Then two
    // read-modify-writes may read the same store, and stuck() is called for the one that writes
    // second. In such a search, a thread in Platform::pause() makes no further step: what it would
    // do after a newer store is explored in another graph.
    bool explores_graphs = false;
    loop_places loops;            // of the executions so far, if it explores graphs
    std::uint64_t duplicates = 0; // the executions that were explored before, if they are counted
    double explored = -1;         // the part that is done, from 0 to 1; negative: not known
    std::size_t branch_bytes = 0; // the memory of the unexplored branches

    // Returns true if the search repeats steps that an earlier execution has made, and the thread
    // will write another value in one of them. Until then, the thread is in no loop that waits.
    bool will_act(int thread) const noexcept { return at_ < acts_before_[index(thread)]; }

    // Begins the next execution. Returns false if there is none left.
    virtual bool begin() = 0;
    // Begins the same execution again.
    virtual void again() {}
    // Returns the thread that makes the next step; -1 if none can.
    virtual int thread(execution& x) = 0;
    // If the search knows the outcome of the thread's step already, stores it in `to` and returns
    // true. Then the possible outcomes are not computed, and choose() is not called.
    virtual bool knows(execution&, int /*thread*/, outcome& /*to*/) { return false; }
    // Returns the index of the outcome of the thread's step; -1 if the execution is abandoned.
    virtual int choose(execution& x, int thread, const std::vector<outcome>& all) = 0;
    // Called after a step. The step has made the event with that number.
    virtual void done(execution&, int /*event*/) {}
    // Called if the step of `thread` has no possible outcome. An example is an exclusive write that
    // cannot be placed directly behind the store that its first half has read. The execution cannot
    // be completed. Returns true if the other threads continue before the execution is abandoned.
    virtual bool stuck(execution&, int /*thread*/) { return false; }
    // Called when no thread can make a step. `complete` is true if all threads have ended, except
    // daemons that sleep.
    virtual void end(execution&, bool /*complete*/) {}

protected:
    std::size_t at_ = 0; // the number of the next step
    // For each thread: the number of the step behind the last one that will_act() is about.
    std::array<std::size_t, max_threads> acts_before_{};

private:
    thread_names own_names_;
};

// Replaces the memory order `from` by `to`, which may be weaker or stronger, at one place of the
// source. If `where` has no file, replaces every order. If `slot` is 1, `from` is the order of a
// compare-exchange that fails.
struct weakening {
    site where{};
    int slot = 0;
    order from = order::relaxed;
    order to = order::relaxed;
};

// Returns true if both change the same order in the source.
inline bool is_same_order(const weakening& a, const weakening& b) {
    return a.slot == b.slot && a.from == b.from && same_place(a.where, b.where);
}

// Describes the exception that is being handled. If there is none, returns an empty text.
inline std::string exception_text() {
#if BIDE_EXCEPTIONS
    if (const std::exception_ptr one = std::current_exception()) {
        try {
            std::rethrow_exception(one);
        } catch (const std::exception& e) {
            return std::string("an exception: ") + e.what();
        } catch (...) {
            return "an exception";
        }
    }
#endif
    return {};
}

class execution {
public:
    execution(const options& o, const body& run, search& how)
        : options_(o), body_(run), search_(how), names_(*how.names) {}
    execution(const execution&) = delete;
    execution& operator=(const execution&) = delete;

    // Runs the execution. If it finds a place where a loop may wait, it begins again.
    void run() {
        run_once();
        while (begins_again_) {
            search_.again();
            run_once();
        }
    }

    // ---- For searches

    memory& mem() noexcept { return memory_; }
    int threads() const noexcept { return thread_count_; }
    model_thread& thread(int t) { return threads_[index(t)]; }
    // Returns true if the thread can make a step now.
    bool enabled(int n) {
        const model_thread& t = thread(n);
        if (!t.started || t.finished) {
            return false;
        }
        switch (t.wants.what) {
        case request::kind::join: return thread(t.wants.other).finished;
        case request::kind::sleep: return woken_by(t) >= 0;
        case request::kind::pause:
            return !search_.explores_graphs && t.waits.may_look_again(memory_);
        case request::kind::never: return false;
        default: return true;
        }
    }
    // Called when the next recorded step is a step of thread `n`. If that thread can make a step,
    // returns `n`. If not, fails with the text `why`, and returns -1. A thread that find_loop() has
    // paused continues, because the recorded execution did not find the loop. The two executions
    // can differ in this only because another thread writes to the stack of this thread.
    int repeated(int n, const char* why = does_not_repeat) {
        if (n < 0 || n >= threads()) {
            return not_repeated(why);
        }
        model_thread& t = thread(n);
        if (search_.explores_graphs && std::exchange(t.waits.is_unmarked, false)) {
            t.wants.what = request::kind::read;
        }
        return enabled(n) ? n : not_repeated(why);
    }
    std::vector<std::string> outcomes;               // the texts of record()
    std::vector<std::unique_ptr<history>> histories; // the calls of objects with a specification
    bool reuses_addresses() const noexcept { return options_.reused_addresses > 0; }
    // Returns the number of steps of all executions.
    std::uint64_t steps_made() const noexcept { return steps_made_; }

    // ---- The result

    failure what() const noexcept { return failure_; }
    const std::string& message() const noexcept { return message_; }
    int failed_by() const noexcept { return failed_by_; } // -1: no thread
    std::string path() const;
    bool pruned() const noexcept { return pruned_; }

    // ---- For the operations of the modelled threads

    static execution* current() noexcept { return running; }
    // Returns the current execution. If there is none, ends the program.
    static execution& needed() noexcept {
        if (running == nullptr) {
            std::fputs(
                "model: an operation of the model outside of a body, or on a std::thread; the "
                "threads of a body are model::thread\n",
                stderr);
            std::abort();
        }
        return *running;
    }
    model_thread& self() { return thread(running_); }
    // Makes a step of the running thread. Returns the value that the step has read or chosen. This
    // function and steps_here() are not inlined, so that a search leaves nothing on the stack of a
    // suspended thread. Then find_loop() can compare that stack.
    BIDE_NOINLINE bits step(const request& r) {
        model_thread& t = self();
        do {
            announce(t, r);
            if (steps_here(t)) {
                return t.result;
            }
            t.stack.switch_to(main_);
        } while (std::exchange(t.waits.is_unmarked, false));
        return t.result;
    }
    // Stores the description of the next step. The copy may be a call of memcpy(), which may be that
    // of the body (model/unmodified.hpp). Not inlined, so that step() has no other object in its
    // frame.
    BIDE_NOINLINE static void announce(model_thread& t, const request& r) {
        const heap::leave guard;
        t.wants = r;
    }
    // Makes the step of a choice. Returns a number below `picks`.
    BIDE_NOINLINE int choose(int picks, site where, const char* text) {
        return static_cast<int>(step({.what = request::kind::choice,
                                      .inside = true,
                                      .picks = picks,
                                      .where = where,
                                      .text = text}));
    }
    // Abandons this execution.
    void leave_out() { step({.what = request::kind::never}); }
    void fail(failure what, std::string message, site where = {}) {
        if (is_tried_) {
            has_left_ = what != failure::race && what != failure::lifetime;
            return;
        }
        if (failure_ == failure::none) {
            failure_ = what;
            failed_by_ = running != nullptr ? running_ : -1;
            message_ = std::move(message);
            where = resolved(where);
            if (where.file != nullptr) {
                message_ += " (" + std::string(where.file) + ":" + std::to_string(where.line) + ")";
            }
        }
        halted_ = true;
    }
    // Fails because a search cannot repeat what it has recorded. Returns -1.
    int not_repeated(const char* why = does_not_repeat) {
        fail(failure::not_repeated, why);
        return -1;
    }
    [[noreturn]] void fail_now(failure what, std::string message, site where = {}) {
        heap::inside = -1;
        fail(what, std::string(message.c_str()),
             where); // a copy: the text belongs to the execution
        for (;;) {
            self().stack.switch_to(main_);
        }
    }
    // `equal`: the new thread is equal to that one. -1: to none.
    int spawn(std::function<void()> run, bool is_daemon, int equal = -1) {
        // It lies on the heap of the body.
        heap::may_reuse = false;
        const auto* const mine = new std::function<void()>(std::move(run));
        heap::may_reuse = true;
        const int parent = running_;
        heap::inside = -1;
        const int t = names_.number(parent, self().spawned++);
        if (t >= max_threads) {
            fail_now(failure::too_large, "more than 8 threads, over all executions");
        }
        thread_count_ = std::max(thread_count_, t + 1);
        heap::inside = parent;
        thread(t).run = mine;
        thread(t).is_daemon = is_daemon;
        if (equal >= 0 && equal < t && search_.explores_graphs) {
            memory_.set_equal(equal, t);
        }
        step({.what = request::kind::spawn,
              .other = t,
              .text = is_daemon ? "starts daemon" : "starts"});
        return t;
    }
    int queue_of(const void* address) {
        const heap::leave guard;
        const auto [at, fresh] = queues_.try_emplace(address, -1);
        if (fresh) {
            at->second = memory_.make_object(0, self().knows, true);
        }
        return at->second;
    }
    // Returns the list of the freed blocks with this size.
    int free_list_of(std::size_t size) {
        const int made = queue_of(reinterpret_cast<const void*>(size)); // no address is so small
        memory_.at(made).free_list = true;
        memory_.at(made).name = "freed memory";
        return made;
    }
    BIDE_NOINLINE order weakened(order o, int slot, site where) {
        if (where.is_given != 0 || (seen_orders == nullptr && changes.empty())) {
            return o;
        }
        const site line = resolved(where);
        const weakening here{line.file == nullptr ? where : line, slot, o, o};
        const auto same = [&](const weakening& w) { return is_same_order(w, here); };
        if (seen_orders != nullptr &&
            std::none_of(seen_orders->begin(), seen_orders->end(), same)) {
            const heap::leave guard;
            seen_orders->push_back(here);
        }
        const auto change = std::find_if(changes.begin(), changes.end(), [&](const weakening& w) {
            return w.where.file == nullptr || same(w);
        });
        return change == changes.end() ? o : change->to;
    }

    void* service = nullptr;
    shadow watched; // the memory that is accessed as plain data or as real atomics

    // For changed orders (weakening): the orders that executions have used, and the changes.
    std::vector<weakening>* seen_orders = nullptr;
    std::span<const weakening> changes;

private:
    [[noreturn]] static void on_terminate() {
        if (running != nullptr) {
            const std::string thrown = exception_text();
            running->fail_now(failure::terminated, "std::terminate was called" +
                                                       (thrown.empty() ? "" : ", by " + thrown));
        }
        std::abort();
    }

    static void thread_main(void* self) {
        auto& x = *static_cast<execution*>(self);
        const int t = x.running_;
        const auto* const run = x.self().run;
#if BIDE_EXCEPTIONS
        try {
            (*run)();
            end_thread();
        } catch (...) {
            x.fail_now(failure::terminated, exception_text());
        }
#else
        (*run)();
        end_thread();
#endif
        if (t != 0) {
            heap::may_reuse = false;
            delete run;
            heap::may_reuse = true;
        }
        x.step({.what = request::kind::end, .text = "end"});
        std::abort();
    }

    // Destroys what the thread owns. Called by the thread itself.
    static void end_thread() {
        if (ops::unmodified != nullptr) {
            ops::unmodified->thread_ends();
        }
    }

    void run_once() {
        heap::reset();
        begins_again_ = false;
        memory_.clear();
        queues_.clear();
        picks_.clear();
        outcomes.clear();
        histories.clear();
        halted_ = pruned_ = false;
        refused_step_of_ = -1;
        failure_ = failure::none;
        message_.clear();
        service = nullptr;
        watched.clear();
        for (model_thread& t : threads_) {
            t.started = false;
        }
        const auto before = std::set_terminate(&on_terminate);
        thread(0).run = &body_;
        start(0, {}, 0);
        next_ = undecided;
        while (!halted_) {
            int t = std::exchange(next_, undecided);
            t = t == undecided ? search_.thread(*this) : t;
            if (t < 0) {
                if (!std::exchange(halted_, true)) {
                    try_loops();
                    if (failure_ == failure::none) {
                        finish();
                    }
                }
                break;
            }
            perform(t);
            const request::kind did = thread(t).wants.what;
            if (!halted_ && did == request::kind::spawn) {
                start(thread(t).wants.other, thread(t).knows, thread(t).now);
            }
            if (!halted_ && did != request::kind::end && did != request::kind::never) {
                resume(t);
            }
        }
        std::set_terminate(before);
        watched.clear();
        if (ops::unmodified != nullptr) {
            ops::unmodified->execution_ends();
        }
    }
    // Runs thread `t` up to its first step, after another thread has made the step that starts it.
    // `from` is what that other thread knows, and `now` is the time of that thread.
    void start(int t, const view& from, std::int64_t now) {
        model_thread& x = thread(t);
        x.knows = {.hb = from.hb, .causes = from.causes, .thread = t};
        x.now = x.read_time = now;
        x.wants = {};
        x.started = true;
        x.finished = x.timed = false;
        x.spawned = 0;
        x.locals.clear();
        x.waits.begin();
        x.calls = code_places::none;
        x.left = options_;
        if (ops::unmodified != nullptr) {
            ops::unmodified->thread_begins(t);
        }
        x.stack.restart(&thread_main, this);
        ++starting_;
        resume(t);
        --starting_;
    }
    void resume(int t) {
        const int before = std::exchange(running_, t);
        if (ops::unmodified != nullptr) {
            ops::unmodified->switches(t, true);
        }
        running = this;
        heap::inside = t;
        main_.switch_to(thread(t).stack);
        if (ops::unmodified != nullptr) {
            ops::unmodified->switches(t, false);
        }
        heap::inside = -1;
        running = nullptr;
        running_ = before;
        if (!halted_ && next_ == undecided && !is_tried_) { // otherwise steps_here() has done so
            find_loop(thread(t));
        }
    }
    // Lets the search choose the next thread. If it chooses `t` again, makes the step of `t`
    // without a switch of stacks, and returns true. This is the most frequent case. Otherwise
    // returns false, and the thread must switch to the checker.
    BIDE_NOINLINE bool steps_here(model_thread& t) {
        if (is_tried_) {
            return steps_in_loop(t);
        }
        const auto what = t.wants.what;
        if (starting_ > 0 || what > request::kind::choice ||
            (!search_.will_act(running_) && t.waits.needs_hash(t.wants, search_.loops))) {
            // `t` has just started, and the thread that started `t` has not announced its own next
            // step. Or find_loop() needs the stack of a suspended thread.
            return false;
        }
        const heap::leave guard;
        find_loop(t);
        next_ = search_.thread(*this);
        if (halted_ || next_ != running_) {
            return false;
        }
        next_ = undecided;
        perform(running_, false);
        return !halted_ && t.wants.what != request::kind::never;
    }
    // Stops the thread if it is in a loop that waits (waiting.hpp).
    void find_loop(model_thread& t) {
        if (search_.will_act(t.knows.thread)) {
            return;
        }
        switch (t.waits.announces(t.wants, memory_, t.stack, t.knows.thread, search_.loops)) {
        case waiting::found::loop:
            search_.loops.stopped(t.wants.where);
            t.waits.is_unmarked = true;
            t.wants.what = request::kind::pause;
            break;
        case waiting::found::place:
            if (search_.explores_graphs) {
                search_.loops.add(t.wants.where);
                halted_ = begins_again_ = true;
            }
            break;
        case waiting::found::nothing: break;
        }
    }
    // Makes the step. The thread does not run until it is resumed.
    void perform(int n, bool is_suspended = true) {
        model_thread& t = thread(n);
        ++steps_made_;
        const bool accesses = is_access(t.wants);
        if (accesses && !memory_.at(t.wants.object).queue) {
            if (const std::string* const wrong = memory_.touch(t.wants.object, t.knows)) {
                fail(failure::lifetime, *wrong, t.wants.where);
                refused_step_of_ = n;
                return;
            }
        } else if (accesses && !memory_.at(t.wants.object).free_list) {
            memory_.use(memory_.at(t.wants.object), t.knows);
        }
        const int most = std::min(options_.max_steps, most_steps);
        if (static_cast<int>(memory_.events.size()) >= most) {
            fail(failure::livelock,
                 "more than " + std::to_string(most) +
                     " steps; a loop that waits and counts its rounds needs a pause()",
                 t.wants.where);
            refused_step_of_ = n;
            return;
        }
        outcome chosen;
        if (!search_.knows(*this, n, chosen)) {
            find_outcomes(t);
            if (candidates_.empty() && search_.stuck(*this, n)) {
                t.wants.what = request::kind::never;
                return;
            }
            const int pick = candidates_.empty() ? -1 : search_.choose(*this, n, candidates_);
            if (pick < 0) {
                halted_ = pruned_ = true;
                return;
            }
            chosen = candidates_[index(pick)];
            picks_.emplace_back(n, pick);
        }
        if (halted_) {
            return;
        }
        if (is_suspended && t.wants.what == request::kind::read) {
            t.waits.will_read(t.wants, t.stack, n, search_.loops);
        }
        const std::size_t events = memory_.events.size();
        apply(t, chosen);
        if (memory_.events.size() != events) {
            search_.done(*this, static_cast<int>(events));
        }
    }
    // Sets `candidates_` to the possible outcomes of the step of a thread.
    void find_outcomes(model_thread& t) {
        candidates_.clear();
        switch (t.wants.what) {
        case request::kind::read: find_reads(t); break;
        case request::kind::write: find_writes(t); break;
        case request::kind::choice:
            for (int i = 0; i < t.wants.picks; ++i) {
                candidates_.push_back({.pick = i});
            }
            break;
        default: candidates_.emplace_back();
        }
    }
    void find_reads(const model_thread& t) {
        const request& r = t.wants;
        if (const object& freed = memory_.at(r.object); freed.free_list) {
            for (const int m : freed.messages) { // the first one is that no block is taken
                if (memory_.msg(m).taken_by < 0) {
                    candidates_.push_back({.message = m, .with = r.with});
                }
            }
            return;
        }
        clock known = t.knows.hb;
        if (r.known != nullptr) {
            known.join(*r.known);
        }
        memory_.readable(r.object, known, scratch_);
        const int old = t.waits.old_message(r.object);
        for (const int m : scratch_) {
            if (m == old && !candidates_.empty()) {
                break;
            }
            const detail::message& from = memory_.msg(m);
            const outcome o = outcome_of(r, m, from.value);
            if (o.exclusive && from.taken_by >= 0 && !search_.explores_graphs) {
                continue;
            }
            clock after = t.knows.hb;
            if (is_acquire(o.with) && !r.quiet) {
                after.join(from.sync);
            }
            if (memory_.allows(event::kind::read, r.object, m, o.with, t.knows, after, -1)) {
                candidates_.push_back(o);
            }
        }
    }
    void find_writes(const model_thread& t) {
        const request& r = t.wants;
        scratch_.clear();
        int node = -1;
        if (memory_.at(r.object).free_list) {
            scratch_.push_back(memory_.at(r.object).messages.front());
        } else if (r.exclusive) {
            if (memory_.msg(r.from).taken_by < 0) {
                scratch_.push_back(r.from);
            }
            node = memory_.of(t.knows.last()).node;
        } else {
            memory_.places(r.object, t.knows.hb, scratch_);
        }
        for (const int m : scratch_) {
            if (memory_.allows(event::kind::write, r.object, m, r.with, t.knows, t.knows.hb,
                               node)) {
                candidates_.push_back({.message = m});
            }
        }
    }
    void apply(model_thread& t, const outcome& o) {
        const request& r = t.wants;
        const bool is_repeat = r.what == request::kind::write && repeats(r, memory_);
        const bool may_wait =
            is_access(r) && !memory_.at(r.object).free_list && !search_.will_act(t.knows.thread);
        switch (r.what) {
        case request::kind::read:
            t.result = memory_.read(r, o, t.knows).value;
            t.message = o.message;
            if (may_wait) {
                t.waits.reads(memory_, r.object, o.message);
            }
            break;
        case request::kind::write:
            t.message = memory_.write(r, o.message, t.knows).message;
            if (may_wait) {
                t.waits.writes(r.object, t.message, is_repeat);
            }
            break;
        case request::kind::fence: memory_.fence(r, t.knows); break;
        case request::kind::choice:
            memory_.add(event::kind::choice, r, t.knows).pick = o.pick;
            t.result = static_cast<bits>(o.pick);
            break;
        case request::kind::spawn:
            memory_.add(event::kind::start, r, t.knows).value = index(r.other);
            break;
        case request::kind::end:
            memory_.add(event::kind::local, r, t.knows);
            t.finished = true;
            break;
        case request::kind::join:
            t.knows.hb.join(thread(r.other).knows.hb);
            t.knows.causes.join(thread(r.other).knows.causes);
            memory_.add(event::kind::join, r, t.knows).value = index(r.other);
            break;
        case request::kind::sleep: {
            const detail::message& by = memory_.msg(woken_by(t));
            t.knows.causes.join(memory_.events[index(by.event)].causes);
            memory_.add(event::kind::local, r, t.knows);
            t.timed = false;
            break;
        }
        case request::kind::pause: t.waits.continues(); break;
        case request::kind::never:
        case request::kind::none: break;
        }
    }
    // Returns the message whose write removed the thread from the queue; -1 if there is none yet.
    int woken_by(const model_thread& t) const {
        const auto& all = memory_.at(t.wants.object).messages;
        const auto mine = std::find(all.begin(), all.end(), t.wants.from);
        for (auto m = mine; m != all.end(); ++m) {
            if (!contains(memory_.msg(*m).value, t.knows.thread)) {
                return *m;
            }
        }
        return -1;
    }
    // Returns true if the thread has begun and not ended, and is no daemon that sleeps.
    static bool is_left(const model_thread& t) {
        return t.started && !t.finished && !(t.is_daemon && t.wants.what == request::kind::sleep);
    }
    static bool waits_for_lock(const model_thread& t) {
        return t.wants.what == request::kind::pause && !t.waits.is_unmarked && t.wants.object >= 0;
    }
    // Describes the lock for which the thread waits, and the thread that locked it last.
    std::string lock_text(const model_thread& t) const {
        const object& lock = memory_.at(t.wants.object);
        const event_id by = memory_.msg(lock.messages.back()).writer;
        const site where = resolved(t.wants.where);
        std::string out = std::string(" waits for ever for a ") + t.wants.text;
        if (by.thread == t.knows.thread) {
            out += ", which it has locked itself";
        } else if (!by.is_initial()) {
            out += ", which " + thread_text(by.thread) + " has locked";
        }
        return where.file == nullptr
                   ? out
                   : out + " (" + where.file + ":" + std::to_string(where.line) + ")";
    }

    // ---- Loops that end though nothing has changed
    //
    // A thread that was paused makes no further step until something changes that it has read. That
    // is right if its loop would repeat until then. A loop that gives up after some rounds would
    // do more: executions would be left out, and no report would say so. So the first time that a
    // thread stays paused at a place, the thread makes more rounds. It reads what it has read or
    // written before, and its steps become no part of the execution. If it ends, sleeps, starts or
    // joins a thread, it has left the loop, and the body is refused.

    void try_loops() {
        for (int n = 0; n < threads(); ++n) {
            const model_thread& t = thread(n);
            const bool is_paused = t.started && !t.finished && t.wants.what == request::kind::pause;
            if (!is_paused || waits_for_lock(t) || t.stack.state() == 0) {
                continue;
            }
            const site where = t.wants.where;
            const bool has_pause = !t.waits.is_unmarked;
            int& trials = trials_[{where.file, where.line}]; // that are left
            if (trials == none_left) {
                continue;
            }
            trials = trials == 0 ? most_trials : trials - 1;
            const int rounds = rounds_of(n);
            trials = rounds == unknown ? trials : none_left;
            if (rounds > 0) {
                refuse_loop(n, rounds, has_pause, where);
                return;
            }
        }
    }
    void refuse_loop(int n, int rounds, bool has_pause, site where) {
        fail(failure::refused,
             thread_text(n) + " waits in a loop, and goes on after " + std::to_string(rounds) +
                 " more rounds though nothing has changed: " +
                 (has_pause ? "without the pause(), each round is explored"
                            : "the loop must count its rounds on the stack"),
             where);
    }
    // Returns true if the thread has left its loop, and has accessed nothing since its pause().
    // Then it has not waited: whatever it would read, it goes on.
    bool has_given_up() const { return has_left_ && in_round_.empty() && written_.empty(); }
    static constexpr int none_left = 1;
    static constexpr int most_trials = 50;
    static constexpr int unknown = -1;
    // Returns after how many more rounds the paused thread leaves its loop. Returns 0 if it stays.
    // Returns `unknown` if its last round has read two values of an object: then the next round may
    // differ from it, unless the thread reads nothing more.
    int rounds_of(int n) {
        constexpr int most = 10'000;
        model_thread& t = thread(n);
        bool is_sure = reads_same(t);
        const request paused = t.wants;
        const bool is_unmarked = t.waits.is_unmarked;
        std::uint64_t checkpoint = all_of(n);
        int left = 0;
        is_tried_ = true;
        has_left_ = false;
        written_.clear();
        in_round_.clear();
        for (int round = 1; round <= most && !has_left_; ++round) {
            repeated_ = {is_unmarked ? paused.object : -1, round == 1 ? 0 : 1};
            resume(n);
            if (has_left_) {
                left = is_sure || (!is_unmarked && has_given_up()) ? round : unknown;
                break;
            }
            is_sure = is_sure || same_place(t.wants.where, paused.where);
            if (const std::uint64_t now = all_of(n); now == checkpoint) {
                break;
            } else if ((round & (round - 1)) == 0) {
                checkpoint = now;
            }
        }
        is_tried_ = false;
        t.wants = paused;
        t.waits.is_unmarked = is_unmarked;
        if (left == unknown) {
            t.wants.what = request::kind::never; // it can continue
        }
        return left;
    }
    // Returns true if the stopped thread can continue, or could if a newer value were there. After a
    // pause(), it is not known what the thread reads in a round. If that matters, the thread makes one
    // more round, which is no part of the execution.
    bool may_continue(int n) {
        model_thread& t = thread(n);
        const bool newer = t.waits.may_look_again(memory_);
        if (t.waits.is_unmarked || waits_for_lock(t) ||
            (newer ? t.waits.last_is_old(memory_) : reads_same(t))) {
            return newer;
        }
        const request paused = t.wants;
        is_tried_ = true;
        has_left_ = false;
        written_.clear();
        in_round_.clear();
        repeated_ = {-1, 0};
        resume(n);
        is_tried_ = false;
        const bool waits =
            !has_left_ && written_.empty() && same_place(t.wants.where, paused.where);
        t.wants = paused;
        if (has_given_up()) {
            refuse_loop(n, 1, true, paused.where);
        }
        return !waits || t.waits.may_look_again(memory_, &in_round_);
    }
    // Returns a hash of the thread's stack, and of all other memory of the body.
    std::uint64_t all_of(int n) const {
        std::uint64_t all = thread_state(n);
        for (int other = 0; other < threads(); ++other) {
            const model_thread& t = threads_[index(other)];
            const heap::region& r = heap::regions[other];
            all = 31 * all + (other != n && t.started ? thread_state(other) : 0);
            all = 31 * all + (r.taken != 0 ? digest(r.begin, r.taken) : 0);
        }
        return all;
    }
    std::uint64_t thread_state(int n) const { return threads_[index(n)].stack.state(); }
    // Returns true if the thread has read the same value of each object each time since it changed
    // something.
    bool reads_same(const model_thread& t) const {
        std::map<int, int> read;
        const auto& mine = memory_.of_thread(t.knows.thread);
        for (auto at = mine.rbegin(); at != mine.rend(); ++at) {
            const event& e = memory_.event_at(*at);
            if (e.what == event::kind::write && !memory_.msg(e.message).repeats) {
                break;
            }
            if (e.what == event::kind::read &&
                read.try_emplace(e.object, e.message).first->second != e.message) {
                return false;
            }
        }
        return true;
    }
    // Makes a step of the thread that rounds_of() has resumed. Returns false if the step ends the
    // round, or is none of a loop.
    bool steps_in_loop(model_thread& t) {
        constexpr int most_reads = 100; // of a round
        const heap::leave guard;
        const request& r = t.wants;
        switch (r.what) {
        case request::kind::fence: return true;
        case request::kind::choice: t.result = 0; return true;
        case request::kind::pause: return false;
        case request::kind::read:
            if (r.quiet) { // of a futex; a wake finds no sleeper
                t.result = 0;
                has_left_ = !std::string_view(r.text).starts_with("futex_wake");
                return !has_left_;
            }
            t.result = value_seen(t, r.object);
            in_round_.push_back(r.object);
            return ++repeated_.second <= most_reads &&
                   (r.object != repeated_.first || repeated_.second == 1);
        case request::kind::write:
            if (r.value != value_seen(t, r.object)) {
                written_[r.object] = r.value;
            }
            return true;
        default: has_left_ = true; return false;
        }
    }
    // Returns the value of the object that the thread has read or written last.
    bits value_seen(const model_thread& t, int object) const {
        if (const auto at = written_.find(object); at != written_.end()) {
            return at->second;
        }
        const auto& mine = memory_.of_thread(t.knows.thread);
        for (auto at = mine.rbegin(); at != mine.rend(); ++at) {
            const event& e = memory_.event_at(*at);
            if (is_access(e) && e.object == object) {
                return e.value;
            }
        }
        return memory_.msg(memory_.at(object).messages.front()).value;
    }

    void finish() {
        bool all = true;
        bool asleep = false;
        bool locks = false; // a thread waits for a lock
        bool daemons = false;
        bool daemon_times_out = false; // a daemon would continue after its time-out
        std::size_t own = 0;
        for (int n = 0; n < threads(); ++n) {
            const model_thread& t = thread(n);
            const auto what = t.wants.what;
            const bool times_out = what == request::kind::sleep && t.timed && options_.timeouts > 0;
            own += t.started ? t.locals.size() : 0;
            daemons = daemons || (t.started && t.is_daemon);
            if (is_left(t)) {
                all = false;
                asleep = asleep || what == request::kind::sleep;
                locks = locks || waits_for_lock(t);
                pruned_ = pruned_ || times_out || what == request::kind::never ||
                          (what == request::kind::pause && may_continue(n));
            } else if (t.started && !t.finished) {
                daemon_times_out = daemon_times_out || times_out;
            }
        }
        pruned_ = pruned_ || (!all && daemon_times_out);
        search_.end(*this, all);
        if (all && heap::broken) {
            fail(failure::lifetime, "memory was freed twice");
        } else if (all && !daemons && heap::live > own) {
            fail(failure::leak, std::to_string(heap::live - own) + " pieces of memory are left");
        } else if (!all && !pruned_) {
            fail(asleep  ? failure::lost_wakeup
                 : locks ? failure::deadlock
                         : failure::livelock,
                 describe_blocked());
        }
    }
    std::string describe_blocked() {
        std::string out;
        for (int n = 0; n < threads(); ++n) {
            const model_thread& t = thread(n);
            if (!is_left(t)) {
                continue;
            }
            out += out.empty() ? "" : ", ";
            out += (t.is_daemon ? "the daemon " : "") + thread_text(n);
            switch (t.wants.what) {
            case request::kind::sleep: out += " sleeps for ever"; break;
            case request::kind::pause:
                out += waits_for_lock(t) ? lock_text(t) : " spins for ever";
                break;
            case request::kind::join: out += " waits for " + thread_text(t.wants.other); break;
            default: out += " is stuck";
            }
        }
        return out;
    }

    static constexpr const char* does_not_repeat = "the body does not repeat itself";
    static inline thread_local execution* running = nullptr; // its body runs now
    const options& options_;
    const body& body_;
    search& search_;
    thread_names& names_;
    memory memory_;
    fiber main_;
    std::array<model_thread, max_threads> threads_;
    int thread_count_ = 1;
    int running_ = 0;
    int starting_ = 0; // the number of threads that run to their first step
    static constexpr int undecided = -2;
    int next_ = undecided; // the thread that the search has chosen, before its step
    bool halted_ = false;  // no more steps are made
    bool pruned_ = false;
    bool begins_again_ = false; // a place with a loop was found, so the execution begins again
    failure failure_ = failure::none;
    std::string message_;
    int failed_by_ = -1;
    int refused_step_of_ = -1; // the thread whose next step is the failure; -1: none
    std::map<const void*, int> queues_;
    std::uint64_t steps_made_ = 0;
    // For try_loops(): how many more trials a place has, where a thread stayed paused.
    std::map<std::pair<const char*, int>, int> trials_;
    bool is_tried_ = false;               // a thread makes rounds that are no part of the execution
    bool has_left_ = false;               // it does more than its loop
    std::map<int, bits> written_;         // the changes that it has made there, by the object
    std::vector<int> in_round_;           // the objects that it has read there
    std::pair<int, int> repeated_{-1, 0}; // the object whose read ends a round, reads of this round
    std::vector<std::pair<int, int>> picks_; // thread and outcome of each step
    std::vector<outcome> candidates_;
    std::vector<int> scratch_;
};

}}} // namespace bide::BIDE_ABI::model::detail

#endif
