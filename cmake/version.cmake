# Sets bide_version from the header that tells programs.

set(bide_version_header ${CMAKE_CURRENT_LIST_DIR}/../include/bide/version.hpp)
file(READ ${bide_version_header} bide_version_text)
set(bide_version "")
foreach(part IN ITEMS MAJOR MINOR PATCH)
    string(REGEX MATCH "BIDE_VERSION_${part} ([0-9]+)" _ "${bide_version_text}")
    list(APPEND bide_version ${CMAKE_MATCH_1})
endforeach()
list(JOIN bide_version "." bide_version)
