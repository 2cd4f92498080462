"""The warm half of ``make mutate``: a pytest plugin that tries one mutant per forked process.

Loaded with ``-p mutant_bench``. With ``WINDLASS_COVERAGE`` set it runs every test once and writes there which
lines of the engine and the plugins each test executes, and how long it takes. With ``WINDLASS_JOBS`` set
(two file descriptors, "from,to") it collects the tests, then reads jobs, one JSON object per line: ``path``
(a module; without one nothing is changed), ``was`` and ``source`` (its program before and after), ``tests``
(node ids in the order to run them, each with the seconds of processor it may take). For each job it forks; the
child puts the mutant's functions in the place of the original ones, runs the tests until one fails, and the
parent answers ``{"killed_by": …}``, or ``{"anew": true}`` where what differs has run already at the import:
such a mutant needs a new process.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FunctionType

import pytest

MEMORY_BYTES = 8 << 30
INLINE = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")


def changed_functions(was: CodeType, now: CodeType) -> list[tuple[CodeType, CodeType]] | None:
    """The functions that differ, before and after; None if what differs runs at the import."""
    if _own(was) != _own(now):
        return None
    return _changed_below(was, now)


def _changed_below(was: CodeType, now: CodeType) -> list[tuple[CodeType, CodeType]] | None:
    before, after = _parts(was), _parts(now)
    if [part.co_qualname for part in before] != [part.co_qualname for part in after]:
        return None
    found: list[tuple[CodeType, CodeType]] = []
    for old, new in zip(before, after, strict=True):
        if old == new:
            continue
        if old.co_flags & 0x2:  # CO_NEWLOCALS: a function, no class body
            found.append((old, new))
            below = _changed_below(old, new)
            found += below or []
        else:
            inside = changed_functions(old, new)
            if inside is None:
                return None
            found += inside
    return found


def _parts(code: CodeType) -> list[CodeType]:
    """Functions and classes made in it, those in its comprehensions too."""
    found: list[CodeType] = []
    for const in code.co_consts:
        if isinstance(const, CodeType):
            found += _parts(const) if const.co_name in INLINE else [const]
    return found


def _own(code: CodeType) -> tuple[object, ...]:
    """Return the parts of the code itself, without the functions and classes that it defines."""
    consts = tuple(
        (_own(const) if const.co_name in INLINE else const.co_qualname)
        if isinstance(const, CodeType)
        else (type(const), const)
        for const in code.co_consts
    )
    return (code.co_code, repr(consts), code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)


def put_in_place(path: str, was: str, source: str) -> bool:
    """Return whether the mutant's functions could take the place of the original ones in this process."""
    before, after = (compile(text, path, "exec", dont_inherit=True) for text in (was, source))
    pairs = changed_functions(before, after)
    if not pairs:
        return False
    live = [
        thing
        for thing in gc.get_objects()
        if type(thing) is FunctionType and thing.__code__.co_filename == path
    ]
    for number, (old, new) in enumerate(pairs):
        found = [function for function in live if function.__code__ == old]
        if not found and number == 0:
            return False
        for function in found:
            if len(old.co_freevars) != len(new.co_freevars):
                return False
            function.__code__ = new
    return True


