#!/usr/bin/env python3
"""The outcomes of small programs, computed by herd7, an implementation of memory models of its own.

judge.py --herd HERD7 --library DIRECTORY [--random FILE] [--timeout SECONDS] [GROUP...]
    computes the outcomes in GROUP.txt again: litmus, cores, random, circles; all of them if none is named
judge.py --check
    looks whether all programs have outcomes; of a new one in litmus.txt or cores.txt they are a ? until then

HERD7 is the program, DIRECTORY has its models. The programs are in the notation of program.hpp; the random
ones and the circles are those of FILE, the output of `model_fuzz [.print]`. Each runs under
two models: cpp20.cat beside this file, the text of C++20, and rc11.cat, which comes with herd7. If the
two differ, a line says by what outcomes, and which of C++20's changes accounts for it: rc11.cat is
run a second time with C++20's release sequences. Of the litmus tests, a line says what C++20 allows by load
buffering, which both models leave out. A random program for which a model takes longer than the
time-out is left out.
"""

import argparse
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
OPERATION = re.compile(
    r"(?:\[(?P<unless>!?)(?P<last>\d)\])?"
    r"(?:(?P<fence>fence)|(?P<object>[w-zp]))(?P<orders>(?:\.(?:rlx|con|acq|rel|ar|sc))*)"
    r"(?:(?P<what>\+=|-=|<>|=|@|\?)(?P<value>\d)(?::(?P<desired>\d))?)?")
# Consume is acquire, as in the checker.
ORDERS = {"rlx": "relaxed", "con": "acquire", "acq": "acquire", "rel": "release", "ar": "acq_rel",
          "sc": "seq_cst"}
OF_FAILURE = {"ar": "acq", "rel": "rlx"}
LEFT_OUT = 14
BETWEEN = " = "  # the parts of a line, of which the outcomes are the last
UNKNOWN = "?"
WRITTEN = ("litmus", "cores")
MARKS = {"random": "program: ", "circles": "circle: "}  # of a line of FILE
# Of rc11.cat: a release sequence goes on with the stores of the same thread. C++20 has none of that (P0982).
OLD_SEQUENCE = "let rs = [W]; (sb & loc)?; [W "
NEW_SEQUENCE = "let rs = [W "
# Of cpp20.cat.
NO_LOAD_BUFFERING = "acyclic (sb | rf) as no_load_buffering"


def order(name):
    return "memory_order_" + ORDERS[name]


class Thread:
    """One thread of a program as C, with what it reads."""

    def __init__(self, number, text):
        self.number = number
        self.objects = set()  # that it takes as parameters
        self.initial = {}  # of the objects that only it uses
        self.reads = []  # registers
        self.filters = []
        self.lines = []
        operations = [OPERATION.fullmatch(word) for word in text.split()]
        if None in operations:
            raise ValueError(text)
        has_conditions = any(op["last"] for op in operations)
        for op in operations:
            self.add(op, has_conditions)
        self.lines[:0] = [f"int {r} = {LEFT_OUT};" for r in self.reads if has_conditions]
        if has_conditions:
            self.lines.insert(0, "int last = 0;")

    def add(self, op, has_conditions):
        code, value = self.code_of(op)
        code = [code] if code else []
        if value:
            name = f"r{len(self.reads)}"
            self.reads.append(name)
            if op["what"] == "@":
                read = f"{self.number}:{name}"
                self.filters.append(f"({read}={op['value']} \\/ {read}={LEFT_OUT})")
            code.append(f"{'' if has_conditions else 'int '}{name} = {value};")
            if has_conditions:
                code.append(f"last = {name};")
        if op["last"]:
            code = [f"if (last {'!=' if op['unless'] else '=='} {op['last']}) {{", *code, "}"]
        self.lines += code

    def code_of(self, op):
        """A statement, and an expression for what is read; either may be missing."""
        orders = op["orders"].split(".")[1:] or ["rlx"]
        with_order = order(orders[0])
        if op["fence"]:
            return f"atomic_thread_fence({with_order});", None
        x = op["object"]
        self.objects.add(x)
        if x == "p":
            return (f"*p = {op['value']};", None) if op["what"] else (None, "*p")
        value = op["value"]
        match op["what"]:
            case None | "@":
                return None, f"atomic_load_explicit({x}, {with_order})"
            case "=":
                return f"atomic_store_explicit({x}, {value}, {with_order});", None
            case "<>":
                return None, f"atomic_exchange_explicit({x}, {value}, {with_order})"
            case "+=" | "-=":
                name = "add" if op["what"] == "+=" else "sub"
                return None, f"atomic_fetch_{name}_explicit({x}, {value}, {with_order})"
        failure = order(orders[1] if len(orders) > 1 else OF_FAILURE.get(orders[0], orders[0]))
        expected = f"e{self.number}{len(self.initial)}"
        self.initial[expected] = value
        return (f"int s{expected} = atomic_compare_exchange_strong_explicit("
                f"{x}, {expected}, {op['desired']}, {with_order}, {failure});", f"*{expected}")

    def parameters(self):
        return ", ".join([f"{'int' if x == 'p' else 'atomic_int'}* {x}" for x in sorted(self.objects)] +
                         [f"int* {e}" for e in self.initial])


