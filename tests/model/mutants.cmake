# cmake -DHEADERS=include/bide -DPROGRAMS=<model programs> -P mutants.cmake
#
# The mutation run: each memory order that the models come across in HEADERS is weakened by one step, one
# at a time, and the models that came across it are explored again, until one fails: a killed mutant is not
# tried again. Short explorations come first, in three rounds: up to 0.1 s, up to 2 s, all. JOBS programs
# run at a time, or two. Prints a line for each mutant. Fails where one survives all models and is not in
# survivors.txt, where one in survivors.txt does not survive, or where an order in core/, sync/, channel/,
# task/, sched/ or parallel/ was never come across.

cmake_minimum_required(VERSION 3.25)
cmake_path(ABSOLUTE_PATH HEADERS NORMALIZE)

set(mutants "")
set(places "")
if(NOT JOBS)
    set(JOBS 2)
endif()
set(outputs ${CMAKE_CURRENT_BINARY_DIR}/mutants)
file(REMOVE_RECURSE ${outputs})
file(MAKE_DIRECTORY ${outputs})
list(JOIN PROGRAMS "\n" lines)
file(WRITE ${outputs}/programs "${lines}\n")
file(WRITE ${outputs}/killed "")
set(ENV{BIDE_MODEL_KILLED} ${outputs}/killed)
set(ENV{BIDE_MODEL_WITHIN} ${HEADERS})

foreach(longest IN ITEMS 0.1 2 100000)
    message(STATUS "explorations of up to ${longest} s")
    set(ENV{BIDE_MODEL_MUTANTS} ${longest})
    execute_process(
        COMMAND
            xargs -P ${JOBS} -n 1 sh -c "\"$1\" > \"$0/\${1##*/}.${longest}\" || { echo \"$1 fails\"; exit 1; }"
            ${outputs}
        INPUT_FILE ${outputs}/programs
        RESULT_VARIABLE status
    )
    if(NOT status EQUAL 0)
        message(FATAL_ERROR "a model fails without any mutation: see ${outputs}")
    endif()
endforeach()

