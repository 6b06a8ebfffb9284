// What each primitive takes up.

#include "sync/peers.hpp"
#include "sync/workloads.hpp"

#include <bide/core/event_count.hpp>

#include <condition_variable>
#include <mutex>
#include <semaphore>
#include <shared_mutex>
#include <utility>

namespace bench {
namespace {

template <class Subject> void add_size(table& t, const char* name) {
    t.add(name, [] { return sample{static_cast<double>(sizeof(Subject))}; });
}

} // namespace

void add_sizes(harness& h) {
    table t{"sizes", "", {{"size", "bytes", 0}}, {}};
    add_size<std::mutex>(t, "std::mutex");
    add_size<std::shared_mutex>(t, "std::shared_mutex");
    add_size<std::counting_semaphore<>>(t, "std::counting_semaphore");
    add_size<std::condition_variable>(t, "std::condition_variable");
    add_size<::sem_t>(t, "sem_t");
    add_size<bide::semaphore>(t, "bide::semaphore");
    add_size<bide::mutex>(t, "bide::mutex");
    add_size<bide::adaptive_mutex>(t, "bide::adaptive_mutex");
    add_size<bide::shared_mutex>(t, "bide::shared_mutex");
    add_size<bide::biased_shared_mutex>(t, "bide::biased_shared_mutex");
    add_size<bide::condition_variable>(t, "bide::condition_variable");
    add_size<bide::notify>(t, "bide::notify");
    add_size<bide::event_count>(t, "bide::event_count");
    add_size<bide::semaphore::waiter>(t, "bide::semaphore::waiter");
    h.add(std::move(t));
}

} // namespace bench
