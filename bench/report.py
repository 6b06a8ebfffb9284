#!/usr/bin/env python3
"""Makes tables, verdicts and charts of what the benchmarks measured.

    report.py build/bench/bench/bench_sync --filter '^handoff/'    runs a program, one table after the other
    report.py locks.json                                           reads what --json or --benchmark_out wrote

Values are medians of the rounds, with [smallest to largest]. A ratio to the first row is the median of the
rounds' ratios, so that a machine that drifts affects both. A round in which other programs used more than 3 % of
the machine does not count if at least half of the rounds are better; else the row is marked with "!".
What stands after "--" goes to the program, as in: report.py PROGRAM -- --benchmark_repetitions=3
"""

import argparse
import html
import json
import math
import os
import pathlib
import platform
import re
import shlex
import subprocess
import sys
import tempfile
from statistics import median

HERE = pathlib.Path(__file__).parent
DISTURBED = 3  # per cent of the machine
# What is compared in tables without a time.
COUNTED = {"sizes": "bytes", "order": "overtakes/1000", "priority/share": "high %"}
NOT_COUNTERS = {"name", "family_index", "per_family_instance_index", "run_name", "run_type", "repetitions",
                "repetition_index", "threads", "iterations", "real_time", "cpu_time", "time_unit", "label", "foreign",
                "error_occurred", "error_message"}
