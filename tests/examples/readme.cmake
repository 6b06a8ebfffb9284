# The README.md files are true: every ```cpp block of them compiles with the headers that it includes, and runs
# where it has a main(). Messages name the file and the line.
#
# cmake -DGROUP=umbrella|scheduler|durable|rest -DROOT=<source tree> -DCXX=... -DDURABLE=<whether JSON is there>
#   -DWERROR=... -DWORK=... -DASIO=<folder of its headers, or nothing> -DASIO_NAMES=<what to define for them>
#   -DURING=<folder of liburing's header, or nothing> -DQUICK=<whether only the first page>
#   -DPRECOMPILED=<bide.hpp as g++ has precompiled it without -pthread, or nothing> -P readme.cmake
#
# The programs of a group are compiled in one file, each in a namespace: what they instantiate in common is compiled
# once. Two groups have a header in common, which is precompiled, and programs that need nothing else come before
# all other headers. A program that includes more is parsed on its own, too: then it includes all that it needs.
# Blocks without a main() are only parsed.

cmake_minimum_required(VERSION 3.25)
include(${CMAKE_CURRENT_LIST_DIR}/../support/snippets.cmake)
file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK})
set(readmes ${ROOT}/README.md)
if(NOT QUICK)
    file(GLOB others ${ROOT}/include/bide/*.md ${ROOT}/include/bide/*/README.md)
    list(REMOVE_ITEM others ${ROOT}/include/bide/model/README.md) # parts of a program: model.readme
    list(APPEND readmes ${others})
endif()

set(compiler ${CXX} -std=c++20 -Wall -Wextra -Wpedantic -I${ROOT}/include)
if(WERROR)
    list(APPEND compiler -Werror)
endif()
execute_process(COMMAND ${CXX} --version OUTPUT_VARIABLE version)
set(precompiled gch)
if(version MATCHES "clang")
    set(precompiled pch)
else() # g++ takes the README for a header, whose classes must not use lambdas
    list(APPEND compiler -Wno-subobject-linkage)
endif()
if(ASIO)
    list(TRANSFORM ASIO_NAMES PREPEND -D)
    list(APPEND compiler -idirafter${ASIO} ${ASIO_NAMES})
endif()
if(URING)
    list(APPEND compiler -idirafter${URING})
endif()

set(common "")
if(GROUP STREQUAL "umbrella")
    set(common bide/bide.hpp)
elseif(GROUP STREQUAL "scheduler")
    set(common bide/sched/scheduler.hpp)
endif()
file(WRITE ${WORK}/common.hpp "")
if(common)
    file(WRITE ${WORK}/common.hpp "#include <${common}>\n")
endif()
execute_process(
    COMMAND ${compiler} -x c++ -M ${WORK}/common.hpp OUTPUT_VARIABLE included COMMAND_ERROR_IS_FATAL ANY
)
if(PRECOMPILED AND common STREQUAL "bide/bide.hpp")
    list(APPEND compiler -include ${PRECOMPILED})
else()
    list(APPEND compiler -pthread)
    if(common)
        execute_process(
            COMMAND ${compiler} -x c++-header ${WORK}/common.hpp -o ${WORK}/common.hpp.${precompiled}
            COMMAND_ERROR_IS_FATAL ANY
        )
    endif()
    list(APPEND compiler -include ${WORK}/common.hpp)
endif()

# Sets <group> to that of the snippet, or to "" with a message if what it needs is not there.
function(choose_group snippet group)
    set(of rest)
    if(snippet MATCHES "<bide/durable/")
        set(of durable)
        set(needs DURABLE)
    elseif(snippet MATCHES "<bide/interop/asio")
        set(needs ASIO)
    elseif(snippet MATCHES "<bide/io/uring_driver")
        set(needs URING)
    elseif(snippet MATCHES "<bide/bide.hpp>")
        set(of umbrella)
    elseif(snippet MATCHES "<bide/sched/scheduler.hpp>")
        set(of scheduler)
    endif()
    if(of STREQUAL GROUP AND DEFINED needs AND NOT ${needs})
        message(STATUS "${where}: left out, ${needs} was not found")
        set(of "")
    endif()
    set(${group} ${of} PARENT_SCOPE)
