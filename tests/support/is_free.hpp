#ifndef BIDE_TESTS_SUPPORT_IS_FREE_HPP
#define BIDE_TESTS_SUPPORT_IS_FREE_HPP

namespace test {

// Returns true if the mutex can be locked now. Locks it for a moment.
template <class Mutex> bool is_free(Mutex& m) {
    const bool got = m.try_lock();
    if (got) {
        m.unlock();
    }
    return got;
}

} // namespace test

#endif
