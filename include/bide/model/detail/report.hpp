// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_MODEL_DETAIL_REPORT_HPP
#define BIDE_MODEL_DETAIL_REPORT_HPP

// What is said of an execution that failed: its steps in an order that a reader can follow, as columns
// and as a drawing, and what its graph says about the cause.

#include <bide/core/config.hpp>
#include <bide/model/detail/execution.hpp>

#include <cstring>
#include <functional>
#include <string>
#include <vector>

namespace bide::inline BIDE_ABI::model::detail {

std::string text(bits value);
std::string text(site s); // file:line

// It starts, or joins, the thread whose number is its value.
inline bool is_start(const event& e) {
    return e.what == event::kind::local && std::strncmp(e.text, "starts", 6) == 0;
}
inline bool is_join(const event& e) {
    return e.what == event::kind::local && std::strcmp(e.text, "joins") == 0;
}

// That line of the source, without the blanks around it; empty if the file cannot be read.
const std::string& source_text(site s);

// The events of an execution, in an order that agrees with what each thread did, what each read read from,
// and the modification orders. If there is one in which each read reads the newest value, it is that one,
// and the execution is sequentially consistent. Parts of what the machine does in one step stay together.
class step_order {
public:
    explicit step_order(execution& x);

    const std::vector<int>& events() const noexcept { return events_; }
    // Of an event.
    int place(int event) const { return places_[index(event)]; }
    // The place of the first event of the same step of the machine.
    int number(int event) const { return place(part_of_[index(event)]); }
    bool sequentially_consistent() const noexcept { return consistent_; }
    // The write that is newer than what this event read, or is behind what it wrote, and comes before
    // it in this order; -1: none.
    int newer_than(int event) const;

private:
    void join_parts();
    bool sort();

    const memory& memory_;
    std::vector<int> events_;
    std::vector<int> places_;
    std::vector<int> part_of_; // the first event of the same step of the machine
    bool consistent_ = false;
};

// What the objects are called: by model::name(), or as the source calls them where they are used.
class object_names {
public:
    explicit object_names(execution& x);
    const std::string& operator[](int object) const { return names_[index(object)]; }

private:
    std::vector<std::string> names_;
};

// A column for each thread, a step below the other.
std::string interleaving(execution& x, const step_order& steps, const object_names& names);

// The missing edge: sentences that follow from the graph of the execution.
std::string cause(execution& x, const step_order& steps, const object_names& names);

// The graph, for the program dot.
std::string drawing(execution& x, const step_order& steps, const object_names& names);

// Breaks lines that are longer than that, at blanks; what follows is indented.
std::string wrapped(const std::string& text, std::size_t width, std::size_t indent);

// All that the graph says.
std::string report_of(execution& x);

// The execution that a sequentially consistent machine has, too, fails by what its steps do: no order of
// an atomic would exclude it.
bool orders_matter(execution& x);

// Explores with those orders changed.
using exploring = std::function<failure(const weakening*)>;

// Which stronger orders leave no failure, as a sentence; empty if that was not decided.
std::string stronger_orders(execution& x, const std::vector<weakening>& seen,
                            const exploring& explore);

} // namespace bide::inline BIDE_ABI::model::detail

#endif
