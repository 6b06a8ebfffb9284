#include <bide/durable/locks.hpp>
#include <bide/durable/slots/memory.hpp>

bool locks_once() {
    bide::durable_mutex m(bide::memory_slot{});
    return m.try_acquire().has_value();
}
