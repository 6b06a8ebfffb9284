// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_MODEL_IMPL_STEP_ORDER_HPP
#define BIDE_MODEL_IMPL_STEP_ORDER_HPP

// The order in which the steps of an execution are shown.

#include <bide/core/config.hpp>
#include <bide/model/detail/report.hpp>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>
#include <vector>

namespace bide { inline namespace BIDE_ABI { namespace model::detail {

step_order::step_order(execution& x) : memory_(x.mem()) {
    const std::size_t all = memory_.events.size();
    part_of_.resize(all);
    std::iota(part_of_.begin(), part_of_.end(), 0);
    join_parts();
    consistent_ = sort();
    if (!consistent_) { // the order in which they were made
        events_.resize(all);
        std::iota(events_.begin(), events_.end(), 0);
    }
    places_.resize(all);
    for (std::size_t i = 0; i < all; ++i) {
        places_[index(events_[i])] = static_cast<int>(i);
    }
}

// Joins the halves of each read-modify-write, and the events of a futex call while it holds its
// queue.
void step_order::join_parts() {
    const auto is_futex = [](const event& e) { return std::strncmp(e.text, "futex_", 6) == 0; };
    for (std::size_t i = 1; i < memory_.events.size(); ++i) {
        const event& before = memory_.events[i - 1];
        const event& e = memory_.events[i];
        if (before.id.thread != e.id.thread) {
            continue;
        }
        const bool second_half = e.what == event::kind::write && e.exclusive &&
                                 before.what == event::kind::read && before.object == e.object;
        const bool queue_held = is_futex(before) && is_futex(e) &&
                                before.what != event::kind::write &&
                                before.what != event::kind::local && e.what != event::kind::local;
        if (second_half || queue_held) {
            part_of_[i] = part_of_[i - 1];
        }
    }
}

// Orders the steps so that each read comes before the next write of its object. Returns false if
// there is no such order: in every order, some read reads an old value.
bool step_order::sort() {
    const std::size_t all = memory_.events.size();
    std::vector<std::vector<int>> after(all); // a step has the number of its first event
    std::vector<int> missing(all, 0);
    const auto edge = [&](int a, int b) {
        a = part_of_[index(a)];
        b = part_of_[index(b)];
        if (a != b) {
            after[index(a)].push_back(b);
            ++missing[index(b)];
        }
    };
    std::vector<int> last(max_threads, -1);
    std::vector<int> starter(max_threads, -1);
    for (std::size_t i = 0; i < all; ++i) {
        const event& e = memory_.events[i];
        const int n = static_cast<int>(i);
        int& mine = last[e.id.thread];
        if (const int before = mine >= 0 ? mine : starter[e.id.thread]; before >= 0) {
            edge(before, n);
        }
        mine = n;
        if (is_start(e)) {
            starter[e.value] = n;
        } else if (is_join(e)) {
            edge(last[e.value], n);
        } else if (e.what == event::kind::local && std::strcmp(e.text, "futex_wait: woken") == 0) {
            for (std::size_t t = 0; t < max_threads; ++t) { // finds the wake that ended the sleep
                if (t != e.id.thread && e.causes.seen[t] != 0) {
                    edge(memory_.index_of({static_cast<std::uint8_t>(t), e.causes.seen[t]}), n);
                }
            }
        }
    }
    for (int o = 0; o < memory_.objects(); ++o) {
        const auto& messages = memory_.at(o).messages;
        for (std::size_t i = 0; i < messages.size(); ++i) {
            const message& m = memory_.msg(messages[i]);
            const int next = i + 1 < messages.size() ? memory_.msg(messages[i + 1]).event : -1;
            if (m.event >= 0 && next >= 0) {
                edge(m.event, next);
            }
            for (const int r : m.readers) {
                if (m.event >= 0) {
                    edge(m.event, r);
                }
                if (next >= 0) {
                    edge(r, next);
                }
            }
        }
    }
    std::vector<int> ready;
    for (std::size_t i = 0; i < all; ++i) {
        if (part_of_[i] == static_cast<int>(i) && missing[i] == 0) {
            ready.push_back(static_cast<int>(i));
        }
    }
    int thread = -1;
    while (!ready.empty()) {
        // The same thread continues while it can.
        auto next = std::min_element(ready.begin(), ready.end(), [&](int a, int b) {
            const auto other = [&](int n) { return memory_.events[index(n)].id.thread != thread; };
            return std::pair(other(a), a) < std::pair(other(b), b);
        });
        const int n = *next;
        ready.erase(next);
        thread = memory_.events[index(n)].id.thread;
        for (std::size_t i = index(n); i < all && part_of_[i] == n; ++i) {
            events_.push_back(static_cast<int>(i));
        }
        for (const int b : after[index(n)]) {
            if (--missing[index(b)] == 0) {
                ready.push_back(b);
            }
        }
    }
    return events_.size() == all;
}

int step_order::newer_than(int number) const {
    const event& e = memory_.events[index(number)];
    if (e.what != event::kind::read && e.what != event::kind::write) {
        return -1;
    }
    const auto& all = memory_.at(e.object).messages;
    int newest = -1;
    for (auto m = std::find(all.begin(), all.end(), e.message) + 1; m < all.end(); ++m) {
        const int other = memory_.msg(*m).event;
        if (place(other) < place(number)) {
            newest = other;
        }
    }
    return newest;
}

}}} // namespace bide::BIDE_ABI::model::detail

#endif
