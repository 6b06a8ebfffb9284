#ifndef BIDE_TESTS_MODEL_CHECK_HPP
#define BIDE_TESTS_MODEL_CHECK_HPP

// How a model is written: a body that makes its objects, starts threads, and states what must hold.
//
//   TEST_CASE("semaphore: a release reaches the waiter") {
//       model::check("one waiter", {}, [] {
//           bide::basic_semaphore<model::platform> s(0);
//           model::thread waiter([&] { s.acquire(); });
//           s.release();
//       });
//   }
//
// The body is run once for each execution that is explored, as thread 0. Everything it shares with
// its threads is made in it, of model::atomic, model::var and the library's templates on
// model::platform; Catch2's macros are for outside of it. See README.md.

#include <model/platform.hpp>

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <string>
#include <string_view>

namespace model {

// ---- Inside a body

// A thread of the model, started at once. The destructor joins.
class thread {
public:
    explicit thread(std::function<void()> run);
    thread(const thread&) = delete;
    thread& operator=(const thread&) = delete;
    ~thread() { join(); }

    // Waits for its end; what it did happens before that.
    void join() noexcept;

private:
    int id_;
    bool joined_ = false;
};

// A thread that is not joined and may sleep for ever.
void daemon(std::function<void()> run);

// Fails the execution.
void require(bool holds, const char* what, BIDE_MODEL_SITE) noexcept;
#define MODEL_REQUIRE(...) ::model::require(static_cast<bool>(__VA_ARGS__), #__VA_ARGS__)

// Any of 0 to n - 1, each explored.
int choose(int n) noexcept;

// Leaves out the executions in which it does not hold.
void assume(bool holds) noexcept;

// What this execution came to, for outcomes().
void record(std::string outcome);

// The service of basic_async_op's time-outs and stops in this execution: a
// bide::basic_timer_service<model::platform> whose run() is some daemon's.
void use_service(void* timer_service) noexcept;

// A name for traces.
template <class T> void name(const atomic<T>& object, const char* text) noexcept {
    ops::name(object.object(), text);
}

// ---- Around it

struct options {
    enum class method {
        exhaustive, // every execution graph once: what C++20 allows, no bound
        enumerate,  // every schedule and every choice, without any reduction: to check the checker
        bounded,    // every schedule with at most `preemptions`, every choice in it
        pct,        // `runs` random schedules of bug depth `depth`
    };
    method how = method::exhaustive;
    int preemptions = 2;
    int depth = 3;
    std::uint64_t runs = 20'000;
    std::uint64_t seed = 1;

    // How often each thread of an execution may meet with
    int spurious = 0;      // a sleep that ends for no reason
    int timeouts = 0;      // a timed sleep that times out; at 0, no thread may rely on a time-out
    int weak_failures = 0; // a compare_exchange_weak that fails for no reason
    int clock_jumps = 0;   // a now() that is a millisecond later

    std::uint64_t max_executions = 20'000'000; // more is an error: the model is too large
    int max_steps = 2'000;                     // of one execution; more is a livelock
    bool count_duplicates = false;             // see verdict
};

enum class failure {
    none,
    assertion,    // MODEL_REQUIRE
    race,         // two accesses to plain data, one of them a write, not ordered
    lifetime,     // an access to what was destroyed, or not ordered before the destruction
    lost_wakeup,  // threads sleep or wait for ever
    livelock,     // a thread spins for ever, or takes too many steps
    leak,         // memory is left at the end
    terminated,   // std::terminate, an exception
    too_large,    // max_executions
    not_repeated, // the body did not do the same again, or the path is not one of it
    empty,        // no execution came to its end
};
std::ostream& operator<<(std::ostream&, failure);

struct verdict {
    failure what = failure::none;
    std::string message;          // one line
    std::string trace;            // the interleaving, a step a line
    std::string path;             // for BIDE_MODEL_REPLAY
    std::uint64_t executions = 0; // to their end
    std::uint64_t pruned = 0;     // begun and left: they could not be completed
    std::uint64_t duplicates = 0; // executions that had been explored before (exhaustive)
    double seconds = 0;
};

using body = std::function<void()>;

// Explores; the first failure ends it.
verdict explore(const options&, const body&);

// The execution of that path alone.
verdict replay(const std::string& path, const options&, const body&);

// Explores, prints what was explored under that name, and fails the Catch2 test case with the trace
// if there is a failure. With BIDE_MODEL_MUTANTS set, does so once more for each order weakened
// (README.md).
void check(std::string_view name, const options&, const body&);

// Explores, prints, and fails the test case unless that failure is found. Returns it.
verdict find(std::string_view name, failure expected, const options&, const body&);

// What the bodies recorded, all different ones, in order, separated by spaces. No failure allowed.
std::string outcomes(const options&, const body&);

} // namespace model

#endif
