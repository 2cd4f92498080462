"""`make mutate`: do the tests notice when the engine is wrong?

Seeded random mutants of ``engine`` and ``plugins`` (operators of cosmic-ray, one site each), every one tried in
a copy of the committed tree. A first run of all the tests that matter tells which lines each of them executes
and how long it takes (``mutant_bench``). A mutant is then met by the tests that execute its statement (its
function, where it is part of a definition; its module, where it runs at the import), the quickest first, until
one fails; where possible in a fork of a process that has loaded everything already. A mutant that no test
notices *survives*; each survivor is listed with its reason from ``tools/mutants.toml``, or as one that still
wants a test. What differs only in annotations, docstrings, the kinds of parameters or ``is``/``==`` is no mutant.

``--budget`` bounds the tests that one mutant meets, by the processor time they take without it: a mutant that
no test within it notices counts as a survivor. ``--outcomes`` keeps what became of each, so that a run that was
stopped goes on where it was; ``--again`` tries those once more that survived, after tests were added.

Exit status 1 if less than ``--goal`` of the mutants are killed.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import json
import os
import queue
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
REASONS = ROOT / "tools" / "mutants.toml"
FOLDERS = ("src/windlass/engine", "src/windlass/plugins")
TESTS = ("tests/engine", "tests/plugins", "tests/spi", "tests/cases", "tests/properties", "tests/model")
SLOWER = 10.0
MARGIN_SECONDS = 5.0
"""A test that takes so many times as long, and so much more, is one that does not end."""
LEFT_OUT = ("ReplaceBinaryOperator_BitOr", "Variable", "ExceptionReplacer", "RemoveDecorator")
EQUIVALENT = ("_Is_Eq", "_IsNot_NotEq", "_Eq_Is", "_NotEq_IsNot")
"""Operators that change nothing a test could see, or nothing but types."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """``change``: the line before and after."""

    path: str
    line: int
    operator: str
    source: str
    change: tuple[str, str]

    @property
    def key(self) -> str:
        """Return the key of its reason, which is stable against changes elsewhere in the file."""
        return f"{self.path}: {self.change[0]} -> {self.change[1]}"


@dataclass(frozen=True, slots=True)
class Outcome:
    mutant: Mutant
    killed_by: str
    seconds: float


def stripped(source: str) -> str:
    """The program without what does nothing: annotations, docstrings, how a dataclass is made."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.AnnAssign):
            node.annotation = ast.Constant(None)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            node.returns = None
            every = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            node.args.posonlyargs, node.args.kwonlyargs, node.args.args = [], [], every
            node.args.defaults += [default for default in node.args.kw_defaults if default is not None]
            node.args.kw_defaults = []
            for argument in every:
                argument.annotation = None
        elif isinstance(node, ast.ClassDef):
            node.decorator_list = []
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            node.value = ast.Constant(None)
    return ast.dump(tree)


def draw(count: int, seed: int) -> list[Mutant]:
    """That many mutants: sites chosen evenly over all files, an operator for each."""
    from cosmic_ray.mutating import mutate_code
    from cosmic_ray.plugins import get_operator

    rng = random.Random(seed)
    pool: list[tuple[Path, str, int]] = []
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            pool += [(path, name, at) for name, number in _counts(path) for at in range(number)]
    by_line: dict[tuple[Path, str], list[tuple[Path, str, int]]] = {}
    for item in pool:
        by_line.setdefault((item[0], _family(item[1]) + f":{item[2]}"), []).append(item)
    places = sorted(by_line, key=lambda place: (str(place[0]), place[1]))
    rng.shuffle(places)
    found: list[Mutant] = []
    for place in places:
        if len(found) == count:
            break
        path, name, at = rng.choice(by_line[place])
        source = path.read_text()
        changed = mutate_code(source, get_operator(name)(), at)
        if changed is None or not _differs(source, changed):
            continue
        found.append(_mutant(path, name, source, changed))
    return found


def _differs(source: str, changed: str) -> bool:
    """Return whether the mutant is another program: no syntax error, and not the same in other words."""
    try:
        return stripped(changed) != stripped(source)
    except SyntaxError:  # an operator took a bare * for a product
        return False


def _family(name: str) -> str:
    """Operators that replace the same thing by different ones are one family."""
    short = name.removeprefix("core/")
    parts = short.split("_")
    return "_".join(parts[:2]) if short.startswith("Replace") and len(parts) == 3 else short


