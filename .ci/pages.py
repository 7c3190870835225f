# SPDX-License-Identifier: MIT OR Apache-2.0
"""What `.ci/invariants` checks of the pages: words, sentences, links, and the book's contents.

`docs/style.md` says why; each message gives the reason too.
"""

import posixpath
import re

# The pages that are written by docs/style.md. A page is added when it has been rewritten.
PLAIN = """
README.md CONTRIBUTING.md ARCHITECTURE.md
docs/SUMMARY.md docs/start.md docs/packages.md docs/gain.md docs/permissions.md docs/threads.md docs/watch.md docs/profile.md
docs/style.md
docs/glossary.md docs/faq.md docs/messages.md docs/processors.md docs/use.md docs/limits.md docs/openmp-speed.md SECURITY.md
docs/design/mutex.md docs/design/rwlock.md docs/design/condvar.md docs/design/semaphore.md docs/design/team.md
docs/design/once.md docs/design/spin.md docs/design/openmp.md
docs/design/barrier.md docs/design/guard.md docs/simulator.md vm/README.md docs/openmp.md docs/performance.md docs/programs.md docs/programs-earlier.md docs/informing.md
""".split()
MOST_WORDS = 25
MOST_COLUMNS = 110

# What is not written, by which pattern (of one sentence), and why.
WORDS = [
    (r"(?:^|[;:] )who(?:ever)?\b(?!.*\?$)", "a clause begins with it: name the subject, such as `the waiter` or `a user`"),
    (r"\b(?:be|being|is|are|was|were) had\b", "old: write `available`, `is there` or `works`"),
    (r"\bbesides?\b", "two meanings: write `next to`, `while ... runs` or `also`"),
    (r"\banew\b", "old: write `again`"),
    (r"\bso long\b", "not what it seems: write `as long as`, `until` or `for that time`"),
    (r"\bof whom\b", "name the subject, and begin a sentence with it"),
]

# House words: each has one entry of the glossary.
GLOSSARY = "docs/glossary.md"
HOUSE = "arena home mood place relay slot standby turn view".split()

MAP = "docs/crates.svg"
MESSAGES = "docs/messages.md"
# Pages and pictures whose numbers are quoted, and where each of them must stand.
QUOTING = ["docs/gain.md", "docs/gain.svg", "docs/threads.md", "docs/faq.md"]
MEASURED = re.compile(r"docs/(?:performance|programs|programs-earlier|openmp-speed|use|partitions|design/\w+)\.md")
BOOK = "docs/SUMMARY.md"
LINK = re.compile(r"(?<!\\)\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\(([^()\s]+)\)")


def prose(text):
    """(first line, text) of each paragraph, item and quotation; no code, table, heading or comment."""
    kept, first, fenced = [], 0, False
    for number, line in enumerate([*text.splitlines(), ""], 1):
        bare = line.strip()
        fence = bare.startswith("```")
        item = re.match(r"(?:[-*] |\d+\. )", bare)
        apart = not bare or fence or fenced or bare.startswith(("|", "#", "<", "!["))
        if kept and (apart or item):
            yield first, " ".join(kept)
            kept = []
        fenced ^= fence
        if not apart:
            first = first if kept else number
            kept.append(bare[item.end():] if item else bare)


def sentences(paragraph):
    """Links become their words, and what is quoted becomes one word."""
    plain = LINK.sub(r"\1", re.sub(r"`[^`]*`", "`", paragraph)).replace("*", "")
    return [sentence for sentence in re.split(r"(?<=[.!?])[)\"]?\s+(?=[\W\d]*[A-Z`])", plain) if sentence]


def pages_use_plain_words(tree):
    for path in PLAIN:
        # The style page has the words themselves, in tables and in quotes.
        for number, paragraph in prose(tree.files.get(path, "")):
            for sentence in sentences(paragraph):
                for pattern, why in WORDS:
                    if found := re.search(pattern, sentence, re.I):
                        yield f"{path}:{number}: `{found[0].strip(';: ')}` in \"{sentence[:60]}\": {why}"


def sentences_have_one_idea(tree):
    for path in PLAIN:
        for number, paragraph in prose(tree.files.get(path, "")):
            for sentence in sentences(paragraph):
                if (words := len(sentence.split())) > MOST_WORDS:
                    yield f"{path}:{number}: {words} words in \"{sentence[:60]}\", at most {MOST_WORDS}: one idea a sentence"


def lines_of_pages_are_short(tree):
    for path in PLAIN:
        for number, line in enumerate(tree.files.get(path, "").splitlines(), 1):
            if len(line) > MOST_COLUMNS and not line.lstrip().startswith("|"):
                yield f"{path}:{number}: {len(line)} columns, at most {MOST_COLUMNS}: wrap it, as sources are"


