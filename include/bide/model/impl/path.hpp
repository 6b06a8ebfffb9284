// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_MODEL_IMPL_PATH_HPP
#define BIDE_MODEL_IMPL_PATH_HPP

// A path identifies an execution. It is a text, which begins with "g" (a search of graphs) or "s"
// (a search of schedules). If a thread other than thread 0 starts threads, a list of the threads
// T1, T2 and so on follows. An entry has the number of the thread that started this one, and the
// number of threads that it had started before. In "0.0,0.1,2.0;", T3 is the first thread that T2
// started. Then the steps follow:
//
//   2      thread 2 makes a step with the first of the possible outcomes
//   2*3    thread 2 makes three such steps
//   2:1    thread 2 makes a step with the outcome number 1
//   2<0.4  thread 2 reads the store that is the fourth step of thread 0, or writes behind it
//   2<i    thread 2 reads the initial value of an object, or writes behind it

#include <bide/core/config.hpp>
#include <bide/model/detail/execution.hpp>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace bide { inline namespace BIDE_ABI { namespace model::detail {

namespace {

// The steps of a path of a search of graphs. The first outcome of a step is not written.
std::vector<std::string> steps_of(const memory& m) {
    std::vector<std::string> out;
    for (std::size_t i = 0; i < m.events.size(); ++i) {
        const event& e = m.events[i];
        std::string step = std::to_string(e.id.thread);
        if (e.what == event::kind::choice && e.pick != 0) {
            step += ":" + std::to_string(e.pick);
        } else if (e.what == event::kind::read || (e.what == event::kind::write && !e.exclusive)) {
            const auto newer = m.behind(e.object, e.message);
            const bool is_first = std::none_of(newer.begin(), newer.end(), [&](int later) {
                return static_cast<std::size_t>(m.msg(later).event) < i;
            });
            if (!is_first) {
                const event_id writer =
                    e.what == event::kind::read ? m.msg(e.message).writer : m.placed_behind(e);
                step += writer.is_initial() ? "<i"
                                            : "<" + std::to_string(writer.thread) + "." +
                                                  std::to_string(writer.index);
            }
        }
        out.push_back(std::move(step));
    }
    return out;
}

} // namespace

int thread_names::number(int parent, int n) noexcept {
    const auto name =
        (static_cast<std::uint32_t>(parent) << 16 | static_cast<std::uint32_t>(n)) + 1;
    for (int t = 1; t < max_threads; ++t) {
        std::uint32_t is = 0;
        // Order: relaxed; the processes pass only this number to each other.
        if (all_[index(t)].compare_exchange_strong(is, name, std::memory_order_relaxed) ||
            is == name) {
            return t;
        }
    }
    return max_threads;
}

std::string thread_names::text(int below) const {
    std::string out;
    bool is_plain = true; // thread 0 has started all of them
    for (int t = 1; t < below && t < max_threads; ++t) {
        const std::uint32_t name = all_[index(t)].load(std::memory_order_relaxed);
        if (name == 0) {
            break;
        }
        is_plain = is_plain && (name - 1) >> 16 == 0;
        out += (out.empty() ? "" : ",") + std::to_string((name - 1) >> 16) + "." +
               std::to_string((name - 1) & 0xffff);
    }
    return is_plain ? std::string() : out + ";";
}

bool thread_names::read(std::string_view text) {
    const std::string all(text);
    const char* at = all.c_str();
    for (int t = 1; t < max_threads; ++t) {
        char* end = nullptr;
        const auto parent = std::strtoul(at, &end, 10);
        if (end == at || *end != '.' || parent >= max_threads) {
            return false;
        }
        at = end + 1;
        const auto n = std::strtoul(at, &end, 10);
        if (end == at || n > 0xffff) {
            return false;
        }
        all_[index(t)].store(static_cast<std::uint32_t>(parent << 16 | n) + 1,
                             std::memory_order_relaxed);
        if (*end != ',') {
            return *end == ';' && end[1] == '\0';
        }
        at = end + 1;
    }
    return false;
}

