// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_MODEL_IMPL_BODY_HPP
#define BIDE_MODEL_IMPL_BODY_HPP

// The functions that a body calls: threads, requirements, choices.

#include <bide/core/config.hpp>
#include <bide/model/check.hpp>
#include <bide/model/detail/execution.hpp>
#include <bide/model/detail/heap.hpp>

#include <functional>
#include <string>
#include <utility>

namespace bide { inline namespace BIDE_ABI { namespace model {

thread::thread(std::function<void()> run)
    : id_(detail::execution::needed().spawn(std::move(run), false)) {}

void thread::join() noexcept {
    if (std::exchange(joined_, true)) {
        return;
    }
    detail::request r;
    r.what = detail::request::kind::join;
    r.other = id_;
    r.text = "joins";
    detail::execution::needed().step(r);
}

void daemon(std::function<void()> run) { detail::execution::needed().spawn(std::move(run), true); }

void require(bool holds, const char* what, int line, const char* file) noexcept {
    if (!holds) {
        detail::execution::needed().fail_now(failure::assertion, what, {file, line});
    }
}

int choose(int n) noexcept {
    detail::execution& x = detail::execution::needed();
    if (n < 1) {
        x.fail_now(failure::assertion, "choose() among no values");
    }
    return x.choose(n, {}, "choose");
}

void assume(bool holds) noexcept {
    if (!holds) {
        detail::execution::needed().leave_out();
    }
}

void record(std::string outcome) {
    detail::execution& x = detail::execution::needed();
    const detail::heap::leave guard;
    x.outcomes.emplace_back(outcome.c_str());
}

void use_service(void* timer_service) noexcept {
    detail::execution::needed().service = timer_service;
}

}}} // namespace bide::BIDE_ABI::model

#endif
