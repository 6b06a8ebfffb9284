# The test files of a room are compiled as a few files, into one program: what they instantiate in common is
# compiled once. Each file stays a ctest of its own, which runs the test cases of that file. With
# BIDE_TEST_JOINED=OFF each file is a program of its own: more work, but less of it after a change.
#
# A part of a room includes the headers of its test files, and then each test file within a namespace of its
# own, so that names in two of them do not collide. The parts are linked twice under a sanitizer: into a
# program that counts allocations, and into one that has the operators new and delete of the sanitizer.
#
# A change of a header compiles the parts again that include it. So test files that include the first header of
# bide_parts_apart, directly or through other headers, those that include only others of them, and those that
# include none are in different parts.

option(BIDE_TEST_JOINED "Compile the test files of a room in a few parts" ON)
set(BIDE_TEST_PART 130000 CACHE STRING "Bytes of test files in a part: a compiler of one takes less than 2 GB")
mark_as_advanced(BIDE_TEST_PART)

# Headers that a large part of the library includes, and another large part does not.
set(bide_parts_apart sync/semaphore.hpp sync/mutex.hpp sync/event.hpp)

# bide_join(<room> <file> <target> <filter>): sets the program that the file becomes a part of, and what
# selects its test cases there.
function(bide_join room file target filter)
    set(program ${room}_tests)
    if(file IN_LIST bide_counting_tests AND BIDE_SANITIZE)
        set(program ${room}_counting_tests)
    endif()
    set_property(DIRECTORY APPEND PROPERTY bide_joined_rooms ${room})
    set_property(DIRECTORY APPEND PROPERTY bide_files_of_${room} ${file})
    set_property(DIRECTORY APPEND PROPERTY bide_programs_of_${room} ${program})
    cmake_path(GET file STEM tag)
    set(${target} ${program} PARENT_SCOPE)
    set(${filter} "--filenames-as-tags;[#${tag}]" PARENT_SCOPE)
endfunction()

# bide_write_part(<source> <file>...): writes the source of a part that has these files of the folder.
function(bide_write_part out)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${ARGN})
    set(headers "")
    set(bodies "")
    foreach(file IN LISTS ARGN)
        file(STRINGS ${file} lines REGEX "^#include ")
        list(APPEND headers ${lines})
        file(STRINGS ${file} directives REGEX "^#(define|include) ")
        if(directives MATCHES "#define .*;#include ")
            message(FATAL_ERROR "${file} defines a macro for headers: list it in bide_separate_tests")
        endif()
        string(MAKE_C_IDENTIFIER ${file} space)
        string(APPEND bodies "namespace ${space} {\n#include \"${CMAKE_CURRENT_SOURCE_DIR}/${file}\"\n}\n")
    endforeach()
    list(REMOVE_DUPLICATES headers)
    list(JOIN headers "\n" headers)
    file(CONFIGURE OUTPUT ${out} CONTENT "${headers}\n${bodies}" @ONLY)
endfunction()

# bide_reached(<file> <names>): sets which of bide_parts_apart the file includes, itself or by other headers.
function(bide_reached file names)
    get_property(known GLOBAL PROPERTY bide_reached_of_${file})
    if(NOT known)
        set_property(GLOBAL PROPERTY bide_reached_of_${file} known) # a property that is empty is none
        set(reached known)
        file(STRINGS ${file} includes REGEX "^ *# *include *[<\"](bide|support)/")
        foreach(line IN LISTS includes)
            string(REGEX REPLACE "^[^<\"]*[<\"]([^>\"]*).*" "\\1" header "${line}")
            if(header MATCHES "^bide/")
                set(header include/${header})
            else()
                set(header tests/${header})
            endif()
            if(EXISTS ${PROJECT_SOURCE_DIR}/${header})
                bide_reached(${PROJECT_SOURCE_DIR}/${header} of_header)
                list(APPEND reached ${of_header})
            endif()
        endforeach()
        foreach(apart IN LISTS bide_parts_apart)
            if(file STREQUAL "${PROJECT_SOURCE_DIR}/include/bide/${apart}")
                list(APPEND reached ${apart})
            endif()
        endforeach()
        list(REMOVE_DUPLICATES reached)
        set_property(GLOBAL PROPERTY bide_reached_of_${file} ${reached})
        set(known ${reached})
    endif()
    list(REMOVE_ITEM known known)
    list(SORT known)
    set(${names} "${known}" PARENT_SCOPE)