std::string execution::path() const {
    std::vector<std::string> steps;
    if (search_.is_graph_search()) {
        steps = steps_of(memory_);
    } else {
        for (const auto& [t, pick] : picks_) {
            steps.push_back(std::to_string(t) + (pick == 0 ? "" : ":" + std::to_string(pick)));
        }
    }
    std::string out = search_.is_graph_search() ? "g" : "s";
    out += names_.text(threads());
    for (std::size_t i = 0; i < steps.size();) {
        std::size_t end = i + 1;
        if (steps[i].find_first_of(":<") == std::string::npos) {
            while (end < steps.size() && steps[end] == steps[i]) {
                ++end;
            }
        }
        out += (i == 0 ? "" : ",") + steps[i];
        out += end - i > 1 ? "*" + std::to_string(end - i) : "";
        i = end;
    }
    return out;
}

// Runs only the execution of a path.
class one_path final : public search {
public:
    explicit one_path(const std::string& path) {
        const char* at = path.c_str();
        graph_ = *at == 'g';
        at += *at != '\0' ? 1 : 0;
        if (const char* const end = std::strchr(at, ';'); end != nullptr) {
            names.read({at, static_cast<std::size_t>(end + 1 - at)});
            at = end + 1;
        }
        while (*at != '\0') {
            char* end = nullptr;
            const auto number = [&](const char* text) {
                return static_cast<int>(std::strtol(text, &end, 10));
            };
            step s;
            s.thread = number(at);
            int times = 1;
            if (*end == ':') {
                s.pick = number(end + 1);
            } else if (*end == '*') {
                times = number(end + 1);
            } else if (*end == '<') {
                s.pick = from_writer;
                if (end[1] == 'i') {
                    end += 2;
                } else {
                    s.from.thread = static_cast<std::uint8_t>(number(end + 1));
                    s.from.index = static_cast<step_count>(*end == '.' ? number(end + 1) : 0);
                }
            }
            for (; times > 0 && end != at; --times) {
                steps_.push_back(s);
            }
            at = *end == ',' && end != at ? end + 1 : "";
        }
    }

    bool begin() override { return !std::exchange(begun_, true); }

    int thread(execution& x) override {
        int ready = 0;
        for (int t = 0; t < x.threads(); ++t) {
            ready += x.enabled(t) ? 1 : 0;
        }
        if (at_ == steps_.size() && ready == 0) {
            return -1;
        }
        const int t = at_ == steps_.size() ? -1 : steps_[at_].thread;
        if (graph_ && t >= 0 && t < x.threads()) {
            x.undo_pause(t);
        }
        if (t < 0 || t >= x.threads() || !x.enabled(t)) {
            x.fail(failure::not_repeated, "the path is not one of this body");
            return -1;
        }
        return t;
    }

    int choose(execution& x, int, const std::vector<outcome>& all) override {
        const step& s = steps_[at_++];
        const auto is_no_outcome = [&] {
            x.fail(failure::not_repeated, "the path is not one of this body");
            return -1;
        };
        if (s.pick != from_writer) {
            return s.pick >= 0 && s.pick < static_cast<int>(all.size()) ? s.pick : is_no_outcome();
        }
        const auto found = std::find_if(all.begin(), all.end(), [&](const outcome& o) {
            return o.message >= 0 && x.mem().msg(o.message).writer == s.from;
        });
        return found == all.end() ? is_no_outcome() : static_cast<int>(found - all.begin());
    }

    bool is_graph_search() const override { return graph_; }

    thread_names names; // the names in the path

private:
    static constexpr int from_writer = -1;
    struct step {
        int thread = 0;
        int pick = 0; // from_writer: `from` selects the outcome
        event_id from;
    };

    bool graph_ = false;
    bool begun_ = false;
    std::size_t at_ = 0;
    std::vector<step> steps_;
};

}}} // namespace bide::BIDE_ABI::model::detail

#endif
