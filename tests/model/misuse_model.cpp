// What a stranger's first body does wrong: it crashes, it is no body, it does not repeat itself, it is given
// a path of another one. Each ends in a message that says so.

#include <model/check.hpp>
#include <support/test.hpp>

#include <sys/wait.h>
#include <unistd.h>

#if !defined(__SANITIZE_ADDRESS__) && defined(__linux__) &&                                        \
    (defined(__x86_64__) || defined(__aarch64__))
#define CATCHES_CRASHES 1
#else
#define CATCHES_CRASHES 0
#endif

namespace {

using model::failure;
using model::options;
template <class T> using atomic = model::atomic<T>;

bool contains(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

std::string message_of(const model::body& run) { return model::explore({}, run).message; }

struct said {
    std::string text; // on stdout and stderr
    int status = 0;   // as waitpid() has it
};

// Runs it in a process of its own, with these variables in the environment.
said process(const std::function<void()>& run,
             const std::vector<std::pair<const char*, std::string>>& environment = {}) {
    int ends[2] = {};
    REQUIRE(::pipe(ends) == 0);
    std::fflush(nullptr);
    const ::pid_t id = ::fork();
    if (id == 0) {
        ::dup2(ends[1], 1);
        ::dup2(ends[1], 2);
        ::close(ends[0]);
        for (const int signal : {SIGABRT, SIGSEGV}) {
            std::signal(signal, SIG_DFL); // not the test framework's
        }
        for (const auto& [name, value] : environment) {
            ::setenv(name, value.c_str(), 1);
        }
        model::on_failure(nullptr);
        run();
        std::fflush(nullptr);
        ::_exit(0);
    }
    ::close(ends[1]);
    said out;
    std::array<char, 4096> part{};
    for (::ssize_t n = 0; (n = ::read(ends[0], part.data(), part.size())) > 0;) {
        out.text.append(part.data(), static_cast<std::size_t>(n));
    }
    ::close(ends[0]);
    REQUIRE(::waitpid(id, &out.status, 0) == id);
    return out;
}

void store_and_load() {
    atomic<int> word{0};
    model::thread other([&] { word.store(1); });
    static_cast<void>(word.load());
}

// Each frame is in use until the deepest one is done.
[[gnu::noinline]] int deep(int n, const volatile char* above) {
    volatile char frame[8 * 1024];
    frame[0] = static_cast<char>(n);
    const int sum = n == 0 ? 0 : deep(n - 1, frame);
    return sum + *above + frame[0];
}

} // namespace

#if CATCHES_CRASHES

TEST_CASE("misuse: a body that crashes is reported with its steps") {
    const auto null = model::explore({}, [] {
        atomic<int*> place{nullptr};
        int value = 0;
        model::thread other([&] { place.store(&value); });
        *static_cast<int volatile*>(place.load()) = 1;
    });
    CHECK(null.what == failure::terminated);
    CHECK(contains(null.message, "an address that is none"));
    CHECK(contains(null.report, "place.load(seq_cst): 0"));
    const auto asserted = model::explore({}, [] {
        atomic<int> word{0};
        model::thread other([&] { word.store(1); });
        if (word.load() == 1) {
            std::abort(); // as assert() does
        }
    });
    CHECK(asserted.what == failure::terminated);
    CHECK(contains(asserted.message, "assert()"));
    CHECK(!asserted.path.empty());
    const auto overflow = model::explore(
        {}, [] { model::thread other([] { MODEL_REQUIRE(deep(1'000, "") != 1); }); });
    CHECK(overflow.what == failure::terminated);
    CHECK(contains(overflow.message, "stack overflows"));
    CHECK(model::explore({}, store_and_load).what == failure::none); // nothing is left of it
}

TEST_CASE("misuse: a body that waits for what the checker does not see is stopped") {
    ::setenv("BIDE_MODEL_WATCHDOG", "1", 1);
    const auto v = model::explore({}, [] {
        volatile int never = 0;
        atomic<int> word{0};
        model::thread other([&] { word.store(1); });
        while (never == 0) {
        }
    });
    ::unsetenv("BIDE_MODEL_WATCHDOG");
    CHECK(v.what == failure::livelock);
    CHECK(contains(v.message, "no step is made"));
}

TEST_CASE("misuse: what crashes outside of a body is not the checker's") {
    const auto crash = [] { std::abort(); };
    CHECK(WTERMSIG(process(crash).status) == SIGABRT);
    CHECK(WTERMSIG(process([&] {
                       model::check("fails", [] { MODEL_REQUIRE(false); }); // exits
                   }).status) == 0);
    CHECK(WTERMSIG(process([&] {
                       model::on_failure([](const model::verdict&) { std::abort(); });
                       model::check("fails", [] { MODEL_REQUIRE(false); });
                   }).status) == SIGABRT);
}

#endif

TEST_CASE("misuse: an operation outside of a body says that it is") {
    const std::vector<std::function<void()>> all = {
        [] { model::choose(2); },
        [] { model::assume(false); },
        [] { model::record("nothing"); },
        [] { MODEL_REQUIRE(false); },
        [] { model::thread started([] {}); },
        [] { model::daemon([] {}); },
        [] { static_cast<void>(atomic<int>(0).load()); },
        [] {
            model::check("a thread of the system's", [] {
                atomic<int> word{0};
                std::thread([&] { word.store(1); }).join();
            });
        },
    };
    for (const auto& one : all) {
        const said out = process(one);
        CHECK(WIFSIGNALED(out.status));
        CHECK(contains(out.text, "outside of a body"));
    }
}

TEST_CASE("misuse: explorations of several threads take turns, and none is within another") {
    const auto nested = model::explore({}, [] { model::explore({}, store_and_load); });
    CHECK(nested.what == failure::terminated);
    CHECK(contains(nested.message, "explores another one"));
    const auto alone = model::explore({}, store_and_load);
    std::array<std::vector<model::verdict>, 2> found;
    std::vector<std::thread> threads;
    for (auto& mine : found) {
        threads.emplace_back([&mine] {
            for (int i = 0; i < 200; ++i) {
                mine.push_back(model::explore({}, store_and_load));
            }
        });
    }
    for (auto& one : threads) {
        one.join();
    }
    for (const auto& mine : found) {
        for (const auto& v : mine) {
            CHECK((v.what == failure::none && v.executions == alone.executions));
        }
    }
}

TEST_CASE("misuse: threads in a vector are joined once each") {
    CHECK(model::explore({}, [] {
              model::var<int> sums[3];
              {
                  std::vector<model::thread> threads;
                  for (auto& sum : sums) {
                      threads.emplace_back([&sum] { sum = 1; });
                  }
                  threads.front().join();
                  threads.front().join();
              }
              MODEL_REQUIRE(sums[0] + sums[1] + sums[2] == 3);
          }).what == failure::none);
}

TEST_CASE("misuse: shared data that was made before the body is a failure") {
    model::var<int> before{0};
    const auto read = model::explore({}, [&] { MODEL_REQUIRE(before == 0); });
    const auto written = model::explore({}, [&] {
        model::thread other([&] { before = 1; }); // a race, if it were watched
        before = 2;
    });
    for (const auto& v : {read, written}) {
        CHECK(v.what == failure::race);
        CHECK(contains(v.message, "not made by the body"));
    }
    CHECK(before == 0);
    atomic<int> word{0};
    CHECK(contains(message_of([&] { word.store(1); }), "not made by the body"));
}

TEST_CASE("misuse: a failure says what the body did") {
    CHECK(contains(message_of([] { model::choose(0); }), "no values"));
    const auto uses_much = [] {
        const auto many = std::make_unique<char[]>(5 << 20);
        MODEL_REQUIRE(many[17] == 0);
    };
    CHECK(contains(message_of(uses_much), "more than 4 MiB"));
    const auto counts_rounds = [] {
        atomic<int> word{0};
        model::thread other([&] { word.store(1); });
        int rounds = 0;
        while (word.load(std::memory_order_acquire) == 0) {
            ++rounds;
        }
        MODEL_REQUIRE(rounds != 7'000);
    };
    CHECK(contains(message_of(counts_rounds), "needs a pause()"));
    const auto daemon = model::explore({}, [] {
        auto* const word = new atomic<int>(0);
        model::daemon([word] {
            while (word->load() == 0) {
            }
        });
    });
    CHECK(daemon.what == failure::livelock);
    CHECK(daemon.message == "the daemon T1 spins for ever");
#if BIDE_EXCEPTIONS
    const auto never_throws = []() noexcept { std::vector<int>(3).at(3) = 1; };
    CHECK(contains(message_of(never_throws), "vector"));
#endif
}

TEST_CASE("misuse: a loop that gives up is not taken for one that waits") {
    constexpr auto never = std::numeric_limits<std::int64_t>::max();
    // Spins some rounds, then does something else.
    const auto gives_up = [](int rounds, bool sleeps) {
        return [=] {
            atomic<std::uint32_t> flag{0};
            model::thread other([&] {
                flag.store(1);
                model::platform::futex_wake(&flag, 1);
            });
            for (int i = 0; i < rounds; ++i) {
                if (flag.load() == 1) {
                    return;
                }
                model::platform::pause();
            }
            while (sleeps && flag.load() == 0) {
                model::platform::futex_wait(flag, 0u, never);
            }
        };
    };
    for (const int rounds : {1, 2, 100}) {
        for (const bool sleeps : {false, true}) {
            const auto v = model::explore({}, gives_up(rounds, sleeps));
            CHECK(v.what == failure::refused);
            CHECK(contains(v.message, "goes on after " + std::to_string(rounds) + " more rounds"));
#if defined(__x86_64__) // an emulator of another processor does not find the lines of calls
            CHECK(contains(v.message, "misuse_model.cpp:"));
#endif
        }
    }
    // The count is in a block of another thread, where the checker does not look for one.
    struct shared {
        atomic<int> flag{0};
        int rounds = 0;
    };
    const auto counts_elsewhere = [](int rounds) {
        return [=] {
            const auto all = std::make_unique<shared>();
            model::thread other([&] {
                while (all->flag.load() == 0 && all->rounds < rounds) {
                    ++all->rounds;
                }
            });
            all->flag.store(1);
        };
    };
    CHECK(model::explore({}, counts_elsewhere(50)).what == failure::refused);
    // These wait, whatever they count.
    const auto waits = [](bool counts) {
        return [=] {
            atomic<int> flag{0};
            model::thread other([&] { flag.store(1); });
            int rounds = 0;
            while (flag.load() == 0) {
                rounds += counts ? 1 : 0;
                model::platform::pause();
            }
            MODEL_REQUIRE(rounds <= 1);
        };
    };
    CHECK(model::explore({}, waits(false)).what == failure::none);
    CHECK(model::explore({}, waits(true)).what == failure::none);
}

TEST_CASE("misuse: a body that does not repeat itself is found where its choices differ") {
    for (const auto how : {options::method::bounded, options::method::enumerate}) {
        int runs = 0;
        CHECK(model::explore({.how = how}, [&] {
                  ++runs;
                  model::choose(runs == 1 ? 5 : 2);
                  model::choose(2);
              }).what == failure::not_repeated);
        runs = 0;
        CHECK(model::explore({.how = how}, [&] {
                  if (++runs == 1) {
                      model::choose(2);
                  }
              }).what == failure::not_repeated);
    }
}

TEST_CASE("misuse: a path that is none, or another body's, is said to be so") {
    std::istringstream wrong(
        "g s x g0,0 g0:-5 g0:99999999999 g9 g-1 g0< g0<9.9 g0<i gabc g0*0 g0** s0:7 "
        "g0,1<255.65535 g; g0.0,; g9.9;0,1");
    std::string path; // at first the empty one
    do {
        CHECK(model::replay(path, {}, store_and_load).what == failure::not_repeated);
    } while (wrong >> path);
    const auto check_two = [] {
        model::check("one", store_and_load);
        model::check("two", store_and_load);
    };
    CHECK(contains(process(check_two, {{"BIDE_MODEL_REPLAY", "three|g0"}}).text,
                   "BIDE_MODEL_REPLAY has another name"));
    CHECK(contains(process(check_two, {{"BIDE_MODEL_REPLAY", "1"}}).text,
                   "BIDE_MODEL_REPLAY is no name|path"));
    const auto to_the_end = [&] {
        check_two();
        std::exit(0);
    };
    CHECK(WEXITSTATUS(process(to_the_end, {{"BIDE_MODEL_REPLAY", "tow|g0"}}).status) == 1);
}

TEST_CASE("misuse: a body whose threads share nothing that the checker sees fails") {
    const auto plain = [] {
        std::atomic<int> count{0};
        model::thread other([&] { ++count; });
        ++count;
    };
    CHECK(model::explore({}, plain).what == failure::nothing_shared);
    CHECK(model::explore({.may_share_nothing = true}, plain).what == failure::none);
    CHECK(contains(model::explore({}, store_and_load).assumed, "no time-outs"));
    const auto wrong = [] { model::check("fails", [] { MODEL_REQUIRE(false); }); };
    CHECK(contains(process(wrong).text, "assumed: no spurious wake-ups; no time-outs; "));
}

TEST_CASE(
    "misuse: memory of the heap that was freed is named, and so is the thread that freed it") {
    struct node {
        model::var<int> value{0};
    };
    const auto v = model::find("a freed node", failure::lifetime, [] {
        atomic<node*> head{new node};
        model::thread other([&] { delete head.exchange(nullptr); });
        const node* const seen = head.load();
        other.join();
        MODEL_REQUIRE(seen == nullptr || seen->value == 0);
    });
    CHECK(contains(v.message, "freed by T1"));
}

TEST_CASE("misuse: new returns a freed address if the options say so") {
    const auto compares = [] {
        atomic<int*> head{new int(1)};
        int* const seen = head.load();
        model::thread other([&] {
            delete head.load();
            head.store(new int(2));
        });
        other.join();
        const bool is_same = head.load() == seen;
        delete head.load();
        MODEL_REQUIRE(!is_same); // a compare-exchange would take the second block for the first
    };
    CHECK(model::explore({}, compares).what == failure::none);
    CHECK(model::explore({.reused_addresses = 1}, compares).what == failure::assertion);
}

TEST_CASE("misuse: a file that cannot be written is said to be none") {
    const auto fails = [] { model::check("fails", [] { MODEL_REQUIRE(false); }); };
    const said drawn = process(fails, {{"BIDE_MODEL_DOT", "/no/such/folder/a.dot"}});
    CHECK(contains(drawn.text, "/no/such/folder/a.dot cannot be written"));
    const said saved = process(
        [] { model::find("is long", failure::too_large, {.max_executions = 1}, store_and_load); },
        {{"BIDE_MODEL_STATE", "/dev/null/folder"}});
    CHECK(contains(saved.text, "is_long.state cannot be written"));
}

TEST_CASE("misuse: what was left of one body is not gone on with in another") {
    const auto folder =
        std::filesystem::temp_directory_path() / ("bide_misuse_" + std::to_string(::getpid()));
    const auto stop = [](const char* name, auto body) {
        return model::find(name, failure::too_large, {.max_executions = 1}, body).executions;
    };
    const auto whole = [](const char* name, auto body) {
        return model::find(name, failure::none, body).executions;
    };
    ::setenv("BIDE_MODEL_STATE", folder.c_str(), 1);
    CHECK(stop("a, b", store_and_load) == 1);
    const auto other = [] { model::choose(7); };
    CHECK(whole("a: b", other) == 7); // the same name of a file
    CHECK(whole("a, b", other) == 7); // the same name
    ::unsetenv("BIDE_MODEL_STATE");
    std::filesystem::remove_all(folder);
}
