# bide::std_execution: <execution> with bide as the backend of libstdc++'s parallel algorithms, for the source
# tree and for the installed package alike. The folder that it puts first has a header of that name.

if(NOT TARGET bide::std_execution)
    add_library(bide::std_execution INTERFACE IMPORTED GLOBAL)
    target_link_libraries(bide::std_execution INTERFACE bide::bide)
    get_target_property(bide_include bide::bide INTERFACE_INCLUDE_DIRECTORIES)
    string(REGEX REPLACE ".*BUILD_INTERFACE:([^>]*)>.*" "\\1" bide_include "${bide_include}")
    target_include_directories(
        bide::std_execution BEFORE INTERFACE "${bide_include}/bide/interop/std_execution"
    )
    unset(bide_include)
endif()
