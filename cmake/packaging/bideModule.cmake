# bide::module: the module `bide` (bide.cppm), for the source tree and the installed package alike. It is
# compiled in each project that uses it, with the project's flags. CMake 3.28, Ninja or Visual Studio, and a
# compiler that CMake can scan for modules.

if(TARGET bide::module)
    return()
endif()
if(CMAKE_VERSION VERSION_LESS 3.28)
    message(WARNING "bide::module needs CMake 3.28")
    return()
endif()
if(NOT CMAKE_GENERATOR MATCHES "Ninja|Visual Studio")
    message(WARNING "bide::module needs the generator Ninja or Visual Studio, not ${CMAKE_GENERATOR}")
    return()
endif()

# The folder of bide.cppm: include/ of the source tree, or of the place where this file is installed.
find_path(bide_module_folder bide/bide.cppm
    PATHS ${CMAKE_CURRENT_LIST_DIR}/../../include ${CMAKE_CURRENT_LIST_DIR}/../../../include
    REQUIRED NO_DEFAULT_PATH NO_CACHE
)
add_library(bide_module STATIC EXCLUDE_FROM_ALL)
target_sources(bide_module
    PUBLIC FILE_SET CXX_MODULES
    BASE_DIRS ${bide_module_folder} FILES ${bide_module_folder}/bide/bide.cppm
)
target_link_libraries(bide_module PUBLIC bide::bide)
add_library(bide::module ALIAS bide_module)
