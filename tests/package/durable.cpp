#include <bide/durable/locks.hpp>
#include <bide/durable/slots/memory.hpp>

int main() {
    bide::durable_mutex m(bide::memory_slot{});
    const auto held = m.acquire();
    return held && held->fence() > 0 && !m.try_acquire() ? 0 : 1;
}
