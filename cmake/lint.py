#!/usr/bin/env python3
"""The house rules that a program can check.

lint.py [--root DIR]      prints one line for each finding, `file:line: [rule] what`

  seam      only the platform names atomics, fences, pauses, system calls and thread-local state
  order     a comment explains each memory order, at most six lines above it; no order is left out
  label     a label such as [ring.claim] stands at both ends of its pair, and in the table of one
            README.md of a room, with the proof and the model of its protocol
  words     no word that hides the actor, none of the names that were replaced
  left      no TODO, no #if 0, no #pragma once
  guard     BIDE_<ROOM>_<NAME>_HPP, after the licence
  licence   each header names its licence in its first line
  rooms     a lower room never includes a higher one
  tested    each header has a test
  listed    each header is installed; each test and each model is built and run
  size      lines of at most 110 columns; lines beyond 100 columns are counted
  promise   each promise of tests/README.md labels a test, and each label of a test is in that table
  sets      the table of tests/README.md has each set of tests/sets.cmake, and the steps of .ci/run that take it
  co_await  no capturing lambda inside an awaited expression: g++ 12 destroys it twice
"""

import argparse
import pathlib
import re
import sys

MAX_COLUMNS = 110
GOOD_COLUMNS = 100
ORDER_REACH = 6
LICENCE = "// SPDX-License-Identifier: BSL-1.0"

# The rooms, each with the rooms that its headers may include.
ROOMS = {
    "core": "core",
    "sync": "core sync",
    "channel": "core channel",
    "task": "core sync channel task",
    "io": "core sync task io",
    "sched": "core sync channel task io sched",
    "stream": "core channel task sched stream",
    "parallel": "core sync task sched parallel",
    "durable": "core sync task sched durable",
    "interop": "core sync channel task sched parallel durable interop",
    "model": "core model",
    "test": "core sync channel task sched test",
}
# A select waits for permits as well as for values.
ROOMS_OF_HEADER = {"channel/select.hpp": "core channel sync"}

UNTESTED = {"core/config.hpp", "durable/options.hpp", "durable/record_types.hpp",
            "durable/source.hpp", "model/source.hpp",
            "test/simulation.hpp"}  # no code to run

ORDERS = "relaxed|consume|acquire|release|acq_rel|seq_cst"
MACHINE = re.compile(
    r"std::atomic|atomic_thread_fence|_mm_pause|__builtin_ia32_pause|syscall *\(|thread_local")
MACHINE_HEADERS = re.compile(
    r"(core/(platform|detail/futex_[a-z]+|detail/process_wide)|io/child_process|durable/(process|slots/detail/file/posix_file))\.hpp$")
NAMES_ORDER = re.compile(rf"memory_order(_|::)({ORDERS})|[(,] *({ORDERS})\)")
NO_ORDER = re.compile(r"\.(load\(\)|(store|exchange|fetch_[a-z]+)\([^,()]+\);)")
PROMISE = re.compile(r"\[promise\.([a-z-]+)\]")
PROMISE_ROW = re.compile(r"\| .* \| `([a-z-]+)`")
# A slot's load() and store() are not those of an atomic.
SLOT_CALL = re.compile(r"(slot|slot_|in|of|held_->|s)[.>](load|store)\(\)")
LABEL = re.compile(r"\[([a-z][a-z_0-9]*\.[a-z_0-9]+)\]")
TABLE_LABEL = re.compile(r"[\[`]([a-z][a-z_0-9]*\.(?!hpp|md)[a-z_0-9]+)[\]`]")
NAMELESS_LABEL = re.compile(r"\[[A-Z]+[0-9]+\]")
LEFT = re.compile(r"TODO|FIXME|XXX|#\s*if\s+0|#\s*pragma\s+once")
PRONOUNS = re.compile(r"\b(who|whoever|whom|somebody|nobody|anybody|everybody)\b", re.IGNORECASE)
OLD_NAMES = re.compile(r"\b(fate|settler|bulletin|lookout|tenancy|vigil|employer|errand|guest|siblings)\b")
CAPTURE = re.compile(r"[(,={ ]\[[^\[\]]+\] *([({<]|mutable|noexcept|->)")


