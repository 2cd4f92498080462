"""Thirty of the scheduling cases, played on the embedded server and on a real kube-apiserver."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import scheduling_cases
import scheduling_cases_live
from clusters import Cluster
from embeddedkube import EmbeddedKube
from realkube import serving

CASES = scheduling_cases_live.chosen(30, seed=20261121)


@pytest.fixture(
    scope="module",
    params=[pytest.param("embedded", id="embedded"), pytest.param("real", id="real", marks=pytest.mark.real)],
)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A server of the module's own: cases are about whole clusters."""
    folder = tmp_path_factory.mktemp(f"cases-{request.param}")
    with (_embedded if request.param == "embedded" else _real)(folder) as cluster:
        yield cluster
        cluster.close()


@contextmanager
def _embedded(folder: Path) -> Iterator[Cluster]:
    kube = EmbeddedKube(folder, controllers=False)
    kube.start()
    try:
        yield Cluster.of_embedded(kube)
    finally:
        kube.stop()


@contextmanager
def _real(folder: Path) -> Iterator[Cluster]:
    with serving(folder, controllers=False, audit=False, crds=True) as kube:
        kube.install_foreign_crds()
        yield Cluster.of_real(kube)


@pytest.mark.parametrize("name", CASES)
async def test_what_happens_is_what_was_planned(server: Cluster, name: str, tmp_path: Path) -> None:
    case = scheduling_cases_live.LiveCase(server, scheduling_cases.CASES[name], tmp_path)
    case.clear()
    case.create()
    wanted = case.planned()
    assert await case.played(wanted) == wanted


def test_the_thirty_are_of_all_kinds() -> None:
    areas = {scheduling_cases.CASES[name]["area"] for name in CASES}
    assert len(CASES) == 30
    assert len(areas) >= 13, areas
