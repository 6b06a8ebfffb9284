# The headers under the warnings that a careful user may have switched on: each umbrella, and a program that
# uses most of the library, for the templates. Compiled only; warnings are errors with BIDE_WERROR.

add_library(headers_strict OBJECT noexcept_smoke.cpp)
bide_develop(headers_strict)
target_compile_options(
    headers_strict
    PRIVATE -Wsign-conversion -Wnon-virtual-dtor -Wold-style-cast
            $<$<CXX_COMPILER_ID:GNU>:-Wuseless-cast>
)
# g++ also warns, by -Wshadow, of a constructor's parameter that has the name of a variable of the user.
set(user ${CMAKE_CURRENT_BINARY_DIR}/strict/user.hpp)
set(names a b c d e f g h i j k l m n o p q r s t u v w x y z)
list(APPEND names it item list lock name node op pool queue result runner task value)
list(JOIN names ", " names)
file(CONFIGURE OUTPUT ${user} CONTENT "extern int @names@;\n" @ONLY)
target_compile_options(headers_strict PRIVATE "SHELL:-include ${user}")
set(rooms bide parallel stream)
if(TARGET bide::durable AND UNIX)
    list(APPEND rooms durable)
    target_link_libraries(headers_strict PRIVATE bide::durable_header_only)
endif()
foreach(room IN LISTS rooms)
    set(source ${CMAKE_CURRENT_BINARY_DIR}/strict/${room}.cpp)
    set(includes "#include <bide/${room}.hpp>\n")
    if(room STREQUAL "bide") # it brings no names of sockets
        string(PREPEND includes "extern int accept, bind, connect, listen, recv, send, shutdown, socket;\n")
    endif()
    if(room STREQUAL "durable")
        string(APPEND includes "#include <bide/durable/slots/file.hpp>\n")
    endif()
    file(CONFIGURE OUTPUT ${source} CONTENT "${includes}" @ONLY)
    target_sources(headers_strict PRIVATE ${source})
endforeach()

# All of clang's, less those that ask for what the library does on purpose, each with the reason.
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    target_compile_options(
        headers_strict
        PRIVATE
            -Weverything
            -Wno-unknown-warning-option
            -Wno-c++98-compat -Wno-c++98-compat-pedantic -Wno-c++20-compat -Wno-c++20-extensions # it is C++20
            -Wno-padded # members are ordered by use, and kept apart by cache lines
            -Wno-weak-vtables # it is headers only
            -Wno-unsafe-buffer-usage # it has containers of its own, on pointers
            -Wno-switch-default # which -Wcovered-switch-default contradicts
            -Wno-switch-enum # a `default` for the other values is meant
            -Wno-ctad-maybe-unsupported # std::lock_guard has no deduction guides
            -Wno-exit-time-destructors # that of a thread, for its memory
            -Wno-disabled-macro-expansion # of libcurl's macros
    )
endif()

# Under the newest standard that the compiler knows.
include(CheckCXXCompilerFlag)
foreach(standard IN ITEMS 2c 23)
    check_cxx_compiler_flag(-std=c++${standard} bide_has_cxx${standard})
    if(bide_has_cxx${standard})
        add_library(headers_newest OBJECT noexcept_smoke.cpp)
        bide_develop(headers_newest)
        target_compile_options(headers_newest PRIVATE -std=c++${standard})
        break()
    endif()
endforeach()
