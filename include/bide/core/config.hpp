// SPDX-License-Identifier: BSL-1.0
#ifndef BIDE_CORE_CONFIG_HPP
#define BIDE_CORE_CONFIG_HPP

/// \file
/// Lists every macro of the library and detects what the compiler offers.
///
/// \code
/// macro                    set by        meaning
/// BIDE_EXCEPTIONS          compiler      1: exceptions are on. 0: a throw terminates instead.
/// BIDE_SYMMETRIC_TRANSFER  user or here  1: `co_await task` tail-calls the child. 0: a trampoline
///                                        bounds the stack instead (core/resume.hpp).
/// BIDE_ABI                 here          The inline namespace. It depends on the two macros above:
///                                        files that differ in them have different symbols.
/// BIDE_DEADLOCK_CHECK      user or CMake Defined: waits and holders of locks are recorded, and
///                                        deadlocks reported (core/deadlock_check.hpp). Files of
///                                        one program must agree on it; the inline namespace
///                                        depends on it.
/// BIDE_SHARED              here          The type, function or object is the same one in all
///                                        shared objects of a process, even if they are compiled
///                                        with hidden visibility. Process-wide state is declared
///                                        with it, and so are the types that name such state.
/// BIDE_NOINLINE            here          The function is never inlined.
/// BIDE_INLINE              here          The function is always inlined.
/// BIDE_COLD                here          The function is never inlined and rarely called.
/// BIDE_NEAR_LOCAL          here          The function is never inlined if the compiler keeps the
///                                        address of a thread-local object over a suspension point.
/// BIDE_THREAD_SAFETY(...)  here          An attribute for clang's -Wthread-safety, such as
///                                        `guarded_by(mutex)` of a variable (README.md in sync/).
/// BIDE_BRACED_AWAIT_BUG    here          1: the compiler destroys a temporary twice if it is an
///                                        aggregate, or a lambda with captures by value, inside a
///                                        co_await or co_yield expression. 0: it does not.
/// BIDE_RECYCLE_FRAMES      user or task/ 1: coroutine frames are recycled. 0: each frame is an
///                                        allocation of its own, as sanitizers need it
///                                        (task/detail/coroutine_frame.hpp). Files of one program may
///                                        differ in it.
/// BIDE_COMPILED            user or CMake Defined: the headers only declare what is rarely called. The
///                                        definitions are in the library bide::compiled, or in the
///                                        one file of the program that includes source.hpp. Files
///                                        of one program may differ in it. The library needs the
///                                        flags of the program, such as -fsanitize=thread,
///                                        BIDE_USDT and BIDE_SWITCH_POINTS.
/// BIDE_DEFINITIONS         here          1: the headers contain the definitions that BIDE_COMPILED
///                                        moves to the library. 0: they do not.
/// BIDE_COMPILED_INLINE     here          `inline` if only the headers define the function.
///                                        Otherwise empty. Such a function must contain no static
///                                        object: files that differ in BIDE_COMPILED would use
///                                        different objects.
/// BIDE_COMPILED_TEMPLATE() here          Its argument is instantiated only in the library. Members
///                                        that are defined in their class are still inlined.
/// BIDE_DURABLE_HEADER_ONLY user or CMake Defined: the durable headers bring the definitions of their
///                                        functions. Otherwise one file of the program, or the
///                                        library bide::durable, includes durable/source.hpp.
///                                        Files of one program may differ in it.
/// BIDE_DURABLE_INLINE      here          `inline` if the durable headers bring their definitions.
///                                        Otherwise empty. Such a function must contain no static
///                                        object: files that differ in the macro above would use
///                                        different objects.
/// BIDE_STD_EXECUTION_UNTESTED  user      Defined: interop/std_execution.hpp compiles with any version
///                                        of libstdc++.
/// BIDE_USDT                user          1: the program has static probes, a nop each, for perf,
///                                        bpftrace and gdb (README.md in core/). Needs <sys/sdt.h>.
///                                        Files of one program may differ in it. If they do, the
///                                        linker keeps one version of each shared inline function:
///                                        with probes or without.
/// BIDE_PROBE(name, ...)    core/detail/  A probe, or nothing, depending on BIDE_USDT. The same
///                          noted.hpp     holds for BIDE_PROBE_IF and BIDE_PROBE_WAIT.
/// BIDE_SWITCH_POINTS       user          1: after each operation, a simulation may run other tasks
///                                        (test::switch_places). On other threads, each operation
///                                        then reads a counter. Files of one program should agree on
///                                        it: the linker keeps one version of each shared inline
///                                        function.
/// BIDE_SWITCH_AFTER()      core/detail/  A switch point at the end of the scope, or nothing.
///                          noted.hpp
/// BIDE_THROW(exception)    here          Throws, or names the exception and terminates.
/// BIDE_TRY, BIDE_CATCH     task/detail/  `try` and `catch (...)`. Without exceptions, the second block
///                          coroutine_    never runs.
///                          frame.hpp
/// BIDE_VERSION_*           version.hpp   Three numbers.
/// \endcode

#include <version>

#if defined(_LIBCPP_VERSION) && !defined(__cpp_lib_jthread)
#error "bide needs std::stop_token. libc++ before 20 has it with -fexperimental-library."
#endif

/// 1 if exceptions are on, else 0.
#if defined(__cpp_exceptions) || defined(__EXCEPTIONS) || defined(_CPPUNWIND)
#define BIDE_EXCEPTIONS 1
#else
#define BIDE_EXCEPTIONS 0
#endif

