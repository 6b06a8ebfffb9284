# With BIDE_TEST_JOINED, the test files of a room are compiled as one file, into one program: what they
# instantiate in common is compiled once. Each file stays a ctest of its own, which runs the test cases of
# that file.
#
# That file includes the headers of all, and then each test file within a namespace of its own, so that
# names in two of them do not collide. It is linked twice: into a program that counts allocations, and into
# one that has the operators new and delete of the sanitizer, if there is one. The compiler may take 4 GiB for
# a room under AddressSanitizer.

option(BIDE_TEST_JOINED "Compile the test files of a room as one: less work, but all of it after each change" OFF)

# bide_join(<room> <file> <target> <filter>): sets the program that the file becomes a part of, and what
# selects its test cases there.
function(bide_join room file target filter)
    set(program ${room}_tests)
    if(file IN_LIST bide_counting_tests)
        set(program ${room}_counting_tests)
    endif()
    set_property(DIRECTORY APPEND PROPERTY bide_joined_rooms ${room})
    set_property(DIRECTORY APPEND PROPERTY bide_files_of_${room} ${file})
    set_property(DIRECTORY APPEND PROPERTY bide_programs_of_${room} ${program})
    cmake_path(GET file STEM tag)
    set(${target} ${program} PARENT_SCOPE)
    set(${filter} "--filenames-as-tags;[#${tag}]" PARENT_SCOPE)
endfunction()

# Adds the programs.
function(bide_joined_programs)
    get_property(rooms DIRECTORY PROPERTY bide_joined_rooms)
    list(REMOVE_DUPLICATES rooms)
    foreach(room IN LISTS rooms)
        get_property(files DIRECTORY PROPERTY bide_files_of_${room})
        set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${files})
        set(headers "")
        set(bodies "")
        foreach(file IN LISTS files)
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
        set(source ${CMAKE_CURRENT_BINARY_DIR}/joined/${room}.cpp)
        file(CONFIGURE OUTPUT ${source} CONTENT "${headers}\n${bodies}" @ONLY)

        add_library(${room}_joined OBJECT ${source})
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
