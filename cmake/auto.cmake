# bide_auto(<option> <description> <package> <version>...): an option that is ON, OFF or AUTO.
#
# AUTO, the default of a top-level project, is ON if a version of the package is found, and else OFF, so
# that an installation needs nothing but a compiler. With ON, a package that is not found is fetched; if
# that fails, the configuration fails.
function(bide_auto option description package)
    set(default OFF)
    if(PROJECT_IS_TOP_LEVEL)
        set(default AUTO)
    endif()
    set(${option} ${default} CACHE STRING "${description}: ON, OFF, or AUTO, if ${package} is found")
    set_property(CACHE ${option} PROPERTY STRINGS ON OFF AUTO)
    if(NOT ${option} STREQUAL "AUTO")
        return()
    endif()

    set(missing "${package}")
    foreach(version IN LISTS ARGN)
        if(missing)
            find_package(${package} ${version} QUIET)
            if(${package}_FOUND)
                set(missing "")
            endif()
        endif()
    endforeach()
    if(CMAKE_VERSION VERSION_LESS 3.25)
        set(missing "CMake 3.25")
    endif()
    if(missing)
        message(STATUS "${option}: OFF, ${missing} was not found")
        set(${option} OFF PARENT_SCOPE)
    endif()
endfunction()
