"""Prose gate: counts violations of the style rules and compares them with ceilings.

`RULES` holds the rules that a regular expression can check. They apply to docstrings,
comments, Markdown pages, comments of other text files, and messages to users (string
literals of ``src`` that contain a space). ``tests/prose_ceilings.tsv`` holds a ceiling
for each package and rule, which may only fall. ``tests/prose_allowed.tsv`` holds exact
phrases that are exempt, each with its reason. ``tests/test_prose.py`` runs the gate.

    python tools/prose.py            all counts; status 1 if one exceeds its ceiling
    python tools/prose.py PATH...    each violation in these files or directories
    python tools/prose.py --lower    lower the ceilings to the counts
"""

from __future__ import annotations

import argparse
import bisect
import io
import os
import re
import subprocess
import sys
import tarfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parent.parent
CEILINGS = "tests/prose_ceilings.tsv"
ALLOWED = "tests/prose_allowed.tsv"
CHECKED = (
    "src",
    "lab",
    "docs",
    "README.md",
    "examples",
    "tests",
    "benchmarks",
    "tools",
    "deploy",
    "Makefile",
)
FOREIGN = frozenset(("tests/cases/run_cases.py",))
"""Files that were written elsewhere and are kept as they came."""
TEXT_SUFFIXES = frozenset((".yaml", ".tpl", ".toml", ".sh", ".in"))
"""Suffixes of files in which comments and descriptions are checked."""
LOWER = "python tools/prose.py --lower"
MAX_SUBJECT = 72
"""Maximum length of a commit's subject in characters."""
MAX_LISTED = 40
"""Maximum number of places that one message lists."""


@dataclass(frozen=True)
class Rule:
    """One rule of the style: its pattern, and the sentence that explains a violation."""

    pattern: re.Pattern[str]
    text: str
    docstrings_only: bool = False
    """Match the start of docstrings instead of any prose."""


RULES = {
    "1": Rule(
        re.compile(
            r"\b(?:who|whoever|whom|whose|nobody|somebody|anybody|everybody|he|him|his|himself)\b",
            re.IGNORECASE,
        ),
        "Things are not people. Write the pod, the group, another scheduler, no plugin; it, its.",
    ),
    "2": Rule(
        re.compile(r"\b(?:anew|beside|in\s+vain|cards?|let\s+in)\b", re.IGNORECASE),
        "Use the field's word (docs/concepts/glossary.md): device, or GPU in text for users; again, recreated;"
        " next to, in addition to; without success; admitted.",
    ),
    "3": Rule(
        re.compile(r"\s*(?:What|Which|Whose|Whom|Who|Of|So|Where|How|When|Why|Those|Whether)\b"),
        "A docstring begins with a noun phrase (module, class) or an imperative verb (function: Return ...).",
        docstrings_only=True,
    ),
    "7": Rule(
        re.compile(r"\s*So (?:many|much|long|often)\b"),
        "A constant is documented as Maximum ..., Timeout of ..., Interval between ..., with its unit.",
        docstrings_only=True,
    ),
}


@dataclass(frozen=True)
class Place:
    """One violation."""

    rule: str
    path: str
    line: int
    text: str
    """The line of the file, without indentation."""

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.text[:120]}"


# --------------------------------------------------------------------- prose of a file

_HIDDEN = "\0"
"""Replaces each character that is not prose, so that offsets stay those of the file."""


@dataclass(frozen=True)
class Prose:
    """Passage of prose: its offset in the file, and its text with all else hidden."""

    start: int
    text: str
    docstring: bool = False


def prose_of(path: str, text: str) -> Iterator[Prose]:
    """Yield the passages of prose of one file.

    :param path: relative to the repository; decides how the file is read
    """
    if path.endswith(".py"):
        yield from _python(text, messages=path.startswith(("src/", "lab/src/")))
    elif path.endswith(".md"):
        yield Prose(0, _without_code(_markdown(text)))
    else:
        yield Prose(0, _without_code(_comments_of_text(text)))


def _hide(text: str) -> str:
    return re.sub(r"[^\n]", _HIDDEN, text)


def _hide_match(match: re.Match[str]) -> str:
    return _hide(match.group())


_PARAGRAPH = re.compile(r"[ \t]*\|[^\n]*\n?|(?:(?![ \t]*\|)[^\n]*\S[^\n]*\n?)+")
_CODE = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", re.DOTALL)
_ADDRESS = re.compile(r"\]\([^)\s]+\)|https?://\S+")


