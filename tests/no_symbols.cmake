# cmake -DNM=<nm> "-DOBJECTS=<object>,..." -P no_symbols.cmake
#
# A header that is included and not used adds no code: no object, each of a file that only includes a header,
# has a symbol of bide. Code comes from a class whose first virtual function that is not pure is not inline in
# the class, and, with g++, from a coroutine that is no template, or that one calls.

string(REPLACE "," ";" objects "${OBJECTS}")
list(LENGTH objects count)
set(bad "")
foreach(object IN LISTS objects)
    execute_process(COMMAND ${NM} ${object} OUTPUT_VARIABLE symbols COMMAND_ERROR_IS_FATAL ANY)
    string(REGEX MATCHALL "[^\n]*4bide[^\n]*" symbols "${symbols}")
    list(LENGTH symbols n)
    if(n GREATER 0)
        list(GET symbols 0 first)
        string(APPEND bad "${object}: ${n} symbols, such as ${first}\n")
    endif()
endforeach()
if(bad)
    message(FATAL_ERROR "${bad}")
endif()
message(STATUS "${count} headers add no symbol")
