# A Meson project with the wrap of the release as its subproject is configured, compiled and run.
# cmake -DRELEASE=... -DWORK=... -DCXX=... -DSTORES=<stores of the durable locks> -P meson.cmake

cmake_minimum_required(VERSION 3.22)
include(${CMAKE_CURRENT_LIST_DIR}/run.cmake)
file(REMOVE_RECURSE ${WORK})
file(COPY ${RELEASE}/bide.wrap DESTINATION ${WORK}/subprojects)
file(COPY ${CMAKE_CURRENT_LIST_DIR}/../main.cpp DESTINATION ${WORK})
set(found "")
string(REPLACE "," ";" stores "${STORES}")
foreach(store IN LISTS stores)
    string(APPEND found "dependency('bide-durable-${store}')\n")
endforeach()
string(REPLACE "-file'" "'" found "${found}")
file(
    WRITE ${WORK}/meson.build
    "project('consumer', 'cpp', default_options: ['cpp_std=c++20', 'warning_level=3', 'werror=true'])
test('consumer', executable('consumer', 'main.cpp', dependencies: dependency('bide')))
${found}"
)
set(ENV{CXX} ${CXX})
run(${WORK} meson setup -Dbide:durable=${STORES} build)
run(${WORK} meson test -C build)
run(${WORK} meson install -C build --destdir ${WORK}/root)
file(
    GLOB_RECURSE installed RELATIVE ${WORK}/root
    ${WORK}/root/*bide.hpp ${WORK}/root/*bide.pc ${WORK}/root/*bide_gdb.py
)
list(LENGTH installed files)
if(NOT files EQUAL 3)
    message(FATAL_ERROR "meson install left ${installed}")
endif()