endfunction()

set(headers "")
set(first_bodies "")
set(other_bodies "")
set(calls "")
set(count 0)
set(programs "")
foreach(readme IN LISTS readmes)
    file(READ ${readme} text)
    set(line 1)
    while(TRUE)
        take_snippet(text snippet line)
        if(snippet STREQUAL "")
            break()
        endif()
        set(where "${readme}:${line}")
        choose_group("${snippet}" group)
        if(NOT group STREQUAL GROUP)
            continue()
        endif()

        math(EXPR count "${count} + 1")
        string(REGEX MATCHALL "#include <[^>\n]*>" wanted "${snippet}")
        list(TRANSFORM wanted REPLACE "#include <(.*)>" "\\1")
        foreach(header IN LISTS wanted)
            if(included MATCHES "/${header}[ \n]")
                list(REMOVE_ITEM wanted ${header})
            endif()
        endforeach()
        string(FIND "${snippet}" "int main()" main)
        if(wanted OR main EQUAL -1)
            file(WRITE ${WORK}/${count}.cpp "#line ${line} \"${readme}\"\n${snippet}\n")
            execute_process(COMMAND ${compiler} -fsyntax-only ${WORK}/${count}.cpp RESULT_VARIABLE failed)
            if(failed)
                message(FATAL_ERROR "${where}: does not compile")
            endif()
        endif()

        if(main EQUAL -1)
            continue()
        endif()

        string(SUBSTRING "${snippet}" 0 ${main} before)
        string(SUBSTRING "${snippet}" ${main} -1 body)
        string(FIND "${body}" "\n}" end)
        math(EXPR end "${end} + 1")
        string(SUBSTRING "${body}" ${end} -1 after)
        string(SUBSTRING "${body}" 0 ${end} body)
        # Only the program's own main() returns 0 at its end.
        string(REGEX REPLACE "#include <[^\n]*" "" body "${before}${body}return 0; ${after}")
        set(place first)
        if(wanted)
            set(place other)
            list(APPEND headers ${wanted})
        endif()
        string(APPEND ${place}_bodies "namespace snippet_${count} {\n#line ${line} \"${readme}\"\n${body}\n}\n")
        string(APPEND calls "    if (which == ${count}) return snippet_${count}::main();\n")
        list(APPEND programs "${count}=${where}")
    endwhile()
endforeach()
if(count EQUAL 0)
    message(FATAL_ERROR "no snippet found")
endif()

list(REMOVE_DUPLICATES headers)
list(TRANSFORM headers REPLACE ".+" "#include <\\0>\n")
string(CONCAT headers ${headers})
file(
    WRITE ${WORK}/all.cpp
    "${first_bodies}#line 1 \"all.cpp\"\n${headers}#include <cstdlib>\n${other_bodies}#line 1 \"all.cpp\"\n"
    "int main(int, char** arguments) {\n    const int which = std::atoi(arguments[1]);\n${calls}    return 1;\n}\n"
)
if(GROUP STREQUAL "durable") # without the library: nothing else proves that its headers are whole
    list(APPEND compiler -DBIDE_DURABLE_HEADER_ONLY)
endif()
execute_process(COMMAND ${compiler} ${WORK}/all.cpp -o ${WORK}/all COMMAND_ERROR_IS_FATAL ANY)
foreach(program IN LISTS programs)
    string(REGEX MATCH "^([0-9]+)=(.*)" found "${program}")
    execute_process(
        COMMAND ${WORK}/all ${CMAKE_MATCH_1} WORKING_DIRECTORY ${WORK} RESULT_VARIABLE failed TIMEOUT 60
    )
    if(failed)
        string(REGEX REPLACE "^[0-9]+=" "" where "${program}")
        message(FATAL_ERROR "${where}: its main() failed: ${failed}")
    endif()
endforeach()
list(LENGTH programs running)
message(STATUS "${count} snippets, of which ${running} ran")
