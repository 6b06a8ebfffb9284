#include <bide/sched/idle.hpp>
#include <support/sched.hpp>

using namespace bide;

using idle = basic_idle<native_platform>;

namespace {

constexpr unsigned none = idle::none;

// How many workers may search at once.
unsigned searchers(idle& i) {
    unsigned n = 0;
    while (i.start_search()) {
        ++n;
    }
    return n;
}

// Does one step, and says its result: "yes" or "no", a number, or the worker that is woken, "-" for none.
//   sleep:2     worker 2 goes to sleep. sleep:2* does so after a search
//   timed:2     the same, and becomes the timed sleeper if there is none
//   retract:2   worker 2 finds a job before it sleeps
//   search      a worker starts a search. end: a worker ends one. more: it has seen more jobs
//   another:2   a worker that has found a job sees two further ones
//   wake        a push. lifo: a push that a timed sleeper would find. brief: a brief arm
//   blocked:1   so many more workers are blocked
std::string result_of(idle& i, const std::string& step) {
    const std::size_t colon = step.find(':');
    const std::string verb = step.substr(0, colon);
    const int number = colon == step.npos ? 0 : std::stoi(step.substr(colon + 1));
    const auto worker = static_cast<unsigned>(number);
    const bool after_search = step.back() == '*';
    const auto truth = [](bool is) { return std::string(is ? "yes" : "no"); };
    const auto woken = [](unsigned n) { return n == none ? "-" : std::to_string(n); };
    if (verb == "sleep") {
        i.announce(worker, after_search, false);
        return "";
    }
    if (verb == "blocked") {
        i.add_blocked(number);
        return "";
    }
    return verb == "timed"       ? truth(i.announce(worker, after_search, true))
           : verb == "retract"   ? truth(i.retract(worker))
           : verb == "search"    ? truth(i.start_search())
           : verb == "end"       ? woken(i.end_search(false))
           : verb == "more"      ? woken(i.end_search(true))
           : verb == "another"   ? woken(i.wake_another(worker))
           : verb == "wake"      ? woken(i.wake_one())
           : verb == "lifo"      ? woken(i.wake_unless_timed())
           : verb == "brief"     ? woken(i.wake_for_brief_arm())
           : verb == "sleepers"  ? std::to_string(i.sleepers())
           : verb == "searching" ? std::to_string(i.searching())
                                 : "no such step";
}

struct story {
    const char* name;
    unsigned workers;
    const char* steps; // each with its result
};

const story stories[] = {
    {"a push wakes no worker if none sleeps", 2,
     "wake=- lifo=- search=yes wake=- end=- " // and no wake is deferred
     "sleep:0 search=yes end=- sleepers=1 searching=0"},
    {"a push wakes one sleeper, which counts as searching", 4,
     "sleep:2 sleep:1 sleepers=2 wake=1 sleepers=1 searching=1 "
     "wake=- lifo=- sleepers=1"}, // a worker searches
    {"the last searcher wakes the next worker if a push has relied on it", 4,
     "sleep:0 sleep:1 search=yes search=yes wake=- end=- " // not the last
     "end=0 end=1 end=- searching=0 sleepers=0"}, // the chain goes on until a worker finds nothing
    {"a searcher that finds nothing ends the chain of wakes", 4,
     "sleep:0 sleep:1 search=yes wake=- end=0 sleep:0* searching=0 sleepers=2 search=yes end=-"},
    {"a worker that sees many jobs wakes more workers, until enough of them search", 8,
     "sleep:0 sleep:1 sleep:2 sleep:3 sleep:4 search=yes more=0 another:0=- "
     "another:1=1 another:1=2 another:1=3 another:1=- searching=4 sleepers=1 "
     "another:2=4 another:9=- searching=5 sleepers=0 sleep:4* end=- end=- end=- end=4"},
    {"a worker that retracts continues the chain of wakes", 4,
     "sleep:0 sleep:1 search=yes wake=- sleep:2* retract:2=yes searching=1 end=0"},
    {"a worker that was woken before it retracts continues it, too", 4,
     "sleep:0 sleep:1 search=yes wake=- sleep:2* wake=0 sleep:0* wake=0 end=- wake=1 end=- "
     "wake=2 sleep:1 retract:2=no end=1"},
    {"a searcher that has seen more wakes a worker, or leaves that to the last searcher", 4,
     "sleep:0 sleep:1 sleep:2 search=yes more=0 search=yes more=- end=1"},
    {"a worker that retracts is not woken, and a woken worker does not retract", 2,
     "sleep:0 retract:0=yes sleepers=0 searching=1 sleep:0* searching=0 "
     "wake=0 retract:0=no sleepers=0 searching=1 end=- searching=0"},
    {"one worker is the timed sleeper while another runs, and LIFO pushes rely on it", 3,
     "sleep:0 retract:0=yes timed:0*=yes timed:1=no lifo=- " // there is a timed sleeper
     "wake=1 end=0 end=- " // not the timed sleeper while another sleeps; the LIFO push deferred a wake
     "timed:1=yes retract:1=yes end=- sleep:0 lifo=0"}, // there was no timed sleeper
    {"no worker is the timed sleeper if none runs", 3,
     "timed:0=yes retract:0=yes sleep:1 sleep:2 timed:0*=no " // all sleep
     "wake=0 end=- wake=1 end=- blocked:1 timed:1=no "        // 0 is blocked
     "retract:1=yes blocked:-1 timed:1*=yes sleepers=2"},
    {"a push that relied on the timed sleeper wakes a worker when that leaves", 4,
     "timed:0=yes timed:1=no timed:2=no lifo=- wake=1 timed:1*=no " // relies on the timed sleeper
     "retract:0=yes end=1 timed:1*=yes"}, // its time-out is over, and it finds another job
    {"a brief arm wakes a worker only if none is the timed sleeper and none searches", 4,
     "brief=- timed:0=yes timed:1=no brief=- search=yes end=- " // and defers no wake
     "retract:0=yes brief=- end=1 end=- sleep:2 brief=2"},      // a searcher wakes the next one
};

} // namespace

