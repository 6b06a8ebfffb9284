# cmake [-DROOT=<source tree>] -P lint.cmake
#
# The house rules that a machine can check. Each finding is one line, `file:line: [rule] what`.
#
#   seam      atomics, fences, pauses, system calls and thread-local state only in the platform
#   order     a memory order is explained at most six lines further up, and never left to the default
#   label     a label such as [idle.announce] names a pair: it stands in two places
#   left      no TODO and its kin, no #if 0, no #pragma once
#   guard     BIDE_<ROOM>_<NAME>_HPP
#   rooms     a lower room never includes a higher one
#   tested    each header has its test
#   listed    what exists is also installed, built and run
#   size      at most 400 lines of at most 110 columns; beyond 100 columns only a remark
#   co_await  no capturing lambda inside an awaited expression: g++ 12 destroys it twice

cmake_minimum_required(VERSION 3.25)
if(NOT ROOT)
    cmake_path(GET CMAKE_CURRENT_LIST_DIR PARENT_PATH ROOT)
endif()

set(max_lines 400)
set(max_columns 110)
set(good_columns 100)
set(order_reach 6)

set(orders "relaxed|consume|acquire|release|acq_rel|seq_cst")
set(machine "std::atomic|atomic_thread_fence|_mm_pause|__builtin_ia32_pause|syscall *[(]|thread_local")
set(machine_rooms "^(core/(platform|detail/futex_[a-z]+)|durable/process)[.]hpp$")

set(may_include_core core)
set(may_include_sync core sync)
set(may_include_channel core channel)
set(may_include_task core sync channel task)
set(may_include_sched core sync channel task sched)
set(may_include_parallel core task sched parallel)
set(may_include_durable core sync task sched durable)
set(may_include_interop core sync channel task sched durable interop)
# A select waits for permits as well as for values.
set(may_include_from_channel/select.hpp core channel sync)

# They have nothing to run.
set(untested core/config.hpp durable/options.hpp durable/record_types.hpp durable/slot_types.hpp)

set(findings 0)
set(remarks 0)

function(finding where rule what)
    message("${where}: [${rule}] ${what}")
    math(EXPR findings "${findings} + 1")
    set(findings ${findings} PARENT_SCOPE)
endfunction()

# A file as a list of lines. What CMake's lists would trip over is written as control characters:
# 1 for [, 2 for ], 3 for ; and 4 for a backslash.
string(ASCII 1 open)
string(ASCII 2 close)
string(ASCII 3 semicolon)
string(ASCII 4 backslash)
function(read_lines file out)
    file(READ "${file}" text)
    string(REPLACE "[" "${open}" text "${text}")
    string(REPLACE "]" "${close}" text "${text}")
    string(REPLACE ";" "${semicolon}" text "${text}")
    string(REPLACE "\\" "${backslash}" text "${text}")
    string(REGEX REPLACE "\n$" "" text "${text}")
    string(REPLACE "\n" ";" text "${text}")
    set(${out} "${text}" PARENT_SCOPE)
endfunction()

# ---- one header

macro(check_line)
    string(LENGTH "${line}" columns)
    if(columns GREATER max_columns)
        finding(${at} size "${columns} columns, at most ${max_columns}")
    elseif(columns GREATER good_columns)
        math(EXPR remarks "${remarks} + 1")
    endif()

    if(line MATCHES "TODO|FIXME|XXX|#[ \t]*if[ \t]+0|#[ \t]*pragma[ \t]+once")
        finding(${at} left "${CMAKE_MATCH_0}")
    endif()

    string(REGEX REPLACE "//.*" "" code "${line}")

    if(code MATCHES "${machine}" AND NOT header MATCHES "${machine_rooms}")
        finding(${at} seam "${CMAKE_MATCH_0}")
    endif()

    if(code MATCHES "#[ \t]*include[ \t]*<bide/([a-z]+)/" AND DEFINED may_include)
        if(NOT CMAKE_MATCH_1 IN_LIST may_include)
            finding(${at} rooms "includes ${CMAKE_MATCH_1}/")
        endif()
    endif()

    # A comment with an order, and the comment lines that go on with it.
    if(line MATCHES "//.*Order:")
        set(ordered ${number})
        set(in_order TRUE)
    elseif(NOT line MATCHES "^[ \t]*//")
        set(in_order FALSE)
    endif()
    if(in_order)
        string(REGEX MATCHALL "${open}([A-Z]+[0-9]+|[a-z_]+[.][a-z_]+)${close}" labels "${line}")
        foreach(label IN LISTS labels)
            list(APPEND places_of_${label} ${at})
            list(APPEND all_labels ${label})
        endforeach()
    endif()
    if(code MATCHES "memory_order(_|::)(${orders})|[(,] *(${orders})[)]")
        math(EXPR distance "${number} - ${ordered}")
        if(distance GREATER order_reach)
            finding(${at} order "no `Order:` within ${order_reach} lines")
        endif()
    endif()
    # A slot's load() and store() are no atomic's.
    if(header MATCHES "^durable/" AND code MATCHES "(slot|slot_|of|held_->|s)[.>](load|store)[(][)]")
        set(code "")
    endif()
    if(code MATCHES "[.](load[(][)]|(store|exchange|fetch_[a-z]+)[(][^,()]+[)]${semicolon})")
        finding(${at} order "names no memory order")
    endif()
