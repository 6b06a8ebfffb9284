# libfork, which no distribution has: -DBIDE_BENCH_LIBFORK=PATH names the folder of its headers. A
# program of its own (peers/libfork), because its tasks run in no other library's scheduler.

set(BIDE_BENCH_LIBFORK "" CACHE PATH "The include folder of libfork, a peer")

if(BIDE_BENCH_LIBFORK)
    if(NOT EXISTS "${BIDE_BENCH_LIBFORK}/libfork/core.hpp")
        message(FATAL_ERROR "BIDE_BENCH_LIBFORK: no libfork/core.hpp in ${BIDE_BENCH_LIBFORK}")
    endif()
    bide_bench(libfork_bench peers/libfork/main.cpp)
    target_include_directories(libfork_bench SYSTEM PRIVATE ${BIDE_BENCH_LIBFORK})
    target_link_libraries(libfork_bench PRIVATE Threads::Threads)
    add_library(bench_libfork INTERFACE)
    add_dependencies(bench_libfork libfork_bench)
    target_compile_definitions(
        bench_libfork INTERFACE "BIDE_BENCH_LIBFORK=\"$<TARGET_FILE:libfork_bench>\""
    )
endif()
