#ifndef BIDE_CORE_CONFIG_HPP
#define BIDE_CORE_CONFIG_HPP

// What the compiler offers and what the user asked for; every macro of the library is listed here.
//
//   macro                    set by        meaning
//   BIDE_EXCEPTIONS          compiler      1: exceptions are on; 0: what would throw terminates
//   BIDE_SYMMETRIC_TRANSFER  user or here  1: `co_await task` tail-calls the child; 0: a trampoline
//                                          does the same on a bounded stack (core/resume.hpp)
//   BIDE_ABI                 here          the inline namespace: the linker does not confuse two
//                                          translation units that differ in one of the above
//   BIDE_NOINLINE            here          kept out of line, whatever the optimiser thinks
//   BIDE_INLINE              here          inlined, whatever the optimiser thinks
//   BIDE_COLD                here          out of line and seldom called
//   BIDE_NEAR_LOCAL          here          out of line where the compiler keeps the address of what
//                                          is thread-local over a suspension point
//   BIDE_BRACED_AWAIT_BUG    here          1: an aggregate, or a lambda that captures by value, that
//                                          is written inside a co_await or co_yield expression is
//                                          destroyed twice, unless that is trivial; 0: once
//   BIDE_RECYCLE_FRAMES      user or      1: coroutine frames are recycled; 0: each is its own
//                            sched/...    allocation, as sanitizers want it (frame_memory.hpp); the
//                                         two may be mixed in a program
//   BIDE_DURABLE_OPENSSL     user or CMake defined: OpenSSL is linked, and redis_slot speaks TLS; in
//                                          all files of a program, or in none
//   BIDE_THROW(exception)    here          throw, or say what was thrown and terminate
//   BIDE_VERSION_*           version.hpp   three numbers

#if defined(__cpp_exceptions) || defined(__EXCEPTIONS) || defined(_CPPUNWIND)
#define BIDE_EXCEPTIONS 1
#else
#define BIDE_EXCEPTIONS 0
#endif

// GCC turns the transfer into a tail call only at -O2 and above and not under ASan or TSan, and no
// predefined macro tells -O1 from -O2. A loop over ready children overflows the stack where it does
// not, so GCC gets the trampoline unless the user, who knows the flags, defines this to 1.
#if !defined(BIDE_SYMMETRIC_TRANSFER)
#if defined(__clang__) || defined(_MSC_VER)
#define BIDE_SYMMETRIC_TRANSFER 1
#else
#define BIDE_SYMMETRIC_TRANSFER 0
#endif
#endif

#if BIDE_EXCEPTIONS && BIDE_SYMMETRIC_TRANSFER
#define BIDE_ABI v0
#elif BIDE_EXCEPTIONS
#define BIDE_ABI v0_trampoline
#elif BIDE_SYMMETRIC_TRANSFER
#define BIDE_ABI v0_noexcept
#else
#define BIDE_ABI v0_noexcept_trampoline
#endif

#if defined(__GNUC__) || defined(__clang__)
#define BIDE_NOINLINE [[gnu::noinline]]
#elif defined(_MSC_VER)
#define BIDE_NOINLINE __declspec(noinline)
#else
#define BIDE_NOINLINE
#endif

#if defined(__GNUC__) || defined(__clang__)
#define BIDE_INLINE [[gnu::always_inline]] inline
#define BIDE_COLD [[gnu::noinline, gnu::cold]]
#elif defined(_MSC_VER)
#define BIDE_INLINE __forceinline
#define BIDE_COLD __declspec(noinline)
#else
#define BIDE_INLINE inline
#define BIDE_COLD
#endif

#if defined(__clang_major__) && __clang_major__ < 16
#define BIDE_NEAR_LOCAL BIDE_NOINLINE
#else
#define BIDE_NEAR_LOCAL
#endif

// GCC bugs 99576, 100611, 101367 and 101976. What the expression calls, and whether that takes its
// arguments by value or by reference, makes no difference.
#if defined(__GNUC__) && !defined(__clang__) && __GNUC__ < 13
#define BIDE_BRACED_AWAIT_BUG 1
#else
#define BIDE_BRACED_AWAIT_BUG 0
#endif

#if BIDE_EXCEPTIONS
#define BIDE_THROW(exception) throw exception
#else
#define BIDE_THROW(exception) ::bide::detail::fatal("would throw " #exception)
#endif

namespace bide::inline BIDE_ABI {

// Two lines of 64 bytes: adjacent-line prefetchers make neighbours share. A constant of ours
// because std::hardware_destructive_interference_size is missing in clang 14 and warned about by
// g++.
inline constexpr int cache_line_pair = 128;

} // namespace bide::inline BIDE_ABI

#endif