def plain_pages_are_there(tree):
    for path in PLAIN:
        if path not in tree.files:
            yield f".ci/pages.py:1: {path} is no page: take it out of PLAIN, or write it"


def house_words_are_defined_once(tree):
    entries = re.findall(r"^\*\*([^*]+)\*\*", tree.files.get(GLOSSARY, ""), re.M)
    for word in HOUSE:
        if (count := entries.count(word)) != 1:
            yield f"{GLOSSARY}:1: `{word}` has {count} entries: a reader looks it up, and finds one meaning"
    for word in sorted({word for word in entries if entries.count(word) > 1} - set(HOUSE)):
        yield f"{GLOSSARY}:1: `{word}` has more than one entry: a reader finds one meaning"


def plain(text):
    """A source, or a message, without what only writes it: line ends, their backslashes, indents and quotes."""
    return re.sub(r"\\\"", '"', re.sub(r"(?:\\n)?\\?\n\s*|\\n", " ", text))


def messages_are_ours(tree):
    page = tree.files.get(MESSAGES, "")
    source = "\n".join(
        plain(text) for path, text in tree.files.items() if re.match(r"crates/\w+/src/.*\.(rs|c)$", path)
    )
    for number, line in enumerate(page.splitlines(), 1):
        if (found := re.match(r"\| `([^`]+)` \|", line)) and found[1] not in source:
            yield f"{MESSAGES}:{number}: `{found[1]}` is no message of ours: quote what the source says now"


# What the command and the server say. Help is in the comments of their arguments.
TALKING = re.compile(r"crates/(?:cli|launch|bench|daemon)/src/.*\.rs$")
LITERAL = re.compile(r'"((?:[^"\\]|\\.)*)"', re.S)
HELP = re.compile(r"((?:^ *///.*\n)+)(?: *#\[(?:arg|command|derive\(clap).*)", re.M)


def messages_use_plain_words(tree):
    for path, text in sorted(tree.files.items()):
        if not TALKING.match(path):
            continue
        # Tests stand last. A quotation mark that is a letter begins no message.
        text = text.split("#[cfg(test)]\nmod tests")[0].replace("'\"'", "' '")
        code = re.sub(r"^ *//.*$", lambda found: " " * len(found[0]), text, flags=re.M)
        said = [(found.start(), plain(found[1])) for found in LITERAL.finditer(code) if " " in found[1]]
        said += [(found.start(), re.sub(r"\s*///\s*", " ", found[1])) for found in HELP.finditer(text)]
        for place, message in said:
            for sentence in sentences(message.strip()):
                for pattern, why in WORDS:
                    if found := re.search(pattern, sentence, re.I):
                        line = text[:place].count("\n") + 1
                        yield f"{path}:{line}: `{found[0].strip(';: ')}` in \"{sentence[:60]}\": {why}"


def the_picture_of_crates_is_the_map(tree):
    block = re.search(r"^```\n(users .*?)^```", tree.files.get("ARCHITECTURE.md", ""), re.M | re.S)
    # The first word of a row is its name; what stands in brackets is a remark.
    rows = [re.sub(r"\([^)]*\)", "", line).split()[1:] for line in block[1].splitlines()] if block else []
    written = {name for row in rows for name in row}
    drawn = set(re.findall(r"text-anchor=\"middle\">(\w+)<", tree.files.get(MAP, "")))
    for name in sorted(written ^ drawn):
        yield f"{MAP}:1: `{name}` is {'not drawn' if name in written else 'no crate of the map'}; see ARCHITECTURE.md"


def quoted_numbers_were_measured(tree):
    number = re.compile(r"(?<![\w.])\d+\.\d+(?![\w.]*\d)")
    measured = {found for path, text in tree.files.items() if MEASURED.fullmatch(path) for found in number.findall(text)}
    for path in QUOTING:
        text = tree.files.get(path, "")
        # Of a picture, the words alone: its places are numbers, too.
        text = "\n".join(re.findall(r">([^<>]+)</text>", text)) if path.endswith(".svg") else text
        for found in number.findall(text):
            if found not in measured:
                yield f"{path}:1: {found} stands on no page of measurements: quote one that does, or measure it there"


def slug(heading):
    """A heading's anchor, as hosts of repositories and mdBook make it."""
    plain = LINK.sub(r"\1", heading).replace("`", "").strip().lower()
    return re.sub(r"\s", "-", re.sub(r"[^\w\- ]", "", plain))


