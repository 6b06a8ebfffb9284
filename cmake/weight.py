#!/usr/bin/env python3
"""What the library costs its user.

weight.py [--cxx COMPILER] [--rounds N] [--check] [--objects FILE...]

It prints four tables:

  closures  the headers of bide that a header includes, their lines of code, which are neither blank nor a
            comment, and the lines after preprocessing, in hundredths of those of <mutex> and <chrono>
  times     the processor seconds at -O0 for a file that only includes a header, the mean of N rounds; the
            symbols of bide in its object
  sizes     the code and constants of small programs of tests/weight at -O2: linked; of the object; and of the
            object with BIDE_COMPILED
  actions   the headers with a line that runs between begin() and end() of a program of tests/weight, in N runs:
            what other threads do meanwhile counts (g++ only)

It fails if a closure exceeds its budget. With --check it prints only the first table, and fails also if one of the
objects, each of a source that only includes a header, has a symbol of bide.
"""

import argparse
import functools
import pathlib
import re
import resource
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent

# The most that a header may include: headers of bide, itself among them; their lines of code; and hundredths,
# which are those of g++ with libstdc++ 12, and are not checked with others. Behind the header, a macro to define.
BUDGETS = {
    "sync/mutex.hpp": (16, 2360, 92),
    "sync/shared_mutex.hpp": (16, 2590, 94),
    "sync/semaphore.hpp": (17, 2870, 94),
    "sync/event.hpp": (17, 2650, 87),
    "sync/condition_variable.hpp": (17, 3060, 96),
    "channel/channel.hpp": (20, 3930, 113),
    "channel/select.hpp": (26, 5400, 129),
    "task/task.hpp": (27, 5440, 125),
    "sched/scheduler.hpp": (47, 9800, 207),
    "sched/scheduler.hpp BIDE_COMPILED": (37, 6930, 184),
    "parallel/fork_join.hpp": (53, 11220, 217),
    "parallel/parallel_for.hpp": (54, 11660, 218),
    "bide.hpp": (101, 20260, 245),
    "bide.hpp BIDE_COMPILED": (90, 17090, 221),
}
SIZES = ["std_mutex", "mutex", "channel", "scheduler", "asio_pool"]
ACTIONS = ["acquire", "recv", "spawn", "join", "parallel_for"]


def run(*command, **options):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, **options).stdout


def print_row(first, *cells):
    print(f"{first:34}" + "".join(f"{cell:>14}" for cell in cells), flush=True)


def source_of(row):
    header, _, macro = row.partition(" ")
    return f"#define {macro}\n" * bool(macro) + f"#include <bide/{header}>\n"


@functools.cache
def lines_of_code(header):
    text = (ROOT / "include" / header).read_text(encoding="utf-8")
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    return sum(bool(line.partition("//")[0].strip()) for line in text.splitlines())


