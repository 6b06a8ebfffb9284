#ifndef BIDE_TESTS_MODEL_QUEUED_HPP
#define BIDE_TESTS_MODEL_QUEUED_HPP

#include <model/sync_support.hpp>

namespace sync_model {

// A node that waits in the queue of a primitive when the body begins; whose it is looks, and does not sleep.
struct queued : node {
    template <class Queue> explicit queued(Queue& in, std::ptrdiff_t n = 1) : node(n) {
        in.enqueue(*this);
    }
    bool is_granted() const noexcept { return is_complete() && outcome() == wait_status::granted; }
};

} // namespace sync_model

#endif