def _counts(path: Path) -> list[tuple[str, int]]:
    """Operator → how often it applies in the file."""
    from cosmic_ray.ast import ast_nodes, get_ast
    from cosmic_ray.plugins import get_operator, operator_names

    nodes = list(ast_nodes(get_ast(path.read_text())))
    found = []
    for name in operator_names():
        if any(part in name for part in LEFT_OUT) or name.endswith(EQUIVALENT):
            continue
        operator = get_operator(name)()
        found.append((name, sum(len(list(operator.mutation_positions(node))) for node in nodes)))
    return found


def _mutant(path: Path, name: str, source: str, changed: str) -> Mutant:
    before, after = source.splitlines(), changed.splitlines()
    for tag, i1, i2, j1, j2 in difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if tag != "equal":
            old, new = " ".join(before[i1:i2]).strip(), " ".join(after[j1:j2]).strip()
            return Mutant(str(path.relative_to(ROOT)), i1 + 1, name, changed, (old, new))
    raise ValueError(f"{path}: {name} changes nothing")


class Survey:
    """Lines that tests execute, and their durations, from one run of all tests without a mutant."""

    def __init__(self, told: dict[str, Any], budget: float = 0.0) -> None:
        self.seconds: dict[str, float] = told["seconds"]
        self._budget = budget
        self._lines = {
            path: {int(line): names for line, names in lines.items()} for path, lines in told["lines"].items()
        }

    def tests_of(self, path: str, source: str, line: int) -> list[tuple[str, float]]:
        """Return the tests that may detect a change of that line, quickest first, each
        with its limit in seconds."""
        lines = self._lines.get(path, {})
        for first, last in around(source, line):
            if found := {name for at in range(first, last + 1) for name in lines.get(at, ())}:
                break
        else:
            found = {name for names in lines.values() for name in names}
        return self._within_budget(self._limited(found))

    def _within_budget(self, tests: list[tuple[str, float]]) -> list[tuple[str, float]]:
        total = 0.0
        for number, (name, _) in enumerate(tests):
            total += self.seconds.get(name, 0.0)
            if self._budget and total > self._budget and number:
                return tests[:number]
        return tests

    def all_tests(self) -> list[tuple[str, float]]:
        return self._limited(self.seconds)

    def _limited(self, found: Iterable[str]) -> list[tuple[str, float]]:
        ordered = sorted(found, key=lambda name: (self.seconds.get(name, 0.0), name))
        return [(name, SLOWER * self.seconds.get(name, 0.0) + MARGIN_SECONDS) for name in ordered]


def around(source: str, line: int) -> list[tuple[int, int]]:
    """First and last line of the statement a line is part of, then those of its function.

    Of a statement with a body the lines before that. What runs at the import outside any function is in neither.
    """
    statement: tuple[int, int] | None = None
    function: tuple[int, int] | None = None
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.stmt) or not node.lineno <= line <= (node.end_lineno or node.lineno):
            continue
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            function, statement = (node.body[0].lineno, node.end_lineno or node.lineno), None
            continue
        body = getattr(node, "body", None)
        last = max(node.lineno, body[0].lineno - 1) if body else node.end_lineno or node.lineno
        if function is not None and node.lineno <= line <= last:
            statement = (node.lineno, last)
    return [span for span in (statement, function) if span is not None]


