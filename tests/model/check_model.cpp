// The checker's own: each kind of failure is found and said, a trace can be read, a path replayed.

#include <model/check.hpp>
#include <model/five_bugs.hpp>
#include <support/test.hpp>

#include <sys/wait.h>
#include <unistd.h>

namespace {

using model::atomic;
using model::failure;
using model::options;
using model::platform;
using model::var;
using enum std::memory_order;

constexpr std::int64_t never = std::numeric_limits<std::int64_t>::max();

// Message passing with those orders: a var behind a flag.
auto passing(std::memory_order out, std::memory_order in) {
    return [=] {
        var<int> data{0};
        atomic<int> flag{0};
        model::name(flag, "flag");
        model::thread sender([&] {
            data = 1;
            flag.store(1, out);
        });
        if (flag.load(in) == 1) {
            MODEL_REQUIRE(data == 1);
        }
    };
}

failure found(const model::body& run, const options& o = {}) { return model::explore(o, run).what; }

bool contains(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

TEST_CASE("checker: an atomic that is destroyed while another thread may use it is found") {
    const auto destroy = [](std::memory_order last) {
        return [=] {
            auto word = std::make_unique<atomic<int>>(0);
            model::thread other([&] { word->fetch_add(1, last); });
            while (word->load(acquire) == 0) {
                platform::pause();
            }
            word.reset();
        };
    };
    CHECK(found(destroy(release)) == failure::none);
    CHECK(found(destroy(relaxed)) == failure::lifetime);
}

TEST_CASE("checker: memory that is left, and memory that is freed twice, are found") {
    // volatile: the compiler need not allocate what is unused.
    CHECK(found([] {
              void* volatile p = ::operator new(1);
              static_cast<void>(p);
          }) == failure::leak);
    CHECK(found([] {
              void* volatile p = ::operator new(1);
              ::operator delete(p);
          }) == failure::none);
    CHECK(found([] {
              void* volatile p = ::operator new(1);
              ::operator delete(p);
              ::operator delete(p);
          }) == failure::lifetime);
}

TEST_CASE("checker: std::terminate and exceptions are found") {
    CHECK(found([] { std::terminate(); }) == failure::terminated);
    CHECK(found([] { throw std::runtime_error("on its way out"); }) == failure::terminated);
    CHECK(contains(model::explore({}, [] { throw std::runtime_error("on its way"); }).message,
                   "on its way"));
    CHECK(found([] {
              try {
                  throw std::runtime_error("caught");
              } catch (const std::runtime_error&) {
              }
          }) == failure::none);
}

TEST_CASE("checker: exceptions are of the thread that throws them") {
    CHECK(found([] {
              atomic<int> word{0};
              const auto run = [&](int mine) {
                  try {
                      throw mine;
                  } catch (...) {
                      word.fetch_add(1, relaxed);
                      try {
                          throw;
                      } catch (int seen) {
                          MODEL_REQUIRE(seen == mine);
                      }
                  }
              };
              model::thread other([&] { run(1); });
              run(2);
          }) == failure::none);
    struct counts {
        atomic<int>& word;
        ~counts() {
            word.fetch_add(1, relaxed);
            MODEL_REQUIRE(std::uncaught_exceptions() == 1);
        }
    };
    CHECK(found([] {
              atomic<int> word{0};
              const auto run = [&] {
                  try {
                      const counts on_the_way{word};
                      throw std::runtime_error("on its way out");
                  } catch (const std::runtime_error&) {
                      MODEL_REQUIRE(std::uncaught_exceptions() == 0);
                  }
              };
              model::thread other(run);
              run();
          }) == failure::none);
    CHECK(std::uncaught_exceptions() == 0);
    CHECK(std::current_exception() ==
          nullptr); // of an execution that was left while it handled one
    CHECK(found([] {
              try {
                  throw std::runtime_error("is handled");
              } catch (const std::runtime_error&) {
                  MODEL_REQUIRE(false);
              }
          }) == failure::assertion);
    CHECK(std::current_exception() == nullptr);
}

TEST_CASE("checker: a model that is too large is an error, not a success") {
    const auto three_changes = [] {
        atomic<int> word{0};
        model::thread other([&] {
            word.fetch_add(1);
            word.fetch_add(1);
        });
        word.fetch_add(1);
    };
    CHECK(found(three_changes, {.max_executions = 2}) == failure::too_large);
    CHECK(found(three_changes, {.max_memory = 100}) == failure::too_large);
    CHECK(found([] {
              std::unique_ptr<model::thread> all[8];
              for (auto& one : all) {
                  one = std::make_unique<model::thread>([] {});
              }
          }) == failure::too_large);
}

TEST_CASE("checker: a trace names the thread, the operation, the order, the store that was read, "
          "and the line") {
    const auto v = model::explore({}, [] {
        atomic<int> flag{0};
        model::name(flag, "flag");
        model::thread sender([&] { flag.store(7, release); });
        MODEL_REQUIRE(flag.load(acquire) != 7);
    });
    CHECK(v.what == failure::assertion);
    CHECK(contains(v.message, "flag.load(acquire) != 7"));
    CHECK(contains(v.trace, "T1 store  flag release := 7"));
    CHECK(contains(v.trace, "T0 load   flag acquire -> 7, of #"));
    CHECK(contains(v.trace, "check_model.cpp:"));
}

// The number of the line of five_bugs.hpp that has this text.
std::string place(const std::string& text) {
    std::ifstream in(std::string(__FILE__).substr(0, sizeof __FILE__ - sizeof "check_model.cpp") +
                     "five_bugs.hpp");
    int number = 0;
    for (std::string line; std::getline(in, line);) {
        ++number;
        if (contains(line, text)) {
            return "five_bugs.hpp:" + std::to_string(number);
        }
    }
    return "no line with " + text;
}

// All that is printed of a failure. Fails the test case unless the twin has none.
std::string told(const model::body& wrong, const model::body& right, failure expected) {
    CHECK(found(right) == failure::none);
    const auto v = model::explore({}, wrong);
    CHECK(v.what == expected);
    return v.report + model::stronger_orders(v, {}, wrong);
}

// Blanks and line breaks do not count.
bool says(const std::string& text, const std::string& part) {
    const auto words = [](const std::string& all) {
        std::istringstream in(all);
        std::string out;
        for (std::string word; in >> word;) {
            out += (out.empty() ? "" : " ") + word;
        }
        return out;
    };
    return contains(words(text), words(part));
}

TEST_CASE("checker: of a lock that unlocks relaxed, the report names the store", "[report]") {
    const auto text =
        told(five_bugs::spinlock<relaxed>, five_bugs::spinlock<release>, failure::race);
    INFO(text);
    const std::string store = place("locked.store(0, Unlock)");
    CHECK(contains(text, "T0                                                    | T1\n"));
    CHECK(says(text, "locked.store(0, relaxed) " + store + " | | locked.store(0, Unlock);"));
    CHECK(says(text,
               "store of 0 to locked (#3, relaxed, " + store + "), but the write is no release"));
    CHECK(says(text, "no execution fails: release in place of relaxed " + store));
}

TEST_CASE("checker: of a ring that publishes relaxed, the report names the store", "[report]") {
    const auto text = told(five_bugs::ring<relaxed>, five_bugs::ring<release>, failure::race);
    INFO(text);
    const std::string store = place("tail.store(sent + 1, Publish)");
    // Its name is in the two lines, which need debug information.
    CHECK((says(text, "T1's write of slots") || says(text, "T1's write of var 0")));
    CHECK(says(text, "(before #1, " + store + ") does not happen before T0's"));
    CHECK(says(text, "to tail (#1, relaxed, " + store + "), but the write is no release"));
    CHECK(says(text, "no execution fails: release in place of relaxed " + store));
}

TEST_CASE("checker: of Dekker's entry with seq_cst on one side, the report names both accesses of "
          "the other",
          "[report]") {
    const auto text = told(five_bugs::dekker<release, acquire>, five_bugs::dekker<seq_cst, seq_cst>,
                           failure::assertion);
    INFO(text);
    const std::string announce = place("yours.store(1, Announce)");
    const std::string look = place("mine.load(Look)");
    CHECK(says(text, "mine.load(acquire): 0 (init) " + look));
    CHECK(says(text, "OLD: #1 wrote 1, and does not happen before this"));
    CHECK(says(text, "Both threads write, then read what the other one wrote, and miss it"));
    CHECK(says(text, "together, no execution fails: seq_cst in place of release " + announce));
    CHECK(says(text, "seq_cst in place of acquire " + look));
}

TEST_CASE(
    "checker: of an event count that reads its epoch late, the report says that no order helps",
    "[report]") {
    const auto text =
        told(five_bugs::event_count<false>, five_bugs::event_count<true>, failure::lost_wakeup);
    INFO(text);
    CHECK(contains(text, "** sleeps for ever"));
    CHECK(contains(text, "With seq_cst everywhere, an execution still fails"));
}

TEST_CASE("checker: of a count that is released relaxed, the report names both ends", "[report]") {
    const auto text = told(five_bugs::last_reference<relaxed>, five_bugs::last_reference<acq_rel>,
                           failure::lifetime);
    INFO(text);
    const std::string release = place("fetch_sub(1, Release)");
    CHECK(contains(text, "** destroys references"));
    CHECK(says(text, "the write is no release and the read is no acquire"));
    CHECK(says(text, "no execution fails: acq_rel in place of relaxed " + release));
}

TEST_CASE("checker: steps that a sequentially consistent machine has are shown as it makes them",
          "[report]") {
    const auto v = model::explore({}, [] {
        atomic<int> count{0};
        const auto add = [&] { count.store(count.load(relaxed) + 1, relaxed); };
        model::thread other(add);
        add();
        other.join();
        MODEL_REQUIRE(count.load(relaxed) == 2);
    });
    CHECK(v.what == failure::assertion);
    CHECK(contains(v.report, "no stronger order excludes them"));
    CHECK(!contains(v.trace, "(old)"));
}

TEST_CASE("checker: a report calls objects as the source does", "[report]") {
    const auto v = model::explore({}, [] {
        atomic<std::uint32_t> asleep{0};
        std::array<atomic<int>, 2> slots{};
        atomic<int> copy{0};
        model::thread other([&] {
            copy.store(slots[1].load(acquire), release);
            asleep.store(2, release);
            platform::futex_wake(&asleep, 1);
        });
        slots[0].store(3, release);
        platform::futex_wait(asleep, std::uint32_t{1}, never);
        other.join();
        MODEL_REQUIRE(false);
    });
    INFO(v.report);
    CHECK(contains(v.report, " slots(a1).store(3, release)"));
    CHECK(contains(v.report, " slots(a2).load(acquire): 0 (init)"));
    CHECK(contains(v.report, " copy.store(0, release)"));
    CHECK(contains(v.report, " futex_wait(asleep) reads 0 (init): does not sleep"));
    CHECK(contains(v.report, " futex_wake(asleep): wakes no thread"));
}

TEST_CASE("checker: a report has columns for three threads, and none for eight", "[report]") {
    const auto start = [](int n) {
        return [n] {
            atomic<int> count{0};
            model::name(count, "count");
            std::vector<std::unique_ptr<model::thread>> all;
            for (int i = 0; i < n; ++i) {
                all.push_back(
                    std::make_unique<model::thread>([&] { count.fetch_add(1, relaxed); }));
            }
            all.clear();
            MODEL_REQUIRE(count.load(relaxed) != n);
        };
    };
    const auto three = model::explore({}, start(2)).report;
    CHECK(contains(three, "| T1 "));
    CHECK(contains(three, "| T2\n"));
    const auto eight = model::explore({}, start(7)).report;
    CHECK(contains(eight, "T7  #"));
    for (const auto& text : {three, eight}) {
        std::istringstream lines(text);
        for (std::string line; std::getline(lines, line);) {
            CHECK(line.size() <= 110);
        }
    }
}

TEST_CASE(
    "checker: the graph of an execution has a cluster for each thread, and says what synchronises",
    "[report]") {
    const auto body = five_bugs::ring<relaxed>;
    const auto v = model::explore({}, body);
    const std::string graph = model::to_dot(v, {}, body);
    CHECK(graph.starts_with("digraph execution {"));
    CHECK(contains(graph, "subgraph cluster_1 {"));
    CHECK(contains(graph, "store  tail relaxed := 1\\nfive_bugs.hpp:"));
    CHECK(contains(graph, "label=rf"));
    CHECK(!contains(graph, "rf, sw"));
    const auto synchronised = [] {
        atomic<int> flag{0};
        model::thread sender([&] { flag.store(1, release); });
        MODEL_REQUIRE(flag.load(acquire) == 0);
    };
    CHECK(contains(model::to_dot(model::explore({}, synchronised), {}, synchronised), "rf, sw"));
}

TEST_CASE("checker: JSON is valid UTF-8", "[report]") {
    const options how{.may_share_nothing = true};
    const auto body = [] { model::require(false, "\x01 \xc3\xa4 \xff \xc3"); };
    const std::string text = model::to_json(model::explore(how, body), how, body);
    CHECK(contains(text, "\\u0001 \xc3\xa4 \\ufffd \\ufffd"));
}

TEST_CASE("checker: an execution as JSON has its steps and their lines", "[report]") {
    const auto body = five_bugs::ring<relaxed>;
    const auto v = model::explore({}, body);
    const std::string text = model::to_json(v, {}, body);
    INFO(text);
    CHECK(text.starts_with(R"({"format": 1, "failure": "data race", "message": "data race: )"));
    CHECK(contains(text, R"("path": ")" + v.path + R"(", "threads": 2)"));
    CHECK(contains(
        text,
        R"({"step": 1, "thread": 1, "operation": "store", "object": "tail", "order": "relaxed", "value": "1", "half_of_rmw": false, "file": ")"));
    CHECK(contains(text, R"("source": "tail.store(sent + 1, Publish);"})"));
    CHECK(contains(
        text,
        R"("operation": "load", "object": "tail", "order": "acquire", "value": "1", "half_of_rmw": false, "old": false, "reads_from": 1)"));
    CHECK(contains(text, R"({"thread": 1, "operation": "write", "object": ")"));
    CHECK(contains(text, R"("report": "T0  )"));
    int depth = 0; // of objects and arrays
    bool is_text = false;
    for (std::size_t i = 0; i < text.size(); ++i) {
        i += is_text && text[i] == '\\' ? 1 : 0;
        is_text = is_text != (text[i] == '"' && text[i - 1] != '\\');
        depth += is_text                            ? 0
                 : text[i] == '{' || text[i] == '[' ? 1
                 : text[i] == '}' || text[i] == ']' ? -1
                                                    : 0;
    }
    CHECK(!is_text);
    CHECK(depth == 0);
    CHECK(std::none_of(text.begin(), text.end() - 1,
                       [](char c) { return static_cast<unsigned char>(c) < 0x20 && c != '\n'; }));
}

TEST_CASE("checker: a report shows steps that repeat once", "[report]") {
    const auto v = model::explore({}, [] {
        atomic<int> ready{0};
        atomic<int> asked{0};
        model::thread other([&] { ready.store(0, relaxed); });
        other.join();
        for (int i = 0; i < 15; ++i) {
            MODEL_REQUIRE(ready.load(relaxed) == 0);
        }
        for (int i = 0; i < 5; ++i) {
            asked.store(i % 1, relaxed);
            MODEL_REQUIRE(asked.load(relaxed) == ready.load(relaxed));
        }
        MODEL_REQUIRE(false);
    });
    INFO(v.report);
    CHECK(contains(v.report, "the same 14 more times, to #"));
    CHECK(v.report.find("ready.load") != v.report.npos);
    std::size_t rows = 0;
    for (auto at = v.report.find("ready.load(relaxed): 0"); at != v.report.npos;
         at = v.report.find("ready.load(relaxed): 0", at + 1)) {
        ++rows;
    }
    CHECK(rows <= 6); // the second loop reads what a new step wrote in each round
}

TEST_CASE("checker: a long source line is cut around its expression", "[report]") {
    const auto v = model::explore({}, [] {
        atomic<int> first_of_all{0};
        model::thread other([&] { first_of_all.store(1, relaxed); });
        model::thread third([&] { first_of_all.store(2, relaxed); });
        other.join();
        third.join();
        const bool has_a_value = 1 > 0 && 2 > 1 && 3 > 2 && first_of_all.load(acquire) != 7;
        MODEL_REQUIRE(!has_a_value);
    });
    INFO(v.report);
    CHECK(contains(v.report, "| ...first_of_all.load("));
}

TEST_CASE("checker: a path replays its execution, and no other") {
    for (const auto how : {options::method::exhaustive, options::method::enumerate,
                           options::method::bounded, options::method::pct}) {
        const auto body = passing(relaxed, acquire);
        const auto v = model::explore({.how = how}, body);
        CHECK(v.what == failure::race);
        const auto again = model::replay(v.path, {.how = how}, body);
        CHECK(again.what == v.what);
        CHECK(again.message == v.message);
        CHECK(again.trace == v.trace);
        CHECK(again.executions + again.pruned == 1);
        const auto other = model::replay("g0,7:7", {.how = how}, body);
        CHECK(other.message == "the path is not one of this body");
    }
}

TEST_CASE("checker: a path ends with the step that is not made") {
    const auto counts = [] {
        atomic<int> word{0};
        for (int i = 0; i < 50; ++i) {
            word.store(i, relaxed);
        }
    };
    for (const auto how : {options::method::exhaustive, options::method::bounded}) {
        const options few{.how = how, .may_share_nothing = true, .max_steps = 20};
        const auto v = model::explore(few, counts);
        CHECK(v.what == failure::livelock);
        const auto again = model::replay(v.path, few, counts);
        CHECK(again.message == v.message);
        CHECK(again.trace == v.trace);
    }
}

TEST_CASE("checker: choose() takes each value, assume() leaves executions out") {
    const auto all = [] { model::record(std::to_string(model::choose(3))); };
    const auto odd = [] {
        const int n = model::choose(4);
        model::assume(n % 2 == 1);
        model::record(std::to_string(n));
    };
    CHECK(model::outcomes({}, all) == "0 1 2");
    CHECK(model::outcomes({}, odd) == "1 3");
    CHECK(model::outcomes({.how = options::method::enumerate}, odd) == "1 3");
}

TEST_CASE("checker: a daemon may sleep when all is over, a thread may not") {
    const auto serve = [](bool as_daemon) {
        return [=] {
            auto& word = *new atomic<std::uint32_t>(0); // outlives the body, as the daemon does
            const auto run = [&word] { platform::futex_wait(word, std::uint32_t{0}, never); };
            if (as_daemon) {
                model::daemon(run);
            } else {
                model::thread joined(run);
            }
        };
    };
    CHECK(found(serve(true)) == failure::none);
    CHECK(found(serve(false)) == failure::lost_wakeup);
}

TEST_CASE("checker: what lay in freed memory is not accessed") {
    // volatile: the compiler does not look through it, and does not say what we know.
    CHECK(found([] {
              var<int>* volatile data = new var<int>(1);
              delete data;
              static_cast<void>(static_cast<int>(*data));
          }) == failure::lifetime);
    CHECK(found([] {
              var<int>* volatile data = new var<int>(1);
              model::thread other([&] { delete data; });
              static_cast<void>(static_cast<int>(*data));
          }) != failure::none);
    CHECK(found([] {
              atomic<int>* volatile word = new atomic<int>(1);
              delete word;
              word->load(relaxed);
          }) == failure::lifetime);
}

TEST_CASE("checker: a check that nothing passes is an error") {
    CHECK(found([] {
              model::assume(false);
              MODEL_REQUIRE(false);
          }) == failure::empty);
}

TEST_CASE("checker: a spin may contain a fence, and must read") {
    CHECK(found([] {
              atomic<int> flag{0};
              model::thread other([&] { flag.store(1, release); });
              for (;;) {
                  const int seen = flag.load(relaxed);
                  model::fence(acquire);
                  if (seen == 1) {
                      break;
                  }
                  platform::pause();
              }
          }) == failure::none);
    CHECK(found([] {
              atomic<int> flag{0};
              while (flag.exchange(1, relaxed) != 1) { // the second round ends it
                  platform::pause();
              }
          }) == failure::refused);
}

enum class lock_loop { exchange, compare_exchange, load_first, exchange_and_pause };

// A lock as its users write it, that waits without a word to the checker.
template <lock_loop How> class spin_lock {
public:
    void lock() noexcept {
        for (;;) {
            bool unlocked = false;
            if (How == lock_loop::compare_exchange
                    ? held_.compare_exchange_weak(unlocked, true, acquire, relaxed)
                    : !held_.exchange(true, acquire)) {
                return;
            }
            while (How == lock_loop::load_first && held_.load(relaxed)) {
            }
            if (How == lock_loop::exchange_and_pause) {
                platform::pause();
            }
        }
    }
    void unlock() noexcept { held_.store(false, release); }

private:
    atomic<bool> held_{false};
};

// Each thread adds one under the lock.
template <lock_loop How> auto locked(int threads) {
    return [threads] {
        spin_lock<How> lock;
        var<int> sum{0};
        const auto add = [&] {
            lock.lock();
            sum = sum + 1;
            lock.unlock();
        };
        std::vector<std::unique_ptr<model::thread>> others;
        for (int i = 1; i < threads; ++i) {
            others.push_back(std::make_unique<model::thread>(add));
        }
        add();
        others.clear();
        MODEL_REQUIRE(sum == threads);
    };
}

template <lock_loop How> void two_and_three_threads() {
    for (const int threads : {2, 3}) {
        for (const auto how :
             {options::method::exhaustive, options::method::bounded, options::method::pct}) {
            CHECK(model::explore({.how = how, .runs = 500}, locked<How>(threads)).what ==
                  failure::none);
        }
    }
}

// A pause() of several loops: one place in the code.
BIDE_NOINLINE void rest() {
    platform::pause();
    asm volatile(""); // the call above is no tail call
}

TEST_CASE("checker: a pause says no more than that this round is over") {
    CHECK(found([] { // another object, which no round reads, has a newer value
              atomic<int> other{0};
              atomic<int> flag{0};
              model::thread writer([&] { other.store(1, relaxed); });
              other.load(relaxed);
              while (flag.load(relaxed) == 0) {
                  platform::pause();
              }
          }) == failure::livelock);
    CHECK(found([] { // the first read of the lock is in no round
              atomic<int> lock{0};
              model::thread owner([&] { lock.store(1, relaxed); });
              for (int is = lock.load(relaxed); !lock.compare_exchange_strong(is, 1); is = 0) {
                  platform::pause();
              }
          }) == failure::livelock);
    // A thread that goes on without another read has not waited.
    const auto gives_up = [](bool is_marked) {
        return [is_marked] {
            atomic<int> count{0};
            const auto try_once = [&] {
                int seen = count.load(relaxed);
                if (!count.compare_exchange_strong(seen, seen + 1, relaxed) && is_marked) {
                    platform::pause();
                }
            };
            {
                model::thread other(try_once);
                try_once();
            }
            MODEL_REQUIRE(count.load(relaxed) == 2);
        };
    };
    CHECK(found(gives_up(false)) == failure::assertion);
    CHECK(found(gives_up(true)) == failure::refused);
    CHECK(found([] { // at a place where another thread has waited
              atomic<int> flag{0};
              atomic<int> count{0};
              model::thread setter([&] { flag.store(1, relaxed); });
              while (flag.load(relaxed) == 0) {
                  rest();
              }
              const auto try_once = [&] {
                  int seen = count.load(relaxed);
                  if (!count.compare_exchange_strong(seen, seen + 1, relaxed)) {
                      rest();
                  }
              };
              model::thread other(try_once);
              try_once();
          }) == failure::refused);
    const auto counted = [](bool is_marked) {
        return [is_marked] {
            atomic<int> count{0};
            const auto add = [&] {
                int seen = count.load(relaxed);
                while (!count.compare_exchange_strong(seen, seen + 1, relaxed)) {
                    if (is_marked) {
                        platform::pause();
                    }
                }
            };
            {
                model::thread other(add);
                model::thread third(add);
                add();
            }
            MODEL_REQUIRE(count.load(relaxed) == 3);
        };
    };
    CHECK(model::explore({}, counted(false)).executions == 48);
    CHECK(model::explore({}, counted(true)).executions == 6); // no compare-exchange fails
}

TEST_CASE("checker: a loop that waits is found without a pause") {
    two_and_three_threads<lock_loop::exchange>();
    two_and_three_threads<lock_loop::compare_exchange>();
    two_and_three_threads<lock_loop::load_first>();
    two_and_three_threads<lock_loop::exchange_and_pause>();
    for (const auto how :
         {options::method::exhaustive, options::method::bounded, options::method::pct}) {
        CHECK(model::explore({.how = how},
                             [] { // what it waits for does not come
                                 atomic<int> flag{0};
                                 model::thread other([&] { flag.store(1, release); });
                                 while (flag.load(acquire) != 2) {
                                 }
                             })
                  .what == failure::livelock);
        CHECK(model::explore({.how = how}, [] {
                  spin_lock<lock_loop::exchange> lock;
                  model::thread other([&] { lock.lock(); });
                  model::thread third([&] { lock.lock(); });
                  lock.lock();
              }).what == failure::livelock);
    }
}

TEST_CASE("checker: a loop that gives up after some rounds is none that waits") {
    for (const auto how : {options::method::exhaustive, options::method::enumerate}) {
        CHECK(model::outcomes({.how = how}, [] {
                  atomic<int> flag{0};
                  model::thread other([&] { flag.store(1, release); });
                  int rounds = 0;
                  while (rounds < 4 && flag.load(acquire) == 0) {
                      ++rounds;
                  }
                  model::record(std::to_string(rounds));
              }) == "0 1 2 3 4");
    }
}

TEST_CASE("checker: a loop that does something else in a round is none that waits") {
    const auto both = [](const model::body& body) {
        const std::string graphs = model::outcomes({}, body);
        CHECK(model::outcomes({.how = options::method::enumerate}, body) == graphs);
        return graphs;
    };
    // It counts where only other threads look, and ends.
    CHECK(model::explore({}, [] {
              atomic<int> flag{0};
              int rounds = 0;
              model::thread other([&] {
                  while (rounds < 3 && flag.load(acquire) == 0) {
                      ++rounds;
                  }
              });
              flag.store(1, release);
          }).what == failure::refused);
    CHECK(model::explore({}, [] {
              atomic<int> flag{0};
              const auto rounds = std::make_unique<int>(0);
              model::thread other([&] {
                  while (*rounds < 3 && flag.exchange(0, acquire) == 0) {
                      ++*rounds;
                  }
              });
              flag.store(1, release);
          }).what == failure::refused);
    CHECK(both([] {
              atomic<int> flag{0};
              var<int> rounds{0};
              model::thread other([&] {
                  while (rounds < 2 && flag.load(acquire) == 0) {
                      rounds = rounds + 1;
                  }
              });
              flag.store(1, release);
              other.join();
              model::record(std::to_string(rounds));
          }) == "0 1 2");
    // Its first round is not as the others.
    CHECK(both([] {
              atomic<int> flag{0};
              model::thread other([&] { flag.store(1, release); });
              bool is_first = true;
              while (flag.load(acquire) == 0) {
                  is_first = false;
              }
              model::record(is_first ? "first" : "later");
          }) == "first later");
    CHECK(both([] {
              atomic<int> flag{0};
              model::thread other([&] {
                  flag.store(1, release);
                  flag.store(2, release);
              });
              int last = 0;
              for (int seen = flag.load(acquire); seen != last + 1; seen = flag.load(acquire)) {
                  last = seen == 0 ? last : seen - 1;
              }
              model::record(std::to_string(last));
          }) == "0 1");
    // Two reads of one object in one line are two reads.
    CHECK(both([] {
              atomic<int> word{0};
              model::thread other([&] {
                  word.store(1, release);
                  word.store(2, release);
              });
              const char* way = "neither";
              // clang-format off
              if (word.load(acquire) == 1) { way = "both"; while (word.load(acquire) == 1) { } }
              // clang-format on
              model::record(way);
          }) == "both neither");
}

TEST_CASE("checker: what goes wrong behind a loop that waits is found") {
    for (const auto how : {options::method::exhaustive, options::method::enumerate}) {
        // The sleeper is not woken if the other one looks before it sleeps.
        CHECK(model::explore({.how = how}, [] {
                  atomic<std::uint32_t> word{0};
                  atomic<int> asleep{0};
                  atomic<int> done{0};
                  model::thread sleeper([&] {
                      asleep.store(1, release);
                      platform::futex_wait(word, std::uint32_t{0}, never);
                      done.store(1, release);
                  });
                  if (asleep.load(acquire) == 1) {
                      word.store(1, release);
                      platform::futex_wake(&word, 1);
                  }
                  while (done.load(acquire) == 0) {
                  }
              }).what == failure::lost_wakeup);
        CHECK(model::explore({.how = how},
                             [] { // a value that was read before the loop does not end it
                                 atomic<int> a{0};
                                 atomic<int> b{0};
                                 model::thread other([&] { a.store(1, release); });
                                 if (a.load(acquire) == 0) {
                                     while (b.load(acquire) == 0) {
                                     }
                                 }
                             })
                  .what == failure::livelock);
        CHECK(model::explore({.how = how},
                             [] { // but one that is read in the loop, too, does
                                 atomic<int> a{0};
                                 atomic<int> b{0};
                                 model::thread other([&] { a.store(1, release); });
                                 const auto is_set = [&] { return a.load(acquire) != 0; };
                                 if (!is_set()) {
                                     while (b.load(acquire) == 0 && !is_set()) {
                                     }
                                 }
                             })
                  .what == failure::none);
        CHECK(model::explore({.how = how},
                             [] { // each waits for the other
                                 atomic<int> a{0};
                                 atomic<int> b{0};
                                 model::thread other([&] {
                                     while (a.load(acquire) == 0) {
                                     }
                                     b.store(1, release);
                                 });
                                 while (b.load(acquire) == 0) {
                                 }
                                 a.store(1, release);
                             })
                  .what == failure::livelock);
        CHECK(model::explore({.how = how},
                             [] { // the value that the loop ends with does not synchronise
                                 atomic<int> flag{0};
                                 var<int> data{0};
                                 model::thread other([&] {
                                     data = 1;
                                     flag.store(1, relaxed);
                                 });
                                 while (flag.load(acquire) == 0) {
                                 }
                                 MODEL_REQUIRE(data == 1);
                             })
                  .what == failure::race);
        CHECK(model::explore({.how = how},
                             [] { // the loop may end too early
                                 atomic<int> turns{0};
                                 const auto add = [&] { turns.fetch_add(1, release); };
                                 model::thread one(add);
                                 model::thread two(add);
                                 while (turns.load(acquire) < 1) {
                                 }
                                 MODEL_REQUIRE(turns.load(acquire) == 2);
                             })
                  .what == failure::assertion);
    }
}

TEST_CASE("checker: of threads that wait for the same object, each order is explored once") {
    const auto served = [](int threads, bool is_marked) {
        return [threads, is_marked] {
            atomic<int> next{0};
            atomic<int> serving{0};
            var<int> sum{0};
            const auto take_turn = [&] {
                const int mine = next.fetch_add(1, relaxed);
                while (serving.load(acquire) != mine) {
                    if (is_marked) {
                        platform::pause();
                    }
                }
                sum = sum + 1;
                serving.store(mine + 1, release);
            };
            std::vector<std::unique_ptr<model::thread>> others;
            for (int i = 1; i < threads; ++i) {
                others.push_back(std::make_unique<model::thread>(take_turn));
            }
            take_turn();
            others.clear();
            MODEL_REQUIRE(sum == threads);
        };
    };
    CHECK(model::explore({}, served(3, true)).executions == 6);
    CHECK(model::explore({}, served(4, true)).executions == 24);
    CHECK(model::explore({}, served(5, true)).executions == 120);
    // Without a mark, too.
    CHECK(model::explore({}, served(4, false)).executions == 24);
    CHECK(model::explore({}, served(5, false)).executions == 120);
    CHECK(model::explore({}, locked<lock_loop::exchange>(4)).executions == 24);
    CHECK(model::explore({}, locked<lock_loop::compare_exchange>(4)).executions == 24);
}

TEST_CASE("checker: of equal threads, one order is explored") {
    const auto locked = [](int threads) {
        return [threads] {
            atomic<int> next{0};
            atomic<int> serving{0};
            var<int> sum{0};
            model::run_equal_threads(threads, [&] {
                const int mine = next.fetch_add(1, relaxed);
                while (serving.load(acquire) != mine) {
                }
                sum = sum + 1;
                serving.store(mine + 1, release);
            });
            MODEL_REQUIRE(sum == threads);
        };
    };
    CHECK(model::explore({}, locked(2)).executions == 1);
    CHECK(model::explore({}, locked(7)).executions == 1);
    CHECK(found([] { // only one of the three is the one that fails
              atomic<int> tickets{0};
              model::run_equal_threads(3,
                                       [&] { MODEL_REQUIRE(tickets.fetch_add(1, relaxed) != 2); });
          }) == failure::assertion);
    // A thread before them and one beside them are not equal to them.
    CHECK(model::explore({}, [] {
              atomic<int> tickets{0};
              model::thread other([&] { tickets.fetch_add(1, relaxed); });
              model::run_equal_threads(2, [&] { tickets.fetch_add(1, relaxed); });
          }).executions == 3);
}

TEST_CASE("checker: a loop that waits for two objects ends as often as it can") {
    using condition = bool (*)(int, int);
    // Each holds in the end.
    for (const condition holds : {condition([](int a, int b) { return a != 0 && b == 1; }),
                                  condition([](int a, int b) { return a + b >= 2; }),
                                  condition([](int a, int b) { return a == 2 || b == 1; }),
                                  condition([](int a, int b) { return a >= b && b == 1; })}) {
        for (const auto with : {relaxed, acquire, seq_cst}) {
            const auto body = [&] {
                atomic<int> a{0};
                atomic<int> b{0};
                // Between the two that write: it runs after the first, and before the second.
                model::thread waiting([&] {
                    int seen_a = a.load(with);
                    int seen_b = b.load(with);
                    while (!holds(seen_a, seen_b)) {
                        platform::pause();
                        seen_a = a.load(with);
                        seen_b = b.load(with);
                    }
                    model::record(std::to_string(seen_a) + std::to_string(seen_b));
                });
                model::thread other([&] {
                    a.store(1, with == acquire ? release : with);
                    b.store(1, with == acquire ? release : with);
                });
                a.store(2, relaxed);
            };
            CHECK(model::outcomes({}, body) ==
                  model::outcomes({.how = options::method::enumerate}, body));
        }
    }
}

TEST_CASE("checker: a way into a loop that waits is replayed") {
    const auto body = [] {
        spin_lock<lock_loop::exchange> lock;
        var<int> sum{0};
        model::thread other([&] {
            lock.lock();
            sum = sum + 1;
            lock.unlock();
        });
        lock.lock();
        sum = sum + 1;
        lock.unlock();
        other.join();
        MODEL_REQUIRE(sum != 2);
    };
    const auto v = model::explore({}, body);
    CHECK(v.what == failure::assertion);
    const auto again = model::replay(v.path, {}, body);
    CHECK(again.what == failure::assertion);
    CHECK(again.trace == v.trace);
}

// 12,870 executions: each read sees any store that the one before did not rule out.
template <class Last> void eight_stores_and_reads(Last last) {
    atomic<int> word{0};
    model::thread other([&] {
        for (int i = 1; i <= 8; ++i) {
            word.store(i, release);
        }
    });
    for (int i = 0; i < 8; ++i) {
        static_cast<void>(word.load(acquire));
    }
    last();
}

// Finds it in a process of its own, as the next run of this program does. Returns: the executions.
std::uint64_t in_a_run(std::string_view name, failure expected, const options& how,
                       const model::body& run) {
    int ends[2] = {};
    REQUIRE(::pipe(ends) == 0);
    std::fflush(nullptr);
    const ::pid_t id = ::fork();
    if (id == 0) {
        const auto v = model::find(name, expected, how, run);
        const std::uint64_t count = v.what == expected ? v.executions : 0;
        ::_exit(::write(ends[1], &count, sizeof count) == sizeof count ? 0 : 1);
    }
    ::close(ends[1]);
    std::uint64_t count = 0;
    CHECK(::read(ends[0], &count, sizeof count) == sizeof count);
    ::close(ends[0]);
    REQUIRE(::waitpid(id, nullptr, 0) == id);
    return count;
}

// How many executions the checker makes in a second. Each execution has about 24 to 44 steps.
TEST_CASE("checker: its speed", "[.speed]") {
    const auto measure = [](const char* name, int times, auto operations) {
        model::check(name, {}, [&] {
            atomic<int> first{0};
            atomic<int> second{0};
            const auto run = [&](atomic<int>& mine, atomic<int>& other) {
                for (int i = 1; i <= times; ++i) {
                    operations(mine, other, i);
                }
            };
            model::thread thread([&] { run(first, second); });
            run(second, first);
        });
    };
    measure("speed: loads and stores", 5, [](auto& mine, auto& other, int i) {
        mine.store(i, release);
        other.load(acquire);
    });
    measure("speed: seq_cst", 6, [](auto& mine, auto& other, int i) {
        mine.store(i, seq_cst);
        other.load(seq_cst);
    });
    measure("speed: read-modify-writes", 5, [](auto& mine, auto& other, int) {
        mine.fetch_add(1, relaxed);
        other.fetch_add(1, relaxed);
    });
}

TEST_CASE("checker: several processes explore what one does") {
    const auto body = [] { eight_stores_and_reads([] {}); };
    const auto alone = model::explore({.jobs = 1}, body);
    const auto together = model::explore({.jobs = 3}, body);
    CHECK(alone.what == failure::none);
    CHECK(alone.executions == 12'870);
    CHECK(together.what == failure::none);
    CHECK(together.executions == alone.executions);
    CHECK(together.pruned == alone.pruned);
    CHECK(model::explore({.jobs = 3, .max_executions = 5'000}, body).what == failure::too_large);
}

TEST_CASE("checker: a failure in one of several processes is reported, its end too") {
    const ::pid_t first = ::getpid();
    const auto v = model::explore({.jobs = 3}, [first] {
        eight_stores_and_reads([first] { MODEL_REQUIRE(::getpid() == first); });
    });
    CHECK(v.what == failure::assertion);
    CHECK(contains(v.message, "::getpid() == first"));
    CHECK(!v.path.empty());
    CHECK(!v.report.empty());
    CHECK(model::explore({.jobs = 3}, [first] {
              eight_stores_and_reads([first] {
                  if (::getpid() != first) {
                      ::_exit(0);
                  }
              });
          }).what == failure::terminated);
}

// Which threads start a third one, and when, differs from one execution to another.
template <class Last> void threads_that_start_threads(int first, Last last) {
    atomic<int> word{0};
    const auto run = [&](int mine) {
        if (word.fetch_add(1, relaxed) == first) {
            model::thread third([&] { word.fetch_add(10 * mine, relaxed); });
        }
    };
    model::thread one([&] { run(1); });
    model::thread two([&] { run(2); });
    one.join();
    two.join();
    last(word.load(relaxed));
}

TEST_CASE("checker: threads that start threads are the same ones in a replay") {
    for (const int starter : {1, 2}) {
        for (const auto how : {options::method::exhaustive, options::method::bounded}) {
            const auto body = [starter] {
                threads_that_start_threads(
                    1, [starter](int sum) { MODEL_REQUIRE(sum != 2 + 10 * starter); });
            };
            const auto v = model::explore({.how = how}, body);
            CHECK(v.what == failure::assertion);
            const auto again = model::replay(v.path, {}, body);
            CHECK(again.what == failure::assertion);
            CHECK(again.trace == v.trace);
            CHECK(!model::to_dot(v, {}, body).empty());
        }
    }
}

TEST_CASE("checker: threads that start threads are the same ones in all processes and runs") {
    // Each value leads to other threads first.
    const auto body = [] {
        threads_that_start_threads(model::choose(3) - 1,
                                   [](int) { eight_stores_and_reads([] {}); });
    };
    const auto alone = model::explore({.jobs = 1}, body);
    CHECK(alone.what == failure::none);
    const auto together = model::explore({.jobs = 3}, body);
    CHECK(together.what == failure::none);
    CHECK(together.executions == alone.executions);

    const auto folder =
        std::filesystem::temp_directory_path() / ("bide_threads_" + std::to_string(::getpid()));
    ::setenv("BIDE_MODEL_STATE", folder.c_str(), 1);
    const options some{.max_executions = alone.executions / 3};
    const char* const name = "threads of runs";
    CHECK(in_a_run(name, failure::too_large, some, body) != 0);
    CHECK(in_a_run(name, failure::too_large, some, body) != 0);
    CHECK(in_a_run(name, failure::none, {}, body) == alone.executions);
    ::unsetenv("BIDE_MODEL_STATE");
    std::filesystem::remove_all(folder);
}

TEST_CASE("checker: an exploration that was stopped goes on in the next run") {
    const auto folder =
        std::filesystem::temp_directory_path() / ("bide_state_" + std::to_string(::getpid()));
    ::setenv("BIDE_MODEL_STATE", folder.c_str(), 1);
    const auto body = [] { eight_stores_and_reads([] {}); };
    const options some{.max_executions = 5'000};
    CHECK(in_a_run("stopped, and on", failure::too_large, some, body) == 5'000);
    CHECK(in_a_run("stopped, and on", failure::too_large, some, body) == 10'000);
    {
        const auto file = folder / "stopped__and_on.state";
        REQUIRE(std::filesystem::exists(file));
        const auto kept = folder / "kept";
        std::filesystem::copy_file(file, kept);
        std::filesystem::resize_file(file, std::filesystem::file_size(file) - 1);
        CHECK(in_a_run("stopped, and on", failure::too_large, some, body) ==
              5'000); // it was cut, so it counts for nothing
        std::filesystem::rename(kept, file);
    }
    CHECK(in_a_run("stopped, and on", failure::none, some, body) == 12'870);
    CHECK(in_a_run("stopped, and on", failure::none, {}, body) == 12'870);
    ::unsetenv("BIDE_MODEL_STATE");
    std::filesystem::remove_all(folder);
}

} // namespace
