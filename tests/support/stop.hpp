#ifndef BIDE_TESTS_SUPPORT_STOP_HPP
#define BIDE_TESTS_SUPPORT_STOP_HPP

#include <bide/core/config.hpp>

#include <mutex>
#include <stop_token>

namespace test {

// A stop source, made out of line: g++ 12 with sanitizers warns of an uninitialised one where
// libstdc++'s constructor is inlined.
BIDE_NOINLINE inline std::stop_source new_stop() { return std::stop_source(); }

// Waits whose stop another thread may request, again and again.
class stoppable {
public:
    std::stop_token token() {
        const std::lock_guard lock(mutex_);
        if (source_.stop_requested()) {
            source_ = new_stop();
        }
        return source_.get_token();
    }
    void stop() {
        std::stop_source source = [this] {
            const std::lock_guard lock(mutex_);
            return source_;
        }();
        source.request_stop();
    }

private:
    std::mutex mutex_;
    std::stop_source source_ = new_stop();
};

} // namespace test

#endif