endfunction()

# Parts of about the same size: of the files that include none of bide_parts_apart, of those that include some
# but not the first, and of those that include the first.
function(bide_part_sources room sources)
    get_property(files DIRECTORY PROPERTY bide_files_of_${room})
    list(GET bide_parts_apart 0 first)
    foreach(file IN LISTS files)
        bide_reached(${CMAKE_CURRENT_SOURCE_DIR}/${file} reached)
        if(reached STREQUAL "")
            list(APPEND with_none ${file})
        elseif(first IN_LIST reached)
            list(APPEND with_first ${file})
        else()
            list(APPEND with_some ${file})
        endif()
    endforeach()

    set(number 0)
    foreach(group IN ITEMS with_none with_some with_first)
        set(all 0)
        foreach(file IN LISTS ${group})
            file(SIZE ${CMAKE_CURRENT_SOURCE_DIR}/${file} bytes)
            math(EXPR all "${all} + ${bytes}")
        endforeach()
        math(EXPR parts "(${all} + ${BIDE_TEST_PART} - 1) / ${BIDE_TEST_PART}")
        set(begun 0)
        set(written "")
        foreach(file IN LISTS ${group})
            file(SIZE ${CMAKE_CURRENT_SOURCE_DIR}/${file} bytes)
            math(EXPR part "${number} + (${begun} + ${bytes} / 2) * ${parts} / (${all} + 1)")
            math(EXPR begun "${begun} + ${bytes}")
            list(APPEND files_of_${part} ${file})
            list(APPEND written ${part})
        endforeach()
        list(REMOVE_DUPLICATES written)
        foreach(part IN LISTS written)
            set(source ${CMAKE_CURRENT_BINARY_DIR}/joined/${room}_${part}.cpp)
            bide_write_part(${source} ${files_of_${part}})
            list(APPEND result ${source})
        endforeach()
        math(EXPR number "${number} + ${parts}")
    endforeach()
    set(${sources} ${result} PARENT_SCOPE)
endfunction()

# Adds the programs.
function(bide_joined_programs)
    get_property(rooms DIRECTORY PROPERTY bide_joined_rooms)
    list(REMOVE_DUPLICATES rooms)
    foreach(room IN LISTS rooms)
        bide_part_sources(${room} sources)
        add_library(${room}_joined OBJECT ${sources})
        bide_develop(${room}_joined)
        if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
            # It takes the test files for headers, whose classes must not use unnamed namespaces.
            target_compile_options(${room}_joined PRIVATE -Wno-subobject-linkage)
        endif()
        target_link_libraries(${room}_joined PRIVATE bide_test_main)
        target_precompile_headers(${room}_joined REUSE_FROM bide_test_main)

        get_property(programs DIRECTORY PROPERTY bide_programs_of_${room})
        list(REMOVE_DUPLICATES programs)
        foreach(program IN LISTS programs)
            add_executable(${program} $<TARGET_OBJECTS:${room}_joined>)
            target_link_libraries(${program} PRIVATE bide_dev bide_test_main)
            if(program MATCHES "_counting_" OR NOT BIDE_SANITIZE) # else bide_test_main has the operators
                target_link_libraries(${program} PRIVATE bide_test_alloc)
            else()
                target_link_libraries(${program} PRIVATE bide_test_uncounted)
            endif()
        endforeach()
    endforeach()
endfunction()
