# The components of the durable locks, each where what it needs is found, for the source tree and for
# the installed package alike:
#
#   bide::durable           a Unix           the locks; the slots memory and file
#   bide::durable_sqlite    SQLite3          slots/sqlite.hpp
#   bide::durable_postgres  libpq            slots/postgres.hpp
#   bide::durable_redis     hiredis, libcurl slots/redis.hpp
#   bide::durable_etcd      libcurl          slots/etcd.hpp
#
# bide::durable is compiled once in each project that uses it, with the project's flags, and only if a
# target links it. bide::durable_header_only is the same without a library: each file that includes the
# headers compiles all of them.

function(bide_durable_component name)
    if(NOT TARGET bide::${name})
        add_library(bide::${name} INTERFACE IMPORTED GLOBAL)
        target_link_libraries(bide::${name} INTERFACE ${ARGN})
    endif()
endfunction()

# bide_durable_library(NAME HEADER LIBRARY...): a static library of what the header defines.
function(bide_durable_library name header)
    if(TARGET bide::${name})
        return()
    endif()
    set(source ${CMAKE_CURRENT_BINARY_DIR}/bide/${name}.cpp)
    file(CONFIGURE OUTPUT ${source} CONTENT "#include <bide/durable/${header}>\n" @ONLY)
    add_library(bide_${name} STATIC EXCLUDE_FROM_ALL ${source})
    target_link_libraries(bide_${name} PUBLIC ${ARGN})
    set_target_properties(bide_${name} PROPERTIES POSITION_INDEPENDENT_CODE ON)
    # No alias: a project that exports what links it exports this name, and its users find the component.
    bide_durable_component(${name} bide_${name})
endfunction()

if(UNIX)
    bide_durable_library(durable source.hpp bide::bide)
    bide_durable_component(durable_header_only bide::bide)
    set_property(
        TARGET bide::durable_header_only
        PROPERTY INTERFACE_COMPILE_DEFINITIONS BIDE_DURABLE_HEADER_ONLY
    )

    find_package(SQLite3 QUIET)
    if(TARGET SQLite::SQLite3)
        bide_durable_library(durable_sqlite slots/impl/sqlite.hpp bide::durable SQLite::SQLite3)
    endif()

    # CMake's own module wants the server's headers, too.
    find_path(bide_libpq_include libpq-fe.h PATH_SUFFIXES postgresql libpq)
    find_library(bide_libpq_library NAMES pq libpq)
    mark_as_advanced(bide_libpq_include bide_libpq_library)
    if(bide_libpq_include AND bide_libpq_library)
        bide_durable_library(
            durable_postgres slots/impl/postgres.hpp bide::durable ${bide_libpq_library}
        )
        target_include_directories(bide_durable_postgres SYSTEM PUBLIC ${bide_libpq_include})
    endif()

    find_package(CURL QUIET)
    if(TARGET CURL::libcurl)
        bide_durable_library(durable_etcd slots/impl/etcd.hpp bide::durable CURL::libcurl)
    endif()

    find_path(bide_hiredis_include hiredis/hiredis.h)
    find_library(bide_hiredis_library hiredis)
    mark_as_advanced(bide_hiredis_include bide_hiredis_library)
    if(TARGET CURL::libcurl AND bide_hiredis_include AND bide_hiredis_library)
        bide_durable_library(
            durable_redis
            slots/impl/redis.hpp
            bide::durable
            CURL::libcurl
            ${bide_hiredis_library}
        )
        target_include_directories(bide_durable_redis SYSTEM PUBLIC ${bide_hiredis_include})
    endif()
endif()