file(GLOB files ${outputs}/*.*)
foreach(file IN LISTS files)
    cmake_path(GET file STEM name)
    file(READ ${file} output)
    string(REGEX MATCHALL "mutant [^\n]+" lines "${output}")
    foreach(line IN LISTS lines)
        if(NOT line MATCHES "^mutant (killed|survived) ([^ ]+):([0-9]+)([^>]+>[a-z_]+) by \"(.+)\" [(](.+)[)]$")
            message(FATAL_ERROR "not understood: ${line}")
        endif()
        set(verdict ${CMAKE_MATCH_1})
        set(file ${CMAKE_MATCH_2})
        set(place "${CMAKE_MATCH_3}")
        set(orders "${CMAKE_MATCH_4}")
        set(by "${name}: ${CMAKE_MATCH_5} (${CMAKE_MATCH_6})")
        cmake_path(ABSOLUTE_PATH file NORMALIZE)
        cmake_path(IS_PREFIX HEADERS "${file}" ours)
        if(NOT ours)
            continue()
        endif()
        cmake_path(RELATIVE_PATH file BASE_DIRECTORY ${HEADERS})
        if(file MATCHES "^model/") # an operator of an atomic of the models' own
            continue()
        endif()
        set(mutant "${file}:${place}${orders}")
        list(APPEND mutants "${mutant}")
        list(APPEND places "${file}:${place}")
        string(MAKE_C_IDENTIFIER "${mutant}" id)
        if(verdict STREQUAL killed)
            list(APPEND killers_of_${id} "${by}")
        endif()
    endforeach()
endforeach()
list(REMOVE_DUPLICATES mutants)
list(SORT mutants COMPARE NATURAL)

# Sets `out` to the lines of a header as a list, without what lists would trip over.
function(lines_of header out)
    file(READ ${header} text)
    string(REGEX REPLACE "[][;\\\\]" "." text "${text}")
    string(REPLACE "\n" ";" lines "${text}")
    set(${out} "${lines}" PARENT_SCOPE)
endfunction()

# Sets `out` to the entry of survivors.txt that the mutant belongs to, or to nothing.
file(STRINGS ${CMAKE_CURRENT_LIST_DIR}/survivors.txt entries REGEX "^[^#]")
function(entry_of mutant out)
    set(${out} "" PARENT_SCOPE)
    string(REGEX MATCH "^([^ ]+):([0-9]+) (.+)$" parts "${mutant}")
    set(header ${CMAKE_MATCH_1})
    math(EXPR at "${CMAKE_MATCH_2} - 1")
    set(orders "${CMAKE_MATCH_3}")
    foreach(entry IN LISTS entries)
        string(REGEX MATCH "^([^|]+) [|] ([^|]+) [|] ([^|]+) [|] [^ ]" parts "${entry}")
        set(its_header "${CMAKE_MATCH_1}")
        set(its_orders "${CMAKE_MATCH_2}")
        set(its_text "${CMAKE_MATCH_3}")
        if(header STREQUAL its_header AND orders STREQUAL its_orders)
            lines_of(${HEADERS}/${header} lines)
            list(GET lines ${at} line)
            string(FIND "${line}" "${its_text}" place)
            if(NOT place EQUAL -1)
                set(${out} "${entry}" PARENT_SCOPE)
            endif()
        endif()
    endforeach()
endfunction()

set(survivors 0)
set(used "")
list(LENGTH mutants count)
foreach(mutant IN LISTS mutants)
    string(MAKE_C_IDENTIFIER "${mutant}" id)
    if(killers_of_${id})
        list(LENGTH killers_of_${id} killers)
        list(GET killers_of_${id} 0 first)
        message("killed    ${mutant}  by ${killers}: ${first}")
        continue()
    endif()
    entry_of("${mutant}" entry)
    if(entry)
        list(APPEND used "${entry}")
        message("expected  ${mutant}")
    else()
        message("SURVIVED  ${mutant}")
        math(EXPR survivors "${survivors} + 1")
    endif()
endforeach()

set(stale 0)
foreach(entry IN LISTS entries)
    if(NOT entry IN_LIST used)
        message("DOES NOT SURVIVE  ${entry}")
        math(EXPR stale "${stale} + 1")
    endif()
endforeach()

# What no model came across. A call's place is the line it begins on, its order may stand below. An order that
# is a template argument is come across where it is used.
set(missed 0)
file(GLOB_RECURSE headers ${HEADERS}/core/*.hpp ${HEADERS}/sync/*.hpp ${HEADERS}/channel/*.hpp ${HEADERS}/task/*.hpp
    ${HEADERS}/io/*.hpp ${HEADERS}/sched/*.hpp ${HEADERS}/parallel/*.hpp)
list(FILTER headers EXCLUDE REGEX "core/(platform|resume|detail/(futex_.*|process_wide))[.]hpp$")
# What is no template on the platform: README.md says why.
list(FILTER headers EXCLUDE REGEX "(sched/executor_runner|io/(epoll_driver|uring_driver)|task/detail/task_cell)[.]hpp$")
foreach(header IN LISTS headers)
    cmake_path(RELATIVE_PATH header BASE_DIRECTORY ${HEADERS} OUTPUT_VARIABLE name)
    lines_of(${header} lines)
    set(number 0)
    set(begin 0)
    foreach(line IN LISTS lines)
        math(EXPR number "${number} + 1")
        if(line MATCHES "[.>](load|store|exchange|compare_exchange_[a-z]+|fetch_[a-z]+|fence)[(<]")
            set(begin ${number})
        endif()
        if(line MATCHES "^[^/]*[^<]std::memory_order_(seq_cst|acq_rel|acquire|release)"
           AND NOT "${name}:${number}" IN_LIST places
           AND NOT "${name}:${begin}" IN_LIST places)
            message("NOT SEEN  ${name}:${number}")
            math(EXPR missed "${missed} + 1")
        endif()
    endforeach()
endforeach()

message("${count} mutants, ${survivors} survived; ${missed} orders were come across by no model")
if(survivors GREATER 0 OR stale GREATER 0 OR missed GREATER 0 OR count EQUAL 0)
    message(FATAL_ERROR "the models are not complete")
endif()
