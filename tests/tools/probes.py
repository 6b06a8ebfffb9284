# Runs in gdb: stops at each probe, and writes its name and its arguments to the file ANSWERS.
#
# Primitives have their names; other addresses get a letter and a number, in the order in which they come.

import os
import re

import gdb

PROBES = {  # the arguments: p a primitive, n a node, t a task, w a worker, s a string, i a number
    "wait_begin": "pni",
    "wait_end": "ni",
    "hand_over": "pni",
    "task_spawn": "t",
    "task_start": "ts",
    "task_end": "tsi",
    "worker_park": "wi",
    "worker_unpark": "wii",
}

numbers = {}  # of the addresses of each kind
counts = {}


def named(kind, address):
    if kind == "p":
        symbol = gdb.execute(f"info symbol {address}", to_string=True)
        if found := re.match(r"(\w+) in section", symbol):
            return found[1]
    of_kind = numbers.setdefault(kind, {})
    if address not in of_kind:
        counts[kind] = counts.get(kind, 0) + 1
        of_kind[address] = counts[kind]
    return f"{kind}{of_kind[address]}"


def forget(name, values):
    """The memory of what has ended is used again."""
    kind = {"wait_end": "n", "task_end": "t"}.get(name)
    if kind is not None:
        del numbers[kind][int(values[0]) & (1 << 64) - 1]


def argument(kind, value):
    if kind == "i":
        return str(int(value))
    if kind == "s":
        text = gdb.Value(int(value)).cast(gdb.lookup_type("char").pointer())
        return f'"{text.string()}"' if int(value) else "no name"
    return named(kind, int(value) & (1 << 64) - 1)


def stop_at(probe):
    before = set(b.number for b in gdb.breakpoints())
    gdb.execute(f"break -probe-stap bide:{probe}", to_string=True)
    (number,) = (b.number for b in gdb.breakpoints() if b.number not in before)
    return number


with open(os.environ["ANSWERS"], "w", encoding="utf-8") as answers:
    probes = {stop_at(name): name for name in PROBES}
    stopped = []
    gdb.events.stop.connect(lambda event: stopped.append(event))
    gdb.execute("run", to_string=True)
    while gdb.selected_thread() is not None:
        hit = stopped[-1].breakpoints[0].number
        name = probes[hit]
        values = [gdb.parse_and_eval(f"$_probe_arg{i}") for i in range(len(PROBES[name]))]
        shown = [argument(kind, value) for kind, value in zip(PROBES[name], values)]
        if int(gdb.parse_and_eval("$_probe_argc")) != len(shown):
            shown.append("and others")
        answers.write(f"{name} {', '.join(shown)}\n")
        forget(name, values)
        gdb.execute("continue", to_string=True)
