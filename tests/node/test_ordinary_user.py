"""The agent of an ordinary user: everything by one user namespace, and no uid 0 inside pods."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ordinary_user
import pytest


@pytest.fixture(scope="module")
def said() -> Iterator[dict[str, Any]]:
    """Output of the pods of an ordinary user's agent (see ``ordinary_user_pods``)."""
    ordinary_user.command()
    folder = Path(tempfile.mkdtemp(prefix="windlass-user-"))
    try:
        done = ordinary_user.run("ordinary_user_pods", folder)
        assert done.returncode == 0, done.stderr[-3000:]
        answer = json.loads(done.stdout)
        missing = {"net", "mnt", "uts"} - set(answer["capabilities"])
        if missing:
            pytest.skip(f"this machine refuses an ordinary user the namespaces {sorted(missing)}")
        yield answer
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def test_namespaces_come_by_a_user_namespace(said: dict[str, Any]) -> None:
    assert said["capabilities"][0] is True


def test_two_gangs_use_one_port(said: dict[str, Any]) -> None:
    assert (said["red-w"], said["blue-w"]) == ("200\n", "200\n")


def test_pods_run_as_the_user_himself_so_that_mpirun_does_not_refuse(said: dict[str, Any]) -> None:
    uid, effective, gid, hostname, _ = said["who"].split()
    own = (ordinary_user.UID, ordinary_user.GID) if os.geteuid() == 0 else (os.getuid(), os.getgid())
    assert (int(uid), int(gid)) == own
    assert int(effective) != 0
    assert hostname == "who"


def test_services_reach_pods_and_the_machine(said: dict[str, Any]) -> None:
    """By the address and by the node port, of endpoints in the pod network and outside."""
    assert said["services"] == ["200", "200", "200", "200"]


def test_mpirun_starts_ranks_on_two_pods_by_their_names(said: dict[str, Any]) -> None:
    if shutil.which("mpirun") is None:
        pytest.skip("no mpirun (Debian: openmpi-bin)")
    ranks = [line for line in said["mpi-m"].splitlines() if line.startswith("mpi-")]
    assert sorted(ranks) == ["mpi-m", "mpi-w"], said["mpi-m"]


def test_volumes_lie_where_no_folder_is_and_belong_to_the_user(said: dict[str, Any]) -> None:
    hi, owner = said["files"].split()
    assert hi == "hi"
    assert int(owner) == (ordinary_user.UID if os.geteuid() == 0 else os.getuid())
    assert not Path("/etc/volcano").exists()


def test_the_agent_reaches_its_pods_through_the_box(said: dict[str, Any]) -> None:
    assert said["reach"] == "HTTP/1.0 200"


def test_probes_run_inside_and_reach_the_pod(said: dict[str, Any]) -> None:
    assert said["probed"] is True


def test_the_next_agent_takes_the_network_up(said: dict[str, Any]) -> None:
    assert said["adopted"] is True


def test_nothing_stays_behind(said: dict[str, Any]) -> None:
    assert said["left"] is False
