#ifndef BIDE_TESTS_MODEL_THREAD_SUPPORT_HPP
#define BIDE_TESTS_MODEL_THREAD_SUPPORT_HPP

#include <model/check.hpp>

#include <support/standard.hpp>

namespace bide::model {

// The face of bide's os_thread. A thread of the model is its thread.
class os_thread {
public:
    std::error_code start(void (*run)(void*) noexcept, void* argument, std::size_t = 0) noexcept {
        int& left = starts_left();
        if (left == 0) {
            return std::make_error_code(std::errc::resource_unavailable_try_again);
        }
        --left;
        thread_.emplace([=] { run(argument); });
        return {};
    }
    // It may be that it was never started.
    void join() noexcept { thread_.reset(); }
    static void name_this(std::string_view, const char*, unsigned) noexcept {}

    // How many threads the calling thread may still start.
    static int& starts_left() noexcept {
        struct count {
            int left = -1; // any number
        };
        return platform::local<count>().left;
    }

private:
    std::optional<thread> thread_;
};

} // namespace bide::model

#endif
