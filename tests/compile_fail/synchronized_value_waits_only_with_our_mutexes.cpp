// expect: constraints? not satisfied|unsatisfied constraints|invalid reference to function
#include <bide/sync/synchronized_value.hpp>

#include <mutex>

int main() {
#if defined(BIDE_CONTROL)
    bide::synchronized_value<int> value(1);
#else
    bide::synchronized_value<int, std::mutex> value(1); // it knows no coroutines
#endif
    [[maybe_unused]] const auto operation = value.async_lock();
}