def _without_code(text: str) -> str:
    """Hide text in backticks, targets of links, and addresses.

    A pair of backticks lies within one paragraph or one row of a table.
    """
    if "`" in text:
        text = _PARAGRAPH.sub(lambda paragraph: _CODE.sub(_hide_match, paragraph.group()), text)
    return _ADDRESS.sub(_hide_match, text)


_FENCE = re.compile(r"[ \t>]*(`{3,}|~{3,})")
_COMMENT = re.compile(r"(?<!\S)#\s[^\n]*")


def _markdown(text: str) -> str:
    """Hide fenced code, except for its comments."""
    lines: list[str] = []
    fence = ""
    for line in text.splitlines(keepends=True):
        mark = _FENCE.match(line)
        if fence:
            if mark and mark[1].startswith(fence) and not line[mark.end() :].strip():
                fence = ""
            line = _keep(_COMMENT, line)
        elif mark:
            fence = mark[1]
            line = _hide(line)
        lines.append(line)
    return "".join(lines)


_TEXT_PROSE = re.compile(
    r"(?<!\S)#[^\n]*|\{\{-?\s*/\*.*?\*/|^[ \t-]*(?:description|summary|message):\s[^\n]*",
    re.DOTALL | re.MULTILINE,
)


def _comments_of_text(text: str) -> str:
    """Hide all but comments and descriptions (YAML, TOML, shell, templates, make)."""
    return _keep(_TEXT_PROSE, text)


def _keep(pattern: re.Pattern[str], text: str) -> str:
    parts: list[str] = []
    end = 0
    for match in pattern.finditer(text):
        parts += (_hide(text[end : match.start()]), match.group())
        end = match.end()
    parts.append(_hide(text[end:]))
    return "".join(parts)


# -- Python

_MARK = re.compile(r"[\"'#]")
_BODIES = {
    '"""': re.compile(r'"""[^"\\]*(?:(?:\\.|"(?!""))[^"\\]*)*"""', re.DOTALL),
    "'''": re.compile(r"'''[^'\\]*(?:(?:\\.|'(?!''))[^'\\]*)*'''", re.DOTALL),
    '"': re.compile(r'"[^"\\\n]*(?:\\.[^"\\\n]*)*"', re.DOTALL),
    "'": re.compile(r"'[^'\\\n]*(?:\\.[^'\\\n]*)*'", re.DOTALL),
}
_PREFIX = re.compile(r"(?<![\w])(?:[bB][rR]?|[rR][bBfF]?|[fF][rR]?|[uU])$")
_ESCAPE = re.compile(r"\\.", re.DOTALL)
_FIELD = re.compile(r"\{\{|\}\}|\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\}")
_INNER = re.compile(r"\"([^\"]* [^\"]*)\"|'([^']* [^']*)'")
_HASHES = re.compile(r"^[ \t]*#+:?", re.MULTILINE)


@dataclass
class _Literal:
    """A run of comments, or of string literals that the compiler joins."""

    start: int
    end: int
    kind: str
    """``comment``, ``docstring``, ``message`` or ``bytes``."""
    parts: list[str]


def _python(text: str, *, messages: bool) -> Iterator[Prose]:
    """Yield docstrings and comments.

    :param messages: yield string literals that contain a space, too
    """
    for literal in _literals(text):
        content = "".join(literal.parts)
        if literal.kind == "comment":
            yield Prose(literal.start, _without_code(content))
        elif literal.kind == "docstring":
            yield Prose(literal.start, _without_code(content), docstring=True)
        elif messages and literal.kind == "message" and any(" " in part.strip(" ") for part in literal.parts):
            yield Prose(literal.start, _without_code(content))


def _literals(text: str) -> Iterator[_Literal]:
    """Yield comments and string literals in order, adjacent ones joined.

    A string literal that is a statement is a docstring: it is alone on its lines, outside
    of brackets. Finding it this way takes a fifth of the time that `ast` takes.
    """
    held: _Literal | None = None
    at = depth = 0
    while mark := _MARK.search(text, at):
        gap = text[at : mark.start()]
        depth += sum(map(gap.count, "([{")) - sum(map(gap.count, ")]}"))
        if mark.group() == "#":
            literal = _comment(text, mark.start())
        else:
            literal = _string(text, mark.start())
            if literal.kind == "message" and not depth and _is_statement(text, literal):
                literal.kind = "docstring"
        at = literal.end
        if held is not None and _continues(text, held, literal):
            held.parts += (re.sub(r"\S", " ", text[held.end : literal.start]), *literal.parts)
            held.end = literal.end
            continue
        if held is not None:
            yield held
        held = literal
    if held is not None:
        yield held


def _begins_line(text: str, offset: int) -> bool:
    line = text.rfind("\n", 0, offset) + 1
    return not text[line:offset].strip() and text[max(0, line - 2) : line] != "\\\n"


