# TooManyCooks, which no distribution has: -DBIDE_BENCH_TMC=PATH names the folder of its headers. A
# program of its own (peers/tmc), because its headers define the library.

set(BIDE_BENCH_TMC "" CACHE PATH "The include folder of TooManyCooks, a peer")

if(BIDE_BENCH_TMC)
    if(NOT EXISTS "${BIDE_BENCH_TMC}/tmc/all_headers.hpp")
        message(FATAL_ERROR "BIDE_BENCH_TMC: no tmc/all_headers.hpp in ${BIDE_BENCH_TMC}")
    endif()
    bide_bench(tmc_bench peers/tmc/main.cpp)
    target_include_directories(tmc_bench SYSTEM PRIVATE ${BIDE_BENCH_TMC})
    add_library(bench_tmc INTERFACE)
    add_dependencies(bench_tmc tmc_bench)
    target_compile_definitions(bench_tmc INTERFACE "BIDE_BENCH_TMC=\"$<TARGET_FILE:tmc_bench>\"")
endif()
