#!/usr/bin/env python3
"""Runs the programs of a build of this folder and of its peers, in alternating rounds.

    run.py BUILD [--threads N] [--rounds N] [PROGRAM...]

Prints the medians of the durations in milliseconds, and the ratio of bide to the best. What bide loses comes first.
The last line is the mean ratio to the best.
"""

import argparse
import pathlib
import re
import statistics
import subprocess

ARGUMENTS = {"fib": "39 {}", "skynet": "{}", "nqueens": "{}", "matmul": "2048 {}", "channel": "{}", "io_socket_st": ""}
PEERS = ["bide", "citor", "libfork", "TooManyCooks", "tbb"]


def run(program, arguments):
    done = subprocess.run([program, *arguments.split()], stdout=subprocess.PIPE, text=True, check=True)
    if "FAIL" in done.stdout or "error" in done.stdout.lower():
        raise SystemExit(f"{program}: {done.stdout}")
    return int(re.search(r"duration: (\d+) us", done.stdout)[1]) / 1000


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("programs", nargs="*", default=list(ARGUMENTS), metavar="PROGRAM")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()

    times = {}
    for _ in range(args.rounds):
        for name in args.programs:
            for peer in PEERS:
                program = args.build / (name if peer == "bide" else f"{peer}/{name}")
                if program.exists():
                    took = run(program, ARGUMENTS[name].format(args.threads))
                    times.setdefault(name, {}).setdefault(peer, []).append(took)

    rows = []
    for name, of in times.items():
        medians = {peer: statistics.median(each) for peer, each in of.items()}
        rows.append((medians["bide"] / min(medians.values()), name, medians))
    rows.sort(key=lambda row: -row[0])

    print("| | " + " | ".join(PEERS) + " | ratio to the best |\n|" + "---|" * (len(PEERS) + 2))
    for ratio, name, medians in rows:
        best = min(medians.values())
        cells = [f"{medians[p]:,.0f}" if p in medians else "" for p in PEERS]
        cells = [f"**{c}**" if medians.get(p) == best else c for p, c in zip(PEERS, cells)]
        title = f"{name} {ARGUMENTS[name].format('')}".strip()
        print(f"| {title} | " + " | ".join(cells) + f" | {ratio:.2f} |")
    print(f"mean ratio to the best: {statistics.mean(row[0] for row in rows):.2f}")


if __name__ == "__main__":
    main()
