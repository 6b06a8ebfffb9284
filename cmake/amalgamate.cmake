# cmake -DOUTPUT=<file> -P amalgamate.cmake
#
# Writes the library as one header: the umbrellas and what they leave out, but durable, with every
# `#include <bide/...>` replaced by what it includes. The include guards stay, so that the one file and
# the many may meet in one translation unit. Standard and system headers are included where they were.

cmake_minimum_required(VERSION 3.22)
cmake_path(GET CMAKE_CURRENT_LIST_DIR PARENT_PATH root)

# Sets `text` to a header with its includes expanded, except those in `seen`, and adds to `seen` what
# was expanded; both in the caller's scope.
#
# A header is one string, cut by position: as a list it would lose semicolons and brackets.
function(expand header)
    file(READ "${root}/include/${header}" rest)
    list(APPEND seen ${header})
    string(REGEX REPLACE "\n$" "" rest "\n${rest}")
    set(done "")
    set(open_ifs 0)
    while(rest MATCHES "\n[ \t]*#[ \t]*include[ \t]*<(bide/[^>\n]+)>[^\n]*")
        set(directive "${CMAKE_MATCH_0}")
        set(included "${CMAKE_MATCH_1}")
        string(FIND "${rest}" "${directive}" at)
        string(LENGTH "${directive}" length)
        math(EXPR end "${at} + ${length}")
        string(SUBSTRING "${rest}" 0 ${at} before)
        string(SUBSTRING "${rest}" ${end} -1 rest)
        string(APPEND done "${before}")

        string(REGEX MATCHALL "\n[ \t]*#[ \t]*if" opened "${before}")
        string(REGEX MATCHALL "\n[ \t]*#[ \t]*endif" closed "${before}")
        list(LENGTH opened opened)
        list(LENGTH closed closed)
        math(EXPR open_ifs "${open_ifs} + ${opened} - ${closed}")

        if(NOT included IN_LIST seen)
            set(seen_before ${seen})
            expand(${included})
            string(APPEND done "${text}")
            # Inside an #if (other than the guard), it may be absent where it is included later.
            if(open_ifs GREATER 1)
                set(seen ${seen_before})
            endif()
        endif()
    endwhile()
    set(text "${done}${rest}" PARENT_SCOPE)
    set(seen ${seen} PARENT_SCOPE)
endfunction()

include(${CMAKE_CURRENT_LIST_DIR}/version.cmake)

file(READ ${root}/LICENSE licence)
string(REGEX REPLACE "\n$" "" licence "${licence}")
string(REPLACE "\n" "\n// " licence "// ${licence}")
string(REPLACE "\n// \n" "\n//\n" licence "${licence}")

set(seen "")
set(all "")
foreach(
    umbrella
    IN ITEMS
        bide
        core/callback_wait
        core/deadlock_check
        core/parker
        io
        parallel
        sched/chrome_trace
        sched/executor_runner
        sched/for_each_worker
        sched/join_map
        sched/single_flight
        stream
        sync/biased_shared_mutex
)
    expand(bide/${umbrella}.hpp)
    string(APPEND all "${text}")
endforeach()
file(
    WRITE "${OUTPUT}"
    "// bide ${bide_version} in one header, generated. SPDX-License-Identifier: BSL-1.0\n"
    "//\n${licence}\n${all}\n"
)
