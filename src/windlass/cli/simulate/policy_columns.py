"""The columns of ``windlass sim run``: policies by name or of scheduler configurations, in the variants asked for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from windlass.api.errors import WindlassError
from windlass.cli.errors import nearest
from windlass.cli.simulate.policy_paths import CONFIGURATIONS, reject_directory
from windlass.sim.policy_list import OF_PACK
from windlass.sim.replay.estimates import RUN_TIMES
from windlass.sim.replay.policies import POLICIES, ReplayPolicy, as_configured
from windlass.spi.configuration import SchedulerConfig


@dataclass(frozen=True, slots=True)
class Configured:
    """A scheduler configuration as a policy: see :func:`~windlass.sim.replay.policies.as_configured`."""

    name: str
    summary: str
    config: SchedulerConfig
    learned: bool
    shares: bool

    def policy(self) -> ReplayPolicy:
        return as_configured(self.name, self.summary, self.config, learned=self.learned, shares=self.shares)


@dataclass(frozen=True, slots=True)
class PolicyColumn:
    """One policy as it was asked for, in words that another process can be told. ``source``: its name, or what a file
    configures; ``run_times``: the kind by which it goes, empty for that which it goes by anyway; ``unshared``: as if
    nobody had agreed to share time."""

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
    """The policies of ``--policy``, by comma or repeated, and those of scheduler configurations that are files; those
    that go by run times, by each kind of ``run_times`` (by comma; empty: by the truth, as they are); with ``both``,
    those that share time also as if nobody had agreed. ``warn`` is told what a file has that is left out. Raises
    :class:`WindlassError`."""
    names, kinds = _parts(given), _parts([run_times])
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
            "--policy names no policy",
            evidence="policy: " + ", ".join(POLICIES),
            remedies=("windlass sim policies",),
        )
    titles = _titles(files)
    found = [PolicyColumn(_of_file(name, titles[name], warn) if name in files else name) for name in names]
    found = [
        replace(one, run_times=kind)
        for one in found
        for kind in (kinds if kinds and one.policy.oracle else ("",))
    ]
    if both:
        found = [
            replace(one, unshared=unshared)
            for one in found
            for unshared in ((False, True) if one.policy.shares else (False,))
        ]
    return found


def _is_file(name: str) -> bool:
    """Whether a policy that has no such name is a scheduler configuration, or means to be."""
    return Path(name).is_file() or "/" in name or Path(name).suffix in CONFIGURATIONS


def _titles(files: Sequence[str]) -> dict[str, str]:
    """File → what its policy is called: without its folder, unless another one is called so too."""
    short = {name: Path(name).name for name in files}
    taken = Counter(short.values())
    return {name: name if taken[own] > 1 or own in POLICIES else own for name, own in short.items()}


def _of_file(name: str, title: str, warn: Callable[[str], None]) -> Configured:
    """Raises :class:`WindlassError`."""
    from windlass.cli.simulate.plan import read_config  # both: much, for nothing else here
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
            f'"{name}" says where pods go, not which job is next: it is a policy of sim pack',
            evidence=f"policy: {', '.join(POLICIES)}",
            remedies=(f"windlass sim pack --policy {name} --nodes NODES --pods PODS",),
        )
    check_known("policy", [name], POLICIES, "windlass sim policies")


def _parts(given: Iterable[str]) -> list[str]:
    """By comma or repeated, each once."""
    return list(dict.fromkeys(part.strip() for text in given for part in text.split(",") if part.strip()))


def check_known(what: str, names: Iterable[str], known: Iterable[str], remedy: str) -> None:
    """Raises :class:`WindlassError` for a name that is none of the known."""
    for name in names:
        if name not in known:
            close = [f"did you mean {one}?" for one in nearest(name, known, 1)]
            raise WindlassError(
                "WL-USE-400",
                f'there is no {what} "{name}"',
                evidence=f"{what}: {', '.join(known)}",
                remedies=(*close, remedy),
            )