def anchors(text):
    found, fenced = {}, False
    for line in text.splitlines():
        fenced ^= line.startswith("```")
        if not fenced and (heading := re.match(r"#+ +(.*)", line)):
            name = slug(heading[1])
            count = found[name] = found.get(name, -1) + 1
            if count:
                found[f"{name}-{count}"] = 0
    return found


def targets(text):
    """(line number, target) of each link and picture of a page."""
    fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        fenced ^= line.lstrip().startswith("```")
        if not fenced:
            bare = re.sub(r"`[^`]*`", "`", line)
            for found in LINK.finditer(bare):
                yield number, found[2]
            for found in re.finditer(r"\b(?:src|srcset|href)=\"([^\"]+)\"", bare):
                yield number, found[1]


def links_lead_somewhere(tree):
    for path, text in sorted(tree.files.items()):
        if not path.endswith(".md"):
            continue
        for number, target in targets(text):
            if re.match(r"[a-z]+:", target):
                continue
            file, _, anchor = target.partition("#")
            file = posixpath.normpath(posixpath.join(posixpath.dirname(path), file)) if file else path
            if file not in tree.files and not any(other.startswith(file + "/") for other in tree.files):
                yield f"{path}:{number}: `{target}` leads to no file: say where it is now"
            elif anchor and anchor not in anchors(tree.files.get(file, "")):
                yield f"{path}:{number}: `{target}`: {file} has no such heading: say which one it is"


def the_book_has_every_page_once(tree):
    folder = posixpath.dirname(BOOK)
    listed = [posixpath.normpath(f"{folder}/{target}") for _, target in targets(tree.files.get(BOOK, ""))]
    pages = [path for path in tree.files if path.startswith(folder + "/") and path.endswith(".md") and path != BOOK]
    for path in sorted(pages):
        if (count := listed.count(path)) != 1:
            yield f"{BOOK}:1: {path} is listed {count} times: list each page once, or nobody finds it"
    for number, line in enumerate(tree.files.get(BOOK, "").splitlines(), 1):
        if line.strip() and not re.match(r"# |(?:(?:  )*- )?\[[^\]]+\]\([\w/.-]+\.md\)$", line):
            yield f"{BOOK}:{number}: `{line}`: mdBook takes parts (`# `), and chapters, one link a line"


def checks(append, edit, write):
    """Each check, with violations that it has to report."""
    page = "docs/faq.md"
    return {
        plain_pages_are_there: [lambda tree: tree.files.pop(page)],
        pages_use_plain_words: [
            append(page, "\nWho waits, sleeps.\n"),
            append(page, "\nIt is so; who waits\nsleeps.\n"),
            append(page, "\n- A view that cannot be had is no error.\n"),
            append(page, "\nIt runs beside a busy process.\n"),
            append(page, "\nIt is measured anew.\n"),
            append(page, "\nIt waits so long.\n"),
            append(page, "\nA holder of whom nobody knows.\n"),
        ],
        sentences_have_one_idea: [
            append(page, "\n" + "word " * MOST_WORDS + "`a b` end.\n"),
            append(page, "\n- Short. A" + "\n  word" * MOST_WORDS + ".\n"),
        ],
        lines_of_pages_are_short: [append(page, "\nA. " + "b" * MOST_COLUMNS + "\n")],
        house_words_are_defined_once: [
            edit(GLOSSARY, r"^\*\*mood\*\*", "mood"),
            append(GLOSSARY, "\n**relay**: another meaning.\n"),
        ],
        messages_are_ours: [append(MESSAGES, "\n| `there is no lack` | planted | planted |\n")],
        messages_use_plain_words: [
            append("crates/cli/src/run.rs", '\nconst X: &str = "runs beside it";\n'),
            append("crates/daemon/src/args.rs", "\nstruct X {\n    /// Who takes part\n    #[arg(long)]\n    x: u8,\n}\n"),
        ],
        the_picture_of_crates_is_the_map: [edit(MAP, ">sync<", ">sink<"), edit("ARCHITECTURE.md", "^threads .*$", "")],
        quoted_numbers_were_measured: [
            append("docs/gain.md", "\n| 77.77 |\n"),
            edit("docs/gain.svg", r">4\.31<", ">4.32<"),
        ],
        links_lead_somewhere: [
            append("README.md", "\n[x](docs/no-such.md)\n"),
            append(page, "\n[x](limits.md#no-such-heading)\n"),
            append(page, "\n[x](#no-such-heading)\n"),
            append(page, '\n<img src="no-such.svg">\n'),
        ],
        the_book_has_every_page_once: [
            write("docs/planted.md", "# A page\n"),
            append(BOOK, "- [Twice](faq.md)"),
            append(BOOK, "- not a link"),
        ],
    }
