# One misuse, or a file without one; see CMakeLists.txt.

file(READ ${SOURCE} code)
if(MISUSE)
    string(REGEX MATCH " ${MISUSE}([(][^\n]*[)])? { // ([^\n]+)\n.*" misuse "${code}")
    set(expected "${CMAKE_MATCH_2}")
    string(REGEX MATCH "\n[^\n]*\n *//! ([^\n]+)" lines "${misuse}")
    if(expected STREQUAL "" OR lines STREQUAL "")
        message(FATAL_ERROR "has no misuse ${MISUSE}")
    endif()
    string(REPLACE "${lines}" "\n${CMAKE_MATCH_1}" misused "${misuse}")
    string(REPLACE "${misuse}" "${misused}" code "${code}")
endif()
file(WRITE ${WORK} "${code}")
separate_arguments(flags UNIX_COMMAND "${FLAGS}")
execute_process(
    COMMAND ${COMPILER} ${flags} -I${INCLUDE} -fsyntax-only ${WORK}
    RESULT_VARIABLE failed ERROR_VARIABLE said
)
if(NOT MISUSE)
    if(failed)
        message(FATAL_ERROR "does not compile even without a misuse:\n${said}")
    endif()
elseif(NOT failed)
    message(FATAL_ERROR "compiles")
elseif(NOT said MATCHES "${expected}")
    message(FATAL_ERROR "does not compile, but not because of \"${expected}\":\n${said}")
endif()
