// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_TEST_EXPLORE_HPP
#define BIDE_TEST_EXPLORE_HPP

/// \file
/// Runs a test with many seeds, and repeats a run with one seed.
///
/// \code
/// bide::test::for_each_seed(1, 1000, [](std::uint64_t seed) {
///     bide::mutex m;                               // outlives the tasks
///     bide::test::scheduler s({.seed = seed});
///     ...
/// });
/// \endcode

#include <bide/test/detail/journal.hpp>

#include <cstdlib>
#include <cstring>
#include <optional>

namespace bide { inline namespace BIDE_ABI { namespace test {

/// A seed under which a test has thrown.
struct seed_failure {
    std::uint64_t seed = 0; ///< The seed.
    std::string what{}; ///< What the exception says; "" if it is not derived from std::exception.
    std::string journal{};      ///< The journal of the scheduler that was destroyed last.
    std::exception_ptr error{}; ///< The exception.
};

namespace detail {

// Returns the number in an environment variable. If the variable is not set, returns nothing. If
// the variable contains no number, prints a message and returns nothing.
inline std::optional<std::uint64_t> number_in(const char* variable) noexcept {
    const char* const text = std::getenv(variable);
    std::uint64_t number = 0;
    if (text == nullptr) {
        return std::nullopt;
    }
    const char* const end = text + std::strlen(text);
    const auto read = std::from_chars(text, end, number);
    if (read.ec != std::errc() || read.ptr != end) {
        std::fprintf(stderr, "bide::test: %s=%s is ignored, it is not a number\n", variable, text);
        return std::nullopt;
    }
    return number;
}

} // namespace detail

/// Calls f(seed) for `count` seeds from `first` on, and stops at the first call that throws.
/// Returns: the seed and the exception of that call; nothing if no call throws.
template <class F>
std::optional<seed_failure> find_failure(std::uint64_t first, std::uint64_t count, F&& f) {
    for (std::uint64_t seed = first; seed != first + count; ++seed) {
        std::string journal; // of the scheduler that f destroys
        const detail::replaced kept(native_platform::local<detail::journal::sink>().to, &journal);
#if BIDE_EXCEPTIONS
        try {
            f(seed);
        } catch (const std::exception& e) {
            return seed_failure{seed, e.what(), std::move(journal), std::current_exception()};
        } catch (...) {
            return seed_failure{seed, {}, std::move(journal), std::current_exception()};
        }
#else
        f(seed);
#endif
    }
    return std::nullopt;
}

/// Calls f(seed) for `count` seeds from `first` on. If a call throws, writes the seed and the end
/// of the journal to stderr, and stops.
///
/// Three environment variables change this. Their values are decimal numbers. If BIDE_TEST_SEED is
/// set, f is called only for that seed. If BIDE_TEST_SEEDS is set, it replaces `count`. If
/// BIDE_TEST_TRACE is 1, each seed is written to stderr before its call. This shows the seed of a
/// test that crashes.
/// Throws: the exception of f.
template <class F> void for_each_seed(std::uint64_t first, std::uint64_t count, F&& f) {
    if (const auto only = detail::number_in("BIDE_TEST_SEED")) {
        first = *only;
        count = 1;
    } else if (const auto more = detail::number_in("BIDE_TEST_SEEDS")) {
        count = *more;
    }
    const bool is_traced = detail::number_in("BIDE_TEST_TRACE").value_or(0) != 0;
    const auto failure = find_failure(first, count, [&](std::uint64_t seed) {
        if (is_traced) {
            std::fprintf(stderr, "bide::test: seed %llu\n", static_cast<unsigned long long>(seed));
        }
        f(seed);
    });
    if (!failure) {
        return;
    }
    std::fprintf(stderr, "bide::test: seed %llu failed: %s\n",
                 static_cast<unsigned long long>(failure->seed), failure->what.c_str());
    std::fprintf(stderr, "to repeat it, set BIDE_TEST_SEED=%llu; the last steps:\n%s",
                 static_cast<unsigned long long>(failure->seed),
                 std::string(detail::last_lines(failure->journal, 20)).c_str());
    std::rethrow_exception(failure->error);
}

}}} // namespace bide::BIDE_ABI::test

#endif
