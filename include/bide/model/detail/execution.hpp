// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_MODEL_DETAIL_EXECUTION_HPP
#define BIDE_MODEL_DETAIL_EXECUTION_HPP

// Runs one execution of a body. Each thread of the body has a fiber. Before each step, a thread
// announces the step (struct request). A search then decides which thread makes its announced step
// next, and which of the possible outcomes the step has (struct outcome).

#include <bide/core/config.hpp>
#include <bide/model/check.hpp>
#include <bide/model/detail/fiber.hpp>
#include <bide/model/detail/memory.hpp>

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace bide { inline namespace BIDE_ABI { namespace model::detail {

// The wait queue of a futex is modelled as an atomic object. Its value, called `line` below, lists
// the sleeping threads in the order in which they fell asleep. Each thread takes four bits, which
// contain its number plus 1. The thread that fell asleep first has the lowest bits.

inline bits joined(bits line, int thread) {
    int at = 0;
    while ((line >> at) != 0) {
        at += 4;
    }
    return line | (static_cast<bits>(thread + 1) << at);
}

inline int sleepers(bits line) {
    int n = 0;
    for (; line != 0; line >>= 4) {
        ++n;
    }
    return n;
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

// The next step of a thread, as the thread announces it.
struct request {
    enum class kind : std::uint8_t {
        none,
        read,
        write,
        fence,
        choice, // one of `picks` numbers
        spawn,
        end,
        join,  // waits for the end of thread `other`
        sleep, // waits until a wake has taken this thread out of the queue `object`
        pause, // waits until an object that the thread has read changes
        never, // the execution is abandoned
    };
    kind what = kind::none;
    int object = -1;
    order with = order::relaxed;
    order with_failure = order::relaxed; // if `compare` does not read `expected`
    bool exclusive = false;              // read: the first half of a read-modify-write
    bool compare = false;                // it is exclusive only if it reads `expected`
    bool quiet = false;                  // an access by the kernel: it synchronises nothing
    bool inside = false;                 // a later part of one step of the machine
    bits expected = 0;
    bits value = 0;
    // For an exclusive write: the message that the first half of the read-modify-write has read.
    // For a sleep: the message whose write has added this thread to the queue.
    int from = -1;
    int picks = 0;
    int other = -1;
    const clock* known = nullptr; // for a read: the reader knows these events, too
    site where{};
    const char* text = "";
};

// One possible outcome of a step.
struct outcome {
    int message = -1;       // a read reads it; a write is placed behind it
    int pick = 0;           // of a choice
    bool exclusive = false; // of a read: the write of the same read-modify-write follows
    bool conflict = false;  // the write of another read-modify-write is behind that message already
    order with = order::relaxed;
};

// A read that a thread has announced. execution::find_loop() uses it to detect a loop that waits.
// Since this read, the thread has made only steps that change nothing: it has read the same values
// as before, or has written values that were there already.
struct look {
    site where{};
    int object = -1;
    bits expected = 0;
    std::uint64_t state =
        0; // fiber::state() when the read was last repeated; 0: it was not repeated
};

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
    std::map<const void*, void*> locals;
    std::vector<std::pair<int, int>> looked; // reads since its last change: object, message
    std::vector<std::pair<int, int>> newer;  // as `looked` before a pause: it now reads newer ones
    std::vector<look> looks;
    bool looks_again = false; // find_loop() has paused it before a read
    bool timed = false;       // its sleep has a time-out
    // Returns the element of `looks` that the announced read repeats, or nullptr.
    look* look_before() noexcept {
        for (look& l : looks) {
            if (l.object == wants.object && l.expected == wants.expected &&
                l.where.line == wants.where.line && l.where.file == wants.where.file) {
                return &l;
            }
        }
        return nullptr;
    }
    int spurious_left = 0;
    int timeouts_left = 0;
    int weak_failures_left = 0;
    int clock_jumps_left = 0;
};

class execution;

// Assigns the numbers of threads. The name of a thread says which thread started it, and how many
// threads that thread had started before. A thread with the same name gets the same number in all
// executions of an exploration, in all processes.
class thread_names {
public:
    // Returns the number of the thread that `parent` starts after n others. If there are too many
    // threads, returns max_threads.
    int number(int parent, int n) noexcept;
    // Returns the names of the threads whose numbers are lower than `below`, as text. If thread 0
    // has started all of these threads, the text is empty.
    std::string text(int below) const;
    // Sets the names from a text of text(). Returns false if the text is not valid.
    bool read(std::string_view text);

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

    // Begins the next execution. Returns false if there is none left.
    virtual bool begin() = 0;
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
    // Returns true if the search explores graphs (impl/exhaustive.hpp), and not schedules. Then
    // choose() also gets outcomes whose `conflict` is true, and a thread that pauses makes no
    // further step.
    virtual bool is_graph_search() const { return false; }
    // Returns the number of executions that were explored before, if they are counted.
    virtual std::uint64_t duplicates() const { return 0; }
    // Returns the part of the exploration that is done, from 0 to 1; negative if it is not known.
    virtual double explored() const { return -1; }
    // Returns the memory of the unexplored branches, in bytes.
    virtual std::size_t branch_bytes() const { return 0; }
};

// Replaces the memory order `from` by `to`, which may be weaker or stronger, at one place of the
// source. If `where` has no file, replaces every order. If `slot` is 1, `from` is the order of a
// compare-exchange that fails.
struct weakening {
    site where{};
    int slot = 0;
    order from = order::relaxed;
    order to = order::relaxed;
    const weakening* next = nullptr; // another change of the same mutant
};

class execution {
public:
    execution(const options& o, const body& run, search& how, thread_names& names);
    ~execution();
    execution(const execution&) = delete;
    execution& operator=(const execution&) = delete;

    void run();

    // ---- For searches

    memory& mem() noexcept { return memory_; }
    int threads() const noexcept { return static_cast<int>(threads_.size()); }
    model_thread& thread(int t) { return *threads_[static_cast<std::size_t>(t)]; }
    // Returns true if the thread can make a step now.
    bool enabled(int t);
    // Lets a thread continue that find_loop() has paused.
    void undo_pause(int t);
    std::vector<std::string> outcomes; // the texts of record()

    // ---- The result

    failure what() const noexcept { return failure_; }
    const std::string& message() const noexcept { return message_; }
    std::string trace();
    site failed_at() const noexcept { return failed_at_; }
    int failed_by() const noexcept { return failed_by_; } // -1: no thread
    std::string path() const;
    bool pruned() const noexcept { return pruned_; }

    // ---- For the operations of the modelled threads

    static execution* current() noexcept;
    // Returns the current execution. If there is none, ends the program.
    static execution& needed() noexcept;
    model_thread& self() { return thread(running_); }
    // Makes a step of the running thread. Returns the value that the step has read or chosen.
    bits step(const request& r);
    // Makes the step of a choice. Returns a number below `picks`.
    int choose(int picks, site where, const char* text);
    // Abandons this execution.
    void leave_out();
    void fail(failure what, std::string message, site where = {});
    [[noreturn]] void fail_now(failure what, std::string message, site where = {});
    int spawn(std::function<void()> run, bool is_daemon);
    int queue_of(const void* address);
    order weakened(order o, int slot, site where);

    void* service = nullptr;
    std::uint64_t number = 0; // counts all executions of the program

    // For changed orders (weakening): the orders that executions have used, and the changes.
    std::vector<weakening>* seen_orders = nullptr;
    const weakening* mutant = nullptr;

private:
    static void thread_main(void* self);

    void start(int t);
    void resume(int t);
    bool steps_here(model_thread& t);
    bool repeats(const request& r) const;
    void find_loop(model_thread& t);
    void perform(int t);
    void outcomes_of(int t, std::vector<outcome>& out);
    void read_outcomes(model_thread& t, std::vector<outcome>& out);
    void write_outcomes(model_thread& t, std::vector<outcome>& out);
    void apply(model_thread& t, const outcome& o);
    bool may_look_again(const model_thread& t) const;
    bool saw_same(const model_thread& t, int object, int message) const;
    int woken_by(const model_thread& t) const;
    void finish();
    std::string describe_blocked();

    const options& options_;
    const body& body_;
    search& search_;
    memory memory_;
    fiber main_;
    std::vector<std::unique_ptr<model_thread>> threads_;
    int running_ = 0;
    int starting_ = 0; // the number of threads that run to their first step
    static constexpr int undecided = -2;
    int next_ = undecided; // the thread that the search has chosen, before its step
    bool halted_ = false;  // no more steps are made
    bool pruned_ = false;
    failure failure_ = failure::none;
    std::string message_;
    site failed_at_;
    int failed_by_ = -1;
    std::map<const void*, int> queues_;
    thread_names& names_;
    std::vector<std::pair<int, int>> picks_; // thread and outcome of each step
    std::vector<outcome> candidates_;
    std::vector<int> scratch_;
};

}}} // namespace bide::BIDE_ABI::model::detail

#endif