UNITS = {"ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9}


class Row:
    def __init__(self, name, order):
        self.name, self.order, self.rounds, self.is_bide = name, order, {}, name.startswith("bide")

    def add(self, run):
        values = {key: value for key, value in run.items() if key not in NOT_COUNTERS}
        # A loop of one thread that never waits: what others do to the thread is not in its processor time.
        is_loop = not run["run_name"].endswith("/manual_time")
        values["time"] = run["cpu_time" if is_loop else "real_time"] * UNITS[run["time_unit"]]
        self.rounds[run.get("repetition_index", 0)] = (values, run.get("foreign", 0) <= DISTURBED)

    def is_noisy(self):
        return 2 * sum(clean for _, clean in self.rounds.values()) < len(self.rounds)

    def values(self, column):
        return [values[column] for values, clean in self.rounds.values()
                if column in values and (clean or self.is_noisy())]

    def median(self, column):
        values = self.values(column)
        return median(values) if values else math.nan

    def ratio(self, baseline, column, other=None):
        pairs = [(values.get(column, math.nan) / (baseline.rounds[i][0].get(other or column, math.nan) or math.nan),
                  clean and baseline.rounds[i][1]) for i, (values, clean) in self.rounds.items() if i in baseline.rounds]
        pairs = [pair for pair in pairs if not math.isnan(pair[0])]
        clean = [ratio for ratio, is_clean in pairs if is_clean]
        ratios = clean if 2 * len(clean) >= len(pairs) else [ratio for ratio, _ in pairs]
        return median(ratios) if ratios else math.nan


class Table:
    def __init__(self, name):
        self.name, self.note, self.found = name, "", {}
        self.column = next((c for prefix, c in COUNTED.items() if name.startswith(prefix)), "time")

    def rows(self):
        return sorted(self.found.values(), key=lambda row: row.order)

    def add(self, row, run):
        self.note = run.get("label", "")
        self.found.setdefault(row, Row(row, run["family_index"])).add(run)

    def shown(self, value):
        return time(value) if self.column == "time" else number(value)

    def best_of_bide(self):
        return min((r for r in self.rows() if r.is_bide), key=lambda r: r.median(self.column), default=None)

    # How many times as long as the fastest peer the best row of bide takes.
    def loss(self):
        best = self.best_of_bide()
        peers = [r for r in self.rows() if not r.is_bide]
        return max((best.ratio(p, self.column) for p in peers), default=0) if best else 0


def number(value):
    return "-" if math.isnan(value) else f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def time(ns):
    for unit, factor in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if ns >= 10 * factor:
            return f"{number(ns / factor)} {unit}"
    return f"{number(ns)} ns"


def add_runs(tables, found):
    for run in found["benchmarks"]:
        if run["run_type"] == "iteration" and not run.get("error_occurred"):
            name, _, row = run["run_name"].removesuffix("/manual_time").rpartition("/")
            tables.setdefault(name or "parts", Table(name or "parts")).add(row, run)
        elif run.get("error_occurred"):
            print(f"failed: {run['name']}: {run.get('error_message')}", file=sys.stderr)


# One table after the other, so that their rows are measured at nearly the same time.
def run(program, regex, flags, show):
    names = subprocess.run([program, "--benchmark_list_tests", f"--benchmark_filter={regex}"], check=True, text=True,
                           stdout=subprocess.PIPE).stdout.split("\n")
    names = [name for name in names if name and re.search(regex, name)]
    merged = {"context": {}, "benchmarks": []}
    for table in dict.fromkeys(name.removesuffix("/manual_time").rpartition("/")[0] for name in names):
        chosen = [n for n in names if n.removesuffix("/manual_time").rpartition("/")[0] == table]
        only = "^(" + "|".join(re.sub(r"[.+*?()\[\]{}^$|\\]", r"\\\g<0>", n) for n in chosen) + ")$"
        with tempfile.NamedTemporaryFile(suffix=".json") as out:
            done = subprocess.run([program, f"--benchmark_filter={only}", f"--benchmark_out={out.name}", *flags],
                                  stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
            try:
                found = json.loads(out.read())
            except ValueError:
                print(f"failed: {table}: " + done.stderr[-300:], file=sys.stderr)
                continue
        merged["context"] = found["context"]
        merged["benchmarks"] += found["benchmarks"]
        tables = {}
        add_runs(tables, found)
        for each in tables.values():
            show(each)
    model = re.search(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8"))
    merged["context"].update(cpu=model[1] if model else platform.machine(), kernel=platform.platform(terse=True),
                             nice=os.nice(0), command="bench/report.py " + shlex.join(sys.argv[1:]))
    return merged


# ---- Text

def aligned(lines):
    widths = [max(map(len, column)) for column in zip(*lines)]
    for line in lines:
        print("  ".join([line[0].ljust(widths[0])] + [c.rjust(w) for c, w in zip(line[1:], widths[1:])]).rstrip())


def print_table(t):
    rows = t.rows()
    counters = [c for c in dict.fromkeys(c for r in rows for v, _ in r.rounds.values() for c in v)
                if c not in (t.column, "time")]
    lines = [[t.name, t.column, "", "ratio", *counters]]
    for r in rows:
        values = r.values(t.column)
        spread = f"[{t.shown(min(values))} to {t.shown(max(values))}]" if len(values) > 1 else ""
        lines.append([("! " if r.is_noisy() else "  ") + r.name, t.shown(r.median(t.column)), spread,
                      number(r.ratio(rows[0], t.column)) + "x", *(number(r.median(c)) for c in counters)])
    print(f"\n# {t.note}" if t.note else "")
    aligned(lines)
    sys.stdout.flush()


def print_losses(tables):
    print("\nwhat bide loses, and how many times as long it takes")
    for t in sorted(tables, key=Table.loss, reverse=True):
        best = t.best_of_bide()
        ahead = [(r, best.ratio(r, t.column)) for r in t.rows() if not r.is_bide] if best else []
        ahead = ", ".join(f"{r.name} {number(x)}x" for r, x in ahead if x > 1)
        if ahead:
            print(f"  {t.name}: {best.name} {t.shown(best.median(t.column))}: {ahead}")


# ---- Targets: TABLES; ROW; COLUMN; RELATION LIMIT; BASELINE. Of several tables (a & b) the geometric mean.

def measured(tables, row, column, baseline, worst):
    logarithms, noisy = 0, False
    for t in tables:
        subject = t.found[row]
        other, _, other_column = baseline.partition("@")
        if baseline.startswith("="):  # a row of another table
            place, _, other = baseline[1:].rpartition("/")
            base = ALL[place].found[other]
            value = subject.median(column) / base.median(column)
        elif baseline:
            base = t.found[other]
            value = (subject.median(column) / base.median(other_column) if other_column else
                     subject.ratio(base, column))
        else:
            base, values = subject, subject.values(column)
            value = worst(values) if worst else median(values)
        noisy = noisy or subject.is_noisy() or base.is_noisy()
        logarithms = value if len(tables) == 1 else logarithms + math.log(value) / len(tables)
    return (logarithms if len(tables) == 1 else math.exp(logarithms)), noisy


def print_targets(tables):
    ALL.update({t.name: t for t in tables})
    met = known = 0
    print("\ntargets (medians)")
    for line in (HERE / "targets.txt").read_text(encoding="utf-8").splitlines():
        fields = [field.strip() for field in line.split(";")]
        if line.startswith("#") or len(fields) < 4:
            continue
        regexes = fields[0].split(" & ")
        row, column, (relation, limit, *worst), baseline = fields[1], fields[2], fields[3].split(), (fields + [""])[4]
        matches = [[t for t in tables if re.fullmatch(regex, t.name)] for regex in regexes]
        groups = [[t] for t in matches[0]] if len(regexes) == 1 else [[m[0] for m in matches]] if all(matches) else []
        for group in groups:
            for name in group[0].found if row == "*" else [row]:
                try:
                    pick = (max if relation == "<=" else min) if worst else None
                    value, noisy = measured(group, name, column or group[0].column, baseline, pick)
                except (KeyError, ZeroDivisionError, ValueError, IndexError):
                    continue
                known, ok = known + 1, value <= float(limit) if relation == "<=" else value >= float(limit)
                met += ok
                what = " & ".join(t.name for t in group) + f": {name}" + (f", {column}" if column else "")
                print(f"  {'met' if ok else 'NOT MET':8}{number(value):>10} {relation} {limit:6} {what}"
                      + (f" / {baseline.lstrip('=')}" if baseline else "") + (" (noisy)" if noisy else ""))
    print(f"{met} of {known} measured targets met")


ALL = {}


# ---- Markdown: a line for each table, what bide loses first

def markdown(tables):
    peers = list(dict.fromkeys(r.name for t in tables for r in t.rows()))
    peers.sort(key=lambda name: not name.startswith("bide"))
    lines = ["| | " + " | ".join(peers) + " |", "|---" * (len(peers) + 1) + "|"]
    for t in sorted(tables, key=Table.loss, reverse=True):
        cells = []
        for peer in peers:
            row = t.found.get(peer)
            text = t.shown(row.median(t.column)) + ("!" if row.is_noisy() else "") if row else ""
            cells.append(f"**{text}**" if row and row.is_bide else text)
        lines.append(f"| {t.name} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


# ---- Curves: tables that are called NAME/P=n are the points of one curve for each row.

# By name of the curves: by row, the values by P.
def curves_of(tables):
    found = {}
    for t in tables:
        if match := re.fullmatch(r"(.+)/P=(\d+)", t.name):
            for r in t.rows():
                found.setdefault(match[1], {}).setdefault(r.name, {})[int(match[2])] = r.median(t.column)
    return found


# A line for each row of bide, beside the peer that is the fastest at the end, what bide loses first.
def curves_markdown(found):
    lines = []
    for name, rows in found.items():
        for row in (r for r in rows if r.startswith("bide")):
            end = max(rows[row])
            peers = [r for r in rows if not r.startswith("bide") and end in rows[r]]
            peer = min(peers, key=lambda r: rows[r][end], default=None)
            beside = rows.get(peer, {})
            cells = " | ".join(f"**{time(rows[row][p])}**" + (f", {time(beside[p])}" if p in beside else "")
                               if p in rows[row] else "" for p in (1, 8, 64, 128))
            loss = rows[row][end] / beside[end] if peer else 0
            lines.append((loss, f"| {name.rpartition('/')[0] or name}: {row} | {cells} | {peer or ''} |\n"))
    head = "| | P = 1 | 8 | 64 | 128 | beside |\n|---|---|---|---|---|---|\n"
    return head + "".join(line for _, line in sorted(lines, key=lambda each: -each[0]))


def update_readme(name, tables):
    path = HERE / "README.md"
    text = path.read_text(encoding="utf-8")
    found = curves_of(tables)
    table = curves_markdown(found) if found else markdown(tables)
    changed, count = re.subn(rf"(<!-- {re.escape(name)} -->\n).*?(<!-- end -->)", lambda m: m[1] + table + m[2], text, flags=re.S)
    if not count:
        sys.exit(f"README.md has no <!-- {name} --> and <!-- end -->")
    path.write_text(changed, encoding="utf-8")


# ---- Charts: bars of the medians, in SVG without scripts and fonts, sorted, the best first. The colours follow the
# reader's light or dark scheme. A bar ends at six times the best value of bide; a longer one is cut off and has a gap.

COLOURS = (("#0969da", "#4493f8"), ("#8250df", "#b083f0"), ("#9a6700", "#d29922"), ("#1a7f37", "#3fb950"),
           ("#cf222e", "#f85149"), ("#59636e", "#9198a1"))  # of curves, in the light and the dark scheme
STYLE = ("text{fill:#1f2328}.quiet{fill:#59636e}.paper{fill:#fff}.peer{fill:#afb8c1}.bide{fill:#0969da}"
         ".own{fill:#0550ae;font-weight:bold}@media(prefers-color-scheme:dark){text{fill:#e6edf3}.quiet{fill:#9198a1}"
         ".paper{fill:#0d1117}.peer{fill:#57606a}.bide{fill:#4493f8}.own{fill:#79c0ff}}")


def drawing(title, lines, height, style, body):
    out = []

    def box(x, y, w, h, look):
        out.append(f'<rect x="{x:g}" y="{y:g}" width="{w:g}" height="{h:g}" class="{look}"/>')

    def text(x, y, what, attributes=""):
        out.append(f'<text x="{x:g}" y="{y:g}" {attributes}>{html.escape(what, quote=False)}</text>')

    lines = [line[i:i + 130] for line in lines for i in range(0, len(line), 130)]
    top = 44 + 17 * len(lines)
    box(0, 0, 1000, top + height, "paper")
    text(16, 24, title, 'font-size="18" font-weight="bold"')
    for i, line in enumerate(lines):
        text(16, 51 + 17 * i, line, 'class="quiet"')
    body(out, box, text, top)
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1000 {top + height:g}" '
            f'font-family="sans-serif" font-size="13">\n<title>{html.escape(title)}</title>\n<style>{style}</style>\n'
            + "\n".join(out) + "\n</svg>\n")


# Both axes are logarithmic. A curve ends in its name.
def curves_chart(title, lines, found, notes):
    def draw(out, _, text, top):
        for i, (name, rows) in enumerate(found.items()):
            x, y = 500 * (i % 2) + 66, top + 270 * (i // 2)
            text(x - 50, y + 16, name, 'font-weight="bold"')
            text(x - 50, y + 33, f"{notes[name]}; less is better", 'class="quiet" font-size="12"')
            values = [v for row in rows.values() for v in row.values()]
            low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
            places = sorted({p for row in rows.values() for p in row})
            across = lambda p: x + 240 * math.log2(p) / 7
            down = lambda v: y + 230 - 180 * (math.log10(v) - low) / (high - low)
            for decade in range(low, high + 1):
                out.append(f'<path class="grid" d="M{x} {down(10 ** decade):g}h240"/>')
                text(x - 6, down(10 ** decade) + 4, f"{10 ** decade:,g} ns" if decade < 3 else f"{10 ** decade // 1000:,g} us",
                     'class="quiet" text-anchor="end" font-size="11"')
            for p in places:
                text(across(p), y + 246, str(p), 'class="quiet" text-anchor="middle" font-size="11"')
            last = math.inf
            for row, line in sorted(rows.items(), key=lambda each: -each[1][max(each[1])]):
                at = sorted(line)
                colour = list(rows).index(row) % len(COLOURS)
                points = " ".join(f"{across(p):.1f},{down(line[p]):.1f}" for p in at)
                own = "own" if row.startswith("bide") else "peer"
                out.append(f'<polyline class="{own}line s{colour}" points="{points}"/>')
                last = down(line[at[-1]]) + 4 if last == math.inf else max(down(line[at[-1]]) + 4, last + 14)
                text(across(max(places)) + 6, last, row, f'class="{own} t{colour}" font-size="12"')

    def colours(which):
        return "".join(f".s{i}{{stroke:{c[which]}}}.peer.t{i},.own.t{i}{{fill:{c[which]}}}" for i, c in enumerate(COLOURS))

    style = (STYLE + "polyline{fill:none;stroke-width:1.5}.ownline{stroke-width:3}.grid{stroke:#8886}" + colours(0)
             + "@media(prefers-color-scheme:dark){" + colours(1) + "}")
    return drawing(title, lines, 270 * math.ceil(len(found) / 2), style, draw)


def chart(title, lines, tables):
    tables = [t for t in tables if t.best_of_bide()]
    heights = [58 + 19 * max(len(t.found) for t in tables[i:i + 2]) for i in range(0, len(tables), 2)]

    def draw(_, box, text, top):
        for i, t in enumerate(tables):
            x, y = 500 * (i % 2), top + sum(heights[:i // 2])
            text(x + 16, y + 16, t.name, 'font-weight="bold"')
            text(x + 16, y + 33, f"{t.note[:60]}; less is better", 'class="quiet" font-size="12"')
            best = t.best_of_bide().median(t.column)
            rows = sorted(t.rows(), key=lambda r: r.median(t.column))
            end = min(max(r.median(t.column) for r in rows), 6 * best)
            for r in rows:
                value, left = r.median(t.column), x + 230
                own = 'class="own"' if r.is_bide else ""
                text(left - 8, y + 57, r.name, f'text-anchor="end" {own}')
                width = max(192 * min(value / end, 1), 1)
                box(left, y + 46, width, 14, "bide" if r.is_bide else "peer")
                if value > 1.001 * end:
                    box(left + width - 14, y + 45, 5, 16, "paper")
                text(left + width + 6, y + 57, t.shown(value) + (" !" if r.is_noisy() else ""), own)
                y += 19

    return drawing(title, lines, sum(heights), STYLE, draw)


def main():
    own, _, flags = " ".join(map(shlex.quote, sys.argv[1:])).partition(" -- ")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", nargs="+", help="a program, or a file that ends with .json")
    parser.add_argument("--filter", default=".", help="only benchmarks whose names match")
    parser.add_argument("--json", help="writes what was measured")
    parser.add_argument("--svg", help="draws a chart")
    parser.add_argument("--title", default="bide", help="of the chart")
    parser.add_argument("--readme", help="replaces a table of README.md, between <!-- README --> and <!-- end -->")
    given = parser.parse_args(shlex.split(own))
    tables, context, all_found = {}, {}, {"benchmarks": []}
    for source in given.source:
        if source.endswith(".json"):
            found = json.loads(pathlib.Path(source).read_text(encoding="utf-8"))
            found["benchmarks"] = [r for r in found["benchmarks"] if re.search(given.filter, r["name"])]
            read = {}
            add_runs(read, found)
            for t in read.values():
                print_table(t)
        else:
            found = run(source, given.filter, shlex.split(flags), print_table)
        add_runs(tables, found)
        context = found["context"]
        all_found["benchmarks"] += found["benchmarks"]
    if not tables:
        sys.exit("nothing was measured")
    tables = list(tables.values())
    print_losses(tables)
    print_targets(tables)
    machine = context.get("machine") or (f"{context.get('cpu', context.get('host_name'))}, {context.get('num_cpus')} processors, "
               f"{context.get('kernel', '')}, {context.get('compiler', '')}")
    print(f"\n{machine}, nice {context.get('nice', '-')}; left out: {context.get('left out') or 'nothing'}")
    if given.json:
        pathlib.Path(given.json).write_text(json.dumps(all_found | {"context": context}, indent=1), encoding="utf-8")
    if given.svg:
        rounds = max(len(r.rounds) for t in tables for r in t.rows())
        disturbed = "" if "machine" in context else "; !: other programs used the processors"
        lines = [machine, f"medians of {rounds} rounds{disturbed}"]
        notes = {t.name.rpartition("/")[0]: t.note for t in tables}
        found = curves_of(tables)
        drawn = curves_chart(given.title, lines, found, notes) if found else chart(given.title, lines, tables)
        pathlib.Path(given.svg).write_text(drawn, encoding="utf-8")
    if given.readme:
        update_readme(given.readme, tables)


if __name__ == "__main__":
    main()
