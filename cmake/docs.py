#!/usr/bin/env python3
"""What the target `docs` needs besides Doxygen.

docs.py page FILE     prints a README.md as Doxygen 1.9 reads it: each heading has a label, so that links to it
                      work; links to pages and headers are references; links to other files are text. The
                      first page also has the contents, which the side bar shows.
docs.py finish FOLDER adds the headings of the pages to the search, by each of their words, and takes out the links
                      to lists of members that Doxygen has left out; then fails if a link between the HTML
                      pages in FOLDER is dead, and prints each such link
"""

import html
import html.parser
import os
import pathlib
import re
import sys
import urllib.parse

ROOT = pathlib.Path(__file__).resolve().parent.parent

# The pages in the order of the contents: the file, the label, and the title in the side bar. The guide is
# made by guide.cmake.
PAGES = [
    ("README.md", "index", None),
    ("tests/examples/README.md", "guide", "The guide"),
    ("include/bide/MIGRATION.md", "migration", "From other libraries"),
    ("include/bide/sync/README.md", "room_sync", "Locks and signals: sync"),
    ("include/bide/channel/README.md", "room_channel", "Channels and select: channel"),
    ("include/bide/task/README.md", "room_task", "Tasks: task"),
    ("include/bide/sched/README.md", "room_sched", "Workers: sched"),
    ("include/bide/stream/README.md", "room_stream", "Streams: stream"),
    ("include/bide/parallel/README.md", "room_parallel", "Parallel algorithms: parallel"),
    ("include/bide/io/README.md", "room_io", "Files and sockets: io"),
    ("include/bide/durable/README.md", "room_durable", "Durable locks: durable"),
    ("include/bide/interop/README.md", "room_interop", "Other libraries: interop"),
    ("include/bide/test/README.md", "room_test", "Simulated time: test"),
    ("include/bide/model/README.md", "room_model", "The model checker: model"),
    ("include/bide/core/README.md", "room_core", "The parts: core"),
    ("include/bide/README.md", "headers", "All headers, costs, systems"),
    ("bench/README.md", "bench", "Benchmarks"),
    ("tests/README.md", "promises", "Promises and tests"),
    ("tests/model/README.md", "models", "Models of the library"),
    (".github/CHANGELOG.md", "changes", "Changes"),
    (".github/VERSIONS.md", "versions", "Versions"),
    ("cmake/packaging/README.md", "packages", "Packages"),
]
LABELS = {file: label for file, label, _ in PAGES}
TITLES = {file: title for file, _, title in PAGES}