class Program:
    def __init__(self, text):
        self.text = text
        threads, _, last = text.partition("||")
        self.threads = [Thread(n, t) for n, t in enumerate(threads.split("|"))]
        self.last = last.split()
        self.objects = set(self.last).union(*(t.objects for t in self.threads))

    def litmus(self, name):
        initial = {x: 0 for x in sorted(self.objects)}
        for t in self.threads:
            initial |= t.initial
        out = [f"C {name}", "{ " + " ".join(f"{x} = {v};" for x, v in initial.items()) + " }"]
        for t in self.threads:
            out += [f"P{t.number} ({t.parameters()}) {{", *t.lines, "}"]
        seen = [f"{t.number}:{r};" for t in self.threads for r in t.reads] + [x + ";" for x in self.last]
        out.append(f"locations [{' '.join(seen)}]")
        filters = [f for t in self.threads for f in t.filters]
        if filters:
            out.append("filter " + " /\\ ".join(filters))
        out.append("exists (true)")
        return "\n".join(out) + "\n"

    def outcome(self, state):
        """Of a line such as `0:r0=1; 1:r0=0; [x]=1;`."""
        value = {k.strip("[]"): int(v) for k, v in re.findall(r"([\w:\[\]]+)=(-?\d+)", state)}
        digits = "0123456789abcd-f"
        parts = ["".join(digits[value[f"{t.number}:{r}"] & 15] for r in t.reads) for t in self.threads]
        parts.append("".join(digits[value[x] & 15] for x in self.last))
        return "/".join(p for p in parts if p)


# ---- Running it


