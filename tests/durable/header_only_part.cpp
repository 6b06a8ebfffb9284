// The part of mixed_test.cpp that is compiled with BIDE_DURABLE_HEADER_ONLY.
#include "header_only_part.hpp"

#include <bide/durable/acquire_all.hpp>
#include <bide/durable/leader_election.hpp>
#include <bide/durable/rate_limiter.hpp>
#include <bide/durable/slots/file.hpp>
#include <bide/durable/slots/memory.hpp>

#include <support/unhurried.hpp>

#include <chrono>
#include <string>
#include <utility>

#if !defined(BIDE_DURABLE_HEADER_ONLY)
#error "this file is compiled with BIDE_DURABLE_HEADER_ONLY"
#endif

namespace header_only_part {

bide::durable_mutex lock_on(const std::string& path) {
    return bide::durable_mutex(bide::file_slot(path), test::unhurried());
}
std::optional<bide::durable_guard> try_to_acquire(bide::durable_mutex& lock) {
    auto got = lock.try_acquire();
    return got ? std::optional(std::move(*got)) : std::nullopt;
}
bool uses_every_part() {
    const auto lock = [] { return bide::durable_mutex(bide::memory_slot{}, test::unhurried()); };
    bide::leader_election candidate(bide::memory_slot{}, test::unhurried());
    bide::rate_options patient{.attempt_limit = test::unhurried().attempt_limit};
    bide::durable_rate_limiter limiter(bide::memory_slot{}, 1, std::chrono::hours(1), 1, patient);
    auto both = bide::acquire_all({{"a", lock()}, {"b", lock()}});
    std::stop_source stop;
    bool leads = false;
    const auto work = [&](bide::leader_term) {
        leads = candidate.is_leader();
        stop.request_stop();
    };
    return candidate.run(work, stop.get_token()) && leads && limiter.try_acquire().value() &&
           !limiter.try_acquire().value() && both && both->size() == 2;
}
std::error_code sqlite_error() { return {5, bide::sqlite_category()}; }
const std::error_category& sqlite_category() { return bide::sqlite_category(); }

} // namespace header_only_part
