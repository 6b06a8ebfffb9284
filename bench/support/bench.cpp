#include "support/bench.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <utility>

#include <csignal>
#include <unistd.h>

namespace bench {
namespace {

constexpr double usual_seconds = 0.1;
constexpr double disturbing = 3; // per cent of the machine
constexpr unsigned longest = 90; // seconds of a round
double seconds_of_round = usual_seconds;
bool has_failed = false;
std::map<std::string, std::function<measured()>> rows; // by name
std::map<std::string, double> counts;                  // of a row's iterations

// How much processor time other programs used while we measured: what /proc/stat says the machine
// used (and what its host stole from it), less what we did, our descendants, and the system's own
// threads, which work for us or for those that show themselves.
class foreign_time {
public:
    foreign_time() : ticks_(foreign_ticks()), began_(std::chrono::steady_clock::now()) {}

    // Per cent of the machine. Zero for two ticks or less, in which /proc counts: so few prove nothing.
    double percent() const {
        const double ticks = foreign_ticks() - ticks_;
        const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - began_;
        const long all = ::sysconf(_SC_NPROCESSORS_ONLN) * ::sysconf(_SC_CLK_TCK);
        return ticks > 2 ? 100 * ticks / (elapsed.count() * static_cast<double>(all)) : 0;
    }

private:
    struct process {
        long id = 0;
        long parent = 0;
        double ticks = 0; // with those of the children that it has waited for
    };

    static double foreign_ticks() {
        std::ifstream stat("/proc/stat");
        std::string label;
        double user = 0, nice = 0, system = 0, other = 0, steal = 0;
        stat >> label >> user >> nice >> system;
        stat >> other >> other >> other >> other >> steal; // idle, iowait, irq, softirq between
        double ticks = user + nice + system + steal;
        std::vector<process> all;
        std::error_code ignored;
        for (const auto& entry : std::filesystem::directory_iterator("/proc", ignored)) {
            std::ifstream file(entry.path() / "stat"); // "17 (its name) S 16 ..."
            process p;
            std::string text;
            double of[4]; // user, system; the children's user, system
            if (file >> p.id && std::getline(file, text, ')') && std::getline(file, text) &&
                std::sscanf(text.c_str(),
                            " %*c %ld %*d %*d %*d %*d %*u %*u %*u %*u %*u %lf %lf %lf %lf",
                            &p.parent, &of[0], &of[1], &of[2], &of[3]) == 5) {
                p.ticks = of[0] + of[1] + of[2] + of[3];
                all.push_back(p);
            }
        }
        std::vector<long> family{2, ::getpid()}; // 2 is the parent of the system's threads
        for (std::size_t i = 0; i < family.size(); ++i) {
            for (const process& p : all) {
                if (p.parent == family[i]) {
                    family.push_back(p.id);
                }
                ticks -= p.id == family[i] ? p.ticks : 0;
            }
        }
        return ticks;
    }

