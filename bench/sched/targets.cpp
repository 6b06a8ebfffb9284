// What the scheduler has promised to cost, against what it does cost.

#include "sched/targets.hpp"
#include "sched/pools.hpp"
#include "sched/programs.hpp"
#include "support/stats.hpp"
#include "support/table.hpp"
#include "support/verdicts.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

namespace bench {
namespace {

// By how many times Tokio takes longer: the geometric mean over tables of the median of their
// rounds' ratios, of the first column.
struct speed_target {
    std::vector<const char*> tables;
    double limit;
    bool against_fastest = false; // Tokio's fastest run against the median of ours
};

std::vector<speed_target> speed_targets() {
    return {
        {{"spawn_many/local"}, 6},
        {{"step/spawn_await"}, 7},
        {{"spawn_many/remote_idle"}, 5},
        {{"tasks/ping_pong"}, 16},
        {{"tasks/ping_pong"}, 5, true},
        {{"tasks/chained_spawn"}, 30},
        {{"tasks/chained_spawn"}, 12, true},
        {{"tasks/yield_many"}, 3.7},
        {{"step/single_yield"}, 40},
        {{"step/round_trip"}, 5},
        {{"request_reply/one_thread"}, 4},
        {{"request_reply/workers"}, 4},
        {{"locks/semaphore", "locks/semaphore_contended"}, 20},
        {{"locks/rwlock", "locks/rwlock_contended"}, 20},
    };
}

struct place {
    const row* measured = nullptr;
    std::size_t column = 0;

    bool is_noisy() const { return measured != nullptr && measured->is_noisy(); }
};

class judge {
public:
    explicit judge(const std::vector<table>& tables) : tables_(tables) {}

    std::vector<verdict> all() {
        for (const speed_target& wanted : speed_targets()) {
            judge_speed(wanted);
        }
        judge_memory();
        judge_wake();
        judge_idle();
        judge_scaling();
        return std::move(verdicts_);
    }

private:
    // Nowhere, if it was not run.
    place find(const std::string& table_name, const char* row_name,
               const char* column = nullptr) const {
        const auto same = [&](const table& t) { return t.name == table_name; };
        const auto found = std::find_if(tables_.begin(), tables_.end(), same);
        if (found == tables_.end()) {
            return {};
        }
        const std::size_t index = column == nullptr ? 0 : found->column_index(column);
        return {found->find_row(row_name), index};
    }

    // The median of the rounds' ratios.
    static double ratio(const place& subject, const place& baseline) {
        const bool known = subject.measured != nullptr && baseline.measured != nullptr;
        return known ? median(ratios(*subject.measured, *baseline.measured, subject.column))
                     : not_measured;
    }

    static double median_of(const place& p) {
        return p.measured == nullptr ? not_measured : median(values(*p.measured, p.column));
    }

    void add(verdict v, double measured, bool noisy) {
        v.measured = measured;
        v.noisy = noisy;
        verdicts_.push_back(std::move(v));
    }

    void judge_speed(const speed_target& wanted) {
        std::string names;
        double logarithms = 0;
        bool noisy = false;
        for (const char* name : wanted.tables) {
            names += (names.empty() ? "" : ", ") + std::string(name);
            const place ours = find(name, bide_row);
            const place tokio = find(name, tokio_peer.row);
            noisy = noisy || ours.is_noisy() || tokio.is_noisy();
            const double times =
                wanted.against_fastest
                    ? median_of(find(name, tokio_peer.row, "fastest")) / median_of(ours)
                    : 1 / ratio(ours, tokio);
            logarithms += std::log(times);
        }
        names += wanted.against_fastest ? ": tokio, its fastest / bide" : ": tokio / bide";
        add({names, relation::at_least, wanted.limit},
            std::exp(logarithms / static_cast<double>(wanted.tables.size())), noisy);
    }

    void judge_memory() {
        for (const char* name : {"parked/for_a_permit", "parked/asleep"}) {
            const std::string prefix = std::string(name) + ", memory";
            const place ours = find(name, bide_row, "memory");
            const place tokio = find(name, tokio_peer.row, "memory");
            add({prefix + ": tokio / bide", relation::at_least, 2}, 1 / ratio(ours, tokio), false);
            const place beside = find(name, bide_row, "beside the frame");
            add({prefix + " of a task beside its frame", relation::at_most, 200, not_measured,
                 " bytes"},
                median_of(beside), false);
        }
    }

    void judge_wake() {
        const char* name = "wake/from_outside";
        const place ours = find(name, bide_row);
        for (const auto& [peer, limit] :
             {std::pair(futex_row, 1.3), std::pair(tokio_peer.row, 1.1)}) {
            const place other = find(name, peer);
            add({std::string(name) + ": bide / " + peer, relation::at_most, limit},
                ratio(ours, other), ours.is_noisy() || other.is_noisy());
        }
    }

    void judge_idle() {
        const std::string name = "idle/nothing_to_do";
        const place ours = find(name, bide_row);
        add({name + ": CPU", relation::at_most, 100, not_measured, " us"}, median_of(ours),
            ours.is_noisy());
        add({name + ": voluntary switches, with the thread outside", relation::at_most, 1,
             not_measured, ""},
            median_of(find(name, bide_row, "voluntary switches")), false);
    }

    // They are different tables, whose rounds do not belong together. The first column is the time
    // of one task.
    void judge_scaling() {
        const char* sizes[] = {"scaling/10000", "scaling/100000", "scaling/1000000"};
        for (int i = 0; i < 2; ++i) {
            const place few = find(sizes[i], bide_row);
            const place many = find(sizes[i + 1], bide_row);
            add({std::string(sizes[i + 1]) + ": the time of a run / a tenth of the tasks",
                 relation::at_most, 11},
                10 * median_of(many) / median_of(few), few.is_noisy() || many.is_noisy());
        }
    }

    const std::vector<table>& tables_;
    std::vector<verdict> verdicts_;
};

} // namespace

std::vector<verdict> judge_all(const std::vector<table>& tables) { return judge(tables).all(); }

} // namespace bench
