# cmake -P cmake/test.cmake              what proves the library in minutes
# cmake -P cmake/test.cmake -- full      every test
# cmake -P cmake/test.cmake -- smoke     twenty tests, after a change
#
# Installs what the tests need and is missing, where there is apt-get (elsewhere CMake fetches what it
# does not find). PostgreSQL, Redis and etcd it does not install: tests that need such a server say so
# and are skipped where there is none. Then configures, builds and runs the preset of that name, on all
# processors, and says what was left out.

cmake_minimum_required(VERSION 3.25)
cmake_path(GET CMAKE_CURRENT_LIST_DIR PARENT_PATH root)

set(set quick)
set(is_argument FALSE)
math(EXPR last "${CMAKE_ARGC} - 1")
foreach(index RANGE ${last})
    if(is_argument)
        set(set "${CMAKE_ARGV${index}}")
    elseif(CMAKE_ARGV${index} STREQUAL "--")
        set(is_argument TRUE)
    endif()
endforeach()
if(NOT set MATCHES "^(quick|full|smoke)$")
    message(FATAL_ERROR "\"${set}\" is no set of tests: quick, full or smoke")
endif()
set(preset ${set})
if(set STREQUAL "full")
    set(preset dev)
endif()
set(build ${root}/build/${preset})

find_program(apt_get apt-get)
find_program(dpkg_query dpkg-query)
if(apt_get AND dpkg_query)
    set(missing "")
    foreach(
        package IN ITEMS
        g++ make ninja-build catch2 nlohmann-json3-dev libasio-dev liburing-dev
        libsqlite3-dev libpq-dev libhiredis-dev libcurl4-openssl-dev
    )
        execute_process(
            COMMAND ${dpkg_query} --show --showformat "\${db:Status-Status}" ${package}
            OUTPUT_VARIABLE status
            ERROR_QUIET
        )
        if(NOT status STREQUAL "installed")
            list(APPEND missing ${package})
        endif()
    endforeach()
    if(missing)
        list(JOIN missing " " names)
        message(STATUS "Installing ${names}")
        execute_process(COMMAND id -u OUTPUT_VARIABLE user OUTPUT_STRIP_TRAILING_WHITESPACE)
        set(as_root "")
        if(NOT user EQUAL 0)
            set(as_root sudo)
        endif()
        execute_process(COMMAND ${as_root} ${apt_get} -q update)
        execute_process(
            COMMAND ${as_root} ${apt_get} -q install --yes --no-install-recommends ${missing}
            COMMAND_ERROR_IS_FATAL ANY
        )
    endif()
endif()

cmake_host_system_information(RESULT processors QUERY NUMBER_OF_LOGICAL_CORES)
if("$ENV{CMAKE_BUILD_PARALLEL_LEVEL}" STREQUAL "")
    set(ENV{CMAKE_BUILD_PARALLEL_LEVEL} ${processors})
endif()
if("$ENV{CTEST_PARALLEL_LEVEL}" STREQUAL "")
    math(EXPR twice "2 * ${processors}") # tests wait about as long as they compute
    set(ENV{CTEST_PARALLEL_LEVEL} ${twice})
endif()
if("$ENV{NINJA_STATUS}" STREQUAL "")
    set(ENV{NINJA_STATUS} "[build %f of %t, %e s] ")
endif()

string(TIMESTAMP begun "%s")
file(MAKE_DIRECTORY ${build})
message(STATUS "Configuring build/${preset}: the ${set} set")
set(generator "")
find_program(ninja ninja)
if(ninja AND NOT EXISTS ${build}/CMakeCache.txt)
    set(generator -G Ninja)
endif()
execute_process(
    COMMAND ${CMAKE_COMMAND} --preset ${preset} ${generator}
    WORKING_DIRECTORY ${root}
    OUTPUT_FILE ${build}/configure.log
    ERROR_FILE ${build}/configure.log
    RESULT_VARIABLE failed
)
if(failed)
    file(READ ${build}/configure.log log)
    message(FATAL_ERROR "${log}")
endif()

message(STATUS "Building")
execute_process(
    COMMAND ${CMAKE_COMMAND} --build --preset ${preset} WORKING_DIRECTORY ${root} COMMAND_ERROR_IS_FATAL ANY
)
string(TIMESTAMP built "%s")

message(STATUS "Running the tests")
execute_process(
    COMMAND ${CMAKE_CTEST_COMMAND} --preset ${preset} --progress --no-label-summary --output-log ${build}/ctest.log
    WORKING_DIRECTORY ${root}
    RESULT_VARIABLE failed
)
string(TIMESTAMP ended "%s")

# What ran, what did not, and how the rest is run.
math(EXPR build_time "${built} - ${begun}")
math(EXPR run_time "${ended} - ${built}")
file(STRINGS ${build}/ctest.log result REGEX "tests passed")
message(STATUS "The ${set} set: ${result}; ${build_time} s to build, ${run_time} s to run")
message(STATUS "The log: build/${preset}/ctest.log")
file(STRINGS ${build}/configure.log not_found REGEX "left out, ")
foreach(line IN LISTS not_found)
    string(REGEX REPLACE "^-- " "" line "${line}")
    message(STATUS "Not built: ${line}")
endforeach()
if(EXISTS ${build}/left_out.txt)
    file(READ ${build}/left_out.txt left_out)
    string(STRIP "${left_out}" left_out)
    message(STATUS "Left out of the ${set} set: ${left_out}")
endif()
if(NOT set STREQUAL "full")
    message(STATUS "The rest: cmake -P cmake/test.cmake -- full")
endif()
if(failed)
    message(FATAL_ERROR "Tests failed: ctest --preset ${preset} --rerun-failed --output-on-failure")
endif()
