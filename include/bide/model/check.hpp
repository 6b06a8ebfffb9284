// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_MODEL_CHECK_HPP
#define BIDE_MODEL_CHECK_HPP

/// \file
/// Checks a small concurrent program in every way that C++20 allows it to run.
///
/// A body makes its objects, starts threads, and states what must hold. It is run once for each
/// execution that is explored, as thread 0. All that it shares with its threads is made in it: of
/// model::atomic, model::var, and of templates on model::platform, the library's and the user's.
///
/// \code
/// int main() {
///     bide::model::check("a release reaches the waiter", [] {
///         bide::basic_semaphore<bide::model::platform> s(0);
///         bide::model::thread waiter([&] { s.acquire(); });
///         s.release();
///     });
/// }
/// \endcode
///
/// A failure is printed, and ends the program with the status 1; on_failure() changes that. What is
/// explored, what is found, and the limits: README.md of this room. Link bide::model, which is compiled
/// from model/source.hpp.

#include <bide/core/config.hpp>
#include <bide/model/platform.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <iosfwd>
#include <string>
#include <string_view>
#include <utility>

namespace bide::inline BIDE_ABI::model {

// ---- Inside a body

/// Is a thread of the model. It is started at once; the destructor joins.
class thread {
public:
    /// Starts a thread that runs `run`.
    explicit thread(std::function<void()> run);
    /// Takes the other's thread, which counts as joined then: for a std::vector of them.
    thread(thread&& other) noexcept : id_(other.id_), joined_(std::exchange(other.joined_, true)) {}
    thread& operator=(thread&&) = delete;
    /// Joins.
    ~thread() { join(); }

    /// Waits for its end, unless it was joined. What the thread did happens before the return.
    void join() noexcept;

private:
    int id_;
    bool joined_ = false;
};

/// Starts a thread that is not joined and may sleep for ever.
void daemon(std::function<void()> run);

/// Fails the execution unless `holds`. See BIDE_MODEL_REQUIRE.
void require(bool holds, const char* what, BIDE_MODEL_SITE) noexcept;

/// Fails the execution unless the expression is true.
#define BIDE_MODEL_REQUIRE(...) ::bide::model::require(static_cast<bool>(__VA_ARGS__), #__VA_ARGS__)

/// Returns a number from 0 to n - 1; each is explored.
int choose(int n) noexcept;

/// Leaves out the executions in which it does not hold.
void assume(bool holds) noexcept;

/// Adds to what outcomes() returns for this execution.
void record(std::string outcome);

/// Names the service of the library's time-outs and stops in this execution: a
/// bide::basic_timer_service<model::platform> whose run() is some daemon's.
void use_service(void* timer_service) noexcept;

/// Names an atomic in reports.
/// Requires: the text lives to the end of the exploration.
template <class T> void name(const atomic<T>& object, const char* text) noexcept {
    detail::ops::name(object.object(), text);
}

// ---- Around it

/// Says how to explore.
struct options {
    /// The ways to explore.
    enum class method {
        exhaustive, ///< Every execution graph once: what C++20 allows, without a bound.
        enumerate,  ///< Every schedule and every choice, without reduction: to check the checker.
        bounded,    ///< Every schedule with at most `preemptions`, and every choice in it.
        pct,        ///< `runs` random schedules of bug depth `depth`.
    };
    /// The way.
    method how = method::exhaustive;
    /// Of method::bounded.
    int preemptions = 2;
    /// Of method::pct: a mistake that needs this many ordered steps is found with a known probability.
    int depth = 3;
    /// Of method::pct.
    std::uint64_t runs = 20'000;
    /// Of method::pct.
    std::uint64_t seed = 1;

    /// How often a sleep of each thread may end for no reason.
    int spurious = 0;
    /// How often a timed sleep of each thread may time out. At 0, no thread may rely on a time-out.
    int timeouts = 0;
    /// How often a compare_exchange_weak of each thread may fail for no reason.
    int weak_failures = 0;
    /// How often the clock of each thread may be a millisecond later.
    int clock_jumps = 0;

