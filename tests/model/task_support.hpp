#ifndef BIDE_TESTS_MODEL_TASK_SUPPORT_HPP
#define BIDE_TESTS_MODEL_TASK_SUPPORT_HPP

// Chains of coroutines for models. Like a task of a scheduler, a chain is posted to an executor
// when its wait is over. The executor of these chains runs it at once, on the thread that posts. So
// a chain resumes while the thread that ran it before may still be leaving it.

#include <bide/core/detail/task_context.hpp>
#include <bide/core/executor.hpp>
#include <bide/task/detail/task_control.hpp>
#include <model/check.hpp>
#include <model/portable_task.hpp>
#include <support/standard.hpp>
#include <support/tokens.hpp>

namespace bide::model {

// An executor that runs each runnable before post() returns.
struct at_once {
    void post(bide::runnable& r) noexcept { r.run.wake(); }
};

// A chain without references, which its maker owns.
template <class Platform> class chain : public bide::detail::basic_task_control<Platform> {
    using control = bide::detail::basic_task_control<Platform>;

public:
    explicit chain(link<Platform>&& what) noexcept : control(1, true), link_(std::move(what)) {
        link_.frame.promise().context = this;
        link_.frame.promise().where = executor();
    }

    // The executor of all chains.
    static bide::executor_ref executor() noexcept {
        static constinit at_once one;
        return one;
    }

    void begin() noexcept { this->to_run().run.wake(); }
    // Beside one thread or two, to their ends.
    void begin_beside(const std::function<void()>& one, const std::function<void()>& two) {
        model::thread first(one);
        std::optional<model::thread> second;
        if (two) {
            second.emplace(two);
        }
        begin();
    }

    typename Platform::template var<int> ended{0};
    typename Platform::template var<bool> never_ran{false};

private:
    std::coroutine_handle<> start() noexcept final { return link_.frame; }
    void never_start() noexcept final { never_ran = true; }
    void finish() noexcept final {
        ended = ended + 1;
        this->state_.finish();
    }
    void post_home() noexcept final { executor().post(this->to_run()); }

    link<Platform> link_;
};

// The progress of a child that takes a token.
enum class progress { none, begun, taken, stopped };

template <class Platform>
link<Platform> take(test::basic_tokens<Platform>& from,
                    typename Platform::template var<progress>& what) {
    what = progress::begun;
    auto token = co_await from.async_take().as_result();
    if (token) {
        token->keep();
    }
    what = token ? progress::taken : progress::stopped;
}

// 10,000 schedules at random, for programs that are too large for all schedules.
inline options at_random() {
    options o;
    o.how = options::method::pct;
    o.runs = 10'000;
    return o;
}

// What became of a task; written by the thread that does it.
template <class Platform> struct ledger {
    typename Platform::template var<int> discarded{0}; // no handle asks for the outcome
    typename Platform::template var<int> destroyed{0};
};

// A home whose tasks run on any thread.
template <class Platform> class task_home final : public bide::detail::basic_task_home<Platform> {
    using registry_type = bide::detail::basic_task_registry<Platform>;

public:
    unsigned registry_here() const noexcept override { return 0; }
    registry_type& registry(unsigned = 0) noexcept override { return tasks_; }
    bool is_here() const noexcept override { return true; }
    bool is_closing() const noexcept override { return false; }
    void post(bide::runnable& r) noexcept override { here_.post(r); }
    bide::executor_ref executor() noexcept override { return here_; }
    void task_ended() noexcept override {}

private:
    at_once here_;
    registry_type tasks_;
};

// A task with an outcome: 1, or 2 if it never ran. The last reference destroys it.
template <class Platform> class task_cell final : public bide::detail::basic_task_header<Platform> {
    using header = bide::detail::basic_task_header<Platform>;

public:
    task_cell(typename header::home_type& home, link<Platform>&& what, bool kept,
              ledger<Platform>& book)
        : header(home, kept), link_(std::move(what)), book_(book) {
        link_.frame.promise().context = this;
        link_.frame.promise().where = home.executor();
    }

    void begin() noexcept { this->to_run().run.wake(); }

    // Returns the outcome. Requires: the task has ended; called once.
    int take() noexcept {
        const int mine = outcome_;
        outcome_ = 0;
        return mine;
    }

    // Written by the owners of references; the first one by the owner of the handle.
    typename Platform::template var<int> touched[2];

private:
    std::coroutine_handle<> start() noexcept override { return link_.frame; }
    void never_start() noexcept override { outcome_ = 2; }
    void settle() noexcept override {
        if (outcome_ == 0) {
            outcome_ = 1;
        }
    }
    // Reads what the owner of the handle wrote before it gave the handle up.
    void discard_outcome() noexcept override {
        if (take() != 0) {
            book_.discarded = book_.discarded + 1 + touched[0];
        }
    }
    void destroy() noexcept override {
        book_.destroyed = book_.destroyed + 1;
        delete this;
    }

    link<Platform> link_;
    ledger<Platform>& book_;
    typename Platform::template var<int> outcome_{0};
};

// What became of a task that a scheduler runs or refuses.
template <class Platform> struct outcome {
    typename Platform::template var<int> ran{0};
    typename Platform::template var<int> refused{0};

    bool is_decided() const noexcept { return ran + refused == 1; }
};

// A task that calls a function.
template <class Platform>
class calling_task final : public bide::detail::basic_task_header<Platform> {
    using header = bide::detail::basic_task_header<Platform>;

public:
    calling_task(typename header::home_type& home, bool kept, outcome<Platform>& becomes,
                 std::function<void()> does = {})
        : header(home, kept), becomes_(becomes), does_(std::move(does)) {}

private:
    std::coroutine_handle<> start() noexcept override {
        if (does_) {
            does_();
        }
        becomes_.ran = becomes_.ran + 1;
        return {};
    }
    void never_start() noexcept override { becomes_.refused = becomes_.refused + 1; }
    void settle() noexcept override {}
    void discard_outcome() noexcept override {}
    void destroy() noexcept override { delete this; }

    outcome<Platform>& becomes_;
    std::function<void()> does_;
};

} // namespace bide::model

#endif