endmacro()

function(check_header header)
    set(path ${ROOT}/include/bide/${header})
    read_lines(${path} lines)

    list(LENGTH lines count)
    if(count GREATER max_lines)
        finding(include/bide/${header}:1 size "${count} lines, at most ${max_lines}")
    endif()

    string(TOUPPER "bide/${header}" guard)
    string(REGEX REPLACE "[/.]" "_" guard "${guard}")
    file(READ ${path} text)
    if(NOT text MATCHES "^(//[^\n]*\n|\n)*#ifndef ${guard}\n#define ${guard}\n")
        finding(include/bide/${header}:1 guard "does not begin with ${guard}")
    endif()

    unset(may_include)
    if(DEFINED may_include_from_${header})
        set(may_include ${may_include_from_${header}})
    elseif(header MATCHES "^([a-z]+)/")
        set(may_include ${may_include_${CMAKE_MATCH_1}})
    endif()

    set(number 0)
    set(ordered -1000)
    set(in_order FALSE)
    foreach(line IN LISTS lines)
        math(EXPR number "${number} + 1")
        set(at include/bide/${header}:${number})
        check_line()
    endforeach()

    if(NOT header MATCHES "detail/" AND header MATCHES "/" AND NOT header IN_LIST untested)
        string(REGEX REPLACE "[.]hpp$" "_test.cpp" test "${header}")
        if(NOT EXISTS ${ROOT}/tests/${test})
            finding(include/bide/${header}:1 tested "tests/${test} is missing")
        endif()
    endif()

    foreach(label IN LISTS all_labels)
        set(places_of_${label} ${places_of_${label}} PARENT_SCOPE)
    endforeach()
    set(all_labels ${all_labels} PARENT_SCOPE)
    set(findings ${findings} PARENT_SCOPE)
    set(remarks ${remarks} PARENT_SCOPE)
endfunction()

file(GLOB_RECURSE headers RELATIVE ${ROOT}/include/bide ${ROOT}/include/bide/*.hpp)
foreach(header IN LISTS headers)
    check_header(${header})
endforeach()

list(REMOVE_DUPLICATES all_labels)
foreach(label IN LISTS all_labels)
    list(LENGTH places_of_${label} count)
    if(count LESS 2)
        string(REGEX REPLACE "[${open}${close}]" "" name "${label}")
        finding(${places_of_${label}} label "${name} stands here and nowhere else")
    endif()
endforeach()

# ---- what is built

function(check_listed list where)
    file(READ ${ROOT}/${list} listed)
    foreach(file IN LISTS ARGN)
        string(REPLACE "." "[.]" pattern "${file}")
        if(NOT listed MATCHES "[ \t\n(]${pattern}[ \t\n)]")
            finding(${where}${file}:1 listed "is not in ${list}")
        endif()
    endforeach()
    set(findings ${findings} PARENT_SCOPE)
endfunction()

file(
    GLOB_RECURSE tests RELATIVE ${ROOT}/tests
    ${ROOT}/tests/*_test.cpp ${ROOT}/tests/*_stress.cpp
)
file(GLOB_RECURSE models RELATIVE ${ROOT}/tests/model ${ROOT}/tests/model/*_model.cpp)
file(GLOB misuses RELATIVE ${ROOT}/tests/compile_fail ${ROOT}/tests/compile_fail/*.cpp)
check_listed(CMakeLists.txt include/bide/ ${headers})
check_listed(tests/CMakeLists.txt tests/ ${tests})
if(models)
    check_listed(tests/model/CMakeLists.txt tests/model/ ${models})
endif()
check_listed(tests/compile_fail/CMakeLists.txt tests/compile_fail/ ${misuses})

# ---- every co_await of the tests

set(no_name "[^A-Za-z0-9_]")
set(awaiting "(^|${no_name})co_await(${no_name}[^${semicolon}]*)${semicolon}(.*)")
set(capture "[(,={ ]${open}[^${open}${close}]+${close} *([({<]|mutable|noexcept|->)")
file(GLOB_RECURSE sources RELATIVE ${ROOT} ${ROOT}/tests/*.cpp ${ROOT}/tests/*.hpp)
foreach(source IN LISTS sources)
    read_lines(${ROOT}/${source} lines)
    if(NOT lines MATCHES "co_await")
        continue()
    endif()
    set(number 0)
    set(rest "")
    foreach(line IN LISTS lines)
        math(EXPR number "${number} + 1")
        string(REGEX REPLACE "//.*" "" line "${line}")
        string(APPEND rest " ${line}")
        while(rest MATCHES "${awaiting}")
            set(awaited "${CMAKE_MATCH_2}")
            set(rest "${CMAKE_MATCH_3}")
            if(awaited MATCHES "${capture}")
                finding(${source}:${number} co_await "a capturing lambda in what is awaited")
            endif()
        endwhile()
        if(NOT rest MATCHES "co_await")
            set(rest "")
        endif()
    endforeach()
endforeach()

list(LENGTH headers header_count)
list(LENGTH sources source_count)
if(remarks GREATER 0)
    message("lint: ${remarks} lines of headers are longer than ${good_columns} columns")
endif()
if(findings GREATER 0)
    message(FATAL_ERROR "lint: ${findings} findings")
endif()
message("lint: ${header_count} headers and ${source_count} test files, nothing found")
