# Runs the port with stand-ins for the functions of vcpkg, which do what its manual says of them, and
# looks at the package that it leaves. What vcpkg itself makes of the port, this does not show.
# cmake -DRELEASE=... -DWORK=... -DCXX=... -P vcpkg.cmake

cmake_minimum_required(VERSION 3.22)
include(${CMAKE_CURRENT_LIST_DIR}/run.cmake)
file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK})
set(PORT bide)
set(CURRENT_PACKAGES_DIR ${WORK}/packages)

function(vcpkg_download_distfile result)
    cmake_parse_arguments(PARSE_ARGV 1 arg "" "URLS;FILENAME;SHA512" "")
    file(DOWNLOAD ${arg_URLS} ${WORK}/${arg_FILENAME} EXPECTED_HASH SHA512=${arg_SHA512})
    set(${result} ${WORK}/${arg_FILENAME} PARENT_SCOPE)
endfunction()
function(vcpkg_extract_source_archive result)
    cmake_parse_arguments(PARSE_ARGV 1 arg "" "ARCHIVE" "")
    file(ARCHIVE_EXTRACT INPUT ${arg_ARCHIVE} DESTINATION ${WORK}/src)
    file(GLOB folder ${WORK}/src/*)
    set(${result} ${folder} PARENT_SCOPE)
endfunction()
function(vcpkg_cmake_configure)
    cmake_parse_arguments(PARSE_ARGV 0 arg "" "SOURCE_PATH" "OPTIONS")
    run(${WORK} ${CMAKE_COMMAND} -S ${arg_SOURCE_PATH} -B build -DCMAKE_CXX_COMPILER=${CXX} ${arg_OPTIONS})
endfunction()
function(vcpkg_cmake_install)
    run(${WORK} ${CMAKE_COMMAND} --build build)
    run(${WORK} ${CMAKE_COMMAND} --install build --prefix ${CURRENT_PACKAGES_DIR})
endfunction()
function(vcpkg_cmake_config_fixup)
    cmake_parse_arguments(PARSE_ARGV 0 arg "" "CONFIG_PATH" "")
    file(COPY ${CURRENT_PACKAGES_DIR}/${arg_CONFIG_PATH}/ DESTINATION ${CURRENT_PACKAGES_DIR}/share/${PORT})
    file(REMOVE_RECURSE ${CURRENT_PACKAGES_DIR}/share/cmake)
endfunction()
function(vcpkg_fixup_pkgconfig)
endfunction()
function(vcpkg_install_copyright)
    cmake_parse_arguments(PARSE_ARGV 0 arg "" "FILE_LIST" "")
    configure_file(${arg_FILE_LIST} ${CURRENT_PACKAGES_DIR}/share/${PORT}/copyright COPYONLY)
endfunction()

include(${RELEASE}/recipes/vcpkg/bide/portfile.cmake)

foreach(
    file IN ITEMS include/bide/bide.hpp share/bide/bideConfig.cmake share/bide/bideTargets.cmake
                  share/bide/bideDurable.cmake share/bide/usage share/bide/copyright
                  share/bide/gdb/bide_gdb.py share/pkgconfig/bide.pc
)
    if(NOT EXISTS ${CURRENT_PACKAGES_DIR}/${file})
        message(FATAL_ERROR "the package has no ${file}")
    endif()
endforeach()
foreach(folder IN ITEMS lib debug share/licenses)
    if(EXISTS ${CURRENT_PACKAGES_DIR}/${folder})
        message(FATAL_ERROR "the package has ${folder}")
    endif()
endforeach()

# The features name each other and the packages that each needs.
file(READ ${RELEASE}/recipes/vcpkg/bide/vcpkg.json manifest)
string(JSON features LENGTH "${manifest}" features)
foreach(component IN ITEMS durable durable-sqlite durable-postgres durable-redis durable-etcd)
    string(JSON needs LENGTH "${manifest}" features ${component} dependencies)
endforeach()
if(NOT features EQUAL 5)
    message(FATAL_ERROR "vcpkg.json has ${features} features")
endif()
