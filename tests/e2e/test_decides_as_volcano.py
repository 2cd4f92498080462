"""The real scheduler of Volcano and Windlass, with one configuration, decide the same where
docs/concepts/volcano-differences.md names no difference.

What Volcano's own program decides is looked at where it is built (``tools/kubernetes/build.sh --volcano``); what
Windlass does, wherever there is a real API server.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from clusters import Cluster, eventually
from gang_schedulers import Volcano
from peer_scheduler import definitions, lacking
from realkube import CRDS, RealKube, serving
from same_decision_cases import CASES, POLICIES, Case
from same_decisions import Stage, make_priorities, open_queue
from scheduler_processes import WindlassPart

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.timeout(400)]
SECONDS = 120.0
HOLD_SECONDS = {"volcano": 1.0, "windlass": 0.4}
"""So long must a decision stay: several cycles of the first; the second decides when something changes."""
RUNS = [(name, policy) for name in ("volcano", "windlass") for policy in POLICIES]
PLAYED = [(run, case) for run in RUNS for case in CASES if case.policy == run[1]]
"""Those of one run follow each other: it is started once."""


class _Quick(Volcano):
    """It decides five times a second."""

    more = ("--schedule-period=200ms",)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RealKube, Cluster]]:
    """With Volcano's own CustomResourceDefinitions where they are there, else with the project's."""
    own = definitions(Volcano.defined)
    with serving(tmp_path_factory.mktemp("same"), controllers=False) as kube:
        kube.install_crds(own if own.is_dir() else CRDS)
        found = Cluster.of_real(kube)
        make_priorities(found)
        open_queue(found, "default")
        yield kube, found
        found.close()


@pytest.fixture(scope="module")
def scheduler(request: pytest.FixtureRequest, world: tuple[RealKube, Cluster]) -> Iterator[str]:
    """The one that the parameter names, with the policy that it names."""
    kube, _ = world
    name, policy = request.param
    if name == "volcano":
        if absent := lacking(Volcano):
            pytest.skip(f"no {', '.join(absent)}: build with tools/kubernetes/build.sh --volcano")
        parts = _Quick(kube, 0, policy=POLICIES[policy]).start()
    else:
        conf = kube.folder / f"{policy}.conf"
        conf.write_text(POLICIES[policy])
        parts = [WindlassPart(kube, "scheduler", "--with-controllers=true", "--config", str(conf))]
        eventually(lambda: parts[0].ready)
    yield name
    for part in parts:
        part.stop()


@pytest.mark.parametrize(
    ("scheduler", "case"),
    PLAYED,
    ids=[f"{run[0]}-{case.name}" for run, case in PLAYED],
    indirect=["scheduler"],
    scope="module",
)
def test_the_same_pods_are_bound(scheduler: str, case: Case, world: tuple[RealKube, Cluster]) -> None:
    Stage(world[1], case, scheduler).play(SECONDS, HOLD_SECONDS[scheduler])
