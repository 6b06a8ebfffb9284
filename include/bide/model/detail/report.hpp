// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_MODEL_DETAIL_REPORT_HPP
#define BIDE_MODEL_DETAIL_REPORT_HPP

// The report of an execution that failed: its steps in an order that a reader can follow, as
// columns and as a drawing, and the cause, as far as the graph shows it.

#include <bide/core/config.hpp>
#include <bide/model/detail/execution.hpp>

#include <cstring>
#include <functional>
#include <string>
#include <vector>

namespace bide { inline namespace BIDE_ABI { namespace model::detail {

std::string text(bits value);
std::string text(site s); // file:line

// Both return true if the event starts, or joins, the thread whose number is `e.value`.
inline bool is_start(const event& e) {
    return e.what == event::kind::local && std::strncmp(e.text, "starts", 6) == 0;
}
inline bool is_join(const event& e) {
    return e.what == event::kind::local && std::strcmp(e.text, "joins") == 0;
}

// Returns the line of the source, without blanks around it. If the file cannot be read, returns an
// empty text.
const std::string& source_text(site s);

// The events of an execution in one order. The order agrees with program order, reads-from and the
// modification orders. If there is such an order in which each read reads the newest value, it is
// that one, and the execution is sequentially consistent. Events that are parts of one step of the
// machine stay together.
class step_order {
public:
    explicit step_order(execution& x);

    const std::vector<int>& events() const noexcept { return events_; }
    int place(int event) const { return places_[index(event)]; }
    // Returns the place of the first event of the machine step that contains the event.
    int number(int event) const { return place(part_of_[index(event)]); }
    bool sequentially_consistent() const noexcept { return consistent_; }
    // Returns a write that comes too early in the order: it comes before this event, but is newer
    // than the value that this event read, or follows the write of this event in the modification
    // order. Returns -1 if there is none.
    int newer_than(int event) const;

private:
    void join_parts();
    bool sort();

    const memory& memory_;
    std::vector<int> events_;
    std::vector<int> places_;
    std::vector<int> part_of_; // for each event, the first event of its machine step
    bool consistent_ = false;
};

// The names of the objects: those of model::name(), or the names in the source where the objects
// are used.
class object_names {
public:
    explicit object_names(execution& x);
    const std::string& operator[](int object) const { return names_[index(object)]; }

private:
    std::vector<std::string> names_;
};

// Returns the interleaving as text: a column for each thread, and a line for each step.
std::string interleaving(execution& x, const step_order& steps, const object_names& names);

// Returns sentences that name the missing synchronisation, as far as the graph shows it.
std::string cause(execution& x, const step_order& steps, const object_names& names);

// Returns the graph as a text for the program dot.
std::string drawing(execution& x, const step_order& steps, const object_names& names);

// Breaks lines that are longer than `width` at blanks, and indents the new lines.
std::string wrapped(const std::string& text, std::size_t width, std::size_t indent);

// Returns the whole report of an execution.
std::string report_of(execution& x);

// Returns true if stronger memory orders could exclude the execution. If the execution is
// sequentially consistent, no order of an atomic would exclude it.
bool orders_matter(execution& x);

// The type of a function that explores with changed orders.
using exploring = std::function<failure(const weakening*)>;

// Returns a sentence that names the stronger orders which leave no failure; empty if that was not
// decided.
std::string stronger_orders(execution& x, const std::vector<weakening>& seen,
                            const exploring& explore);

}}} // namespace bide::BIDE_ABI::model::detail

#endif
