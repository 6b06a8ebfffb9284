# How bide's own programs are built: tests, examples and benchmarks. Users of the library get
# nothing of this.

set(BIDE_SANITIZE "" CACHE STRING "thread; address (and undefined behaviour); or nothing")
set_property(CACHE BIDE_SANITIZE PROPERTY STRINGS "" thread address)
option(BIDE_NOEXCEPT "Build without exceptions and RTTI what can do without them" OFF)
option(BIDE_WERROR "Fail on warnings" OFF)
option(BIDE_TEST_COMPILED "Link what is built here with bide::compiled" OFF)

add_library(bide_dev INTERFACE)
target_link_libraries(bide_dev INTERFACE bide::bide)

if(MSVC)
    target_compile_options(bide_dev INTERFACE /W4)
else()
    target_compile_options(
        bide_dev INTERFACE -Wall -Wextra -Wpedantic -Wconversion -Wshadow
    )
endif()

if(BIDE_SANITIZE STREQUAL "thread")
    set(bide_sanitizer -fsanitize=thread)
elseif(BIDE_SANITIZE STREQUAL "address")
    set(bide_sanitizer -fsanitize=address,undefined -fno-sanitize-recover=all)
elseif(BIDE_SANITIZE)
    message(FATAL_ERROR "BIDE_SANITIZE is \"${BIDE_SANITIZE}\": neither thread nor address")
endif()
if(BIDE_SANITIZE)
    target_compile_options(bide_dev INTERFACE ${bide_sanitizer} -fno-omit-frame-pointer)
    target_link_options(bide_dev INTERFACE ${bide_sanitizer})
endif()

# g++ says of each fence that its ThreadSanitizer ignores it. It may: our fences only order a store
# before a load, and data is published by atomics, which it sees.
if(BIDE_SANITIZE STREQUAL "thread" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(bide_dev INTERFACE -Wno-tsan)
endif()

# With its instrumentation in between, or with the -O1 of the presets that cross-compile, g++ 12 takes the reference
# that std::stop_source() passes to its own member for a use before initialisation.
if((BIDE_SANITIZE OR CMAKE_CROSSCOMPILING) AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(bide_dev INTERFACE -Wno-maybe-uninitialized)
endif()

# Where it optimises, g++ before 13 takes inlined copies within std::string for ones of impossible
# lengths (GCC bugs 105329, 105651).
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    target_compile_options(
        bide_dev INTERFACE -Wno-array-bounds -Wno-restrict -Wno-stringop-overflow
    )
endif()

if(BIDE_NOEXCEPT)
    target_compile_options(bide_dev INTERFACE -fno-exceptions -fno-rtti)
endif()

# g++ collects garbage again and again as it grows, which is about a tenth of the time of an unoptimised build.
# With this it begins to at 1.4 GB, twice these kilobytes: the largest part of a room takes 1.6 GB.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(bide_dev INTERFACE --param=ggc-min-heapsize=700000)
endif()

# bide_develop(<target> [HEADER_ONLY])
function(bide_develop target)
    target_link_libraries(${target} PRIVATE bide_dev)
    if(BIDE_TEST_COMPILED AND NOT "HEADER_ONLY" IN_LIST ARGN)
        target_link_libraries(${target} PRIVATE bide::compiled)
    endif()
    set_target_properties(
        ${target} PROPERTIES CXX_EXTENSIONS OFF COMPILE_WARNING_AS_ERROR ${BIDE_WERROR}
    )
endfunction()

# The libraries that interop/ adapts, for tests and examples, each where it is found.
find_path(bide_asio_include asio.hpp)
find_path(bide_boost_asio_include boost/asio.hpp)
find_path(bide_eigen_include unsupported/Eigen/CXX11/ThreadPool PATH_SUFFIXES eigen3)
mark_as_advanced(bide_asio_include bide_boost_asio_include bide_eigen_include)
# With clang, older versions of Asio look for coroutines in another place.
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    set(bide_asio_definitions ASIO_HAS_CO_AWAIT ASIO_HAS_STD_COROUTINE)
    set(bide_boost_asio_definitions BOOST_ASIO_HAS_CO_AWAIT BOOST_ASIO_HAS_STD_COROUTINE)
endif()

# The library with which interop/std_execution.hpp was tested.
include(CheckCXXSourceCompiles)
check_cxx_source_compiles(
    "#include <version>\n#if _GLIBCXX_RELEASE != 12\n#error\n#endif\nint main() {}\n"
    bide_has_std_execution
)

# bide_use_library(<target> asio|boost_asio|eigen)
function(bide_use_library target library)
    target_include_directories(${target} SYSTEM PRIVATE ${bide_${library}_include})
    target_compile_definitions(${target} PRIVATE ${bide_${library}_definitions})
endfunction()

bide_develop(bide_compiled HEADER_ONLY)
foreach(library IN ITEMS durable durable_sqlite durable_postgres durable_redis durable_etcd model)
    if(TARGET bide_${library})
        bide_develop(bide_${library})
    endif()
endforeach()
