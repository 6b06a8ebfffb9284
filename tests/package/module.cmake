# The module `bide`, by the commands of the compiler: a program imports it in one file and includes the
# headers in another.
# cmake -DCXX=<clang 19 or later> -DROOT=<source tree> -DWORK=<folder> -P module.cmake

cmake_minimum_required(VERSION 3.25)

function(run)
    execute_process(COMMAND ${ARGN} WORKING_DIRECTORY ${WORK} COMMAND_ERROR_IS_FATAL ANY)
endfunction()

file(MAKE_DIRECTORY ${WORK})
set(from ${CMAKE_CURRENT_LIST_DIR}/module)
set(compile ${CXX} -std=c++20 -Wall -Wextra -Wpedantic -Werror)
run(${compile} -I${ROOT}/include --precompile ${ROOT}/include/bide/bide.cppm -o bide.pcm)
run(${compile} -c bide.pcm -o bide.o)
run(${compile} -fmodule-file=bide=bide.pcm -c ${from}/main.cpp -o main.o)
run(${compile} -I${ROOT}/include -c ${from}/mixed.cpp -o mixed.o)
run(${CXX} main.o mixed.o bide.o -pthread -o module)
run(${WORK}/module)
