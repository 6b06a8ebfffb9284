# Installs, checks that nothing installed names the place where it is, and moves it to PREFIX.

set(staged ${PREFIX}.staged)
file(REMOVE_RECURSE ${staged} ${PREFIX})
execute_process(
    COMMAND ${CMAKE_COMMAND} --install ${BUILD} --prefix ${staged}
    COMMAND_ERROR_IS_FATAL ANY
    OUTPUT_QUIET
)
file(GLOB_RECURSE installed ${staged}/*)
if(NOT EXISTS ${staged}/share/bide/gdb/bide_gdb.py)
    message(FATAL_ERROR "the printers for gdb were not installed")
endif()
foreach(file IN LISTS installed)
    file(READ ${file} text)
    foreach(place IN ITEMS ${staged} ${BUILD} ${SOURCE})
        string(FIND "${text}" "${place}" at)
        if(NOT at EQUAL -1)
            message(FATAL_ERROR "${file} names ${place}")
        endif()
    endforeach()
endforeach()
file(RENAME ${staged} ${PREFIX})
