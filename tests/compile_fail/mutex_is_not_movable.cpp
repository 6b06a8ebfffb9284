// expect: deleted (function|constructor)|is deleted
#include <bide/sync/mutex.hpp>

#include <utility>

#if defined(BIDE_CONTROL)
bide::mutex make();
bide::mutex make() { return bide::mutex(); } // elided: nothing moves
#else
bide::mutex make(bide::mutex& from);
bide::mutex make(bide::mutex& from) { return std::move(from); }
#endif
