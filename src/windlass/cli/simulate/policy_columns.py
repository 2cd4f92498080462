"""Columns of ``windlass sim run``: policies by name or scheduler configuration, in variants."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from windlass.api.errors import WindlassError
from windlass.cli.errors import nearest
from windlass.cli.text import plural
from windlass.sim.policy_list import OF_PACK
from windlass.sim.replay.estimates import RUN_TIMES
from windlass.sim.replay.policies import POLICIES, ReplayPolicy, as_configured
from windlass.spi.configuration import SchedulerConfig


@dataclass(frozen=True, slots=True)
class Configured:
    """A scheduler configuration as a policy.

    See :func:`~windlass.sim.replay.policies.as_configured`.
    """

    name: str
    summary: str
    config: SchedulerConfig
    learned: bool
    shares: bool

    def policy(self) -> ReplayPolicy:
        return as_configured(self.name, self.summary, self.config, learned=self.learned, shares=self.shares)


@dataclass(frozen=True, slots=True)
class PolicyColumn:
    """One policy as requested, which can be sent to another process.

    ``source``: its name, or the configuration of a file. ``run_times``: kind of run
    times that it uses; empty for its default. ``unshared``: as if no job had opted in
    to time-sharing.
    """

    source: str | Configured
    run_times: str = ""
    unshared: bool = False

    @property
    def policy(self) -> ReplayPolicy:
        made = POLICIES[self.source] if isinstance(self.source, str) else self.source.policy()
        made = made.by(self.run_times) if self.run_times else made
        return made.unshared() if self.unshared else made


def columns(
    given: Sequence[str], run_times: str = "", *, both: bool = False, warn: Callable[[str], None]
) -> list[PolicyColumn]:
    """Return the policies of ``--policy`` (by comma or repeated), with their variants.

    A file is a scheduler configuration. Policies that use run times get a column for
    each kind of ``run_times`` (by comma; empty: their default). With ``both``, policies
    with time-sharing also get a column without it. ``warn`` receives what is ignored in
    a file. Raises :class:`WindlassError`.
    """
    names, kinds = _split(given), _split([run_times])
    for name in names:
        if name not in POLICIES and name not in OF_PACK:
            reject_directory(name, "windlass sim policies")
    files = [name for name in names if name not in POLICIES and _is_file(name)]
    for name in names:
        if name not in files:
            _check_policy(name)
    check_known("kind of run times", kinds, RUN_TIMES, "windlass sim run --help")
    if not names:
        raise WindlassError(
            "WL-USE-400",
            "--policy is empty",
            evidence="policies: " + ", ".join(POLICIES),
            remedies=("windlass sim policies",),
        )
    titles = _titles(files)
    columns = [PolicyColumn(_of_file(name, titles[name], warn) if name in files else name) for name in names]
    columns = [
        replace(column, run_times=kind)
        for column in columns
        for kind in (kinds if kinds and column.policy.oracle else ("",))
    ]
    if both:
        columns = [
            replace(column, unshared=unshared)
            for column in columns
            for unshared in ((False, True) if column.policy.shares else (False,))
        ]
    return columns


def _is_file(name: str) -> bool:
    """Return whether an unknown policy name is, or looks like, a file."""
    return Path(name).is_file() or "/" in name or Path(name).suffix in CONFIGURATIONS


def _titles(files: Sequence[str]) -> dict[str, str]:
    """Return file → name of its policy: the file name, or the path if that is not unique."""
    short = {name: Path(name).name for name in files}
    taken = Counter(short.values())
    return {name: name if taken[title] > 1 or title in POLICIES else title for name, title in short.items()}


def _of_file(name: str, title: str, warn: Callable[[str], None]) -> Configured:
    """Return the policy of a file. Raises :class:`WindlassError`."""
    from windlass.cli.simulate.plan import read_config  # large imports that nothing else here needs
    from windlass.plugins import registry
    from windlass.scheduler.estimates.run_times import learns

    config = read_config(name, warn).config
    _, actions = registry.build(config, warn)
    return Configured(
        title,
        f"the scheduler configuration {name}",
        config,
        learned=learns(config),
        shares="timeshare" in actions,
    )


def _check_policy(name: str) -> None:
    if name in POLICIES:
        return
    if name in OF_PACK:
        raise WindlassError(
            "WL-USE-400",
            f'"{name}" is a policy of sim pack: it chooses nodes for pods, not the order of jobs',
            evidence=f"policies: {', '.join(POLICIES)}",
            remedies=(f"windlass sim pack --policy {name} --nodes NODES --pods PODS",),
        )
    check_known("policy", [name], POLICIES, "windlass sim policies")


def _split(given: Iterable[str]) -> list[str]:
    """Return the values, given by comma or repeated, each once."""
    return list(dict.fromkeys(part.strip() for text in given for part in text.split(",") if part.strip()))


def check_known(what: str, names: Iterable[str], known: Iterable[str], remedy: str) -> None:
    """Raise :class:`WindlassError` for an unknown name."""
    for name in names:
        if name not in known:
            close = [f"did you mean {match}?" for match in nearest(name, known, 1)]
            raise WindlassError(
                "WL-USE-400",
                f'{what} "{name}" does not exist',
                evidence=f"known: {', '.join(known)}",
                remedies=(*close, remedy),
            )


CONFIGURATIONS = (".conf", ".yaml", ".yml")
"""Suffixes of files of scheduler configurations."""
MAX_SHOWN_FILES = 3


def reject_directory(name: str, remedy: str) -> None:
    """Raise :class:`WindlassError` if ``--policy`` is a directory, with the files in it."""
    directory = Path(name)
    if not directory.is_dir():
        return
    files = sorted(
        path for suffix in CONFIGURATIONS for path in directory.glob(f"*{suffix}") if path.is_file()
    )
    raise WindlassError(
        "WL-USE-400",
        f"--policy {name} is a directory; a policy is a name, or one file with a scheduler configuration",
        evidence=f"it contains {plural(len(files), 'configuration')} ({', '.join(CONFIGURATIONS)})",
        remedies=(*[f"--policy {path}" for path in files[:MAX_SHOWN_FILES]], remedy),
    )
