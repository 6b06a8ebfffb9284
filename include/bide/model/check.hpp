// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_MODEL_CHECK_HPP
#define BIDE_MODEL_CHECK_HPP

/// \file
/// Runs a small concurrent program in every way that C++20 allows, and checks each execution.
///
/// The checked program is called a body. A body constructs objects, starts threads, and states
/// conditions that must hold. The checker runs the body once in each execution that it explores.
/// The body is then thread 0. The body constructs all objects that its threads share. Such an
/// object is a model::atomic, a model::var, or an instance of a template whose platform is
/// model::platform. The template may be one of the library or one of the user.
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
/// If an execution fails, check() prints the failure and ends the program with the status 1.
/// on_failure() can set another action. README.md in this folder says what is explored, which
/// failures are found, and what the limits are. A program links the CMake target bide::model, which
/// is compiled from model/source.hpp.

#include <bide/model/platform.hpp>

#include <iosfwd>
#include <string>
#include <string_view>

namespace bide { inline namespace BIDE_ABI { namespace model {

// ---- Inside a body

/// Is a thread of the model. It starts when it is constructed. The destructor joins it.
class thread {
public:
    /// Starts a thread that runs `run`.
    explicit thread(std::function<void()> run);
    /// Takes over the thread of `other`, so that a std::vector can contain threads.
    thread(thread&& other) noexcept : id_(other.id_), joined_(std::exchange(other.joined_, true)) {}
    thread& operator=(thread&&) = delete;
    /// Joins the thread.
    ~thread() { join(); }

    /// Waits until the thread has ended. If the thread was joined before, does nothing. All steps
    /// of the thread happen before the return of join().
    void join() noexcept;

private:
    int id_;
    bool joined_ = false;
};

/// Starts `count` equal threads that run `run`, and joins them. Executions that differ only in which
/// of these threads is which are explored once, if the options say exhaustive.
/// Requires: the body does not depend on which of the threads does something, nor does `run`.
void run_equal_threads(int count, const std::function<void()>& run);

/// Starts a thread that is not joined and may sleep for ever.
void daemon(std::function<void()> run);

/// Fails the execution if `holds` is false. See BIDE_MODEL_REQUIRE.
void require(bool holds, const char* what, BIDE_MODEL_SITE) noexcept;

/// Fails the execution if the expression is false.
#define BIDE_MODEL_REQUIRE(...) ::bide::model::require(static_cast<bool>(__VA_ARGS__), #__VA_ARGS__)

/// Returns a number from 0 to n - 1. Each number is explored.
int choose(int n) noexcept;

/// Leaves out the executions in which `holds` is false.
void assume(bool holds) noexcept;

/// Adds a text to the outcome of this execution, for outcomes().
void record(std::string outcome);

/// Sets the timer service of this execution, which runs the time-outs and the stops of the library.
/// `timer_service` points to a bide::basic_timer_service<model::platform>. The body also starts a
/// daemon() that calls run() of the service.
void use_service(void* timer_service) noexcept;

/// Names an atomic in reports.
/// Requires: the text exists until the end of the exploration.
template <class T> void name(const atomic<T>& object, const char* text) noexcept {
    detail::ops::name(object.object(), text);
}

// ---- Outside of a body

/// Says how to explore.
struct options {
    /// The ways to explore.
    enum class method {
        exhaustive, ///< Every execution graph once: what C++20 allows, without a bound.
        enumerate,  ///< Every schedule and every choice, without reduction: to check the checker.
        bounded,    ///< Every schedule with at most `preemptions`, and every choice in it.
        pct,        ///< `runs` random schedules of bug depth `depth`.
    };
    /// The method of the exploration.
    method how = method::exhaustive;
    /// For method::bounded: the maximum number of preemptions.
    int preemptions = 2;
    /// For method::pct: a bug that needs this many ordered steps is found with a known probability.
    int depth = 3;
    /// For method::pct: the number of executions.
    std::uint64_t runs = 20'000;
    /// For method::pct: the seed of the random choices.
    std::uint64_t seed = 1;

    /// How many sleeps of each thread may end spuriously.
    int spurious = 0;
    /// How many timed sleeps of each thread may time out. If it is 0, a thread that needs a
    /// time-out to continue sleeps for ever.
    int timeouts = 0;
    /// How many calls of compare_exchange_weak by each thread may fail spuriously.
    int weak_failures = 0;
    /// How many times the clock of each thread may jump by a millisecond.
    int clock_jumps = 0;
    /// How many calls of `new` by each thread may return an address that a thread has freed before,
    /// if the sizes are equal. The ABA problem needs such addresses.
    int reused_addresses = 0;
    /// If false, an exploration fails in which no two threads use an object together. Such a body
    /// checks nothing: perhaps it uses std::atomic, which is no object of the checker.
    bool may_share_nothing = false;

