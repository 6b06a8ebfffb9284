#include <bide/sched/fork_deque.hpp>
#include <support/sched.hpp>

using namespace bide;

namespace {

struct job {
    int number = 0;
};

// 0, 1, 2 and so on.
std::vector<job> numbered(std::size_t n) {
    std::vector<job> all(n);
    for (std::size_t i = 0; i < n; ++i) {
        all[i].number = static_cast<int>(i);
    }
    return all;
}

constexpr int none = -1;

template <class Deque> int steal(Deque& from) {
    job* const j = from.steal();
    return j != nullptr ? j->number : none;
}

template <unsigned First = 256> using deque = basic_fork_deque<test::native, job, First>;

// Does one step, and says its result.
//   push        the next job: whether it published some
//   pop:3       the job at depth 3: "popped", also "published", or "stolen"
//   steal       the number of the job, or "-"
//   reset:1     after the job at that depth has ended
template <class Deque>
std::string result_of(Deque& d, std::vector<job>& jobs, std::size_t& next,
                      const std::string& step) {
    const std::size_t colon = step.find(':');
    const std::string verb = step.substr(0, colon);
    const auto at =
        static_cast<std::uint32_t>(colon == step.npos ? 0 : std::stoi(step.substr(colon + 1)));
    const auto truth = [](bool is) { return std::string(is ? "yes" : "no"); };
    if (verb == "reset") {
        d.reset(at);
        return "";
    }
    if (verb == "pop") {
        const fork_pop how = d.pop(at);
        return how == fork_pop::popped   ? "popped"
               : how == fork_pop::stolen ? "stolen"
                                         : "published";
    }
    if (verb == "steal") {
        const int number = steal(d);
        return number == none ? "-" : std::to_string(number);
    }
    return verb == "push"    ? truth(d.push(jobs[next++]))
           : verb == "depth" ? std::to_string(d.depth())
           : verb == "empty" ? truth(d.is_empty_to_thieves())
           : verb == "wants" ? truth(d.wants_work())
                             : "no such step";
}

struct story {
    const char* name;
    const char* steps; // each with its result; "?": any
};

const story stories[] = {
    {"the owner pops the youngest job, a thief takes the oldest",
     "empty=yes steal=- depth=0 push=? empty=no depth=1 push=? push=? push=? "
     "pop:3=popped steal=0 pop:2=popped depth=2 steal=1 steal=- pop:1=stolen depth=2 reset:1 "
     "depth=1 pop:0=stolen reset:0 depth=0 empty=yes push=? steal=4"}, // in a slot used before
    {"an owner that waits for a stolen job pushes above it",
     "push=? steal=0 pop:0=stolen push=? push=? depth=3 pop:2=popped steal=1 pop:1=stolen reset:1 "
     "push=? pop:1=popped reset:0 depth=0 empty=yes"},
    {"the two oldest jobs are public, the rest are private",
     "wants=yes push=yes wants=no push=yes push=no push=no push=no "
     "steal=0 wants=no steal=1 wants=yes steal=-"},
    {"when one of two is stolen and the other taken back, the next two are public",
     "push=? push=? steal=0 pop:1=popped push=yes push=yes push=no"},
    {"after a theft of the last public job, the next push publishes half of the private ones",
     "push=? push=? push=? push=? push=? steal=0 steal=1 steal=- push=yes push=no "
     "steal=2 steal=3 steal=-"},
    {"after a theft of the last public job, the next pop publishes half, rounded up",
     "push=? push=? push=? push=? push=? push=? steal=0 steal=1 pop:5=published pop:4=popped "
     "steal=2 steal=3 steal=- pop:3=stolen"},
    {"a thief that leaves a public job, or finds none, requests nothing",
     "steal=- push=? push=? push=? push=? steal=0 push=no pop:4=popped steal=1 steal=-"},
    {"all that was published is to be had",
     "push=? push=? push=? push=? push=? push=? push=? push=? push=? steal=0 steal=1 push=yes "
     "pop:9=popped pop:8=popped pop:7=popped pop:6=popped steal=2 steal=3 steal=4 steal=5 steal=-"},
    {"half of it is taken back with the youngest",
     "push=? push=? push=? push=? push=? push=? push=? push=? push=? steal=0 steal=1 push=yes "
     "pop:9=popped pop:8=popped pop:7=popped pop:6=popped pop:5=popped steal=2 steal=3 steal=- "
     "pop:4=popped pop:3=stolen"},
};

template <class Deque> void play(const story& told) {
    Deque d;
    std::vector<job> jobs = numbered(16);
    std::size_t next = 0;
    std::istringstream steps(told.steps);
    for (std::string step; steps >> step;) {
        INFO(told.name << ": " << step);
        const std::size_t equals = step.find('=');
        const std::string expected = equals == step.npos ? "" : step.substr(equals + 1);
        const std::string got = result_of(d, jobs, next, step.substr(0, equals));
        CHECK(got == (expected == "?" ? got : expected));
    }
}

// Counts what is done to words that threads share.
struct tallied : test::native {
    inline static int loads = 0;
    inline static int changes = 0;