CODE = re.compile(r"(^```.*?^```$|(?<=\n\n)(?: {4}\S[^\n]*\n)+)", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(!?)\[((?:[^\[\]`]|`[^`]*`)*)\]\(([^()\s]*)\)")
SUMMARY = re.compile(r'<a href="#([\w-]+)">[^<]*</a>(?: &#124;\s*)?')
CHAPTER = re.compile(r"tests/examples/(\d\d_\w+)\.cpp")


def slug(heading):
    """The anchor of a heading, as GitHub makes it."""
    kept = re.sub(r"[^\w\- ]", "", re.sub(r"\]\([^)]*\)", "", heading).lower())
    return kept.strip().replace(" ", "-")


def is_header_page(path):
    return (path.startswith("include/bide/") and path.endswith(".hpp")
            and "/detail/" not in path and "/impl/" not in path and (ROOT / path).is_file())


def reference(path, anchor, text):
    """A link to a file of the repository."""
    code = re.fullmatch(r"`([^`]*)`", text)
    plain = re.sub(r"\s+", " ", text.replace("`", "").replace('"', ""))
    chapter = CHAPTER.fullmatch(path)
    if path in LABELS:
        target = f"{LABELS[path]}_{anchor}" if anchor and path != "tests/examples/README.md" else LABELS[path]
    elif chapter:
        target = f"guide_{chapter[1]}"
    elif is_header_page(path):
        target = path.removeprefix("include/")
    else:
        return text
    made = f'@ref {target} "{plain}"'
    return f"<tt>{made}</tt>" if code else made


def page(file):
    path = file.resolve()
    text = path.read_text()
    try:
        name = str(path.relative_to(ROOT))
    except ValueError:
        name = "tests/examples/README.md"  # a chapter, which guide.cmake has made of a file there
    folder = os.path.dirname(name)

    def link(found):
        is_image, words, target = found.groups()
        if is_image:
            return f'<img src="{os.path.basename(target)}" alt="{words}"/>'
        if re.match(r"\w+:", target):
            return f'<a href="{target}">{words}</a>'
        at, _, anchor = target.partition("#")
        return reference(os.path.normpath(os.path.join(folder, at)) if at else name, anchor, words)

    seen = set()

    def heading(found):
        label = base = f"{LABELS[name]}_{slug(found[2])}"
        count = 0
        while label in seen:
            count += 1
            label = f"{base}-{count}"
        seen.add(label)
        return f"{found[1]} {found[2].replace('`', '')} {{#{label}}}"  # the side bar shows no code

    # Doxygen reads no code in bold.
    text = re.sub(r"\*\*`([^`\n]*)`\*\*", r"<b><tt>\1</tt></b>", text)
    parts = CODE.split(text)  # every second one is code
    for i in range(0, len(parts), 2):
        part = LINK.sub(link, parts[i])
        if TITLES.get(name) and path == ROOT / name:  # not of the first page: the side bar would show them
            part = re.sub(r"^(##+) (.*)$", heading, part, flags=re.MULTILINE)
        parts[i] = part
    text = "".join(parts)
    if path == ROOT / name and TITLES.get(name):
        text = re.sub(r"\A# .*", f"# {TITLES[name]} {{#{LABELS[name]}}}", text)
    if name == "README.md":
        lines = [f'- @subpage {label} "{title}"' for _, label, title in PAGES if title]
        text += "\n## Contents\n\n" + "\n".join(lines) + "\n"
    return text


HEADING = re.compile(r'<h[1-4]>\s*<a class="anchor" id="([^"]*)"></a>\s*(.*?)</h[1-4]>', re.DOTALL)
DULL = {"the", "and", "for", "with", "from", "that", "its", "one", "are", "has", "what", "which", "how", "where"}


def search_id(text):
    """The key of a text in the search, as convertToId() of Doxygen's search.js makes it."""
    return "".join(c if c.isascii() and c.isalnum() else f"_{ord(c):02x}" for c in text.lower())


def index_headings(folder):
    """The search of Doxygen finds names and titles of pages by their beginning. This adds headings."""
    sections = re.search(r'0: "([^"]*)"', (folder / "search/searchdata.js").read_text())[1]
    added = {}
    for _, label, title in PAGES:
        page = folder / f"{label}.html"
        for anchor, words in HEADING.findall(page.read_text()):
            heading = html.unescape(re.sub(r"<[^>]*>", "", words)).strip()
            shown = heading.replace("\\", "").replace("'", "\\'")
            for at in re.finditer(r"[A-Za-z][\w-]+", heading):
                rest = heading[at.start():].lower()
                if len(at[0]) < 3 or at[0].lower() in DULL:
                    continue
                keys = {search_id(rest), search_id(rest.replace("-", ""))}
                for key in sorted(keys):
                    added.setdefault(rest[0], []).append(
                        f"['{key}_{label}_{len(added[rest[0]]) if rest[0] in added else 0}',"
                        f"['{shown}',['../{label}.html#{anchor}',1,'{title or 'bide'}']]]")
    for letter, rows in added.items():
        if letter in sections:
            file = folder / f"search/all_{sections.index(letter):x}.js"
            text = file.read_text().rstrip()
            file.write_text(text.removesuffix("];").rstrip() + ",\n  " + ",\n  ".join(rows) + "\n];\n")


class Links(html.parser.HTMLParser):
    """Collects the links and the anchors of a page."""

    def __init__(self):
        super().__init__()
        self.links = []
        self.anchors = set()

    def handle_starttag(self, tag, attrs):
        for key, value in attrs:
            if key == "id" or (key == "name" and tag == "a"):
                self.anchors.add(value)
            elif value and key in ("href", "src", "data"):
                self.links.append(value)


def mend_summary(file):
    """Without links to lists of members that would be empty. Returns the text of the page."""
    text = file.read_text(errors="replace")
    begin = text.find('<div class="summary">')
    end = text.find("</div>", begin)
    if begin < 0:
        return text
    summary = SUMMARY.sub(lambda link: link[0] if f'name="{link[1]}"' in text else "", text[begin:end])
    if summary != text[begin:end]:
        text = text[:begin] + summary + text[end:]
        file.write_text(text)
    return text


def check(folder):
    pages = {}
    for file in sorted(folder.rglob("*.html")):
        read = Links()
        read.feed(mend_summary(file))
        pages[file.resolve()] = read
    count = 0
    dead = []
    for file, read in pages.items():
        for to in read.links:
            if re.match(r"[\w+.-]+:|//", to):
                continue
            count += 1
            at, _, anchor = to.partition("#")
            target = (file.parent / urllib.parse.unquote(at)).resolve() if at else file
            anchor = urllib.parse.unquote(anchor)
            if not target.exists():
                dead.append(f"{file.name}: {to}: no such file")
            elif anchor and target in pages and anchor not in pages[target].anchors:
                dead.append(f"{file.name}: {to}: no such anchor")
    for line in sorted(set(dead)):
        print(line)
    print(f"{count} links on {len(pages)} pages, {len(dead)} dead")
    return 1 if dead or not count else 0


if __name__ == "__main__":
    verb, argument = sys.argv[1:]
    if verb == "finish":
        index_headings(pathlib.Path(argument))
        sys.exit(check(pathlib.Path(argument)))
    sys.stdout.write(page(pathlib.Path(argument)))
