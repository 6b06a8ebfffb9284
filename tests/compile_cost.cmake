# Fails if an include costs more than its budget: the lines that are left after preprocessing, in
# hundredths of those of <mutex> and <chrono>. Times depend on the machine; lines do not, and the time
# follows them.
#
# cmake -DCXX=... -DINCLUDE=<include folder> -DWORK=<folder> -P compile_cost.cmake
#
# std::stop_token is in the interface of each: with <stop_token>, <mutex> and <chrono> are 116.

function(count_lines result)
    set(source ${WORK}/compile_cost.cpp)
    list(TRANSFORM ARGN REPLACE "(.+)" "#include <\\1>\n" OUTPUT_VARIABLE text)
    list(JOIN text "" text)
    file(WRITE ${source} "${text}")
    execute_process(
        COMMAND ${CXX} -std=c++20 -E -P -I${INCLUDE} ${source}
        OUTPUT_VARIABLE text COMMAND_ERROR_IS_FATAL ANY
    )
    string(REGEX REPLACE "[^\n]" "" text "${text}")
    string(LENGTH "${text}" lines)
    set(${result} ${lines} PARENT_SCOPE)
endfunction()

set(
    budgets
    sync/semaphore.hpp=140 sync/mutex.hpp=140 sync/event.hpp=140 channel/channel.hpp=170
    task/task.hpp=140 sched/scheduler.hpp=240 parallel/fork_join.hpp=250 bide.hpp=280
)
file(MAKE_DIRECTORY ${WORK})
count_lines(unit mutex chrono)
set(failed "")
foreach(budget IN LISTS budgets)
    string(REPLACE "=" ";" budget ${budget})
    list(GET budget 0 header)
    list(GET budget 1 most)
    count_lines(lines bide/${header})
    math(EXPR cost "100 * ${lines} / ${unit}")
    message(STATUS "${header}: ${lines} lines, ${cost} of at most ${most}")
    if(cost GREATER most)
        list(APPEND failed ${header})
    endif()
endforeach()
if(failed)
    message(FATAL_ERROR "over the budget: ${failed}")
endif()
