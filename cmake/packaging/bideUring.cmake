# bide::uring: io/uring_driver.hpp with liburing, where pkg-config or the usual places have it, for the
# source tree and for the installed package alike.

if(NOT TARGET bide::uring AND CMAKE_SYSTEM_NAME STREQUAL "Linux")
    find_package(PkgConfig QUIET)
    if(PKG_CONFIG_FOUND)
        pkg_check_modules(bide_pc_liburing QUIET liburing)
    endif()
    find_path(bide_liburing_include liburing.h HINTS ${bide_pc_liburing_INCLUDE_DIRS})
    find_library(bide_liburing_library uring HINTS ${bide_pc_liburing_LIBRARY_DIRS})
    mark_as_advanced(bide_liburing_include bide_liburing_library)
    if(bide_liburing_include AND bide_liburing_library)
        add_library(bide::uring INTERFACE IMPORTED GLOBAL)
        target_include_directories(bide::uring SYSTEM INTERFACE ${bide_liburing_include})
        target_link_libraries(bide::uring INTERFACE bide::bide ${bide_liburing_library})
    endif()
endif()
