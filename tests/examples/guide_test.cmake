# The chapters and their pages: each chapter is built, is listed in README.md, has its number, a title and
# text; its page has all lines of its code, in their order, and no others.
# cmake -DROOT=<source tree> -DWORK=... "-DCHAPTERS=<those that are built>" -P guide_test.cmake

cmake_minimum_required(VERSION 3.25)
include(${CMAKE_CURRENT_LIST_DIR}/../support/snippets.cmake)
set(from ${CMAKE_CURRENT_LIST_DIR})
execute_process(
    COMMAND ${CMAKE_COMMAND} -DOUT=${WORK} -P ${ROOT}/cmake/guide.cmake COMMAND_ERROR_IS_FATAL ANY
)
file(GLOB sources RELATIVE ${from} ${from}/[0-9][0-9]_*.cpp)
list(TRANSFORM sources REPLACE "[.]cpp$" "")
list(SORT sources)
list(SORT CHAPTERS)
if(sources STREQUAL "" OR NOT sources STREQUAL CHAPTERS)
    message(FATAL_ERROR "chapters: ${sources}\nbut the build has: ${CHAPTERS}")
endif()

file(READ ${from}/README.md readme)
file(READ ${WORK}/guide.md contents)
foreach(chapter IN LISTS sources)
    if(NOT readme MATCHES "[(]${chapter}[.]cpp[)]" OR NOT contents MATCHES "guide_${chapter} – [^\n]+[.]\n")
        message(FATAL_ERROR "${chapter}: is not listed in README.md, or has no first sentence")
    endif()

    file(READ ${from}/${chapter}.cpp code)
    string(REPLACE "\n" "\n\n" code "\n${code}") # so that each line has two ends of its own
    string(REGEX REPLACE "\n//( [^\n]*)?\n" "" code "${code}")
    string(REGEX REPLACE "\n+" "\n" code "${code}")

    file(READ ${WORK}/${chapter}.md page)
    string(REGEX MATCH "^0?([0-9]+)" number ${chapter})
    if(NOT page MATCHES "^# ${CMAKE_MATCH_1}[.][^\n]+ [{]#guide_${chapter}[}]\n\n+[A-Z]")
        message(FATAL_ERROR "${chapter}: no title with its number, or no text after it")
    endif()
    set(shown "\n")
    set(blocks 0)
    while(TRUE)
        take_snippet(page block)
        if(block STREQUAL "")
            break()
        endif()
        string(APPEND shown "${block}\n")
        math(EXPR blocks "${blocks} + 1")
    endwhile()
    string(REGEX REPLACE "\n+" "\n" shown "${shown}")
    if(blocks LESS 2 OR NOT shown STREQUAL code)
        message(FATAL_ERROR "${chapter}: its page has ${blocks} blocks of code:\n${shown}\nof:\n${code}")
    endif()
endforeach()