def _is_statement(text: str, literal: _Literal) -> bool:
    end = text.find("\n", literal.end)
    rest = text[literal.end : end if end >= 0 else len(text)].strip()
    return _begins_line(text, literal.start) and (not rest or rest.startswith("#"))


def _comment(text: str, start: int) -> _Literal:
    end = text.find("\n", start)
    end = len(text) if end < 0 else end
    content = _HASHES.sub(lambda match: " " * len(match.group()), text[start:end])
    return _Literal(start, end, "comment", [content])


def _string(text: str, start: int) -> _Literal:
    quote = text[start : start + 3] if text[start : start + 3] in _BODIES else text[start]
    body = _BODIES[quote].match(text, start)
    if body is None:
        raise ValueError(f"no end of the string at offset {start}")
    prefix = _PREFIX.search(text, max(0, start - 3), start)
    letters = prefix.group().lower() if prefix else ""
    inner = text[start + len(quote) : body.end() - len(quote)]
    if "r" not in letters:
        inner = _ESCAPE.sub(_hide_match, inner.replace("\\\n", " \n"))
    if "f" in letters:
        inner = _FIELD.sub(_field, inner)
    edge = " " * len(quote)
    parts = [" " * len(letters) + edge, inner, edge]
    return _Literal(start - len(letters), body.end(), "bytes" if "b" in letters else "message", parts)


def _field(match: re.Match[str]) -> str:
    """Hide a field of an f-string, except for string literals with a space."""
    return _keep(_INNER, match.group())


def _continues(text: str, held: _Literal, literal: _Literal) -> bool:
    """Return whether a comment or string literal belongs to the one before it."""
    between = text[held.end : literal.start]
    if held.kind != literal.kind or between.strip(" \t\n"):
        return False
    if literal.kind == "comment":
        return between.count("\n") == 1 and _begins_line(text, held.start)
    return literal.kind == "message"


def _line_starts(text: str) -> list[int]:
    starts = [0]
    starts += (match.end() for match in re.finditer("\n", text))
    return starts


# -------------------------------------------------------------------------- violations


class Allowed:
    """Exact phrases that are exempt from a rule. White space between words may vary."""

    def __init__(self, phrases: Iterable[tuple[str, str]] = ()) -> None:
        self.phrases = list(phrases)
        self.used: set[tuple[str, str]] = set()
        self._patterns = {
            (rule, phrase): re.compile(r"(?<!\w)" + r"\s+".join(map(re.escape, phrase.split())) + r"(?!\w)")
            for rule, phrase in self.phrases
        }

    @classmethod
    def read(cls, root: Path = ROOT) -> Allowed:
        rows = (line.split("\t") for line in _rows(root / ALLOWED))
        return cls((rule, phrase) for rule, phrase, _reason in rows)

    def hide(self, rule: str, text: str) -> str:
        """Hide the phrases that are exempt from ``rule``."""
        for key, pattern in self._patterns.items():
            if key[0] == rule:
                text, count = pattern.subn(_hide_match, text)
                if count:
                    self.used.add(key)
        return text

    def unused(self) -> list[str]:
        """Return the phrases that hid nothing so far."""
        return [f"rule {rule}: {phrase}" for rule, phrase in self.phrases if (rule, phrase) not in self.used]


def places(path: str, text: str, allowed: Allowed) -> list[Place]:
    """Return the violations of all rules in one file, in order."""
    starts = _line_starts(text)
    found: list[tuple[int, str]] = []
    for prose in prose_of(path, text):
        for name, rule in RULES.items():
            if rule.docstrings_only:
                first = rule.pattern.match(prose.text) if prose.docstring else None
                matches = [first] if first and rule.pattern.match(allowed.hide(name, prose.text)) else []
            elif rule.pattern.search(prose.text):
                matches = list(rule.pattern.finditer(allowed.hide(name, prose.text)))
            else:
                continue
            found += ((prose.start + _word_start(match), name) for match in matches)
    lines = text.split("\n")
    result = []
    for offset, name in sorted(found):
        line = bisect.bisect_right(starts, offset)
        result.append(Place(name, path, line, lines[line - 1].strip()))
    return result


def _word_start(match: re.Match[str]) -> int:
    """Return the offset of the first character of a match that is not white space."""
    return match.start() + len(match.group()) - len(match.group().lstrip())


def package_of(path: str) -> str:
    """Return the package that a file counts for.

    That is a directory of src/windlass, docs or tests, or else a top-level directory.
    """
    parts = PurePosixPath(path).parts
    depth = 3 if parts[:2] == ("src", "windlass") else 2 if parts[0] in ("docs", "tests") else 1
    return "/".join(parts[:depth] if len(parts) > depth else parts[:-1] or parts)


