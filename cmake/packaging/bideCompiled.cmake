# bide::compiled: what the headers define and programs rarely call, compiled once, for the source tree and for
# the installed package alike. A target that links it has BIDE_COMPILED. It is compiled in each project that
# uses it, with the project's flags, and only if a target links it: static, or shared if BUILD_SHARED_LIBS is
# on. A shared one exports all, also where the project hides its symbols. On Windows it is always static.

if(TARGET bide::compiled)
    return()
endif()

set(bide_compiled_source ${CMAKE_CURRENT_BINARY_DIR}/bide/compiled.cpp)
file(CONFIGURE OUTPUT ${bide_compiled_source} CONTENT "#include <bide/source.hpp>\n" @ONLY)
set(bide_compiled_kind STATIC)
if(BUILD_SHARED_LIBS AND NOT WIN32)
    set(bide_compiled_kind SHARED)
endif()
add_library(bide_compiled ${bide_compiled_kind} EXCLUDE_FROM_ALL ${bide_compiled_source})
target_link_libraries(bide_compiled PUBLIC bide::bide)
if(NOT MSVC) # --gc-sections leaves out of a program what it does not call
    target_compile_options(bide_compiled PRIVATE -ffunction-sections -fdata-sections)
endif()
target_compile_definitions(bide_compiled INTERFACE BIDE_COMPILED)
set_target_properties(
    bide_compiled
    PROPERTIES POSITION_INDEPENDENT_CODE ON CXX_VISIBILITY_PRESET default VISIBILITY_INLINES_HIDDEN OFF
)
# No alias: a project that exports what links it exports this name.
add_library(bide::compiled INTERFACE IMPORTED GLOBAL)
target_link_libraries(bide::compiled INTERFACE bide_compiled)