class Weight:
    def __init__(self, cxx, rounds, work):
        self.cxx = [cxx, "-std=c++20", f"-I{ROOT}/include"]
        self.rounds = rounds
        self.work = work

    def preprocess(self, source):
        return run(*self.cxx, "-E", "-P", "-MMD", "-MF", self.work / "rule", "-x", "c++", "-", input=source)

    def has_reference_library(self):
        return "\n12 __clang__\n" in self.preprocess("#include <version>\n_GLIBCXX_RELEASE __clang__\n")

    def has_asio(self):
        return "found" in self.preprocess("#if __has_include(<asio.hpp>)\nfound\n#endif\n")

    def closure(self, source, hundredth):
        """What a budget limits."""
        lines = self.preprocess(source).count("\n")
        files = set(re.findall(r"/include/(bide/\S+)", (self.work / "rule").read_text(encoding="utf-8")))
        return len(files), sum(map(lines_of_code, files)), int(lines / hundredth)

    def compile_source(self, source):
        """The processor seconds, and the symbols of bide."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        run(*self.cxx, "-O0", "-c", "-x", "c++", "-", "-o", self.work / "header.o", input=source)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return seconds, len(symbols_of(self.work / "header.o"))

    def text_of(self, program, *options):
        """The kilobytes that `size` calls text: code, constants and tables of unwinding."""
        source = ROOT / f"tests/weight/{program}.cpp"
        run(*self.cxx, "-O2", "-pthread", *options, source, "-o", self.work / "program")
        return f"{int(run('size', self.work / 'program').splitlines()[1].split()[0]) / 1000:.1f}"

    def headers_run(self, action):
        """The number of headers, for each round."""
        folder = self.work / action
        folder.mkdir()
        source = ROOT / f"tests/weight/{action}.cpp"
        run(*self.cxx, "-O0", "-pthread", "--coverage", "-fprofile-update=atomic", source, "-o", "program", cwd=folder)
        for _ in range(self.rounds):
            run(folder / "program", cwd=folder)
            counts = list(folder.glob("*.gcda"))
            report = run("gcov", "--no-output", *counts, cwd=folder, stderr=subprocess.DEVNULL)
            percents = re.findall(r"/include/bide/.*'\nLines executed:([0-9.]+)", report)
            yield sum(float(percent) > 0 for percent in percents)
            for file in counts:  # a run adds to what it finds
                file.unlink()


def symbols_of(file):
    return re.findall(r".*4bide.*", run("nm", file))


def check_closures(weight, findings):
    print_row("a header includes", "headers", "at most", "lines", "at most", "hundredths", "at most")
    limited = ["headers", "lines of code"]
    if weight.has_reference_library():
        limited.append("hundredths of the preprocessed lines of <mutex> and <chrono>")
    hundredth = weight.preprocess("#include <mutex>\n#include <chrono>\n").count("\n") / 100
    for header, budget in BUDGETS.items():
        found = weight.closure(source_of(header), hundredth)
        print_row(header, *(number for pair in zip(found, budget) for number in pair))
        for number, most, what in zip(found, budget, limited):
            if number > most:
                findings.append(f"{header} includes {number} {what}, and its budget is {most}")


# A header that is included and not used adds no code. Code comes from a class whose first virtual function that
# is not pure is not inline in the class, and, with g++, from a coroutine that is no template, or that one calls.
def check_symbols(objects, findings):
    for file in objects:
        if symbols := symbols_of(file):
            findings.append(f"{file}: {len(symbols)} symbols of bide, such as {symbols[0]}")
    print(f"{len(objects)} objects were searched for symbols")


def print_times(weight):
    sources = {"<mutex>": "#include <mutex>\n"}
    if has_asio := weight.has_asio():
        sources["<asio.hpp>"] = "#include <asio.hpp>\n"
    sources |= {row: source_of(row) for row in BUDGETS}
    seconds = dict.fromkeys(sources, 0.0)
    symbols = {}
    for _ in range(weight.rounds):
        for row, source in sources.items():
            spent, symbols[row] = weight.compile_source(source)
            seconds[row] += spent
    print_row("\na header alone, -O0", "seconds", "by <mutex>", "by asio.hpp", "symbols")
    for row, spent in seconds.items():
        by_mutex = f"{spent / seconds['<mutex>']:.2f}"
        by_asio = f"{spent / seconds['<asio.hpp>']:.2f}" if has_asio else "-"
        print_row(row, f"{spent / weight.rounds:.2f}", by_mutex, by_asio, symbols[row])


def print_sizes(weight):
    print_row("\na program, -O2: text, KB", "linked", "object", "BIDE_COMPILED")
    for program in SIZES:
        if program != "asio_pool" or weight.has_asio():
            sizes = (weight.text_of(program, *options) for options in ([], ["-c"], ["-c", "-DBIDE_COMPILED"]))
            print_row(f"{program}.cpp", *sizes)


def print_actions(weight):
    print_row("\nan action: headers run", "fewest", "most")
    for action in ACTIONS:
        numbers = list(weight.headers_run(action))
        print_row(f"{action}.cpp", min(numbers), max(numbers))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--cxx", default="g++")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--objects", nargs="+", default=[])
    options = parser.parse_args()
    findings = []
    with tempfile.TemporaryDirectory() as work:
        weight = Weight(options.cxx, options.rounds, pathlib.Path(work))
        check_closures(weight, findings)
        if options.check:
            check_symbols(options.objects, findings)
        else:
            print_times(weight)
            print_sizes(weight)
            if "clang" not in options.cxx:
                print_actions(weight)
    for finding in findings:
        print(finding)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
