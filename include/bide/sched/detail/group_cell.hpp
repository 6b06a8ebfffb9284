#ifndef BIDE_SCHED_DETAIL_GROUP_CELL_HPP
#define BIDE_SCHED_DETAIL_GROUP_CELL_HPP

#include <bide/core/config.hpp>
#include <bide/core/platform.hpp>
#include <bide/sched/detail/group.hpp>
#include <bide/task/detail/frame_memory.hpp>
#include <bide/task/detail/owned_frame.hpp>
#include <bide/task/detail/task_cell.hpp>
#include <bide/task/detail/task_source.hpp>
#include <bide/task/task.hpp>

#include <coroutine>
#include <exception>
#include <utility>

namespace bide::inline BIDE_ABI {
namespace detail {

using group = basic_group<native_platform>;
using group_member = basic_group_member<native_platform>;

// The coroutine of a member of a group.
template <class T> class group_coroutine : public group_member {
public:
    group_coroutine(group& g, task_home& home, task<T>&& t) noexcept
        : group_member(g, home, owned_frame<T>::name_of(t)), frame_(std::move(t)) {}

protected:
    ~group_coroutine() = default;

    std::coroutine_handle<> start() noexcept override {
        return frame_.begin(*this, this->home().executor());
    }
    void never_start() noexcept override {
        never_ran_ = true;
        frame_.destroy();
    }
    void settle() noexcept override {
        if (!never_ran_) {
            error_ = std::move((*frame_).error());
            frame_.destroy();
        }
    }

    owned_frame<T> frame_; // until it has ended
    std::exception_ptr error_;
    bool never_ran_ = false;
};

// The same with the callable that it came from, if any.
template <task_source S, class Coroutine>
class group_cell final : task_origin<S>, public Coroutine, public recycled {
public:
    // Throws: what the callable throws.
    template <class Group>
    group_cell(Group& g, task_home& home, S&& source)
        : Coroutine(g, home, this->open(std::move(source))) {}

private:
    void destroy() noexcept override { delete this; }
    void settle() noexcept override {
        Coroutine::settle();
        this->close();
    }
    void never_start() noexcept override {
        Coroutine::never_start();
        this->close();
    }
};

// A child of a task_group, or its body. Its value goes with its frame.
template <class T> class task_group_coroutine : public group_coroutine<T> {
public:
    using group_coroutine<T>::group_coroutine;

protected:
    ~task_group_coroutine() = default;

private:
    std::exception_ptr failure(bool& stopped) noexcept override {
        stopped = this->never_ran_;
        return std::move(this->error_);
    }
};

} // namespace detail
} // namespace bide::inline BIDE_ABI

#endif