// GCC resumes one coroutine from another by a tail call only at -O2 and above, and not under ASan
// or TSan. Without the tail call, a loop over ready children overflows the stack. No predefined
// macro tells -O1 from -O2, so GCC uses the trampoline by default. A user that compiles at -O2 and
// without these sanitizers may define the macro as 1.
/// 1 if one coroutine resumes another by a tail call.
#if !defined(BIDE_SYMMETRIC_TRANSFER)
#if defined(__clang__) || defined(_MSC_VER)
#define BIDE_SYMMETRIC_TRANSFER 1
#else
#define BIDE_SYMMETRIC_TRANSFER 0
#endif
#endif

/// The inline namespace. Its name depends on the macros that change the code.
#if defined(BIDE_DEADLOCK_CHECK) && BIDE_EXCEPTIONS && BIDE_SYMMETRIC_TRANSFER
#define BIDE_ABI v0_checked
#elif defined(BIDE_DEADLOCK_CHECK) && BIDE_EXCEPTIONS
#define BIDE_ABI v0_checked_trampoline
#elif defined(BIDE_DEADLOCK_CHECK) && BIDE_SYMMETRIC_TRANSFER
#define BIDE_ABI v0_checked_noexcept
#elif defined(BIDE_DEADLOCK_CHECK)
#define BIDE_ABI v0_checked_noexcept_trampoline
#elif BIDE_EXCEPTIONS && BIDE_SYMMETRIC_TRANSFER
#define BIDE_ABI v0
#elif BIDE_EXCEPTIONS
#define BIDE_ABI v0_trampoline
#elif BIDE_SYMMETRIC_TRANSFER
#define BIDE_ABI v0_noexcept
#else
#define BIDE_ABI v0_noexcept_trampoline
#endif

/// Makes a type, a function or an object the same one in all shared objects of a process.
#if (defined(__GNUC__) || defined(__clang__)) && !defined(_WIN32)
#define BIDE_SHARED [[gnu::visibility("default")]]
#else
#define BIDE_SHARED
#endif

/// Keeps a function out of line.
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
#define BIDE_MAY_ALIAS [[gnu::may_alias]]
#elif defined(_MSC_VER)
#define BIDE_INLINE __forceinline
#define BIDE_COLD __declspec(noinline)
#define BIDE_MAY_ALIAS
#else
/// Inlines a function always.
#define BIDE_INLINE inline
/// Keeps a function out of line and out of the hot code.
#define BIDE_COLD
/// Marks a type whose bytes may be an object of any other type.
#define BIDE_MAY_ALIAS
#endif

/// Keeps a function with thread-local state out of line for clang before 16 and for MSVC.
#if defined(__clang_major__) ? __clang_major__ < 16 : defined(_MSC_VER)
#define BIDE_NEAR_LOCAL BIDE_NOINLINE
#else
#define BIDE_NEAR_LOCAL
#endif

/// Attributes of clang's thread-safety analysis. For other compilers, nothing.
#if defined(__clang__)
#define BIDE_THREAD_SAFETY(...) __attribute__((__VA_ARGS__))
#else
#define BIDE_THREAD_SAFETY(...)
#endif

/// 1 if the compiler destroys some temporaries of co_await expressions twice.
// GCC bugs 99576, 100611, 101367 and 101976. The bug does not depend on the function that is
// called, nor on how that function takes its arguments.
#if defined(__GNUC__) && !defined(__clang__) && __GNUC__ < 13
#define BIDE_BRACED_AWAIT_BUG 1
#else
#define BIDE_BRACED_AWAIT_BUG 0
#endif

// source.hpp defines BIDE_SOURCE.
#if defined(BIDE_SOURCE)
#define BIDE_DEFINITIONS 1
#define BIDE_COMPILED_INLINE
#define BIDE_COMPILED_TEMPLATE(...) template __VA_ARGS__;
#elif defined(BIDE_COMPILED)
#define BIDE_DEFINITIONS 0
#define BIDE_COMPILED_INLINE
#define BIDE_COMPILED_TEMPLATE(...) extern template __VA_ARGS__;
#else
/// 1 if the headers bring the definitions that bide::compiled has.
#define BIDE_DEFINITIONS 1
/// Marks a function that bide::compiled defines.
#define BIDE_COMPILED_INLINE inline
/// Instantiates a template in bide::compiled alone.
#define BIDE_COMPILED_TEMPLATE(...)
#endif

/// Marks a function of the durable locks that is defined in durable/impl/.
#if defined(BIDE_DURABLE_HEADER_ONLY)
#define BIDE_DURABLE_INLINE inline
#else
#define BIDE_DURABLE_INLINE
#endif

/// Throws the exception, or names it and terminates.
#if BIDE_EXCEPTIONS
#define BIDE_THROW(exception) throw exception
#else
#define BIDE_THROW(exception) ::bide::detail::fatal("would throw " #exception)
#endif

namespace bide { inline namespace BIDE_ABI {

/// The distance between two objects that different threads write. It is two cache lines of 64
/// bytes, because an adjacent-line prefetcher fetches lines in pairs.
// std::hardware_destructive_interference_size is missing in clang 14, and g++ warns about it.
inline constexpr int cache_line_pair = 128;

}} // namespace bide::BIDE_ABI

#endif