    /// Processes that explore, of method::exhaustive; 0: one for each processor. They are started by fork(),
    /// and only for a long exploration. BIDE_MODEL_JOBS in the environment comes before this.
    unsigned jobs = 1;
    /// More executions are a failure: the model is too large.
    std::uint64_t max_executions = 20'000'000;
    /// More bytes of branches that are still to be taken are a failure: the model is too large.
    std::size_t max_memory = std::size_t{4} << 30;
    /// More steps of one execution are a livelock.
    int max_steps = 2'000;
    /// Counts executions that had been explored before; takes memory for each.
    bool count_duplicates = false;
};

/// Says what is wrong.
enum class failure {
    none,         ///< Nothing.
    assertion,    ///< A BIDE_MODEL_REQUIRE does not hold.
    race,         ///< Two accesses to a var, one of them a write, are not ordered.
    lifetime,     ///< An access to what was destroyed, or not ordered before the destruction.
    lost_wakeup,  ///< Threads sleep for ever.
    livelock,     ///< A thread spins for ever, or takes too many steps.
    leak,         ///< Memory is left at the end.
    terminated,   ///< std::terminate was called, an exception left a thread, or the body crashed.
    too_large,    ///< There are more than options::max_executions, or than fit in max_memory.
    not_repeated, ///< The body did not do the same again, or the path is not one of it.
    empty,        ///< No execution came to its end.
};
/// Writes it as words.
std::ostream& operator<<(std::ostream&, failure);

/// Says what an exploration came to.
struct verdict {
    /// The first failure, which ended it.
    failure what = failure::none;
    /// One line on it.
    std::string message;
    /// The interleaving, a step a line, for programs.
    std::string trace;
    /// The interleaving for readers, a column for each thread, with the lines of the source; then, which
    /// synchronisation is missing, as far as the graph of the execution says it.
    std::string report;
    /// The way to it, for replay() and BIDE_MODEL_REPLAY.
    std::string path;
    /// Executions that came to their end.
    std::uint64_t executions = 0;
    /// Executions that were begun and left, because they could not be completed.
    std::uint64_t pruned = 0;
    /// See options::count_duplicates.
    std::uint64_t duplicates = 0;
    /// The time that it took.
    double seconds = 0;
};

/// Is the program that is checked.
using body = std::function<void()>;

/// Explores. The first failure ends the exploration.
verdict explore(const options& how, const body& run);

/// Runs the execution of that path alone.
verdict replay(const std::string& path, const options& how, const body& run);

/// Returns the graph of the execution that failed, as a text for the program dot: a cluster for each thread;
/// program order, reads-from, modification order, and what synchronises.
std::string to_dot(const verdict& found, const options& how, const body& run);

/// Explores again with stronger memory orders, for at most that long. Returns which of them leave no
/// failure, or that none does, as text; empty if there was not the time, or if no order can matter.
std::string stronger_orders(const verdict& found, const options& how, const body& run,
                            double seconds = 5);

/// Explores, and prints under that name what was explored. If there is a failure, prints its report, what
/// stronger_orders() returns, and how to replay it, and calls the function of on_failure(). With
/// BIDE_MODEL_DOT=file in the environment, writes to_dot() there. With BIDE_MODEL_MUTANTS in the
/// environment, explores once more for each memory order, which is weakened then.
void check(std::string_view name, const options& how, const body& run);
/// \overload
inline void check(std::string_view name, const body& run) { check(name, {}, run); }

/// Explores, and prints what was explored. Unless that failure is found, prints what was, and calls the
/// function of on_failure().
verdict find(std::string_view name, failure expected, const options& how, const body& run);
/// \overload
inline verdict find(std::string_view name, failure expected, const body& run) {
    return find(name, expected, {}, run);
}

/// Returns what the executions recorded, all different texts, in order, separated by spaces.
std::string outcomes(const options& how, const body& run);

/// Is called with a verdict that is not the expected one.
using failure_handler = void (*)(const verdict& found);

/// Sets what happens after an unexpected verdict was printed; nullptr is the default, which ends the
/// program with the status 1. A test framework's handler fails the test, and may throw.
/// Returns: the previous one.
failure_handler on_failure(failure_handler handler) noexcept;

} // namespace bide::inline BIDE_ABI::model

#endif
