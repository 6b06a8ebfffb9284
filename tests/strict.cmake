# The headers under the warnings that a careful user may have switched on: each umbrella, and a program that
# uses most of the library, for the templates. Compiled only; warnings are errors with BIDE_WERROR.

add_library(headers_strict OBJECT noexcept_smoke.cpp)
bide_develop(headers_strict)
target_compile_options(
    headers_strict
    PRIVATE -fsyntax-only -Wsign-conversion -Wnon-virtual-dtor -Wold-style-cast
            $<$<CXX_COMPILER_ID:GNU>:-Wuseless-cast>
)
set(umbrellas bide.hpp)
if(TARGET bide::durable AND UNIX)
    list(APPEND umbrellas durable/slots/file.hpp)
    target_link_libraries(headers_strict PRIVATE bide::durable_header_only)
endif()
foreach(header IN LISTS umbrellas)
    set(source ${CMAKE_CURRENT_BINARY_DIR}/strict/${header}.cpp)
    file(CONFIGURE OUTPUT ${source} CONTENT "#include <bide/${header}>\n" @ONLY)
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
