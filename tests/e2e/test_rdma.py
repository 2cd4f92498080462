"""RDMA on a running control plane: network preset, islands, devices, ports on the host network."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from single_node import Box

LABEL = "feature.node.kubernetes.io/rdma.capable"


@pytest.fixture(scope="module")
def box() -> Iterator[Box]:
    with Box("--gpus", "none") as one:
        for prefix, gpus, *label in (
            ("plain", "2"),
            ("rdma", "3", f"{LABEL}=true"),
            ("not", "2", f"{LABEL}=false"),
        ):
            flags = ("--label", label[0]) if label else ()
            one.windlass("node", "add-simulated", "--prefix", prefix, "--count", "2", "-g", gpus, *flags)
        yield one


def test_f41_program_sees_the_advised_variables_of_nccl(box: Box) -> None:
    done = box.windlass(
        "run", "--network", "rdma", "-e", "NCCL_DEBUG=WARN", "--", "sh", "-c", "env | grep NCCL"
    )
    assert sorted(done.stdout.split()) == [
        "NCCL_ALGO=Ring,Tree",
        "NCCL_DEBUG=WARN",
        "NCCL_IB_DISABLE=0",
        "NCCL_SOCKET_IFNAME=ib0",
    ]


def test_f75_two_ranks_are_placed_in_one_rdma_island(box: Box) -> None:
    box.windlass(
        "submit", "--network", "rdma", "--nodes", "2", "-g", "2", "--name", "two", "--", "sleep", "1"
    )
    box.wait_for("it runs", lambda: box.job_phase("two") == "Running")
    env = box.get("pod", "two-main-1")["spec"]["containers"][0]["env"]
    assert {"name": "NCCL_IB_DISABLE", "value": "0"} in env
    record = json.loads(box.windlass("explain", "two", "-o", "json").stdout)
    assert record["network"]["islands"] == {"true": ["rdma-0", "rdma-1"]}
    text = box.windlass("explain", "two").stdout
    assert "rdma: 2 nodes in one RDMA island, as preferred" in text
    assert f"RDMA island {LABEL}=true: rdma-0 rdma-1" in text
    # No island holds the next gang now: it runs elsewhere, and ``explain`` says so.
    box.windlass(
        "submit", "--network", "rdma", "--nodes", "2", "-g", "2", "--name", "next", "--", "sleep", "1"
    )
    box.wait_for("it runs", lambda: box.job_phase("next") == "Running")
    record = json.loads(box.windlass("explain", "next", "-o", "json").stdout)["network"]
    assert (record["islands"], len(record["nodesWithoutRdma"])) == ({}, 2)
    assert f"do not have the label {LABEL}" in box.windlass("explain", "next").stdout


def test_f28_show_names_the_rdma_device_of_a_pod(box: Box) -> None:
    box.windlass("node", "add-simulated", "--prefix", "roce", "-g", "0", "--resource", "rdma/roce_v2=2")
    for name in ("first", "second"):
        container = {"name": "main", "image": "x", "resources": {"limits": {"rdma/roce_v2": "1"}}}
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name},
            "spec": {"schedulerName": "windlass", "containers": [container]},
        }
        box.windlass("apply", "-f", "-", stdin=json.dumps(pod))
    devices = set()
    for name in ("first", "second"):
        box.wait_for("it runs", lambda name=name: box.get("pod", name)["status"]["phase"] == "Running")
        (rank,) = json.loads(box.windlass("show", name, "-o", "json").stdout)["ranks"]
        devices.update(rank["pluginDevices"]["rdma/roce_v2"])
        assert f"{name}: roce-0 rdma/roce_v2 mlx5_" in box.windlass("show", name).stdout
    assert devices == {"mlx5_0", "mlx5_1"}


def test_f28_replicas_on_the_host_network_get_ports_of_their_own(box: Box) -> None:
    shown = box.windlass(
        "run", "--nodes", "2", "--host-network", "--", "sh", "-c", "echo port=$HOST_PORT"
    ).stdout
    ports = sorted(int(line.partition("port=")[2]) for line in shown.splitlines() if "port=" in line)
    assert ports[1] == ports[0] + 1
