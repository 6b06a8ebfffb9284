# cmake -DDIR=<scratch folder> -P lint_selftest.cmake
#
# Lints a small tree without a fault, and then with one fault at a time: each must be found, under the
# name of its rule and at its line, and nothing else.

cmake_minimum_required(VERSION 3.25)

function(write_tree)
    file(REMOVE_RECURSE ${DIR})
    file(WRITE ${DIR}/CMakeLists.txt "set(bide_headers\n    core/a.hpp\n    sync/b.hpp\n)\n")
    file(WRITE ${DIR}/tests/CMakeLists.txt "bide_test(core/a_test.cpp)\nbide_test(sync/b_test.cpp)\n")
    file(WRITE ${DIR}/tests/compile_fail/CMakeLists.txt "bide_compile_fail(misuse.cpp)\n")
    file(WRITE ${DIR}/tests/compile_fail/misuse.cpp "")
    file(WRITE ${DIR}/tests/sync/b_test.cpp "")
    file(
        WRITE ${DIR}/tests/core/a_test.cpp
        "int f = 1; // co_await [x] { }\n"
        "co_await g([] { return ops[0](1); });\n"
        "[[nodiscard]] auto [a, b] = co_await ops[1](x);\n"
        "run([&] { f(); });\n"
    )
    file(
        WRITE ${DIR}/include/bide/core/a.hpp
        "#ifndef BIDE_CORE_A_HPP\n#define BIDE_CORE_A_HPP\n\n"
        "// Not a std::atomic; [[x]] \\ ] [Z9]\n"
        "// Order: release [S1]; it goes on\n"
        "// here [S2].\n"
        "x.store(1, std::memory_order_release);\n"
        "int array[N1];\n\n"
        "#endif\n"
    )
    file(
        WRITE ${DIR}/include/bide/sync/b.hpp
        "#ifndef BIDE_SYNC_B_HPP\n#define BIDE_SYNC_B_HPP\n\n"
        "#include <bide/core/a.hpp>\n\n"
        "x.load(std::memory_order_acquire); // Order: acquire [S1] [S2]; why.\n\n"
        "#endif\n"
    )
endfunction()

set(failures 0)

# Lints the tree. With a rule and a place, exactly that must be found; without, nothing.
function(expect what)
    execute_process(
        COMMAND ${CMAKE_COMMAND} -DROOT=${DIR} -P ${CMAKE_CURRENT_LIST_DIR}/lint.cmake
        RESULT_VARIABLE result
        OUTPUT_VARIABLE output
        ERROR_VARIABLE output
    )
    if(ARGC EQUAL 1)
        string(FIND "${output}" "nothing found" at)
    else()
        string(FIND "${output}" "${ARGV2}: [${ARGV1}] " at)
        if(result EQUAL 0 OR NOT output MATCHES "lint: 1 findings")
            set(at -1)
        endif()
    endif()
    if(at EQUAL -1)
        message("not as expected: ${what}\n${output}")
        math(EXPR failures "${failures} + 1")
        set(failures ${failures} PARENT_SCOPE)
    endif()
endfunction()

# Writes `after` for `before` in a file of the tree; the finding is expected there, at that line.
function(expect_fault rule file line before after)
    write_tree()
    file(READ ${DIR}/${file} text)
    string(REPLACE "${before}" "${after}" text "${text}")
    file(WRITE ${DIR}/${file} "${text}")
    expect("${rule}: ${after}" ${rule} ${file}:${line})
    set(failures ${failures} PARENT_SCOPE)
endfunction()

# Adds a line to a header.
function(expect_line rule text)
    expect_fault(${rule} ${a} 14 "\n#endif\n" "\n\n\n\n\n${text}\n#endif\n")
    set(failures ${failures} PARENT_SCOPE)
endfunction()

write_tree()
expect("a tree without a fault")

set(a include/bide/core/a.hpp)
set(a_test tests/core/a_test.cpp)

expect_line(seam "std::atomic<int> x;")
expect_line(seam "::syscall(SYS_futex);")
expect_line(seam "static thread_local int x;")
expect_line(seam "__builtin_ia32_pause();")
expect_line(seam "std::atomic_thread_fence(order);")
expect_line(order "x.store(1, std::memory_order_relaxed);")
expect_line(order "x.store(1, std::memory_order::relaxed);")
expect_line(order "x.store(1, relaxed);")
expect_line(order "x.load();")
expect_line(order "x.fetch_add(1);")
expect_line(label "// Order: acquire [S3]; with whom?")
expect_line(label "// Order: acquire [idle.announce]; with which step?")
expect_line(left "// TODO")
expect_line(left "#if 0")
expect_line(left "#pragma once")
expect_line(rooms "#include <bide/sync/b.hpp>")
string(REPEAT "x" 111 wide)
expect_line(size "${wide}")

string(REPEAT "\n" 400 long)
expect_fault(size ${a} 1 "\n#endif" "${long}#endif")
expect_fault(guard ${a} 1 "#define BIDE_CORE_A_HPP" "#define BIDE_A_HPP")
expect_fault(co_await ${a_test} 2 "[] {" "[&] {")
expect_fault(co_await ${a_test} 3 "[] {" "[x = 1]\n mutable {")
expect_fault(co_await ${a_test} 3 "ops[1]" "[this]() -> int { return 1; }")

write_tree()
file(WRITE ${DIR}/include/bide/core/detail/c.hpp "#ifndef BIDE_CORE_DETAIL_C_HPP\n#define BIDE_CORE_DETAIL_C_HPP\n")
expect("a header that is not installed" listed include/bide/core/detail/c.hpp:1)

write_tree()
file(WRITE ${DIR}/tests/stress/a_stress.cpp "")
expect("a test that is not run" listed tests/stress/a_stress.cpp:1)

write_tree()
file(WRITE ${DIR}/tests/model/a_model.cpp "")
file(WRITE ${DIR}/tests/model/CMakeLists.txt "")
expect("a model that is not run" listed tests/model/a_model.cpp:1)

write_tree()
file(REMOVE ${DIR}/tests/sync/b_test.cpp)
expect("a header without a test" tested include/bide/sync/b.hpp:1)

file(REMOVE_RECURSE ${DIR})
if(failures GREATER 0)
    message(FATAL_ERROR "lint_selftest: ${failures} of lint's rules do not work")
endif()
message("lint_selftest: every rule works")
