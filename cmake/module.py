#!/usr/bin/env python3
"""Writes the module interface unit include/bide/bide.cppm, or checks it.

cmake/module.py [--check]

The module `bide` exports the public names of UMBRELLAS: what their headers declare in a namespace of bide
that is not called detail. The code of bide is formatted, so a declaration at namespace scope begins in the
first column, and its name can be found without parsing C++.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
INCLUDE = ROOT / "include" / "bide"
MODULE = INCLUDE / "bide.cppm"
UMBRELLAS = [
    "bide.hpp",
    "core/callback_wait.hpp",
    "core/deadlock_check.hpp",
    "core/parker.hpp",
    "io.hpp",
    "parallel.hpp",
    "sched/chrome_trace.hpp",
    "sched/executor_runner.hpp",
    "sched/for_each_worker.hpp",
    "sched/join_map.hpp",
    "sched/report.hpp",
    "sched/single_flight.hpp",
    "stream.hpp",
    "sync/biased_shared_mutex.hpp",
]

# Names that stand in a public header, and that only the library uses.
INTERNAL = {"basic_task_context", "basic_worker_host", "worker_local"}

INCLUDES = re.compile(r"^\s*#\s*include <bide/([^>]+)>", re.MULTILINE)
OPENS = re.compile(r"(inline )?namespace ([\w:]*) ?\{")
TEMPLATE = re.compile(r"^template\s*<")
TYPE = re.compile(r"^(?:class|struct|union|enum class|enum)\s+(?:\[\[[^\]]*\]\]\s*|alignas\([^)]*\)\s*|BIDE_\w+(?:\([^)]*\)+)?\s+)*(\w+)\s*(?:final\s*)?(?:[:{;]|$)")
SPECIALISATION = re.compile(r"^(?:class|struct|union)\s+(?:\[\[[^\]]*\]\]\s*)?[\w:]+\s*<")
ALIAS = re.compile(r"^using (\w+)\s*=")
CONCEPT = re.compile(r"^concept (\w+)\s*=")
VARIABLE = re.compile(r"^inline (?:constexpr|constinit) [\w:<>, *&]+? (\w+)\s*(?:=|\{|;)")
FUNCTION = re.compile(r"(^|::|[\s&*>~])(operator\S+?|\w+)\(")


def headers_of(umbrella, seen):
    """Yields the headers that an umbrella includes, each once, those that it needs first."""
    if umbrella in seen:
        return
    seen.add(umbrella)
    text = (INCLUDE / umbrella).read_text(encoding="utf-8")
    for included in INCLUDES.findall(text):
        yield from headers_of(included, seen)
    yield umbrella


def without_template_head(text):
    """Drops `template <...>` heads and requires clauses, which may nest."""
    while TEMPLATE.match(text):
        depth = 0
        for at, char in enumerate(text):
            depth += (char == "<") - (char == ">" and text[at - 1] != "-")
            if char == ">" and depth == 0:
                text = text[at + 1 :].lstrip()
                break
        else:
            return ""
        if text.startswith("requires"):
            text = without_requires(text)
    return text


def without_requires(text):
    """Drops a clause in parentheses, or one of names joined by && and ||."""
    text = text[len("requires") :].lstrip()
    text = re.sub(r"^requires[^{]*\{[^}]*\}\s*", "", text)  # an expression
    if text.startswith("("):
        depth = 0
        for at, char in enumerate(text):
            depth += (char == "(") - (char == ")")
            if depth == 0:
                return text[at + 1 :].lstrip()
        return ""
    return re.sub(r"^[\w:]+<[^;{]*?>\s+(?=\w)", "", text, count=1)


def name_of(declaration):
    """Returns the name that a declaration at namespace scope introduces, or None."""
    text = without_template_head(declaration)
    if not text or SPECIALISATION.match(text) or text.startswith(("extern", "friend", "static_assert")):
        return None
    for pattern in (TYPE, ALIAS, CONCEPT, VARIABLE):
        if m := pattern.match(text):
            return m[1]
    if text.startswith(("class", "struct", "using", "namespace", "inline constexpr")):
        return None
    head = text.split("{")[0]
    head = re.sub(r"\[\[[^\]]*\]\]", "", head)
    m = FUNCTION.search(head)
    return m[2] if m and m[1] not in ("::", "~") else None  # else a member, defined outside of its class


def names_of(header):
    """Yields (namespace, name) for the public declarations of a header."""
    text = (INCLUDE / header).read_text(encoding="utf-8")
    text = re.sub(r'"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)\'', "0", text)
    text = re.sub(r"//[^\n]*", "", text)
    text = re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", "", text, flags=re.MULTILINE)
    scopes = []
    pending = ""
    for line in text.splitlines():
        if not pending and scopes and re.match(r"^\}+\s*$", line):
            del scopes[-line.count("}"):]
            continue
        if re.fullmatch(rf"(?:{OPENS.pattern} ?)+", line):
            scopes += [None if inline else name for inline, name in OPENS.findall(line)]
            continue
        if pending:
            pending += " " + line.strip()
        elif line and not line[0].isspace() and line[0] not in "}":
            pending = line
        if pending and (pending.count("{") == pending.count("}")) and pending.rstrip().endswith((";", "}")):
            where = "::".join(scope for scope in scopes if scope)
            name = name_of(re.sub(r"\s+", " ", pending))
            pending = ""
            if name and not name.startswith("BIDE_") and where.startswith("bide") and "detail" not in where.split("::") and "" not in scopes:
                yield where, name


def module():
    seen = set()
    names = {}
    for umbrella in UMBRELLAS:
        for header in headers_of(umbrella, seen):
            if "detail" in header.split("/"):
                continue
            for where, name in names_of(header):
                if name not in INTERNAL:
                    names.setdefault(where, set()).add(name)
    lines = [
        "// SPDX-License-Identifier: BSL-1.0",
        "// The module `bide`: what the headers below declare, without macros. Its names are those of the headers, so",
        "// a program may import the module in one file and include headers in another.",
        "// Made by cmake/module.py.",
        "",
        "module;",
        "",
        *[f"#include <bide/{umbrella}>" for umbrella in UMBRELLAS],
        "",
        "export module bide;",
    ]
    for where in sorted(names):
        lines += ["", f"export namespace {where} {{", ""]
        lines += [f"using {where}::{name};" for name in sorted(names[where])]
        lines += ["", f"}} // namespace {where}"]
    return "\n".join(lines) + "\n"


def main():
    text = module()
    if "--check" not in sys.argv[1:]:
        MODULE.write_text(text, encoding="utf-8")
        return 0
    if not MODULE.exists() or MODULE.read_text(encoding="utf-8") != text:
        print("include/bide/bide.cppm is not what the headers declare: run cmake/module.py")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
