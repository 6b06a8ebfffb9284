#ifndef BIDE_TESTS_SUPPORT_ON_TIME_HPP
#define BIDE_TESTS_SUPPORT_ON_TIME_HPP

// Whether a call of this thread returned in time. The time that the thread was ready to run and had
// no processor is not the call's, and is taken off: other programs may keep the machine busy. Linux.

#include <chrono>
#include <cstdio>

namespace test {

// How long this thread has waited for a processor so far; below zero: the system does not tell.
inline std::chrono::nanoseconds waited_for_processor() {
    long long ran = 0;
    long long waited = -1;
    if (std::FILE* const file = std::fopen("/proc/thread-self/schedstat", "re")) {
        if (std::fscanf(file, "%lld %lld", &ran, &waited) != 2) {
            waited = -1;
        }
        std::fclose(file);
    }
    return std::chrono::nanoseconds(waited);
}

// What a call took of its own.
template <class Call> std::chrono::nanoseconds time_of(Call call) {
    const auto waited = waited_for_processor();
    if (waited.count() < 0) {
        std::fputs("skipped: the system does not tell how long a thread waits to run\n", stderr);
    }
    const auto start = std::chrono::steady_clock::now();
    call();
    const std::chrono::nanoseconds took = std::chrono::steady_clock::now() - start;
    return waited.count() < 0 ? std::chrono::nanoseconds(0)
                              : took - (waited_for_processor() - waited);
}

} // namespace test

#endif