    /// For method::exhaustive: the number of processes that explore. 0 means one process for each
    /// processor. Only a long exploration starts these processes, by fork(). The environment
    /// variable BIDE_MODEL_JOBS has precedence over this option.
    unsigned jobs = 1;
    /// If an exploration makes this many executions, the model is too large: a failure.
    std::uint64_t max_executions = 20'000'000;
    /// The maximum size of the unexplored branches in bytes. If they need more, the model is too
    /// large: a failure.
    std::size_t max_memory = std::size_t{4} << 30;
    /// The maximum number of steps of an execution. If there are more, it is a livelock: a failure.
    int max_steps = 2'000;
    /// Counts executions that were explored before; this takes memory for each execution.
    bool count_duplicates = false;
};

/// The kinds of failures.
enum class failure {
    none,        ///< Nothing.
    assertion,   ///< A BIDE_MODEL_REQUIRE does not hold.
    race,        ///< Two accesses to a var, one of them a write, are not ordered.
    lifetime,    ///< An access after a destruction, or not ordered before it.
    lost_wakeup, ///< Threads sleep for ever.
    livelock,    ///< A thread spins for ever, or takes too many steps.
    deadlock,    ///< Threads wait for locks for ever.
    leak,        ///< Memory is left at the end.
    terminated,  ///< std::terminate was called, an exception left a thread, or the body crashed.
    not_linearizable, ///< The calls of a linearizable object have no order.
    refused,          ///< The body calls a function that is not modelled.
    too_large,        ///< More executions than max_executions, or more branches than max_memory.
    not_repeated,     ///< The body did not repeat its steps, or it has no such path.
    empty,            ///< No execution came to its end.
    nothing_shared,   ///< No two threads use an object together: see options::may_share_nothing.
};
/// Writes a failure as text.
std::ostream& operator<<(std::ostream&, failure);

/// The result of an exploration.
struct verdict {
    /// The first failure, which has ended the exploration.
    failure what = failure::none;
    /// Describes the failure in one line.
    std::string message{};
    /// The interleaving for programs, with one step in each line.
    std::string trace{};
    /// The interleaving for human readers: a column for each thread, with the source line of each
    /// step. The report also names the missing synchronisation, if the graph of the execution shows
    /// it.
    std::string report{};
    /// The decisions that lead to the failure, for replay() and BIDE_MODEL_REPLAY.
    std::string path{};
    /// What the exploration has assumed: its bounds, and what it has left out.
    std::string assumed{};
    /// The number of executions that were completed.
    std::uint64_t executions = 0;
    /// The number of executions that were begun but could not be completed.
    std::uint64_t pruned = 0;
    /// See options::count_duplicates.
    std::uint64_t duplicates = 0;
    /// The duration of the exploration.
    double seconds = 0;
};

/// The type of the program that is checked.
using body = std::function<void()>;

/// Explores a body. The first failure ends the exploration.
verdict explore(const options& how, const body& run);

/// Runs only the execution of `path`.
verdict replay(const std::string& path, const options& how, const body& run);

/// Returns the graph of the execution that failed, as input for the program dot (Graphviz). The
/// drawing has a cluster for each thread, and edges for program order, reads-from, modification
/// order and synchronisation.
std::string to_dot(const verdict& found, const options& how, const body& run);

/// Returns the execution that failed as JSON, for editors and other programs: its steps, its calls
/// and its report. README.md in this folder lists the members.
std::string to_json(const verdict& found, const options& how, const body& run);

/// Explores the body again with stronger memory orders, for about `seconds` of processor time.
/// Returns a text that names the stronger orders with which no execution fails, or says that there
/// are no such orders. Returns an empty text if the time was too short, or if the failure does not
/// depend on memory orders.
std::string stronger_orders(const verdict& found, const options& how, const body& run,
                            double seconds = 5);

/// Explores a body, and prints the numbers of executions under `name`. If there is a failure,
/// prints its report, the text of stronger_orders(), and how to replay the failure. Then calls the
/// function of on_failure(). If the environment variable BIDE_MODEL_DOT names a file, writes the
/// text of to_dot() to that file; BIDE_MODEL_JSON does the same for to_json(). The environment
/// variable BIDE_MODEL_MUTANTS is a number of seconds. If it is set, and the exploration ends in
/// this time without a failure, more explorations follow. Each of them weakens one of the memory
/// orders in the code.
void check(std::string_view name, const options& how, const body& run);
/// \overload
inline void check(std::string_view name, const body& run) { check(name, {}, run); }

/// Explores a body that is expected to fail with `expected`, and prints the numbers of executions.
/// If the exploration ends without that failure, prints the actual result, and calls the function
/// of on_failure().
verdict find(std::string_view name, failure expected, const options& how, const body& run);
/// \overload
inline verdict find(std::string_view name, failure expected, const body& run) {
    return find(name, expected, {}, run);
}

/// Returns the texts that the executions passed to record(): sorted, without duplicates, separated
/// by spaces.
std::string outcomes(const options& how, const body& run);

/// The type of a function that is called with an unexpected verdict.
using failure_handler = void (*)(const verdict& found);

/// Sets the function that is called after an unexpected verdict was printed. By default, or after
/// on_failure(nullptr), the program ends with the status 1. With a test framework, the function can
/// fail the test. The function may throw.
/// Returns: the previous handler.
failure_handler on_failure(failure_handler handler) noexcept;

}}} // namespace bide::BIDE_ABI::model

#endif
