// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_MODEL_DETAIL_HISTORY_HPP
#define BIDE_MODEL_DETAIL_HISTORY_HPP

// The history of an object: the calls that the threads of a body have made of it. The checker owns
// it, and judges it (impl/history.hpp). What depends on the types of the specification and of the
// results is in the derived class (model/linearizable.hpp).

#include <bide/model/detail/ops.hpp>

#include <array>
#include <memory>
#include <string>
#include <vector>

namespace bide { inline namespace BIDE_ABI { namespace model::detail {

// What a thread knew at one moment: for each thread, how many of its steps happen before the
// moment. The moment comes before the step `next` of its thread.
struct moment {
    int thread = -1;
    unsigned next = 0;
    std::array<unsigned, ops::max_threads> known{};

    // Returns true if `other` happens before this moment. The threads must differ. A step of the
    // other thread lies between the two, because only that can order them.
    bool follows(const moment& other) const noexcept {
        return known[static_cast<std::size_t>(other.thread)] >= other.next;
    }
};

class history {
public:
    struct call {
        moment began{};
        moment returned{};
        bool has_returned = false;
        int began_at = 0; // these two count the beginnings and returns of all calls
        int returned_at = 0;
        int outer = -1; // the call of the same thread in which it was made
    };

    explicit history(const char* named) : name(named) {}
    history(const history&) = delete;
    history& operator=(const history&) = delete;
    virtual ~history() = default;

    // The calling thread begins its next call, or returns from it.
    void begin() noexcept;
    void end(bool has_returned) noexcept;
    // Returns the number of the call that the calling thread makes now.
    int running() const noexcept;

    // ---- For the judge

    // Makes the call again, on a copy of the object at `depth`, which becomes that at `depth` + 1.
    // The object at depth 0 is the initial one. Returns true if the result is the recorded one.
    virtual bool repeat(int number, std::size_t depth) = 0;
    // Returns true if remember() was called for an equal object and the same mask.
    virtual bool is_remembered(std::uint64_t mask, std::size_t depth) const = 0;
    virtual void remember(std::uint64_t mask, std::size_t depth) = 0;
    virtual void forget() = 0;
    // The call as text, its recorded result, and the result of the last repeat(). The results of
    // functions that return void are empty.
    virtual std::string call_text(int number) const = 0;
    virtual std::string result_text(int number) const = 0;
    virtual std::string repeated_text(int number) = 0;

    const char* const name;
    std::vector<call> calls;

private:
    std::array<int, ops::max_threads> running_{};
    int count_ = 0; // of beginnings and returns
};

// The call that the judge repeats on a specification now, and what the specification says of it.
struct repeated_call {
    const history* of = nullptr;
    int number = -1;
    bool is_complete = false; // its result is compared
    bool waits = false;       // it cannot return in this state
    bool throws = false;      // an exception has left the specification
    int unordered = -1;       // it must follow this call, and does not
    unsigned answers = 0;     // those of maybe(), one a bit
    unsigned asked = 0;       // how many answers were used
};
inline repeated_call repeated;

namespace ops {

// Gives a history to the execution. Returns it.
history* keep_history(std::unique_ptr<history> made) noexcept;
// Fails the execution if the history has no order that its specification allows.
void judge(history& of) noexcept;
// Clears the unused stack below the caller, so that a loop of calls leaves nothing there that
// differs from round to round.
void clear_stack() noexcept;

// While an object of this class exists, the code of this thread is that of the checker: it
// allocates memory that is not the body's, and its accesses are not watched.
class outside_of_body {
public:
    outside_of_body() noexcept;
    outside_of_body(const outside_of_body&) = delete;
    outside_of_body& operator=(const outside_of_body&) = delete;
    ~outside_of_body();

private:
    const int thread_;
};

} // namespace ops

}}} // namespace bide::BIDE_ABI::model::detail

#endif