class Lint:
    def __init__(self, root):
        self.root = pathlib.Path(root)
        self.findings = []
        self.long_lines = 0
        self.label_places = {}

    def find(self, place, rule, what):
        self.findings.append(f"{place}: [{rule}] {what}")

    def lines(self, path):
        return (self.root / path).read_text(encoding="utf-8").splitlines()

    def files(self, *patterns):
        found = set()
        for pattern in patterns:
            found.update(p.relative_to(self.root).as_posix() for p in self.root.glob(pattern))
        return sorted(found)

    # ---- one header

    def check_header(self, path):
        header = path.removeprefix("include/bide/")
        lines = self.lines(path)
        if not lines or lines[0] != LICENCE:
            self.find(f"{path}:1", "licence", f"does not begin with {LICENCE}")
        guard = re.sub(r"[/.]", "_", f"bide/{header}".upper())
        code = [line for line in lines if line and not line.startswith("//")]
        if code[:2] != [f"#ifndef {guard}", f"#define {guard}"]:
            self.find(f"{path}:1", "guard", f"does not begin with {guard}")
        room = header.partition("/")[0]
        runs = room != "model"  # its headers are a machine of their own, to which orders are values
        allowed = ROOMS_OF_HEADER.get(header, ROOMS.get(room, " ".join(ROOMS))).split()

        explained = -ORDER_REACH - 1  # the line of the last `Order:`
        in_order = False
        for number, line in enumerate(lines, 1):
            place = f"{path}:{number}"
            self.check_columns(place, line)
            code, comment, prose = line.partition("//")
            if runs and (m := MACHINE.search(code)) and not MACHINE_HEADERS.fullmatch(header):
                self.find(place, "seam", m[0])
            if (m := re.match(r"\s*#\s*include\s*<bide/([a-z]+)/", code)) and m[1] not in allowed:
                self.find(place, "rooms", f"includes {m[1]}/")
            if "Order:" in prose:
                explained, in_order = number, True
            elif code.strip() or not comment:
                in_order = False
            if in_order:
                for label in LABEL.findall(prose):
                    self.label_places.setdefault(label, []).append(place)
                if m := NAMELESS_LABEL.search(prose):
                    self.find(place, "label", f"{m[0]} does not name its protocol")
            if runs and NAMES_ORDER.search(code) and number - explained > ORDER_REACH:
                self.find(place, "order", f"no `Order:` within {ORDER_REACH} lines")
            if header.startswith("durable/") and SLOT_CALL.search(code):
                continue
            if NO_ORDER.search(code):
                self.find(place, "order", "names no memory order")
        public = "/" in header and not re.search("(detail|impl)/", header) and header not in UNTESTED
        test = "tests/" + header.removesuffix(".hpp") + ("_test.cpp" if runs else "_model.cpp")
        if public and not (self.root / test).exists():
            self.find(f"{path}:1", "tested", f"{test} is missing")

    def check_columns(self, place, line):
        if len(line) > MAX_COLUMNS:
            self.find(place, "size", f"{len(line)} columns, at most {MAX_COLUMNS}")
        elif len(line) > GOOD_COLUMNS:
            self.long_lines += 1
        if m := LEFT.search(line):
            self.find(place, "left", m[0])

    # ---- labels: both ends, and the table of a room

    def check_labels(self):
        tables = {}
        for path in self.files("include/bide/*/README.md"):
            for number, line in enumerate(self.lines(path), 1):
                if line.startswith("|"):
                    for label in TABLE_LABEL.findall(line.split("|")[1]):
                        tables.setdefault(label, []).append(f"{path}:{number}")
        for label, places in self.label_places.items():
            if len(places) < 2:
                self.find(places[0], "label", f"{label} stands here and nowhere else")
            if label not in tables:
                self.find(places[0], "label", f"{label} is in no README.md's table")
        for label, places in tables.items():
            if label not in self.label_places:
                self.find(places[0], "label", f"{label} stands in no header")
            for again in places[1:]:
                self.find(again, "label", f"{label} is also at {places[0]}")

    # ---- words

    def check_words(self):
        for path in self.files("*.md", ".github/**/*.md", "include/bide/**/*.[hm]*", "tests/**/*.[chm]*",
                               "bench/**/*.[chm]*", "cmake/**/*.[chm]*", "CMakeLists.txt", ".ci/run"):
            for number, line in enumerate(self.lines(path), 1):
                prose = line
                if not path.endswith(".md") and "TEST_CASE" not in line:
                    prose = line.partition("//" if path.endswith("pp") else "#")[2]
                if m := PRONOUNS.search(prose) or OLD_NAMES.search(line):
                    self.find(f"{path}:{number}", "words", m[0])

    # ---- what is built

    def check_listed(self, listing, below, files):
        if not (self.root / listing).exists():
            return
        listed = set(re.split(r"[\s()]+", (self.root / listing).read_text(encoding="utf-8")))
        for file in files:
            if file.removeprefix(below) not in listed:
                self.find(f"{file}:1", "listed", f"is not in {listing}")

    # ---- what is promised

    def check_promises(self, sources):
        readme = "tests/README.md"
        promised = {}
        is_table = False
        for number, line in enumerate(self.lines(readme), 1):
            is_table = is_table or line == "## What is promised"
            if is_table and (m := PROMISE_ROW.match(line)):
                promised[m[1]] = number
        held = set()
        for path in sources:
            for number, line in enumerate(self.lines(path), 1):
                for label in PROMISE.findall(line):
                    held.add(label)
                    if label not in promised:
                        self.find(f"{path}:{number}", "promise", f"{label} is not in {readme}")
        for label in promised.keys() - held:
            self.find(f"{readme}:{promised[label]}", "promise", f"no test has the label {label}")

    # ---- which tests run where

    def check_sets(self):
        readme, sets = "tests/README.md", "tests/sets.cmake"
        if not (self.root / sets).exists():
            return
        text = (self.root / sets).read_text(encoding="utf-8")
        steps = (self.root / ".ci/run").read_text(encoding="utf-8").replace("\\\n", " ")
        builds = re.findall(r"(\S+) (?:release|clang|tsan|asan|aarch64) (\S+\+\+\S*) .*BIDE_TEST_SET=(\w+)", steps)
        table = self.lines(readme)
        for about, name in re.findall(r"# (.+)\nset\(\n? *bide_(\w+)_tests", text):
            of = ", ".join(f"`{step}` ({compiler})" for step, compiler, taken in builds if taken == name)
            row = f"| `{name}` | {about} | {of} |"
            if row not in table:
                self.find(f"{readme}:1", "sets", f"has no row: {row}")

    # ---- every co_await of the tests

    def check_awaits(self, path):
        awaited, begins = "", 0
        for number, line in enumerate(self.lines(path), 1):
            code = line.partition("//")[0]
            if not awaited and (m := re.search(r"\bco_await\b.*", code)):
                code, begins = m[0], number
            elif not awaited:
                continue
            awaited += " " + code
            while ";" in awaited:
                statement, _, rest = awaited.partition(";")
                if CAPTURE.search(statement):
                    self.find(f"{path}:{number}", "co_await", "a capturing lambda in what is awaited")
                m = re.search(r"\bco_await\b.*", rest)
                awaited = m[0] if m else ""

    def run(self):
        headers = self.files("include/bide/**/*.hpp")
        for path in headers:
            self.check_header(path)
        self.check_labels()
        self.check_words()
        durable = self.files("tests/durable/**/*_test.cpp", "tests/stress/durable_*_stress.cpp")
        self.check_listed("CMakeLists.txt", "include/bide/", headers)
        self.check_listed("tests/CMakeLists.txt", "tests/", durable)
        self.check_listed("tests/model/CMakeLists.txt", "tests/model/",
                          self.files("tests/model/**/*_model.cpp"))
        self.check_listed("tests/compile_fail/CMakeLists.txt", "tests/compile_fail/",
                          self.files("tests/compile_fail/*.cpp"))
        sources = self.files("tests/**/*.cpp", "tests/**/*.hpp")
        for path in sources:
            self.check_awaits(path)
        self.check_promises(sources)
        self.check_sets()
        for finding in sorted(self.findings):
            print(finding)
        if self.long_lines:
            print(f"lint: {self.long_lines} lines of headers are longer than {GOOD_COLUMNS} columns")
        print(f"lint: {len(headers)} headers and {len(sources)} test files, "
              f"{len(self.findings) or 'no'} findings")
        return not self.findings


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--root", default=pathlib.Path(__file__).parent.parent)
    sys.exit(0 if Lint(arguments.parse_args().root).run() else 1)