def is_checked(path: str) -> bool:
    """Return whether the rules apply to a file of the repository."""
    name = PurePosixPath(path)
    return path not in FOREIGN and (name.suffix in {".py", ".md", *TEXT_SUFFIXES} or name.name == "Makefile")


def files(root: Path, under: Iterable[str] = CHECKED) -> Iterator[str]:
    """Yield the checked files below ``root``, sorted, relative to it."""
    for place in under:
        if (root / place).is_file():
            yield place
        for directory, names, leaves in os.walk(root / place):
            names[:] = sorted(name for name in names if name != "__pycache__" and not name.startswith("."))
            paths = (str(Path(directory, leaf).relative_to(root)) for leaf in sorted(leaves))
            yield from filter(is_checked, paths)


def all_places(root: Path, allowed: Allowed, under: Iterable[str] = CHECKED) -> list[Place]:
    """Return all violations below ``root``."""
    return [
        place
        for path in files(root, under)
        for place in places(path, (root / path).read_text(encoding="utf-8"), allowed)
    ]


# ---------------------------------------------------------------------------- ceilings

Counts = Mapping[tuple[str, str], int]
"""(package, rule) → number of violations."""


def count(found: Iterable[Place]) -> Counter[tuple[str, str]]:
    """Return the number of violations of each rule in each package."""
    return Counter((package_of(place.path), place.rule) for place in found)


def read_ceilings(path: Path) -> dict[tuple[str, str], int]:
    """Return the ceilings of a file. A package that is not in it has the ceiling 0."""
    ceilings: dict[tuple[str, str], int] = {}
    for line in _rows(path):
        package, *numbers = line.split("\t")
        ceilings.update({(package, rule): int(number) for rule, number in zip(RULES, numbers, strict=True)})
    return ceilings


def format_ceilings(ceilings: Counts) -> str:
    """Return the text of a ceilings file. Packages without a violation are left out."""
    packages = sorted({package for (package, _), number in ceilings.items() if number})
    head = "# Ceilings of the style rules (tools/prose.py). They may only fall: " + LOWER
    rows = [
        "\t".join((package, *(str(ceilings.get((package, rule), 0)) for rule in RULES)))
        for package in packages
    ]
    return "\n".join([head, "# package\t" + "\t".join(f"rule {rule}" for rule in RULES), *rows]) + "\n"


def _rows(path: Path) -> list[str]:
    lines = path.read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line.strip() and not line.startswith("#")]


def above(counts: Counts, ceilings: Counts) -> list[tuple[str, str]]:
    """Return the (package, rule) pairs with more violations than their ceiling."""
    return sorted(key for key, number in counts.items() if number > ceilings.get(key, 0))


def below(counts: Counts, ceilings: Counts) -> list[tuple[str, str]]:
    """Return the (package, rule) pairs with fewer violations than their ceiling."""
    return sorted(key for key, number in ceilings.items() if counts.get(key, 0) < number)


def lowered(counts: Counts, ceilings: Counts) -> dict[tuple[str, str], int]:
    """Return ceilings that are at most the old ones and at most the counts."""
    return {key: min(number, counts.get(key, 0)) for key, number in ceilings.items()}


def report_above(root: Path, found: list[Place], ceilings: Counts, allowed: Allowed) -> str:
    """Return numbers, rule and new places of each exceeded ceiling; empty if none is."""
    counts = count(found)
    texts = []
    for package, rule in above(counts, ceilings):
        now = [place for place in found if place.rule == rule and package_of(place.path) == package]
        before = recorded(root, package, allowed)
        new = _added(now, [place for place in before or () if place.rule == rule])
        head = "new places" if before is not None and len(new) < len(now) else "all places"
        shown = [f"  {place}" for place in new[:MAX_LISTED]]
        if len(new) > MAX_LISTED:
            shown.append(f"  ... and {len(new) - MAX_LISTED} more: python tools/prose.py {package}")
        ceiling = ceilings.get((package, rule), 0)
        texts.append(
            "\n".join(
                [
                    f"{package}: {len(now)} violations of rule {rule}, and {CEILINGS} allows {ceiling}.",
                    f"  Rule {rule}: {RULES[rule].text}",
                    f"  {head}:",
                    *shown,
                ]
            )
        )
    return "\n".join(texts)


