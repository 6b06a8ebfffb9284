# One misuse, or a file without one; see CMakeLists.txt.

separate_arguments(flags UNIX_COMMAND "${FLAGS}")
execute_process(
    COMMAND ${COMPILER} ${flags} -I${INCLUDE} -DBIDE_MISUSE=${MISUSE} -fsyntax-only ${SOURCE}
    RESULT_VARIABLE failed ERROR_VARIABLE said
)
if(MISUSE EQUAL 0)
    if(failed)
        message(FATAL_ERROR "does not compile even without a misuse:\n${said}")
    endif()
    return()
endif()

file(STRINGS ${SOURCE} first REGEX "^[a-z].* { // ${MISUSE}: ")
string(REGEX REPLACE "^[^/]* { // [0-9]+: " "" expected "${first}")
if(expected STREQUAL "")
    message(FATAL_ERROR "has no misuse ${MISUSE}")
endif()
if(NOT failed)
    message(FATAL_ERROR "compiles")
endif()
if(NOT said MATCHES "${expected}")
    message(FATAL_ERROR "does not compile, but not because of \"${expected}\":\n${said}")
endif()
