# The target `bide_single_header`: single_include/bide.hpp in the build tree, the library as one file.

set(bide_single_header ${PROJECT_BINARY_DIR}/single_include/bide.hpp)
add_custom_command(
    OUTPUT ${bide_single_header}
    COMMAND ${CMAKE_COMMAND} -DOUTPUT=${bide_single_header} -P cmake/amalgamate.cmake
    DEPENDS cmake/amalgamate.cmake cmake/version.cmake LICENSE ${bide_header_files}
    WORKING_DIRECTORY ${PROJECT_SOURCE_DIR}
    COMMENT "Writing single_include/bide.hpp"
    VERBATIM
)
add_custom_target(bide_single_header DEPENDS ${bide_single_header})
