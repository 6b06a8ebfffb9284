#include <bide/sched/run_queue.hpp>
#include <support/sched.hpp>

using namespace bide;

namespace {

struct job : runnable {
    int number = 0; // plain data: a push publishes it
};

int number_of(const runnable* r) { return r != nullptr ? static_cast<const job*>(r)->number : -1; }

// 0, 1, 2 and so on.
std::vector<job> numbered(std::size_t n) {
    std::vector<job> all(n);
    for (std::size_t i = 0; i < n; ++i) {
        all[i].number = static_cast<int>(i);
    }
    return all;
}

std::vector<int> range(int from, int to) {
    std::vector<int> all(static_cast<std::size_t>(to - from));
    std::iota(all.begin(), all.end(), from);
    return all;
}

using native = native_platform;

template <unsigned Capacity, unsigned Max> class checked_rings {
public:
    explicit checked_rings(std::uint32_t first) {
        rings_.emplace_back(first);
        rings_.emplace_back(first + 5);
        for (job& j : all_) {
            free_.push_back(&j);
        }
    }

    // A full ring that cannot grow does not take the job.
    void push(std::size_t at) {
        if (free_.empty()) {
            return;
        }
        job& j = *free_.back();
        free_.pop_back();
        std::deque<int>& mine = expected_[at];
        const bool has_room = mine.size() < Max;
        good_ = good_ && rings_[at].push(j) == has_room;
        if (has_room) {
            mine.push_back(j.number);
        } else {
            gone(j.number);
        }
    }
    // The oldest job comes first.
    void pop(std::size_t at) { good_ = good_ && number_of(rings_[at].pop()) == oldest(at); }

    // A thief takes half, the oldest first: no more than it has asked for, and has room for.
    void steal(std::size_t from, unsigned most) {
        std::deque<int>& to = expected_[1 - from];
        const std::size_t room = Max - to.size();
        const std::size_t half = (expected_[from].size() + 1) / 2;
        const std::size_t wanted = std::min({half, room + 1, std::size_t{most}});
        unsigned taken = 77;
        good_ = good_ &&
                number_of(rings_[from].steal_into(rings_[1 - from], taken, most)) == oldest(from) &&
                taken == wanted;
        for (std::size_t n = 1; n < wanted; ++n) {
            to.push_back(expected_[from].front());
            expected_[from].pop_front();
        }
    }
    // A ring has no more room than eight times what is in it.
    void trim(std::size_t at) {
        for (unsigned before = 0; before != rings_[at].capacity();) {
            before = rings_[at].capacity();
            rings_[at].trim();
        }
        good_ = good_ && (rings_[at].capacity() == Capacity ||
                          rings_[at].size() * 8 >= rings_[at].capacity());
    }

    bool is_good() const {
        for (std::size_t at = 0; at < 2; ++at) {
            const auto& ring = rings_[at];
            if (ring.size() != expected_[at].size() || ring.empty() != expected_[at].empty() ||
                ring.capacity() < Capacity || ring.capacity() > Max ||
                ring.capacity() < ring.size()) {
                return false;
            }
        }
        return good_;
    }

private:
    int oldest(std::size_t at) {
        if (expected_[at].empty()) {
            return -1;
        }
        const int number = expected_[at].front();
        expected_[at].pop_front();
        gone(number);
        return number;
    }
    void gone(int number) { free_.push_back(&all_[static_cast<std::size_t>(number)]); }

    std::vector<job> all_ = numbered(1'500);
    std::vector<job*> free_;
    std::deque<basic_run_queue<native, Capacity, Max>> rings_;
    std::array<std::deque<int>, 2> expected_;
    bool good_ = true;
};

template <unsigned Capacity, unsigned Max> void random_steps() {
    const std::uint32_t first = GENERATE(0U, 0xffff'fff0U, 0x7fff'fff0U); // which wraps
    const std::size_t before = test::live_allocations();
    int step = 0;
    bool good = true;
    {
        test::jitter chance(test::run_seed());
        checked_rings<Capacity, Max> rings(first);
        for (; step < 20'000 && good; ++step) {
            const std::size_t at = chance.below(2);
            const std::uint32_t pushes = step / 2'000 % 2 == 0 ? 16 : 4; // it fills, and empties
            const std::uint32_t kind = chance.below(24);
            if (kind < pushes) {
                rings.push(at);
            } else if (kind < 21) {
                rings.pop(at);
            } else if (kind == 21) {
                rings.steal(at, chance.below(4) == 0 ? 3 : ~0u);
            } else {
                rings.trim(at);
            }
            good = rings.is_good();
        }
    }
    const std::size_t after = test::live_allocations();
    CAPTURE(first, step);
    CHECK(good);
    CHECK(after == before);
}

} // namespace

TEST_CASE("run_queue: a ring of one size does in random steps what a list would do") {
    random_steps<4, 4>();
}
TEST_CASE("run_queue: a ring that grows and shrinks does in random steps what a list would do") {
    random_steps<4, 1024>();
}
TEST_CASE("run_queue: a ring that may double once does in random steps what a list would do") {
    random_steps<8, 16>();
}

TEST_CASE("run_queue: nothing is allocated without growth, and a worker's ring holds 256") {
    basic_run_queue<native> q;
    basic_run_queue<native> mine;
    std::vector<job> all = numbered(256);
    const std::size_t before = test::allocations_here();
    bool has_all = true;
    for (std::size_t i = 0; i < 256; ++i) {
        has_all = q.push(all[i]) && has_all;
    }
    unsigned taken = 0;
    q.steal_into(mine, taken);
    const std::size_t made = test::allocations_here() - before;
    CHECK(made == 0);
    CHECK(taken == 128);
    CHECK(q.size() + mine.size() == 255);
    CHECK(has_all);
}

TEST_CASE("run_queue: jobs that the owner takes soon are left to it until they have waited") {
    constexpr std::int64_t an_hour = 3'600'000'000'000;
    basic_run_queue<native, 4> q;
    std::vector<job> jobs = numbered(3);
    q.set_item_time(an_hour / 2);
    CHECK(!q.is_left_to_owner(an_hour, an_hour)); // empty
    CHECK(q.push(jobs[0]));
    CHECK(q.push(jobs[1]));
    CHECK(q.is_left_to_owner(an_hour, an_hour));
    CHECK(q.is_left_to_owner(an_hour, an_hour));
    CHECK(q.push(jobs[2]));
    CHECK(!q.is_left_to_owner(an_hour, an_hour)); // the owner takes longer for three

    q.set_item_time(0);
    CHECK(!q.is_left_to_owner(0, 0)); // a look has seen the first two
    CHECK(number_of(q.pop()) == 0);
    CHECK(!q.is_left_to_owner(0, 0)); // it has seen the second one
    CHECK(number_of(q.pop()) == 1);
    CHECK(q.is_left_to_owner(0, 0)); // no look has seen the third one
    CHECK(!q.is_left_to_owner(0, 0));
    CHECK(number_of(q.pop()) == 2);
    CHECK(!q.is_left_to_owner(an_hour, an_hour));
}

TEST_CASE("run_queue: push_if_room() fills the ring and never allocates") {
    std::vector<job> all = numbered(5);
    basic_run_queue<native, 4> q;
    const auto before = test::allocations_here();
    int taken = 0;
    for (job& j : all) {
        taken += q.push_if_room(j) ? 1 : 0;
    }
    CHECK(test::allocations_here() == before);
    CHECK(taken == 4);
    CHECK(q.push(all[4]));
    CHECK(q.capacity() == 8);
    for (int i = 0; i < 5; ++i) {
        CHECK(number_of(q.pop()) == i);
    }
}

TEST_CASE(
    "run_queue: without memory, nothing is lost: a full ring takes no job, and keeps its size") {
    if (!test::counts_allocations()) {
        SUCCEED("the allocations are the sanitizer's");
        return;
    }
    std::vector<int> had;
    had.reserve(128);
    int refused = 0;
    std::vector<job> all = numbered(100);
    basic_run_queue<native, 8> q(0xffff'fffcU);
    basic_run_queue<native, 8> mine;
    for (std::size_t i = 0; i < 50; ++i) {
        refused += q.push(all[i]) ? 0 : 1;
    }
    CHECK(q.capacity() == 64);
    CHECK(refused == 0);
    {
        const test::out_of_memory none;
        for (std::size_t i = 50; i < 100; ++i) {
            if (!q.push(all[i])) {
                had.push_back(all[i].number);
                ++refused;
            }
        }
        unsigned taken = 0;
        had.push_back(number_of(q.steal_into(mine, taken)));
        if (taken != 9) { // what `mine` has room for, and one
            had.push_back(-1);
        }
        while (runnable* const r = q.pop()) {
            had.push_back(number_of(r));
            q.trim();
        }
        while (runnable* const r = mine.pop()) {
            had.push_back(number_of(r));
        }
    }
    CHECK(refused == 36);
    std::sort(had.begin(), had.end());
    CHECK(had == range(0, 100));
}
