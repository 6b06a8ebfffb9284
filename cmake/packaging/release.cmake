# cmake -DURL=<where the files will be> -DOUTPUT=<folder> [-DHOMEPAGE=<page>]
#       [-DMAINTAINER="<name> <address>"] -P release.cmake
#
# Writes what a release consists of: the sources, the single header, the recipes of the package
# managers with the address and the hash of the sources in them, and a list of checksums. The recipes
# in this folder are their templates; README.md says how each is used.
#
# URL is the folder that the files are downloaded from, such as file:///tmp/release for a try. With
# SOURCE_DATE_EPOCH set, the same sources and user give the same files.

cmake_minimum_required(VERSION 3.22)
if(NOT URL OR NOT OUTPUT)
    message(FATAL_ERROR "usage: cmake -DURL=<address> -DOUTPUT=<folder> -P release.cmake")
endif()
if(NOT HOMEPAGE)
    set(HOMEPAGE ${URL})
endif()
if(NOT MAINTAINER)
    set(MAINTAINER "Maintainers of bide <maintainers@bide.invalid>")
endif()
set(bide_url ${URL})
set(bide_homepage ${HOMEPAGE})
set(bide_maintainer ${MAINTAINER}) # of the Debian package
set(packaging ${CMAKE_CURRENT_LIST_DIR})
get_filename_component(root ${packaging}/../.. ABSOLUTE)
get_filename_component(OUTPUT ${OUTPUT} ABSOLUTE)
include(${root}/cmake/version.cmake)
file(STRINGS ${root}/CMakeLists.txt bide_description REGEX "^ +DESCRIPTION \"")
string(REGEX REPLACE "^ +DESCRIPTION \"(.*)\"$" "\\1" bide_description "${bide_description}")

set(name bide-${bide_version})
file(REMOVE_RECURSE ${OUTPUT})
file(MAKE_DIRECTORY ${OUTPUT})

# Packs a folder of OUTPUT: its files in the order of their names.
string(TIMESTAMP day "%Y-%m-%d" UTC)
function(pack archive folder)
    file(GLOB_RECURSE files RELATIVE ${OUTPUT} ${OUTPUT}/${folder}/*)
    list(JOIN files "\n" files)
    file(WRITE ${OUTPUT}/files "${files}\n")
    execute_process(
        COMMAND ${CMAKE_COMMAND} -E tar czf ${archive} --format=gnutar --mtime=${day} --files-from=files
        WORKING_DIRECTORY ${OUTPUT}
        RESULT_VARIABLE failed
    )
    file(REMOVE ${OUTPUT}/files)
    if(failed)
        message(FATAL_ERROR "${archive} was not written")
    endif()
endfunction()

# The sources, ready for Meson, which looks for its file at the top.
foreach(
    entry IN ITEMS .ci .clang-format .clang-tidy .editorconfig .github .gitignore CMakeLists.txt
                   CMakePresets.json LICENSE README.md bench cmake include tests
)
    file(COPY ${root}/${entry} DESTINATION ${OUTPUT}/${name} PATTERN __pycache__ EXCLUDE)
endforeach()
configure_file(${packaging}/meson/meson.build.in ${OUTPUT}/${name}/meson.build @ONLY)
file(COPY ${packaging}/meson/meson_options.txt DESTINATION ${OUTPUT}/${name})
pack(${name}.tar.gz ${name})
file(REMOVE_RECURSE ${OUTPUT}/${name})
file(SHA256 ${OUTPUT}/${name}.tar.gz bide_sha256)
file(SHA512 ${OUTPUT}/${name}.tar.gz bide_sha512)

execute_process(
    COMMAND ${CMAKE_COMMAND} -DOUTPUT=${OUTPUT}/bide.hpp -P ${root}/cmake/amalgamate.cmake
    RESULT_VARIABLE failed
)
if(failed)
    message(FATAL_ERROR "bide.hpp was not written")
endif()

# The recipes. What ends in .in is filled in, the rest is copied.
string(TIMESTAMP bide_rfc_date "%a, %d %b %Y %H:%M:%S +0000" UTC)
foreach(
    place IN ITEMS vcpkg:vcpkg/bide conan:conan xmake:xmake/packages/b/bide debian:debian meson:meson
)
    string(REGEX MATCH "^([a-z]+):(.*)$" _ ${place})
    set(from ${packaging}/${CMAKE_MATCH_1})
    set(to ${OUTPUT}/recipes/${CMAKE_MATCH_2})
    file(GLOB_RECURSE files RELATIVE ${from} ${from}/*)
    list(FILTER files EXCLUDE REGEX "^meson") # they are in the sources
    foreach(file IN LISTS files)
        if(file MATCHES "[.]in$")
            string(REGEX REPLACE "[.]in$" "" filled ${file})
            configure_file(${from}/${file} ${to}/${filled} @ONLY)
        else()
            configure_file(${from}/${file} ${to}/${file} COPYONLY)
        endif()
    endforeach()
endforeach()
file(COPY ${root}/tests/package/main.cpp DESTINATION ${OUTPUT}/recipes/conan/test_package)
file(RENAME ${OUTPUT}/recipes/meson/bide.wrap ${OUTPUT}/bide.wrap)
file(REMOVE_RECURSE ${OUTPUT}/recipes/meson)
pack(${name}-recipes.tar.gz recipes)

set(sums "")
foreach(file IN ITEMS ${name}.tar.gz ${name}-recipes.tar.gz bide.hpp bide.wrap)
    file(SHA256 ${OUTPUT}/${file} sum)
    string(APPEND sums "${sum}  ${file}\n")
endforeach()
file(WRITE ${OUTPUT}/SHA256SUMS "${sums}")
message(STATUS "${OUTPUT}: release ${bide_version}")
