# The guide: makes a page of each tests/examples/NN_name.cpp, and guide.md, which lists the pages.
# cmake -DOUT=<folder> [-DFROM=<folder of the chapters>] -P guide.cmake
#
# Lines of a chapter that begin with `// `, or are `//`, in column 0 are the text of its page, in Markdown.
# The first one is the title, `// # 1. A connection pool`. All other lines are shown as code, in their order.

cmake_minimum_required(VERSION 3.22)

if(NOT DEFINED FROM)
    set(FROM ${CMAKE_CURRENT_LIST_DIR}/../tests/examples)
endif()

# add_code(): moves the lines of `code` to the page, as a block if there is more than blank lines.
macro(add_code)
    string(REGEX REPLACE "^\n+" "" code "${code}")
    string(REGEX REPLACE "\n+$" "" code "${code}")
    if(NOT code STREQUAL "")
        string(APPEND page "\n```cpp\n${code}\n```\n")
    endif()
    if(NOT page STREQUAL "")
        string(APPEND page "\n")
    endif()
    set(code "")
endmacro()

# make_page(<chapter> <page> <title> <summary>): reads the chapter into three variables: its page without
# the title, its title, and the first sentence of its text.
function(make_page chapter page_name title_name summary_name)
    file(READ "${FROM}/${chapter}.cpp" rest)
    if(NOT rest MATCHES "^// # ([^\n]+)\n")
        message(FATAL_ERROR "${chapter}.cpp: the first line is no title: // # N. ...")
    endif()
    set(${title_name} "${CMAKE_MATCH_1}" PARENT_SCOPE)
    string(FIND "${rest}" "\n" end)
    math(EXPR end "${end} + 1")
    string(SUBSTRING "${rest}" ${end} -1 rest)

    set(page "")
    set(code "")
    while(NOT rest STREQUAL "") # by hand: lists of CMake lose brackets and semicolons
        string(FIND "${rest}" "\n" end) # not by a REGEX: "^\n" would take all blank lines
        string(SUBSTRING "${rest}" 0 ${end} line)
        if(end EQUAL -1)
            set(rest "")
        else()
            math(EXPR end "${end} + 1")
            string(SUBSTRING "${rest}" ${end} -1 rest)
        endif()
        if(line MATCHES "^//( |$)")
            if(NOT code STREQUAL "")
                add_code()
            endif()
            string(REGEX REPLACE "^// ?" "" line "${line}")
            string(APPEND page "${line}\n")
        else()
            string(APPEND code "${line}\n")
        endif()
    endwhile()
    add_code()
    string(REGEX REPLACE "^\n+" "" page "${page}")
    set(${page_name} "${page}" PARENT_SCOPE)

    string(REGEX REPLACE "\n\n.*" "" summary "${page}")
    string(REPLACE "\n" " " summary "${summary}")
    string(REGEX REPLACE "([.:]) .*" "\\1" summary "${summary}")
    string(REGEX REPLACE ":$" "." summary "${summary}")
    set(${summary_name} "${summary}" PARENT_SCOPE)
endfunction()

file(GLOB chapters RELATIVE ${FROM} ${FROM}/[0-9][0-9]_*.cpp)
list(SORT chapters)
list(TRANSFORM chapters REPLACE "[.]cpp$" "")
file(REMOVE_RECURSE "${OUT}")
set(contents "# Guide {#guide}\n\nA chapter is a whole program, which the tests run.\n\n")
string(ASCII 194 160 no_break) # a space, in UTF-8
foreach(chapter IN LISTS chapters)
    make_page(${chapter} page title summary)
    if(chapters MATCHES "(^|;)${chapter};([^;]+)")
        string(APPEND page "Next: @ref guide_${CMAKE_MATCH_2}\n")
    endif()
    string(REPLACE ". " ".${no_break}" title "${title}") # or Doxygen reads a list
    file(WRITE "${OUT}/${chapter}.md" "# ${title} {#guide_${chapter}}\n\n${page}")
    string(APPEND contents "- @subpage guide_${chapter} – ${summary}\n")
endforeach()
file(WRITE "${OUT}/guide.md" "${contents}")
