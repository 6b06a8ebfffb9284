# A program and a plugin of it, which it loads with RTLD_LOCAL: both see the same state of bide, also where the
# plugin is compiled with hidden visibility.
# cmake -DSOURCE=<source tree> -DWORK=... -DCXX=... -DNM=... -P plugin.cmake

cmake_minimum_required(VERSION 3.22)
include(${CMAKE_CURRENT_LIST_DIR}/recipes/run.cmake)
set(here ${CMAKE_CURRENT_LIST_DIR}/plugin)
file(MAKE_DIRECTORY ${WORK})
set(compiler ${CXX} -std=c++20 -I${SOURCE}/include -pthread)

run(${WORK} ${compiler} ${here}/host.cpp -rdynamic -ldl -o host)
foreach(visibility IN ITEMS default hidden)
    run(
        ${WORK} ${compiler} -fvisibility=${visibility} -fvisibility-inlines-hidden -fPIC -shared
        ${here}/plugin.cpp -o ${visibility}.so
    )
    run(${WORK} ./host ./${visibility}.so)
endforeach()

# All variables of bide in the hidden plugin, but for constants and the exceptions that are made once.
execute_process(
    COMMAND ${NM} --defined-only --format=sysv ${WORK}/hidden.so
    OUTPUT_VARIABLE symbols
    COMMAND_ERROR_IS_FATAL ANY
)
string(REGEX MATCHALL "_ZG?V?Z?Z?N4bide[^|\n]*[|][^|]*[|] +[bd] [^\n]*[|][.]t?(data|bss)\n" local "${symbols}")
list(FILTER local EXCLUDE REGEX "8error_of")
if(local)
    message(FATAL_ERROR "not marked BIDE_SHARED: ${local}")
endif()
