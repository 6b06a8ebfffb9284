# cmake -P cmake/test.cmake
#
# Installs what the tests need and is missing, where there is apt-get (elsewhere CMake fetches what it
# does not find). PostgreSQL, Redis and etcd it does not install: tests that need such a server say so
# and are skipped where there is none. Then configures, builds and runs them: the workflow `dev`, on all processors.

cmake_minimum_required(VERSION 3.25)
cmake_path(GET CMAKE_CURRENT_LIST_DIR PARENT_PATH root)

find_program(apt_get apt-get)
find_program(dpkg_query dpkg-query)
if(apt_get AND dpkg_query)
    set(missing "")
    foreach(
        package IN ITEMS
        g++ make catch2 nlohmann-json3-dev libasio-dev liburing-dev
        libsqlite3-dev libpq-dev libhiredis-dev libssl-dev libcurl4-openssl-dev
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
        execute_process(COMMAND id -u OUTPUT_VARIABLE user OUTPUT_STRIP_TRAILING_WHITESPACE)
        set(as_root "")
        if(NOT user EQUAL 0)
            set(as_root sudo)
        endif()
        execute_process(COMMAND ${as_root} ${apt_get} update)
        execute_process(
            COMMAND ${as_root} ${apt_get} install --yes --no-install-recommends ${missing}
            COMMAND_ERROR_IS_FATAL ANY
        )
    endif()
endif()

if(NOT DEFINED ENV{CMAKE_BUILD_PARALLEL_LEVEL})
    cmake_host_system_information(RESULT processors QUERY NUMBER_OF_LOGICAL_CORES)
    set(ENV{CMAKE_BUILD_PARALLEL_LEVEL} ${processors})
endif()
execute_process(
    COMMAND ${CMAKE_COMMAND} --workflow --preset dev
    WORKING_DIRECTORY ${root}
    COMMAND_ERROR_IS_FATAL ANY
)