    double ticks_;
    std::chrono::steady_clock::time_point began_;
};

// A row that does not come to its end ends the program: a lost wakeup is a failure and not a hang.
char row_under_way[200];
void limit(const std::string& name, unsigned seconds) {
    std::snprintf(row_under_way, sizeof row_under_way, "bench: no end of %s\n", name.c_str());
    std::signal(SIGALRM, [](int) {
        static_cast<void>(!::write(STDERR_FILENO, row_under_way, std::strlen(row_under_way)));
        std::_Exit(3);
    });
    ::alarm(seconds);
}

measured measure_here(const std::string& name) {
    measured found = rows.at(name)();
    std::erase_if(found.counters, [](const auto& each) { return each.second != each.second; });
    return found;
}

int run_child(const std::string& name) {
    limit(name, 2 * longest / 3); // before the process that waits for this one gives up
    const measured found = measure_here(name);
    std::printf("%.9g\n", found.ns);
    for (const auto& [counter, value] : found.counters) {
        std::printf("%.9g %s\n", value, counter.c_str());
    }
    return 0;
}

measured measure_in_child(const std::string& name, placement where) {
    cpu_list cpus = allowed_cpus();
    cpus.resize(where == placement::one_processor ? 1 : cpus.size());
    std::istringstream lines(
        output_of({std::filesystem::read_symlink("/proc/self/exe").string(), "--row=" + name,
                   "--benchmark_min_time=" + std::to_string(seconds_of_round)},
                  cpus));
    measured found;
    lines >> found.ns;
    std::string counter;
    for (double value = 0; lines >> value && std::getline(lines >> std::ws, counter);) {
        found.counters[counter] = value;
    }
    return found;
}

// Google Benchmark divides the time of a round by its iterations, repeats a first round that is too short, and wants as
// many iterations in each: so the time that was found counts as often as fills the first one.
void report(benchmark::State& state, const std::string& name, const measured& found) {
    const bool is_time = found.ns > 0 && std::isfinite(found.ns); // not if nothing was done
    const double ns = is_time ? found.ns : seconds_of_round * 1e9;
    double& count = counts[name];
    count = count > 0 ? count : std::ceil(1.001 * seconds_of_round * 1e9 / ns);
    while (state.KeepRunningBatch(static_cast<benchmark::IterationCount>(count))) {
        state.SetIterationTime(ns * count / 1e9);
    }
    state.counters.insert(found.counters.begin(), found.counters.end());
}

void watch(benchmark::State& state, const std::string& name, const std::string& note,
           const std::function<void()>& body) {
    limit(name, longest);
    try {
        body();
    } catch (const std::exception& wrong) {
        has_failed = true;
        state.SkipWithError(wrong.what());
    }
    ::alarm(0);
    state.SetLabel(note);
}

} // namespace

void table::add(const std::string& row, std::function<measured()> measure, placement where) {
    const std::string name = name_ + '/' + row;
    rows[name] = std::move(measure);
    const auto once = [=] {
        const foreign_time others;
        const bool is_here = where == placement::here || where == placement::simulated;
        measured found = is_here ? measure_here(name) : measure_in_child(name, where);
        found.counters["foreign"] = where == placement::simulated ? 0 : others.percent();
        return found;
    };
    const auto body = [=, note = note_](benchmark::State& state) {
        watch(state, name, note, [&] {
            measured found = once();
            if (found.counters["foreign"] > disturbing && !is_short()) {
                limit(name, longest);
                found = once();
            }
            report(state, name, found);
        });
    };
    benchmark::RegisterBenchmark(name.c_str(), body)->UseManualTime();
}

void table::add_loop(const std::string& row, std::function<void(benchmark::State&)> loop) {
    const std::string name = name_ + '/' + row;
    benchmark::RegisterBenchmark(name.c_str(), [=, note = note_](benchmark::State& state) {
        watch(state, name, note, [&] {
            const scoped_affinity pinned({allowed_cpus().front()});
            const foreign_time others;
            loop(state);
            state.counters["foreign"] = others.percent();
        });
    });
}

std::chrono::nanoseconds a_round(double times) {
    return std::chrono::nanoseconds(std::llround(times * seconds_of_round * 1e9));
}

std::uint64_t scaled(std::uint64_t count, std::uint64_t of) {
    const double share = std::min(1.0, seconds_of_round / usual_seconds);
    const auto number = static_cast<std::uint64_t>(static_cast<double>(count) * share);
    return std::max(of, number - number % of);
}

std::string output_of(const std::vector<std::string>& command, const cpu_list& cpus) {
    std::string line = "exec";
    for (const std::string& word : command) {
        for (line += ' '; const char each : word) {
            (line += '\\') += each; // whatever the shell makes of it
        }
    }
    const scoped_affinity inherited(cpus);
    std::FILE* const from = ::popen(line.c_str(), "re");
    std::string text;
    for (char buffer[4096];
         from != nullptr && std::fgets(buffer, sizeof buffer, from) != nullptr;) {
        text += buffer;
    }
    if (from == nullptr || ::pclose(from) != 0) {
        throw std::runtime_error("failed: " + command[0] + ' ' + command[1]);
    }
    return text;
}

int run(int argc, char** argv, void (*add)()) {
    // glibc and libstdc++ leave the lock prefix out of some operations while a process has one thread,
    // which makes std::mutex several times faster than any program with a use for it sees.
    std::thread([] {
        for (;;) {
            ::pause();
        }
    }).detach();

    std::vector<std::string> words{argv[0],
                                   "--benchmark_repetitions=7",
                                   "--benchmark_enable_random_interleaving=true",
                                   "--benchmark_display_aggregates_only=true",
                                   "--benchmark_counters_tabular=true",
                                   "--benchmark_min_time=" + std::to_string(usual_seconds)};
    words.insert(words.end(), argv + 1, argv + argc); // these win
    std::string row;
    std::vector<char*> arguments;
    for (std::string& word : words) {
        const std::string value = word.substr(word.find('=') + 1);
        if (word.starts_with("--row=")) {
            row = value;
            continue;
        }
        if (word.starts_with("--benchmark_min_time=")) {
            seconds_of_round = std::strtod(value.c_str(), nullptr);
        }
        arguments.push_back(word.data());
    }
    if (!row.empty()) {
        add();
        return run_child(row);
    }
    int count = static_cast<int>(arguments.size());
    benchmark::Initialize(&count, arguments.data());
    if (benchmark::ReportUnrecognizedArguments(count, arguments.data())) {
        return 2;
    }
    benchmark::AddCustomContext("compiler", BIDE_BENCH_COMPILER);
    benchmark::AddCustomContext("left out", BIDE_BENCH_WITHOUT);
    add();
    return benchmark::RunSpecifiedBenchmarks() != 0 && !has_failed ? 0 : 1;
}

} // namespace bench