TEST_CASE("idle: each step wakes the worker that it should, and no other") {
    for (const story& told : stories) {
        idle i(told.workers);
        std::istringstream steps(told.steps);
        for (std::string step; steps >> step;) {
            INFO(told.name << ": " << step);
            const std::size_t equals = step.find('=');
            const std::string expected = equals == step.npos ? "" : step.substr(equals + 1);
            CHECK(result_of(i, step.substr(0, equals)) == expected);
        }
    }
}

TEST_CASE("idle: at most half of the workers search, and at least one may") {
    for (const unsigned workers : {1U, 2U, 3U, 4U, 7U, 130U}) {
        idle i(workers);
        CHECK(searchers(i) == (workers + 1) / 2);
        CHECK(i.end_search(false) == none);
        CHECK(i.start_search());
        CHECK(!i.start_search());
    }
}

TEST_CASE("idle: each of 130 workers is woken, in the order of their numbers") {
    constexpr unsigned workers = 130;
    idle i(workers);
    for (unsigned n = workers; n-- > 0;) {
        i.announce(n, false, false);
    }
    CHECK(i.sleepers() == workers);
    std::vector<unsigned> woken;
    std::vector<unsigned> all;
    for (unsigned n = 0; n < workers; ++n) {
        all.push_back(n);
        woken.push_back(i.wake_one());
        CHECK(i.end_search(false) == none);
    }
    CHECK(woken == all);
    CHECK(i.wake_one() == none);
    for (const unsigned n : {129U, 63U, 64U, 128U, 127U}) {
        i.announce(n, false, false);
    }
    CHECK(i.retract(64));
    CHECK(i.end_search(true) == 63); // it continues, because there may be more
    CHECK(i.end_search(false) == 127);
    CHECK(i.end_search(false) == 128);
    CHECK(i.end_search(false) == 129);
    CHECK(i.sleepers() == 0);
}

TEST_CASE("idle: only the constructor allocates") {
    idle i(130);
    const std::size_t before = test::allocations();
    for (unsigned n = 0; n < 130; ++n) {
        i.announce(n, false, true);
    }
    while (i.wake_one() != none) {
        static_cast<void>(i.end_search(true));
    }
    CHECK(test::allocations() == before);
}

#if BIDE_TESTS_CAN_DIE
TEST_CASE("idle: zero workers terminate with a message") {
    CHECK(test::contains(test::dies([] { idle i(0); }), "workers"));
}
#endif
