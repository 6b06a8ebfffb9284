# The Debian package of the headers is built as a user builds it, lintian accepts it, and the package's
# own test compiles a program against what was packed.
# cmake -DRELEASE=... -DWORK=... -DCXX=... -P debian.cmake

cmake_minimum_required(VERSION 3.22)
include(${CMAKE_CURRENT_LIST_DIR}/run.cmake)
file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK})
file(GLOB sources ${RELEASE}/bide-*.tar.gz)
list(FILTER sources EXCLUDE REGEX recipes)
string(REGEX REPLACE ".*/bide-([0-9.]+)[.]tar[.]gz$" "\\1" version "${sources}")
configure_file(${sources} ${WORK}/bide_${version}.orig.tar.gz COPYONLY)
run(${WORK} ${CMAKE_COMMAND} -E tar xzf ${sources})
file(COPY ${RELEASE}/recipes/debian DESTINATION ${WORK}/bide-${version})

# Without bide-lock, which takes minutes to compile. The program that the build would compile comes below.
set(ENV{DEB_BUILD_OPTIONS} nocheck)
run(${WORK} dpkg-source --build bide-${version})
run(${WORK}/bide-${version} dpkg-buildpackage --no-sign --no-check-builddeps --build=all)
run(${WORK} lintian --allow-root --fail-on error,warning bide_${version}-1_all.changes)

file(GLOB package ${WORK}/libbide-dev_*.deb)
run(${WORK} dpkg-deb -x ${package} root)
file(MAKE_DIRECTORY ${WORK}/autopkgtest)
set(ENV{AUTOPKGTEST_TMP} ${WORK}/autopkgtest)
set(ENV{PKG_CONFIG_PATH} ${WORK}/root/usr/share/pkgconfig)
set(ENV{CXX} ${CXX})
run(${WORK}/bide-${version} sh debian/tests/consumer)
