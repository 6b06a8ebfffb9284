# The component bide::model, the model checker (include/bide/model/README.md), for the source tree and
# for the installed package alike. It is compiled once in each project that uses it, and only if a target
# links it. As bide::bide is a library of headers, the package stays one without binaries.

get_property(bide_languages GLOBAL PROPERTY ENABLED_LANGUAGES)
if(NOT CXX IN_LIST bide_languages)
    message(FATAL_ERROR "bide: the component model is compiled in each project, which has to enable CXX")
endif()

# The threads of a body are fibers on one thread, which sanitizers do not know of: ThreadSanitizer has nothing to
# see there, and AddressSanitizer takes a digest of a stack for an error. A project may have them in its flags.
set(bide_model_options "$<$<NOT:$<CXX_COMPILER_ID:MSVC>>:-O2;-fno-sanitize=all>")

if(NOT TARGET bide::model)
    set(bide_model_source ${CMAKE_CURRENT_BINARY_DIR}/bide/model.cpp)
    file(CONFIGURE OUTPUT ${bide_model_source} CONTENT "#include <bide/model/source.hpp>\n" @ONLY)
    add_library(bide_model STATIC EXCLUDE_FROM_ALL ${bide_model_source})
    target_link_libraries(bide_model PUBLIC bide::bide)
    # The number of executions is what counts, in a build for debugging, too. MSVC has no such option.
    target_compile_options(bide_model PRIVATE "${bide_model_options}")
    # No alias: a project that exports what links it exports this name.
    add_library(bide::model INTERFACE IMPORTED GLOBAL)
    target_link_libraries(bide::model INTERFACE bide_model)

    # What bodies that are compiled with -fsanitize=thread call at each access to plain memory.
    set(bide_model_watch_source ${CMAKE_CURRENT_BINARY_DIR}/bide/model_watch.cpp)
    file(CONFIGURE OUTPUT ${bide_model_watch_source} CONTENT "#include <bide/model/watch.hpp>\n" @ONLY)
    add_library(bide_model_watch STATIC EXCLUDE_FROM_ALL ${bide_model_watch_source})
    target_link_libraries(bide_model_watch PUBLIC bide::bide)
    target_compile_options(bide_model_watch PRIVATE "${bide_model_options}")

    # What bodies that were not written for the checker call.
    set(bide_model_unmodified_source ${CMAKE_CURRENT_BINARY_DIR}/bide/model_unmodified.cpp)
    file(
        CONFIGURE OUTPUT ${bide_model_unmodified_source}
        CONTENT "#include <bide/model/unmodified.hpp>\n" @ONLY
    )
    add_library(bide_model_unmodified STATIC EXCLUDE_FROM_ALL ${bide_model_unmodified_source})
    target_link_libraries(bide_model_unmodified PUBLIC bide::bide PRIVATE ${CMAKE_DL_LIBS})
    # -fno-builtin: memcpy() and its like are defined there.
    target_compile_options(bide_model_unmodified PRIVATE "${bide_model_options}" -fno-builtin)
endif()

# bide_add_model(NAME SOURCE... [LIBRARIES LIBRARY...] [TIMEOUT SECONDS] [WATCH | UNMODIFIED]): a program that
# checks models, and a test of that name that runs it. The sources have main(), or a library brings it, such as
# Catch2::Catch2WithMain. WATCH: races are looked for in all plain memory that the sources access, not only
# in what is a model::var. UNMODIFIED: what the sources do with std::atomic, std::thread, std::mutex and their
# like is explored, too. The test has the label `model`.
function(bide_add_model name)
    cmake_parse_arguments(PARSE_ARGV 1 arg "WATCH;UNMODIFIED" "TIMEOUT" "LIBRARIES")
    if(NOT arg_UNPARSED_ARGUMENTS)
        message(FATAL_ERROR "bide_add_model(${name}): no source file is named")
    endif()
    if(NOT arg_TIMEOUT)
        set(arg_TIMEOUT 600)
    endif()
    add_executable(${name} ${arg_UNPARSED_ARGUMENTS})
    target_link_libraries(${name} PRIVATE bide::model ${arg_LIBRARIES})
    target_compile_options(${name} PRIVATE "$<$<NOT:$<CXX_COMPILER_ID:MSVC>>:-O1;-fno-sanitize=all>")
    # The runtime of ThreadSanitizer has an operator new and functions of the names of the checker's. With
    # UNMODIFIED, the checker defines what the other runtimes define, too.
    set(foreign $<IF:$<BOOL:${arg_UNMODIFIED}>,all,thread>)
    target_link_options(${name} PRIVATE $<$<NOT:$<CXX_COMPILER_ID:MSVC>>:-fno-sanitize=${foreign}>)
    if(arg_WATCH AND arg_UNMODIFIED)
        message(FATAL_ERROR "bide_add_model(${name}): UNMODIFIED includes WATCH")
    endif()
    if(arg_UNMODIFIED AND NOT CMAKE_SYSTEM_NAME STREQUAL "Linux")
        message(FATAL_ERROR "bide_add_model(${name}): UNMODIFIED needs Linux and glibc")
    endif()
    if(arg_WATCH OR arg_UNMODIFIED)
        # Compiled so, and not linked so: the functions that this calls are the checker's. -g1: for source lines.
        # The macro: the program has its own instances of std::string and its like, not those of libstdc++.so.
        target_compile_options(${name} PRIVATE -fsanitize=thread -g1 -D_GLIBCXX_EXTERN_TEMPLATE=0)
    endif()
    if(arg_WATCH)
        target_link_libraries(${name} PRIVATE bide_model_watch bide_model)
    elseif(arg_UNMODIFIED)
        # What memcpy(), strlen() and their like do is seen if they are called.
        target_compile_options(${name} PRIVATE -fno-builtin)
        target_link_libraries(${name} PRIVATE bide_model_unmodified bide_model)
    endif()
    if(NOT CMAKE_TESTING_ENABLED)
        message(AUTHOR_WARNING "bide_add_model(${name}): there is no test of it without enable_testing()")
    endif()
    add_test(NAME ${name} COMMAND ${name})
    set_tests_properties(${name} PROPERTIES LABELS model TIMEOUT ${arg_TIMEOUT})
endfunction()
