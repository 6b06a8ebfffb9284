#include <bide/core/waiter.hpp>
#include <bide/sync/adaptive_mutex.hpp>
#include <bide/sync/biased_shared_mutex.hpp>
#include <bide/sync/lock_operations.hpp>
#include <bide/sync/mutex.hpp>
#include <bide/sync/shared_mutex.hpp>

#include <chrono>
#include <mutex>
#include <shared_mutex>
#include <support/test.hpp>

using namespace std::chrono_literals;

namespace {

// A mutex of a user: two permits, of which a reader takes one.
class pair_mutex : public bide::shared_lock_operations<pair_mutex, bide::native_platform> {
public:
    void unlock() noexcept { permits_.give(2); }
    void unlock_shared() noexcept { permits_.give(1); }

private:
    friend bide::lock_operations<pair_mutex, bide::native_platform>;
    friend bide::shared_lock_operations<pair_mutex, bide::native_platform>;

    using mode = bide::detail::permit_mode<bide::native_platform>;
    mode exclusive() noexcept { return {permits_, 2, 2}; }
    mode shared() noexcept { return {permits_, 1, 2}; }

    bide::detail::basic_permit_queue<bide::native_platform> permits_{2};
};
static_assert(sizeof(pair_mutex) == sizeof(bide::mutex));

} // namespace

TEMPLATE_TEST_CASE("lock_operations: no form locks a mutex that is locked", "", bide::mutex,
                   bide::adaptive_mutex, bide::shared_mutex, bide::biased_shared_mutex,
                   pair_mutex) {
    TestType m;
    const auto soon = std::chrono::steady_clock::now() + 1ms;
    m.lock();
    CHECK_FALSE(m.try_lock());
    CHECK_FALSE(m.try_lock_for(0ms));
    CHECK_FALSE(m.try_lock_for(1ms));
    CHECK_FALSE(m.try_lock_until(soon));
    m.unlock();
    CHECK(m.try_lock());
    m.unlock();
    CHECK(m.try_lock_for(0ms));
    m.unlock();
    CHECK(m.try_lock_until(soon));
    m.unlock();
}

TEMPLATE_TEST_CASE("lock_guard: has its mutex to the end of its scope", "", bide::mutex,
                   bide::adaptive_mutex, bide::shared_mutex, bide::biased_shared_mutex,
                   pair_mutex) {
    TestType m;
    {
        const bide::lock_guard lock(m);
        m.assume_locked(); // does nothing
        CHECK_FALSE(m.try_lock());
    }
    CHECK(m.try_lock());
    m.unlock();
}

TEMPLATE_TEST_CASE("lock_operations: no shared form locks a mutex that a writer has", "",
                   bide::shared_mutex, bide::biased_shared_mutex, pair_mutex) {
    TestType m;
    const auto soon = std::chrono::steady_clock::now() + 1ms;
    m.lock();
    CHECK_FALSE(m.try_lock_shared());
    CHECK_FALSE(m.try_lock_shared_for(0ms));
    CHECK_FALSE(m.try_lock_shared_for(1ms));
    CHECK_FALSE(m.try_lock_shared_until(soon));
    m.unlock();
    m.lock_shared();
    CHECK_FALSE(m.try_lock());
    CHECK(m.try_lock_shared());
    m.unlock_shared();
    m.unlock_shared();
    CHECK(m.try_lock_shared_for(0ms));
    m.unlock_shared();
    CHECK(m.try_lock_shared_until(soon));
    m.unlock_shared();
    const std::scoped_lock free(m);
}
