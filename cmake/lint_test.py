#!/usr/bin/env python3
"""Runs lint.py over a small tree: without a fault, then with one fault at a time."""

import contextlib
import io
import pathlib
import tempfile
import unittest

from lint import LICENCE, Lint

HEADER = "include/bide/core/a.hpp"
TEST = "tests/core/a_test.cpp"
TREE = {
    "CMakeLists.txt": "set(bide_headers\n    core/a.hpp\n    sync/b.hpp\n)\n",
    "tests/CMakeLists.txt": "",
    "tests/compile_fail/CMakeLists.txt": "bide_compile_fail(misuse.cpp)\n",
    "tests/compile_fail/misuse.cpp": "",
    "tests/model/CMakeLists.txt": "",
    "tests/README.md": "| a | `b` |\n## What is promised\n| A wait ends | `wait-ends` |\n",
    "tests/sync/b_test.cpp": "",
    TEST: """int f = 1; // co_await [x] { }
co_await g([] { return ops[0](1); });
[[nodiscard]] auto [a, b] = co_await ops[1](x);
run([&] { f(); });
TEST_CASE("a", "[promise.wait-ends]") {}
""",
    HEADER: f"""{LICENCE}
#ifndef BIDE_CORE_A_HPP
#define BIDE_CORE_A_HPP

// Not a std::atomic; [[x]] \\ ] [a.nothing]
// Order: release [a.first]; it goes on
// here [a.second].
x.store(1, std::memory_order_release);
int array[N1];

#endif
""",
    "include/bide/sync/b.hpp": f"""{LICENCE}
#ifndef BIDE_SYNC_B_HPP
#define BIDE_SYNC_B_HPP

#include <bide/core/a.hpp>

x.load(std::memory_order_acquire); // Order: acquire [a.first] [a.second]; why.

#endif
""",
    "include/bide/core/README.md": "| [a.first], [a.second] | a.hpp |\n",
}


class LintTest(unittest.TestCase):
    def lint(self, tree):
        with tempfile.TemporaryDirectory() as root:
            for name, text in tree.items():
                path = pathlib.Path(root, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
            lint = Lint(root)
            with contextlib.redirect_stdout(io.StringIO()):
                lint.run()
            return lint.findings

    def expect(self, tree, rule, place):
        findings = self.lint(tree)
        self.assertEqual(len(findings), 1, findings)
        self.assertTrue(findings[0].startswith(f"{place}: [{rule}] "), findings)

    def change(self, file, before, after):
        self.assertIn(before, TREE[file])
        return TREE | {file: TREE[file].replace(before, after, 1)}

    def add_line(self, text):
        return self.change(HEADER, "\n#endif\n", f"\n\n\n\n\n{text}\n#endif\n")

    def test_a_tree_without_a_fault(self):
        self.assertEqual(self.lint(TREE), [])

    def test_one_line_too_many(self):
        for rule, line in [
            ("seam", "std::atomic<int> x;"),
            ("seam", "::syscall(SYS_futex);"),
            ("seam", "static thread_local int x;"),
            ("seam", "__builtin_ia32_pause();"),
            ("seam", "std::atomic_thread_fence(order);"),
            ("order", "x.store(1, std::memory_order_relaxed);"),
            ("order", "x.store(1, std::memory_order::relaxed);"),
            ("order", "x.store(1, relaxed);"),
            ("order", "x.load();"),
            ("order", "x.fetch_add(1);"),
            ("label", "// Order: acquire [S3]"),
            ("left", "// TODO"),
            ("left", "#if 0"),
            ("left", "#pragma once"),
            ("rooms", "#include <bide/sync/b.hpp>"),
            ("size", "x" * 111),
            ("words", "// A thread who waits."),
        ]:
            with self.subTest(line=line):
                self.expect(self.add_line(line), rule, f"{HEADER}:15")

    def test_a_label(self):
        b = "include/bide/sync/b.hpp"
        readme = "include/bide/core/README.md"
        self.expect(self.change(b, " [a.second]", ""), "label", f"{HEADER}:7")
        self.expect(self.change(readme, ", [a.second]", ""), "label", f"{HEADER}:7")
        self.expect(self.change(readme, "[a.second]", "[a.second], [a.third]"), "label", f"{readme}:1")
        again = {"include/bide/sync/README.md": "| [a.first] | b.hpp |\n"}
        self.expect(TREE | again, "label", "include/bide/sync/README.md:1")

    def test_a_header_as_a_whole(self):
        self.expect(self.change(HEADER, "#define BIDE_CORE_A_HPP", "#define BIDE_A_HPP"), "guard",
                    f"{HEADER}:1")
        self.expect(self.change(HEADER, LICENCE, "// Free."), "licence", f"{HEADER}:1")

    def test_an_awaited_lambda(self):
        self.expect(self.change(TEST, "[] {", "[&] {"), "co_await", f"{TEST}:2")
        self.expect(self.change(TEST, "ops[1]", "[x = 1]\n mutable {"), "co_await", f"{TEST}:4")
        self.expect(self.change(TEST, "ops[1]", "[this]() -> int { return 1; }"), "co_await",
                    f"{TEST}:3")

    def test_a_promise(self):
        self.expect(self.change("tests/README.md", "| A wait", "| Another | `other` |\n| A wait"), "promise",
                    "tests/README.md:3")
        self.expect(self.change(TEST, "{}\n", '{}\nTEST_CASE("b", "[promise.wait]") {}\n'), "promise", f"{TEST}:6")

    def test_what_is_not_listed(self):
        detail = f"{LICENCE}\n#ifndef BIDE_CORE_DETAIL_C_HPP\n#define BIDE_CORE_DETAIL_C_HPP\n"
        for file, text in [
            ("include/bide/core/detail/c.hpp", detail),
            ("tests/durable/a_test.cpp", ""),
            ("tests/model/a_model.cpp", ""),
            ("tests/compile_fail/other.cpp", ""),
        ]:
            with self.subTest(file=file):
                self.expect(TREE | {file: text}, "listed", f"{file}:1")

    def test_a_header_without_a_test(self):
        without = {k: v for k, v in TREE.items() if k != "tests/sync/b_test.cpp"}
        self.expect(without, "tested", "include/bide/sync/b.hpp:1")


if __name__ == "__main__":
    unittest.main()