def report_below(counts: Counts, ceilings: Counts) -> str:
    """Return the ceilings that can be lowered, and the command; empty if none can."""
    keys = below(counts, ceilings)
    if not keys:
        return ""
    lines = [f"  {package}, rule {rule}: {counts.get((package, rule), 0)} of {ceilings[package, rule]}"
             for package, rule in keys]  # fmt: skip
    return "\n".join([f"fewer violations than {CEILINGS} allows; lower it with: {LOWER}", *lines])


def _added(now: list[Place], before: list[Place]) -> list[Place]:
    """Return the places of ``now`` with a line that ``before`` lacks; all if none has."""
    known = Counter(place.text for place in before)
    added = []
    for place in now:
        if known[place.text]:
            known[place.text] -= 1
        else:
            added.append(place)
    return added or now


def recorded(root: Path, package: str, allowed: Allowed) -> list[Place] | None:
    """Return the places of a package when the ceilings were last committed.

    None without history: not a git checkout, or no such commit.
    """
    commit = git(root, "log", "-1", "--format=%H", "--", CEILINGS)
    if not commit:
        return None
    archive = git_bytes(root, "archive", "--format=tar", commit.strip(), "--", package)
    if archive is None:
        return []
    found: list[Place] = []
    with tarfile.open(fileobj=io.BytesIO(archive)) as tree:
        for member in tree:
            content = tree.extractfile(member) if member.isfile() and is_checked(member.name) else None
            if content is not None:
                found += places(member.name, content.read().decode(), allowed)
    return [place for place in found if package_of(place.path) == package]


# ----------------------------------------------------------------------------- commits


def git_bytes(root: Path, *arguments: str) -> bytes | None:
    """Return the output of a git command.

    None if it fails, or if ``root`` is not the root of a checkout.
    """
    if not (root / ".git").exists():
        return None
    try:
        done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, check=False)
    except OSError:
        return None
    return done.stdout if done.returncode == 0 else None


def git(root: Path, *arguments: str) -> str | None:
    """Return the output of a git command as text, as `git_bytes` does."""
    output = git_bytes(root, *arguments)
    return None if output is None else output.decode(errors="replace")


def subject_problem(subject: str) -> str:
    """Return the violation of rule 11 by the subject of a commit; empty if none."""
    if len(subject) > MAX_SUBJECT:
        return f"{len(subject)} characters, {MAX_SUBJECT} are allowed"
    if ";" in subject:
        return "a semicolon: one change per commit"
    return ""


# ------------------------------------------------------------------------ command line


def main(arguments: list[str] | None = None, root: Path = ROOT) -> int:
    """Run the tool; return its exit status."""
    parser = argparse.ArgumentParser(
        description="Count violations of the style rules and compare with the ceilings."
    )
    parser.add_argument("paths", nargs="*", help="list every violation in these files or directories")
    parser.add_argument("--lower", action="store_true", help="lower the ceilings to the counts")
    options = parser.parse_args(arguments)
    allowed = Allowed.read(root)
    if options.paths:
        under = [str(Path(path).resolve().relative_to(root)) for path in options.paths]
        for place in all_places(root, allowed, under):
            print(f"{place.path}:{place.line}: rule {place.rule}: {place.text[:120]}")
        return 0
    found = all_places(root, allowed)
    counts, ceilings = count(found), read_ceilings(root / CEILINGS)
    if options.lower:
        changed = below(counts, ceilings)
        (root / CEILINGS).write_text(format_ceilings(lowered(counts, ceilings)), encoding="utf-8")
        print(f"{len(changed)} ceilings lowered in {CEILINGS}")
    else:
        print(_table(counts, ceilings))
        if warning := report_below(counts, ceilings):
            print("warning: " + warning)
    if unused := allowed.unused():
        print(f"warning: phrases of {ALLOWED} that occur nowhere: " + ", ".join(unused))
    if problem := report_above(root, found, ceilings, allowed):
        print(problem, file=sys.stderr)
        return 1
    return 0


def _table(counts: Counts, ceilings: Counts) -> str:
    """Return the counts of every package, with the ceiling where it differs."""
    lines = [f"{'package':30}" + "".join(f"{'rule ' + rule:>14}" for rule in RULES)]
    for package in sorted({package for package, _ in (*counts, *ceilings)}):
        cells = []
        for rule in RULES:
            number, ceiling = counts.get((package, rule), 0), ceilings.get((package, rule), 0)
            cells.append(str(number) if number == ceiling else f"{number} of {ceiling}")
        lines.append(f"{package:30}" + "".join(f"{cell:>14}" for cell in cells))
    totals = (sum(number for (_, of), number in counts.items() if of == rule) for rule in RULES)
    lines.append(f"{'total':30}" + "".join(f"{total:>14}" for total in totals))
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
