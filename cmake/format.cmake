# cmake -DROOT=<source tree> [-DCLANG_FORMAT=...] [-DFIX=ON] -P format.cmake
#
# Fails if a source is not formatted as .clang-format says; with FIX, formats it.

cmake_minimum_required(VERSION 3.25)
if(NOT CLANG_FORMAT)
    set(CLANG_FORMAT clang-format-19)
endif()
set(how --dry-run -Werror)
if(FIX)
    set(how -i)
endif()
foreach(folder IN ITEMS include cmake tests bench)
    file(GLOB_RECURSE sources ${ROOT}/${folder}/*.hpp ${ROOT}/${folder}/*.cpp)
    execute_process(COMMAND ${CLANG_FORMAT} ${how} ${sources} COMMAND_ERROR_IS_FATAL ANY)
endforeach()