    template <class T> struct atomic : std::atomic<T> {
        using base = std::atomic<T>;
        using order = std::memory_order;
        using base::base;

        T load(order o) const noexcept { return ++loads, base::load(o); }
        void store(T value, order o) noexcept { ++changes, base::store(value, o); }
        T exchange(T value, order o) noexcept { return ++changes, base::exchange(value, o); }
        T fetch_add(T value, order o) noexcept { return ++changes, base::fetch_add(value, o); }
        bool compare_exchange_weak(T& seen, T value, order o, order failed) noexcept {
            return ++changes, base::compare_exchange_weak(seen, value, o, failed);
        }
    };
};

} // namespace

TEST_CASE("fork_deque: owner and thief get their jobs, and the oldest ones are public") {
    for (const story& told : stories) {
        play<deque<>>(told);
    }
    play<deque<2>>(stories[0]); // a growing buffer publishes more
    play<deque<2>>(stories[1]);
}

TEST_CASE("fork_deque: as many jobs are public as are wanted, and at least two") {
    deque<> d;
    std::vector<job> all = numbered(8);
    int asked = 0;
    std::uint32_t wanted = 4;
    const auto want = [&] {
        ++asked;
        return wanted;
    };
    for (std::size_t i = 0; i < 4; ++i) {
        CHECK(d.push(all[i], want));
    }
    CHECK(asked == 4);
    CHECK_FALSE(d.push(all[4], want)); // private, and not asked
    CHECK(asked == 4);
    CHECK_FALSE(d.wants_work(5)); // a private one counts
    CHECK(d.wants_work(6));
    CHECK(d.pop(4, want) == fork_pop::popped);
    CHECK(asked == 4);
    SECTION("of those that are wanted, the owner takes back one at a time") {
        CHECK(d.pop(3, want) == fork_pop::popped);
        CHECK_FALSE(d.wants_work(3));
        CHECK(d.push(all[5], want));
        CHECK_FALSE(d.wants_work(4));
    }
    SECTION("if fewer are wanted than before, it takes back half") {
        wanted = 0; // counts as two
        CHECK(d.pop(3, want) == fork_pop::popped);
        CHECK(steal(d) == 0);
        CHECK(steal(d) == 1);
        CHECK(steal(d) == none);
    }
    SECTION("if more are wanted, the next push that looks publishes them") {
        for (std::size_t i = 4; i < 7; ++i) {
            CHECK_FALSE(d.push(all[i], want));
        }
        wanted = 16;
        for (int i = 0; i < 4; ++i) {
            CHECK(steal(d) == i);
        }
        CHECK(d.push(all[7], want));
        for (int i = 4; i < 8; ++i) {
            CHECK(steal(d) == i);
        }
    }
}

TEST_CASE(
    "fork_deque: a private fork loads three words and changes one, before and after a theft") {
    basic_fork_deque<tallied, job> d;
    std::vector<job> all = numbered(12);
    const auto require_private = [&](std::uint32_t at) {
        tallied::loads = 0;
        tallied::changes = 0;
        d.push(all[at]);
        CHECK(d.pop(at) == fork_pop::popped);
        CHECK(tallied::loads == 3);
        CHECK(tallied::changes == 2); // plain stores of the bottom
    };
    for (std::size_t i = 0; i < 8; ++i) {
        d.push(all[i]);
    }
    require_private(8);
    steal(d);
    steal(d);
    CHECK(d.push(all[8]));
    require_private(9);
    for (std::uint32_t at = 8; at >= 5; --at) {
        CHECK(d.pop(at) == fork_pop::popped);
    }
    require_private(5); // two of the four that were published are private again
    for (std::uint32_t at = 4; at >= 3; --at) {
        CHECK(d.pop(at) == fork_pop::popped);
    }
    CHECK(steal(d) == 2); // the last job
    CHECK(d.pop(2) == fork_pop::stolen);
    for (std::uint32_t at = 3; at-- > 0;) {
        d.reset(at);
    }
    d.push(all[0]);
    d.push(all[1]);
    require_private(2);
}

TEST_CASE("fork_deque: the first push allocates, and so does one that needs a larger buffer") {
    const std::size_t before = test::allocations_here();
    deque<4> d;
    CHECK(test::allocations_here() == before);
    std::vector<job> all = numbered(17);
    const bool counts = test::counts_allocations();
    std::vector<std::size_t> taken;
    taken.reserve(all.size());
    for (job& j : all) {
        const std::size_t first = test::allocations_here();
        d.push(j);
        taken.push_back(counts ? test::allocations_here() - first : 0);
    }
    for (std::size_t i = 0; i < taken.size(); ++i) {
        CAPTURE(i);
        CHECK(taken[i] == (counts && (i == 0 || i == 4 || i == 8 || i == 16) ? 1U : 0U));
    }
    for (std::uint32_t at = 17; at-- > 0;) {
        CHECK(d.pop(at) == fork_pop::popped);
    }
}

TEST_CASE("fork_deque: a push that gets no memory throws and changes nothing") {
    if (!test::counts_allocations()) {
        return;
    }
    deque<2> d;
    std::vector<job> all = numbered(3);
    const auto fails = [&](job& j) {
        const test::out_of_memory here;
        try {
            d.push(j);
        } catch (const std::bad_alloc&) {
            return true;
        }
        return false;
    };
    CHECK(fails(all[0]));
    CHECK(d.depth() == 0);
    CHECK(steal(d) == none);
    d.push(all[0]);
    d.push(all[1]);
    CHECK(fails(all[2]));
    CHECK(d.depth() == 2);
    d.push(all[2]);
    CHECK(d.pop(2) == fork_pop::popped);
    CHECK(steal(d) == 0);
    CHECK(steal(d) == 1);
}
