# One misuse; see CMakeLists.txt.

separate_arguments(flags UNIX_COMMAND "${FLAGS}")
set(compile ${COMPILER} ${flags} -I${INCLUDE} -fsyntax-only ${SOURCE})

execute_process(COMMAND ${compile} -DBIDE_CONTROL RESULT_VARIABLE failed ERROR_VARIABLE said)
if(failed)
    message(FATAL_ERROR "does not compile even with BIDE_CONTROL:\n${said}")
endif()

file(STRINGS ${SOURCE} first LIMIT_COUNT 1)
if(NOT first MATCHES "^// expect: (.+)$")
    message(FATAL_ERROR "the first line is not `// expect: <regex>`")
endif()
set(expected "${CMAKE_MATCH_1}")

execute_process(COMMAND ${compile} RESULT_VARIABLE failed ERROR_VARIABLE said)
if(NOT failed)
    message(FATAL_ERROR "compiles")
endif()
if(NOT said MATCHES "${expected}")
    message(FATAL_ERROR "does not compile, but not because of \"${expected}\":\n${said}")
endif()