class Bench:
    """A copy of the committed tree in which mutants are tried one after the other."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, capture_output=True, check=True)
        subprocess.run(["tar", "-x", "-C", str(folder)], input=archive.stdout, check=True)
        self._warm: subprocess.Popen[bytes] | None = None

    def survey(self, told: Path) -> None:
        """One run without a mutant; the tests have to pass."""
        if why := self._run({"WINDLASS_COVERAGE": str(told)}, ["-x", *TESTS], 7200.0):
            raise SystemExit(f"without any mutant a test fails: {why}")

    def start(self) -> None:
        """The process that has loaded everything, of which the mutants are forks."""
        ours, theirs = os.pipe(), os.pipe()
        command = self._command(TESTS)
        environment = {**self._environment(), "WINDLASS_JOBS": f"{theirs[0]},{ours[1]}"}
        self._warm = subprocess.Popen(
            command,
            cwd=self.folder,
            env=environment,
            pass_fds=(theirs[0], ours[1]),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs[0])
        os.close(ours[1])
        self._jobs, self._answers = os.fdopen(theirs[1], "w"), os.fdopen(ours[0])

    def check(self, survey: Survey) -> None:
        """A fork without a mutant passes every test, in the order of their speed."""
        told = self._ask({"tests": survey.all_tests()})
        if told["killed_by"]:
            raise SystemExit(f"in a fork without any mutant this test fails: {told['killed_by']}")

    def _ask(self, job: dict[str, object]) -> dict[str, Any]:
        self._jobs.write(json.dumps(job) + "\n")
        self._jobs.flush()
        if not (answer := self._answers.readline()):
            raise SystemExit("the warm process of the tests has ended")
        return json.loads(answer)

    def stop(self) -> None:
        if self._warm is not None:
            self._jobs.close()
            self._warm.wait(60)

    def try_out(self, mutant: Mutant, survey: Survey) -> Outcome:
        begun = time.monotonic()
        path = self.folder / mutant.path
        original = path.read_text()
        tests = survey.tests_of(mutant.path, original, mutant.line)
        if not tests:
            return Outcome(mutant, "", 0.0)
        told = self._ask({"path": str(path), "was": original, "source": mutant.source, "tests": tests})
        why = self._anew(mutant, tests) if told.get("anew") else told["killed_by"]
        return Outcome(mutant, why, time.monotonic() - begun)

    def _anew(self, mutant: Mutant, tests: list[tuple[str, float]]) -> str:
        path = self.folder / mutant.path
        original = path.read_text()
        chosen = self.folder / "tests.json"
        chosen.write_text(json.dumps(tests))
        path.write_text(mutant.source)
        files = sorted({name.split("::")[0] for name, _ in tests})
        try:
            limit = 2 * sum(seconds for _, seconds in tests)
            return self._run({"WINDLASS_MUTANT_TESTS": str(chosen)}, ["-x", *files], limit)
        finally:
            path.write_text(original)

    def _run(self, environment: dict[str, str], arguments: list[str], limit: float) -> str:
        """Run tests until one fails; return the failed test, "" if none failed."""
        try:
            done = subprocess.run(
                self._command(arguments),
                cwd=self.folder,
                env={**self._environment(), **environment},
                capture_output=True,
                text=True,
                timeout=limit,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return "time is up"
        if done.returncode == 0:
            return ""
        failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
        if failed:
            return failed[0].split(" - ")[0]
        return "time is up" if done.returncode == -signal.SIGPROF else f"pytest ends with {done.returncode}"

    def _command(self, arguments: Iterable[str]) -> list[str]:
        start = [sys.executable, "-m", "pytest", "-q", "--no-header", "-p", "mutant_bench"]
        return [*start, "-o", "timeout=600", *arguments]

    def _environment(self) -> dict[str, str]:
        path = os.pathsep.join((str(self.folder / "src"), str(ROOT / "tools")))
        return {**os.environ, "PYTHONPATH": path, "OPENBLAS_NUM_THREADS": "1"}


def work(
    todo: queue.SimpleQueue[Mutant | None], done: queue.SimpleQueue[Outcome], bench: Bench, survey: Survey
) -> None:
    while (mutant := todo.get()) is not None:
        done.put(bench.try_out(mutant, survey))
    bench.stop()


def report(outcomes: list[Outcome], seed: int, commit: str) -> list[str]:
    """The page: figures, then every survivor with its reason."""
    reasons = tomllib.loads(REASONS.read_text())["reasons"] if REASONS.exists() else {}
    killed = [outcome for outcome in outcomes if outcome.killed_by]
    share = 100 * len(killed) / len(outcomes)
    lines = [
        "# Mutation tests",
        "",
        "`make mutate` changes the engine and its policies at random places, and checks whether a test fails.",
        "",
        f"Seed {seed}, commit {commit}: {len(killed)} of {len(outcomes)} mutants killed, {share:.1f} %.",
        "",
        "| survivor | line | was | became | reason |",
        "| --- | ---: | --- | --- | --- |",
    ]
    for outcome in outcomes:
        if not outcome.killed_by:
            mutant = outcome.mutant
            old, new = (text.replace("|", "\\|") for text in mutant.change)
            reason = reasons.get(mutant.key, "needs a test")
            lines.append(f"| {mutant.path} | {mutant.line} | `{old}` | `{new}` | {reason} |")
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(prog="make mutate", description=__doc__)
    parser.add_argument("--mutants", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--goal", type=float, default=85.0, help="percent")
    parser.add_argument("--report", type=Path, help="write the page here")
    parser.add_argument("--budget", type=float, default=30.0, help="seconds of tests per mutant; 0: all")
    parser.add_argument("--outcomes", type=Path, help="keep what became of each mutant here")
    parser.add_argument("--survey", type=Path, help="which tests execute what: written, or read if it exists")
    parser.add_argument("--again", action="store_true", help="try those once more that survived")
    options = parser.parse_args()
    mutants = draw(options.mutants, options.seed)
    print(f"{len(mutants)} mutants, seed {options.seed}", flush=True)
    work_folder = Path(tempfile.mkdtemp(prefix="windlass-mutants-"))
    try:
        kept = Kept(options.outcomes, options.seed, again=options.again)
        outcomes = _run_all(mutants, options, work_folder, kept)
    finally:
        shutil.rmtree(work_folder)
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()
    lines = report(outcomes, options.seed, commit)
    if options.report:
        options.report.write_text("\n".join(lines) + "\n")
    print("\n".join(lines[4:]), flush=True)
    share = 100 * sum(bool(outcome.killed_by) for outcome in outcomes) / len(outcomes)
    return 0 if share >= options.goal else 1


class Kept:
    """Results of mutants in a file, one line each; of the same seed only."""

    def __init__(self, path: Path | None, seed: int, *, again: bool) -> None:
        self._path = path
        self._seed = seed
        self._known: dict[str, dict[str, Any]] = {}
        lines = path.read_text().splitlines() if path is not None and path.exists() else []
        for record in map(json.loads, lines):
            if record["seed"] == seed:
                self._known[record["key"]] = record
        if again:
            self._known = {key: record for key, record in self._known.items() if record["killed_by"]}

    def find(self, mutant: Mutant) -> Outcome | None:
        record = self._known.get(_identity(mutant))
        return Outcome(mutant, record["killed_by"], record["seconds"]) if record else None

    def add(self, outcome: Outcome) -> None:
        if self._path is None:
            return
        about = {"killed_by": outcome.killed_by, "seconds": round(outcome.seconds, 1)}
        with self._path.open("a") as out:
            out.write(json.dumps({"seed": self._seed, "key": _identity(outcome.mutant), **about}) + "\n")


def _identity(mutant: Mutant) -> str:
    return f"{mutant.line} {mutant.operator} {mutant.key}"


def _run_all(mutants: list[Mutant], options: argparse.Namespace, folder: Path, kept: Kept) -> list[Outcome]:
    outcomes = [outcome for mutant in mutants if (outcome := kept.find(mutant)) is not None]
    known = {id(outcome.mutant) for outcome in outcomes}
    if outcomes:
        print(f"{len(outcomes)} known already", flush=True)
    benches = []
    for number in range(options.workers):
        place = folder / str(number)
        place.mkdir()
        benches.append(Bench(place))
    begun = time.monotonic()
    file = (options.survey or folder / "survey.json").resolve()
    known_survey = file.exists()
    if not known_survey:
        benches[0].survey(file)
    survey = Survey(json.loads(file.read_text()), options.budget)
    print(f"{len(survey.seconds)} tests, surveyed in {time.monotonic() - begun:.0f} s", flush=True)
    for bench in benches:
        bench.start()
    if not known_survey:
        benches[0].check(survey)
    todo: queue.SimpleQueue[Mutant | None] = queue.SimpleQueue()
    done: queue.SimpleQueue[Outcome] = queue.SimpleQueue()
    for mutant in mutants:
        if id(mutant) not in known:
            todo.put(mutant)
    threads = []
    for bench in benches:
        todo.put(None)
        threads.append(threading.Thread(target=work, args=(todo, done, bench, survey), daemon=True))
        threads[-1].start()
    for number in range(len(outcomes) + 1, len(mutants) + 1):
        outcome = done.get()
        outcomes.append(outcome)
        kept.add(outcome)
        mutant = outcome.mutant
        fate = f"killed by {outcome.killed_by}" if outcome.killed_by else f"SURVIVES: {mutant.key}"
        killed = sum(bool(one.killed_by) for one in outcomes)
        print(
            f"{number}/{len(mutants)} {mutant.path}:{mutant.line} {outcome.seconds:.0f} s {fate} ({killed} killed)",
            flush=True,
        )
    return sorted(outcomes, key=lambda one: (one.mutant.path, one.mutant.line))


if __name__ == "__main__":
    sys.exit(main())
