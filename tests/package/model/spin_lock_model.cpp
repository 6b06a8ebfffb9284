// A spinlock of a user's, on atomics alone.

#include <bide/model/check.hpp>

#include <atomic>

#if !defined(UNLOCK_ORDER)
#define UNLOCK_ORDER release
#endif

namespace {

template <class Platform> class spin_lock {
public:
    void lock() noexcept {
        while (held_.exchange(true, std::memory_order::acquire)) {
        }
    }
    void unlock() noexcept { held_.store(false, std::memory_order::UNLOCK_ORDER); }

private:
    typename Platform::template atomic<bool> held_{false};
};

} // namespace

int main() {
    namespace model = bide::model;
    model::check("two threads count under the lock", [] {
        spin_lock<model::platform> lock;
        model::var<int> sum{0};
        const auto add = [&] {
            lock.lock();
            sum = sum + 1;
            lock.unlock();
        };
        model::thread other(add);
        add();
        other.join();
        BIDE_MODEL_REQUIRE(sum == 2);
    });
}
