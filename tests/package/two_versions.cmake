# Two versions of the library in one program, as when two libraries bring it along: the headers as they
# are, and a copy with the next inline namespace. No symbol is defined by both, and both work.
# cmake -DSOURCE=<source tree> -DWORK=... -DCXX=... -DNM=... [-DSAME=ON] -P two_versions.cmake
#
# With SAME, the copy keeps the namespace, which must be found.

cmake_minimum_required(VERSION 3.22)
include(${CMAKE_CURRENT_LIST_DIR}/recipes/run.cmake)
set(here ${CMAKE_CURRENT_LIST_DIR}/two_versions)
file(REMOVE_RECURSE ${WORK})
file(COPY ${SOURCE}/include DESTINATION ${WORK}/next)

# change(HEADER FROM TO): in the copy. It must change something.
function(change header from to)
    set(path ${WORK}/next/include/bide/${header})
    file(READ ${path} text)
    string(REGEX REPLACE "${from}" "${to}" changed "${text}")
    if(changed STREQUAL text)
        message(FATAL_ERROR "${header} has no \"${from}\"")
    endif()
    file(WRITE ${path} "${changed}")
endfunction()

file(STRINGS ${SOURCE}/include/bide/version.hpp minor REGEX "_MINOR [0-9]+")
string(REGEX REPLACE ".*_MINOR " "" minor "${minor}")
math(EXPR next_minor "${minor} + 1")
change(version.hpp "_MINOR ${minor}" "_MINOR ${next_minor}")
if(NOT SAME)
    change(core/config.hpp "BIDE_ABI v[0-9]+" "BIDE_ABI v999")
endif()

foreach(half IN ITEMS first second)
    set(include ${SOURCE}/include)
    set(version ${minor})
    if(half STREQUAL "second")
        set(include ${WORK}/next/include)
        set(version ${next_minor})
    endif()
    set(objects ${half}.o)
    set(way "")
    if(half STREQUAL "second") # it has a library
        set(way -DBIDE_COMPILED)
        list(APPEND objects second_source.o)
        file(WRITE ${WORK}/source.cpp "#include <bide/source.hpp>\n")
        run(${WORK} ${CXX} -std=c++20 -I${include} -c source.cpp -o second_source.o)
    endif()
    run(
        ${WORK} ${CXX} -std=c++20 -I${include} -DVERSION=${version} -DSIDE=${half}
        -DSIDE_NAME=${half}_half ${way} -c ${here}/side.cpp -o ${half}.o
    )
    execute_process(
        COMMAND ${NM} --defined-only --extern-only --format=posix ${objects}
        WORKING_DIRECTORY ${WORK}
        OUTPUT_VARIABLE symbols
        COMMAND_ERROR_IS_FATAL ANY
    )
    string(REGEX MATCHALL "[^ \n]*bide[^ \n]* [A-Za-z]" ${half}_symbols "${symbols}")
    list(LENGTH ${half}_symbols count)
    if(count LESS 100)
        message(FATAL_ERROR "the ${half} half defines ${count} symbols of bide: the check sees too few")
    endif()
endforeach()

set(both "")
foreach(symbol IN LISTS first_symbols)
    if(symbol IN_LIST second_symbols)
        string(APPEND both "${symbol}\n")
    endif()
endforeach()
if(both)
    message(FATAL_ERROR "defined by both versions:\n${both}")
endif()

run(${WORK} ${CXX} -std=c++20 ${here}/main.cpp first.o second.o second_source.o -pthread -o program)
run(${WORK} ./program)