class Bench:
    """Answers jobs with what became of each mutant."""

    def __init__(self, jobs: int, answers: int) -> None:
        self._jobs = os.fdopen(jobs, "r")
        self._answers = os.fdopen(answers, "w")
        self._failed = ""

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self) -> None:
        leave_failures_unshrunk()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        items = {item.nodeid: item for item in session.items}
        gc.collect()
        gc.freeze()
        for line in self._jobs:
            self._answer(self._try_out(json.loads(line), items))
        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and not self._failed:
            self._failed = report.nodeid

    def _answer(self, answer: dict[str, object]) -> None:
        self._answers.write(json.dumps(answer) + "\n")
        self._answers.flush()

    def _try_out(self, job: dict[str, object], items: dict[str, pytest.Item]) -> dict[str, object]:
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reading)
            self._child(job, items, writing)
        os.close(writing)
        with os.fdopen(reading) as pipe:
            said = pipe.read()
        _, status = os.waitpid(child, 0)
        if said:
            return json.loads(said)
        if os.WIFSIGNALED(status):
            number = os.WTERMSIG(status)
            why = "time is up" if number == signal.SIGPROF else f"signal {number}"
            return {"killed_by": why}
        return {"killed_by": f"the process ends with {os.waitstatus_to_exitcode(status)}"}

    def _child(self, job: dict[str, object], items: dict[str, pytest.Item], writing: int) -> None:
        """Ends the process: nothing of pytest's own end is wanted here."""
        code = 1
        try:
            silence()
            if "path" not in job or put_in_place(str(job["path"]), str(job["was"]), str(job["source"])):
                answer: dict[str, object] = {"killed_by": self._run(job["tests"], items)}
            else:
                answer = {"anew": True}
            os.write(writing, json.dumps(answer).encode())
            code = 0
        finally:
            os._exit(code)

    def _run(self, tests: object, items: dict[str, pytest.Item]) -> str:
        assert isinstance(tests, list)
        chosen = [(items[name], seconds) for name, seconds in tests]
        for number, (item, seconds) in enumerate(chosen):
            following = chosen[number + 1][0] if number + 1 < len(chosen) else None
            limit_processor(seconds)
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if self._failed:
                return self._failed
        return ""


class Once:
    """A mutant in a process of its own: the tests named in a file, in that order, each with its limit."""

    def __init__(self, path: Path) -> None:
        self._limits: dict[str, float] = dict(json.loads(path.read_text()))

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self) -> None:
        leave_failures_unshrunk()

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        by_name = {item.nodeid: item for item in items}
        items[:] = [by_name[name] for name in self._limits if name in by_name]
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        limit_processor(self._limits[item.nodeid])
        return (yield)


class Survey:
    """Recorder of the lines that each test executes, and of its duration."""

    def __init__(self, path: Path, folders: list[str]) -> None:
        import coverage

        self._path = path
        self._coverage = coverage.Coverage(data_file=None, source=folders, config_file=False)
        self._seconds: dict[str, float] = {}
        self._coverage.start()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._coverage.switch_context(item.nodeid)
        begun = time.process_time()
        done = yield
        self._seconds[item.nodeid] = time.process_time() - begun
        self._coverage.switch_context("")
        return done

    def pytest_sessionfinish(self) -> None:
        self._coverage.stop()
        data = self._coverage.get_data()
        lines = {}
        for path in data.measured_files():
            lines[os.path.relpath(path)] = {
                str(line): [c for c in contexts if c]
                for line, contexts in data.contexts_by_lineno(path).items()
            }
        self._path.write_text(json.dumps({"seconds": self._seconds, "lines": lines}))


def leave_failures_unshrunk() -> None:
    """A failure is all that is wanted of a property, not the smallest one."""
    from hypothesis import Phase, settings

    found = (Phase.explicit, Phase.reuse, Phase.generate)
    settings.register_profile("mutants", settings.get_profile("fixed"), phases=found)
    settings.load_profile("mutants")


def limit_processor(seconds: float) -> None:
    """From now on; the process is ended by a signal when it has used that much."""
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_PROF, seconds)


def silence() -> None:
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nothing, number)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))


def pytest_configure(config: pytest.Config) -> None:
    if jobs := os.environ.get("WINDLASS_JOBS"):
        reading, writing = (int(number) for number in jobs.split(","))
        config.pluginmanager.register(Bench(reading, writing), "mutant-jobs")
    if once := os.environ.get("WINDLASS_MUTANT_TESTS"):
        config.pluginmanager.register(Once(Path(once)), "mutant-once")
    if survey := os.environ.get("WINDLASS_COVERAGE"):
        folders = [str(Path(folder).resolve()) for folder in ("src/windlass/engine", "src/windlass/plugins")]
        config.pluginmanager.register(Survey(Path(survey), folders), "mutant-survey")
    sys.stdout.flush()
