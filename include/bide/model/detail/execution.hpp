// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_MODEL_DETAIL_EXECUTION_HPP
#define BIDE_MODEL_DETAIL_EXECUTION_HPP

// One execution: the body and its threads on fibers, step by step. Before each step, a thread
// announces the step. A search then decides which thread continues, and which of the possible
// outcomes its step has.

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

namespace bide::inline BIDE_ABI::model::detail {

// What a thread wants to do next.
struct request {
    enum class kind : std::uint8_t {
        none,
        read,
        write,
        fence,
        choice, // of `picks`
        spawn,
        end,
        join,  // waits for the end of thread `other`
        sleep, // waits until a wake took this thread out of queue `object`
        pause, // waits until something it read changes
        never, // leaves the execution out
    };
    kind what = kind::none;
    int object = -1;
    order with = order::relaxed;
    order with_failure = order::relaxed; // of a compare-exchange that does not find `expected`
    bool exclusive = false;              // read: the first half of a read-modify-write
    bool compare = false;                // exclusive only if the value is `expected`
    bool quiet = false;
    bool inside = false; // in the middle of something that the machine does in one step
    bits expected = 0;
    bits value = 0;
    int from = -1; // write: the message that the first half read
    int picks = 0;
    int other = -1;
    const clock* known = nullptr; // read: besides what the thread knows
    site where;
    const char* text = "";
};

// One possible outcome of a step.
struct outcome {
    int message = -1;       // read: which one; write: behind which
    int pick = 0;           // of a choice
    bool exclusive = false; // read: a write follows
    bool conflict = false;  // another read-modify-write follows that message already
    order with = order::relaxed;
};

// A read of a thread that has done nothing else since that another thread, or itself, could notice.
struct look {
    site where;
    int object = -1;
    bits expected = 0;
    std::uint64_t state =
        0; // of the thread when it came there for the second time or later; 0: first
};

struct model_thread {
    fiber stack;
    view knows;
    request wants;
    bits result = 0;
    int message = -1; // that the last read read
    const std::function<void()>* run = nullptr;
    bool started = false;
    bool finished = false;
    bool is_daemon = false;
    int spawned = 0;
    std::int64_t now = 0;
    std::map<const void*, void*> locals;
    std::vector<std::pair<int, int>> looked; // object and message read since it last did something
    std::vector<std::pair<int, int>> newer;  // after a pause: to be read newer than this
    std::vector<look> looks;
    bool looks_again = false; // its loop was taken for a pause; the read is still to be done
    bool timed = false;       // the sleep would time out
    // Of its looks, the one that it wants to repeat; nullptr: none.
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

// The numbers of threads. The n-th thread that a given thread starts has the same number in all
// executions of an exploration, also in other processes.
class thread_names {
public:
    // The number of the n-th thread that `parent` starts; max_threads: there are too many.
    int number(int parent, int n) noexcept;
    // Those below a number as a text, which is empty where it goes without saying; and back.
    std::string text(int below) const;
    // Returns false if it is no such text.
    bool read(std::string_view text);

private:
    // 0: none yet; else one more than parent << 16 | n.
    std::array<std::atomic<std::uint32_t>, max_threads> all_{};
};

// Decides. One for a whole exploration.
class search {
public:
    search() = default;
    search(const search&) = delete;
    search& operator=(const search&) = delete;
    virtual ~search() = default;

    // A new execution is wanted: false when there is none left.
    virtual bool begin() = 0;
    // Which thread goes on; -1: none can.
    virtual int thread(execution& x) = 0;
    // If the outcome of the step of `thread` is known already, sets `to` to it and returns true.
    // Then the other outcomes are not computed.
    virtual bool knows(execution&, int /*thread*/, outcome& /*to*/) { return false; }
    // Which of the outcomes of its step; -1: leave this execution.
    virtual int choose(execution& x, int thread, const std::vector<outcome>& all) = 0;
    // A step was done: the event with that number.
    virtual void done(execution&, int /*event*/) {}
    // Called if an exclusive write of `thread` cannot be placed directly behind the store that was
    // read, so that the execution will be abandoned. Returns true if the other threads continue
    // before that.
    virtual bool stuck(execution&, int /*thread*/) { return false; }
    // All threads did what they could; `complete`: none was left out.
    virtual void end(execution&, bool /*complete*/) {}
    // Conflicting outcomes are wanted, a pause ends a thread.
    virtual bool is_graph_search() const { return false; }
    // Executions that had been explored before, as far as they are counted.
    virtual std::uint64_t duplicates() const { return 0; }
    // The part of the whole that is done, from 0 to 1; negative: unknown.
    virtual double explored() const { return -1; }
    // Bytes that the branches still to be taken occupy.
    virtual std::size_t branch_bytes() const { return 0; }
};

// An order at one place of the source, changed. Slot 1 is the failure order; no file: every place.
struct weakening {
    site where;
    int slot = 0;
    order from = order::relaxed;
    order to = order::relaxed;
    const weakening* next = nullptr; // changed together with it
};

class execution {
public:
    execution(const options& o, const body& run, search& how, thread_names& names);
    ~execution();
    execution(const execution&) = delete;
    execution& operator=(const execution&) = delete;

    // Runs one execution.
    void run();

    // ---- For searches

    memory& mem() noexcept { return memory_; }
    int threads() const noexcept { return static_cast<int>(threads_.size()); }
    model_thread& thread(int t) { return *threads_[static_cast<std::size_t>(t)]; }
    // It can make a step now.
    bool enabled(int t);
    // It was taken to wait in a loop, and goes on in spite of that.
    void undo_pause(int t);
    std::vector<std::string> outcomes; // by record()

    // ---- What came of it

    failure what() const noexcept { return failure_; }
    const std::string& message() const noexcept { return message_; }
    std::string trace();
    site failed_at() const noexcept { return failed_at_; }
    int failed_by() const noexcept { return failed_by_; } // -1: no thread
    std::string path() const;
    bool pruned() const noexcept { return pruned_; }

    // ---- For the operations of the modelled threads

    static execution* current() noexcept;
    // The current one. Ends the program if there is none.
    static execution& needed() noexcept;
    model_thread& self() { return thread(running_); }
    // Makes a step of the running thread.
    bits step(const request& r);
    // Makes the step of a choice, and returns what was picked.
    int choose(int picks, site where, const char* text);
    // Leaves this execution.
    void leave_out();
    void fail(failure what, std::string message, site where = {});
    [[noreturn]] void fail_now(failure what, std::string message, site where = {});
    int spawn(std::function<void()> run, bool is_daemon);
    int queue_of(const void* address);
    order weakened(order o, int slot, site where);

    void* service = nullptr;
    std::uint64_t number = 0; // of this execution among all of the program

    // Mutation: the orders seen, and the one that is weakened.
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
    int starting_ = 0; // threads that run to their first step
    static constexpr int undecided = -2;
    int next_ = undecided; // what the search said last, if it was not done yet
    bool halted_ = false;  // no step is made any more
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

} // namespace bide::inline BIDE_ABI::model::detail

#endif