class Judge:
    def __init__(self, herd, library, timeout):
        self.herd = herd
        self.timeout = timeout
        self.library = pathlib.Path(library)

    def version(self):
        return subprocess.run([self.herd, "-version"], capture_output=True, text=True,
                              check=True).stdout.split(",")[0].strip()

    def run(self, model, programs, replacing="", by=""):
        """The outcomes of each program, a sorted list; ["race"] where there is a data race; None where it
        takes too long."""
        with tempfile.TemporaryDirectory() as directory:
            at = pathlib.Path(directory)
            if replacing:
                text = model.read_text(encoding="utf-8")
                if replacing not in text:
                    sys.exit(f"{model} has no {replacing}")
                model = at / "changed.cat"
                model.write_text(text.replace(replacing, by), encoding="utf-8")
            for n, p in enumerate(programs):
                (at / f"{n}.litmus").write_text(p.litmus(f"p{n}"), encoding="utf-8")
            (at / "@all").write_text("".join(f"{at}/{n}.litmus\n" for n in range(len(programs))),
                                    encoding="utf-8")
            done = subprocess.run([self.herd, "-set-libdir", self.library, "-model", model,
                                   "-timeout", self.timeout, f"{at}/@all"],
                                  capture_output=True, text=True, check=False)
        found = {}
        for block in ("\n" + done.stdout).split("\nTest ")[1:]:
            head, states, *lines = block.splitlines()
            number = int(re.match(r"p(\d+) ", head)[1])
            count = int(states.removeprefix("States "))
            if re.search(r"^(Flag race|Undef)", block, re.MULTILINE):
                found[number] = ["race"]
            else:
                found[number] = sorted({programs[number].outcome(line) for line in lines[:count]})
        if done.returncode != 0:
            sys.exit(done.stderr)
        return [found.get(n) for n in range(len(programs))]

    def compute(self, programs, with_load_buffering):
        """For each program: the outcomes in C++20, and lines about what differs."""
        new = self.run(HERE / "cpp20.cat", programs)
        old = self.run(self.library / "rc11.cat", programs)
        more = new
        if with_load_buffering:
            more = self.run(HERE / "cpp20.cat", programs, NO_LOAD_BUFFERING)
        known = [n for n in range(len(programs)) if new[n] is not None and old[n] is not None]
        other = [n for n in known if new[n] != old[n]]
        half = dict(zip(other, self.run(self.library / "rc11.cat", [programs[n] for n in other],
                                         OLD_SEQUENCE, NEW_SEQUENCE)))
        out = {}
        for n in known:
            notes = []
            if n in half:
                notes.append(f"  rc11 also {' '.join(sorted(set(old[n]) - set(new[n]))) or 'none'}, not "
                             f"{' '.join(sorted(set(new[n]) - set(old[n]))) or 'none'}: " +
                             ("release sequences" if half[n] == new[n] else "the order S"))
            if more[n] != new[n]:
                notes.append(f"  load buffering also {' '.join(sorted(set(more[n]) - set(new[n])))}")
            out[n] = (new[n], notes)
        return out


# ---- The stored files


def path_of(group):
    return HERE / f"{group}.txt"


def is_program(line):
    return BETWEEN in line and not line.startswith(("#", "  "))


def stored(group):
    """The lines, without what was said about differences."""
    lines = path_of(group).read_text(encoding="utf-8").splitlines()
    return [line for line in lines if not line.startswith("  ")]


def random_lines(path, mark):
    """Of the programs that have no thread that does nothing."""
    lines = [line.removeprefix(mark)
             for line in pathlib.Path(path).read_text(encoding="utf-8").splitlines()
             if line.startswith(mark)]
    lines = [line for line in lines if all(t.strip() for t in line.partition("||")[0].split("|"))]
    return [BETWEEN.join([f"{mark.strip(': ')} {n}", line, UNKNOWN])
            for n, line in enumerate(dict.fromkeys(lines), 1)]


def check():
    lines = [line for group in (*WRITTEN, *MARKS) for line in stored(group) if is_program(line)]
    missing = [line for line in lines if line.endswith(BETWEEN + UNKNOWN)]
    print(f"{len(lines)} programs, {len(missing)} of them without outcomes", *missing, sep="\n  ")
    return 1 if missing else 0


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("--check", action="store_true")
    options.add_argument("--herd", default="herd7")
    options.add_argument("--library")
    options.add_argument("--random")
    options.add_argument("--timeout", default="60")
    options.add_argument("groups", nargs="*")
    given = options.parse_args()
    if given.check:
        return check()
    judge = Judge(given.herd, given.library, given.timeout)
    for group in given.groups or (*WRITTEN, *(MARKS if given.random else ())):
        lines = stored(group)
        if group in MARKS:
            lines = [f"# By judge.py, with herd7 {judge.version()}. NAME = PROGRAM = OUTCOMES.", "",
                     *random_lines(given.random, MARKS[group])]
        rows = [line.split(BETWEEN) for line in lines if is_program(line)]
        known = judge.compute([Program(row[1]) for row in rows], group == "litmus")
        left = [rows[n][1] for n in range(len(rows)) if n not in known]
        print(f"{group}: {len(rows)} programs, {len(left)} of them take too long", *left[:9], sep="\n  ")
        out = []
        number = 0
        for line in lines:
            if not is_program(line):
                out.append(line)
                continue
            if number in known:
                outcomes, notes = known[number]
                out += [BETWEEN.join([*rows[number][:-1], " ".join(outcomes)]), *notes]
            elif group in WRITTEN:
                out.append(line)
            number += 1
        path_of(group).write_text("\n".join(out) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
