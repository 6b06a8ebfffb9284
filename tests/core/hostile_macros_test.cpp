// Every public header compiles beside the macros of other libraries. This file defines the macros that
// Qt, X11 and windows.h define, so that a use of their names breaks the build. It includes the standard
// and system headers first, because the macros would break these too.

#include <support/test.hpp>

#include <climits>
#include <typeinfo>

#if !defined(_WIN32)
#include <pthread.h>
#endif
#if defined(__linux__)
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif
#if __has_include(<cxxabi.h>)
#include <cxxabi.h>
#endif

// Qt
#define slots @
#define signals @
#define emit @
#define forever @
#define foreach(variable, container) @
// X11
#define None @
#define Bool @
#define Status @
// windows.h
#define min(a, b) @
#define max(a, b) @
#define small @
#define near @
#define far @
#define interface @

// These include all headers of the rooms that they belong to.
#include <bide/bide.hpp>
#include <bide/io.hpp>
#include <bide/parallel.hpp>
#include <bide/sched/chrome_trace.hpp>
#include <bide/stream.hpp>

#undef slots
#undef signals
#undef emit
#undef forever
#undef foreach
#undef None
#undef Bool
#undef Status
#undef min
#undef max
#undef small
#undef near
#undef far
#undef interface

TEST_CASE("hostile_macros: every public header compiles beside the macros of other libraries") {
    const bide::semaphore s(1);
    CHECK(s.max() > 1);
}
