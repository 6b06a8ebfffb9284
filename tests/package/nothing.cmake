# Where no package is to be had and no network is: the library installs, and the one header is written.
# Tests and benchmarks are left out, unless they are asked for: then a sentence says what is missing.
#
# cmake -DSOURCE=<source tree> -DWORK=<folder> -DCXX=... -DGENERATOR=... -P nothing.cmake

set(configure ${CMAKE_COMMAND} -S ${SOURCE} -G ${GENERATOR} -DCMAKE_CXX_COMPILER=${CXX})
list(APPEND configure -DFETCHCONTENT_FULLY_DISCONNECTED=ON)
foreach(package IN ITEMS Catch2 benchmark nlohmann_json SQLite3 CURL OpenSSL Doxygen Python3)
    list(APPEND configure -DCMAKE_DISABLE_FIND_PACKAGE_${package}=ON)
endforeach()
file(REMOVE_RECURSE ${WORK})

set(build ${WORK}/build)
execute_process(COMMAND ${configure} -B ${build} OUTPUT_VARIABLE said COMMAND_ERROR_IS_FATAL ANY)
foreach(sentence IN ITEMS "BIDE_BUILD_TESTS: OFF, Catch2" "BIDE_BUILD_BENCH: OFF, benchmark")
    if(NOT said MATCHES "${sentence} was not found")
        message(FATAL_ERROR "not said: ${sentence} was not found\n${said}")
    endif()
endforeach()
execute_process(
    COMMAND ${CMAKE_COMMAND} --install ${build} --prefix ${WORK}/prefix
    COMMAND_ERROR_IS_FATAL ANY OUTPUT_QUIET
)
execute_process(
    COMMAND ${CMAKE_COMMAND} --build ${build} --target bide_single_header
    COMMAND_ERROR_IS_FATAL ANY OUTPUT_QUIET
)
file(GLOB_RECURSE headers RELATIVE ${SOURCE} ${SOURCE}/include/*.hpp)
foreach(file IN LISTS headers)
    if(NOT EXISTS ${WORK}/prefix/${file})
        message(FATAL_ERROR "${file} was not installed")
    endif()
endforeach()
if(NOT EXISTS ${build}/single_include/bide.hpp)
    message(FATAL_ERROR "the one header was not written")
endif()

foreach(wanted IN ITEMS TESTS BENCH)
    execute_process(
        COMMAND ${configure} -B ${WORK}/${wanted} -DBIDE_BUILD_${wanted}=ON
        OUTPUT_QUIET ERROR_VARIABLE said RESULT_VARIABLE failed
    )
    if(NOT failed OR NOT said MATCHES "neither found nor fetched")
        message(FATAL_ERROR "BIDE_BUILD_${wanted}=ON does not say what is missing:\n${said}")
    endif()
endforeach()
