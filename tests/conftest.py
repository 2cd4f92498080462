"""Fixtures for every room's tests. Helper modules are in ``tests/support``, grouped by
what they stand for, and imported by their file names."""

from __future__ import annotations

import functools
import gc
import os
import random
import sys
import tempfile
import typing
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

from windlass.kits.clock import FakeClock

if TYPE_CHECKING:
    from clusters import Cluster
    from embeddedkube import EmbeddedKube
    from realkube import RealKube
    from scheduler_processes import KubeScheduler


# Property tests draw the same examples in every run and on every machine, and remember none, so that a failure
# is of what was changed. `make fuzz` draws new ones. How long one takes says more about the machine than the test.
settings.register_profile(
    "drawn",
    settings.get_profile("default"),  # named: where $CI is set, Hypothesis itself begins with fixed examples
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
)
settings.register_profile("fixed", settings.get_profile("drawn"), derandomize=True, database=None)
FUZZ = bool(os.environ.get("WINDLASS_FUZZ"))
settings.load_profile("drawn" if FUZZ else "fixed")
if not FUZZ:
    # Hypothesis draws now and then from the numbers and words in all modules that happen to be loaded: what a test
    # gets would depend on the files that its worker had before, and on every constant of the product.
    providers._get_local_constants = lambda: providers._local_constants  # which nobody else fills


# A box is started hundreds of times. Where the environment forbids to keep what was compiled, each start would
# compile a thousand modules again, three seconds of CPU.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
if sys.version_info < (3, 12):
    # As Python 3.12 does. Before, each isinstance with a protocol collected the protocol's attributes again, and each
    # set of plugins asks for some 40 protocols of each plugin.
    vars(typing)["_get_protocol_attrs"] = functools.cache(vars(typing)["_get_protocol_attrs"])


MOST_TEMPORARY = 40
"""Bytes: what tests make below it, sockets among it, have names of up to 60; a socket's address holds 108."""
if len(os.fsencode(tempfile.gettempdir())) > MOST_TEMPORARY:
    os.environ["TMPDIR"] = tempfile.tempdir = "/tmp"

LONG = (
    "tests/test_quality.py",
    "tests/e2e/",
    "tests/controllers/vcjob/test_crashes.py",
    "tests/sim/replay/test_live_differential.py",
    "tests/sim/replay/test_published.py",
    "tests/node/",
    "tests/app/",
)
"""Where the long files lie. With several workers they begin, so that none runs alone at the end."""


GC_THRESHOLD = 7_000
"""Number of new objects after which they are searched for cycles; Python's default is a tenth of that."""
gc.set_threshold(GC_THRESHOLD, 10, 10)  # for the collection of the tests as well
CLUSTERS: list[RealKube] = []
"""The real cluster of this process, once a test has used it."""
WITHOUT_CLUSTER = pytest.StashKey[set[str]]()
"""Tests of the files after the last file that uses the real cluster."""


def uses_real(item: pytest.Item) -> bool:
    return item.get_closest_marker("real") is not None or "real_kube" in getattr(item, "fixturenames", ())


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Order the files: those that use the real cluster, then the other long ones, then the rest."""
    if not os.environ.get("PYTEST_XDIST_WORKER"):
        return
    real = {item.path for item in items if uses_real(item)}
    items.sort(
        key=lambda item: (
            item.path not in real,
            next((n for n, part in enumerate(LONG) if part in item.nodeid), len(LONG)),
        )
    )


def pytest_collection_finish(session: pytest.Session) -> None:
    real = {item.path for item in session.items if uses_real(item)}
    last = max((place for place, item in enumerate(session.items) if item.path in real), default=-1)
    session.stash[WITHOUT_CLUSTER] = {item.nodeid for item in session.items[last + 1 :]}
    # Tests and modules live as long as the session. Each full garbage collection took 0.6 s to look at them.
    gc.collect()
    gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Stop the real cluster after its last file: an idle one takes 3 % of a CPU until the session ends.

    A worker of ``make test`` runs its tests in the order of the collection, so that no later test needs the
    cluster. Where pytest-xdist orders files by their number of tests, the cluster runs until the end.
    """
    if item.config.getoption("loadscopereorder", False):
        return
    if CLUSTERS and nextitem is not None and nextitem.nodeid in item.session.stash[WITHOUT_CLUSTER]:
        CLUSTERS.pop().stop()


@pytest.fixture
def fake_clock() -> FakeClock:
    """A clock that stands still at 2026-01-01T12:00:00Z until it is advanced."""
    return FakeClock()


@pytest.fixture
def rng() -> random.Random:
    """The same randomness in every run."""
    return random.Random(20260101)


@pytest.fixture
def no_leaks() -> Iterator[None]:
    """Fails the test when it leaves threads, child processes, open files or sockets behind."""
    from leaks import Snapshot

    before = Snapshot.take()
    yield
    left = before.leaked()
    assert not left, f"left behind: {left}"


@pytest.fixture(scope="session")
def real_kube(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealKube]:
    """A real etcd, kube-apiserver and kube-controller-manager with the project's CRDs.

    Started at the first use, ended with the session; skipped by name where the binaries are missing.
    Tests that use it carry the marker ``real`` (``cluster`` does that by itself).
    """
    from realkube import serving

    with serving(tmp_path_factory.mktemp("realkube"), crds=True) as kube:
        CLUSTERS.append(kube)
        yield kube
    _least_privilege(kube)


@pytest.fixture(scope="module")
def kube_scheduler(real_kube: RealKube) -> Iterator[KubeScheduler]:
    """Kubernetes' own scheduler, at work on ``real_kube`` beside whoever else schedules there."""
    from realkube import need
    from scheduler_processes import KubeScheduler

    need(KubeScheduler.BINARY)
    part = KubeScheduler(real_kube)
    yield part
    part.stop()


def _least_privilege(kube: RealKube) -> None:
    """Fails the session when a scheduler or controller asked for what the chart does not let it do.

    ``WINDLASS_RIGHTS=FILE`` adds what was used to a file, one right a line.
    """
    import audited_rights

    requests = list(audited_rights.asked(kube.audit_log))
    record = os.environ.get("WINDLASS_RIGHTS")
    if record:
        with open(record, "a") as lines:
            lines.writelines(" ".join(part or '""' for part in one.right) + "\n" for one in requests)
    wanting = audited_rights.denied(requests)
    assert not wanting, f"the chart's roles lack: {wanting}"


@pytest.fixture(scope="session")
def embedded_kube(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedKube]:
    """The embedded server with its controllers (no scheduler, no node agent) in a process of its own."""
    from embeddedkube import EmbeddedKube

    kube = EmbeddedKube(tmp_path_factory.mktemp("embedded"))
    kube.start()
    try:
        yield kube
    finally:
        kube.stop()


@pytest.fixture(
    params=[pytest.param("embedded", id="embedded"), pytest.param("real", id="real", marks=pytest.mark.real)]
)
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """The API, once from the embedded server and once from a real kube-apiserver (``clusters.Cluster``)."""
    from clusters import Cluster

    if request.param == "real":
        made = Cluster.of_real(request.getfixturevalue("real_kube"))
    else:
        made = Cluster.of_embedded(request.getfixturevalue("embedded_kube"))
    yield made
    made.close()
