#!/usr/bin/env python3
"""What the library costs its user.

weight.py [--cxx COMPILER] [--rounds N] [--check] [--objects FILE...]

It prints four tables:

  closures  the headers of bide that a header includes, their lines of code, which are neither blank nor a
            comment, and the lines after preprocessing, in hundredths of those of <mutex> and <chrono>
  times     the processor seconds at -O0 for a file that only includes a header, the mean of N rounds; the
            symbols of bide in its object
  sizes     the code and constants of small programs of tests/weight, linked at -O2
  actions   the headers with a line that runs between begin() and end() of a program of tests/weight (g++ only)

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
# which are those of libstdc++ 12, and are not checked with another library.
BUDGETS = {
    "sync/mutex.hpp": (25, 2470, 123),
    "sync/shared_mutex.hpp": (25, 2690, 125),
    "sync/semaphore.hpp": (28, 3080, 125),
    "sync/event.hpp": (28, 2790, 122),
    "sync/condition_variable.hpp": (33, 3830, 129),
    "channel/channel.hpp": (33, 4220, 143),
    "channel/select.hpp": (39, 5570, 150),
    "task/task.hpp": (42, 5540, 136),
    "sched/scheduler.hpp": (82, 11550, 234),
    "parallel/fork_join.hpp": (109, 15150, 245),
    "parallel/parallel_for.hpp": (96, 13340, 240),
    "bide.hpp": (165, 24020, 273),
}
SIZES = ["std_mutex", "mutex", "channel", "scheduler", "asio_pool"]
ACTIONS = ["acquire", "recv", "spawn", "join", "parallel_for"]


def run(*command, **options):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, **options).stdout


def print_row(first, *cells):
    print(f"{first:34}" + "".join(f"{cell:>13}" for cell in cells), flush=True)


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
        return run(*self.cxx, "-E", "-P", "-x", "c++", "-", input=source)

    @functools.cached_property
    def hundredth(self):
        return self.preprocess("#include <mutex>\n#include <chrono>\n").count("\n") / 100

    def has_reference_library(self):
        return "12" in self.preprocess("#include <version>\n_GLIBCXX_RELEASE\n").split()

    def has_asio(self):
        return "found" in self.preprocess("#if __has_include(<asio.hpp>)\nfound\n#endif\n")

    def closure(self, header):
        """What the budget of a header limits."""
        rule = run(*self.cxx, "-MM", "-x", "c++", ROOT / "include/bide" / header)
        files = set(re.findall(r"/include/(bide/\S+)", rule))
        cost = self.preprocess(f"#include <bide/{header}>\n").count("\n") / self.hundredth
        return len(files), sum(map(lines_of_code, files)), int(cost)

    def compile_header(self, header):
        """The processor seconds, and the symbols of bide."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        run(*self.cxx, "-O0", "-c", "-x", "c++", "-", "-o", self.work / "header.o", input=f"#include <{header}>\n")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return seconds, len(symbols_of(self.work / "header.o"))

    def text_of(self, program):
        """The bytes that `size` calls text: code, constants and tables of unwinding."""
        source = ROOT / f"tests/weight/{program}.cpp"
        run(*self.cxx, "-O2", "-pthread", source, "-o", self.work / "program")
        return int(run("size", self.work / "program").splitlines()[1].split()[0])

    def headers_run(self, action):
        folder = self.work / action
        folder.mkdir()
        source = ROOT / f"tests/weight/{action}.cpp"
        run(*self.cxx, "-O0", "-pthread", "--coverage", "-fprofile-update=atomic", source, "-o", "program", cwd=folder)
        run(folder / "program", cwd=folder)
        report = run("gcov", "--no-output", *folder.glob("*.gcda"), cwd=folder, stderr=subprocess.DEVNULL)
        files = re.findall(r"include/bide/(\S+)'\nLines executed:([0-9.]+)", report)
        return [name for name, percent in files if float(percent) > 0]


def symbols_of(file):
    return re.findall(r".*4bide.*", run("nm", file))


def check_closures(weight, findings):
    print_row("a header includes", "headers", "at most", "lines", "at most", "hundredths", "at most")
    limited = ["headers", "lines of code"]
    if weight.has_reference_library():
        limited.append("hundredths of the preprocessed lines of <mutex> and <chrono>")
    for header, budget in BUDGETS.items():
        found = weight.closure(header)
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
    asio = weight.has_asio()
    headers = ["mutex"] + ["asio.hpp"] * asio + [f"bide/{header}" for header in BUDGETS]
    seconds = dict.fromkeys(headers, 0.0)
    symbols = {}
    for _ in range(weight.rounds):
        for header in headers:
            spent, symbols[header] = weight.compile_header(header)
            seconds[header] += spent
    print_row("\na header alone, -O0", "seconds", "by <mutex>", "by asio.hpp", "symbols")
    for header, sum_of in seconds.items():
        by_asio = f"{sum_of / seconds['asio.hpp']:.2f}" if asio else "-"
        print_row(header, f"{sum_of / weight.rounds:.2f}", f"{sum_of / seconds['mutex']:.2f}", by_asio, symbols[header])


def print_sizes(weight):
    print_row("\na program, -O2", "text, KB")
    for program in SIZES:
        if program != "asio_pool" or weight.has_asio():
            print_row(f"{program}.cpp", f"{weight.text_of(program) / 1000:.1f}")


def print_actions(weight):
    print_row("\nan action", "headers run")
    for action in ACTIONS:
        print_row(f"{action}.cpp", len(weight.headers_run(action)))


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
