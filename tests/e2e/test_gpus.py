"""GPUs on a whole box, over a scripted NVML: no card is behind these tests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import acceptance_manifests
import pytest
import yaml
from scripted_nvml import A100_40, H100_80, Script, card
from single_node import ROOT, Box
from single_node_gpus import gpu_box, gpu_environment, gpu_pod, kill_agent, mps_daemon

from windlass.api.devices import node_annotation
from windlass.api.devices.node_annotation import DeviceRecord
from windlass.api.resources import PODS

STAY = "echo CUDA=$CUDA_VISIBLE_DEVICES; sleep 600"


def apply(box: Box, *pods: dict[str, Any]) -> None:
    box.windlass("apply", "-f", "-", stdin=yaml.safe_dump_all(pods))


def phase(box: Box, name: str) -> str:
    return box.get("pod", name).get("status", {}).get("phase", "")


def running(box: Box, *names: str) -> None:
    for name in names:
        box.wait_for(f"{name} runs", lambda name=name: phase(box, name) == "Running")


def said(box: Box, name: str) -> str:
    return box.wait_for(f"{name} says something", lambda: box.windlass("logs", name, check=False).stdout)


def node(box: Box) -> dict[str, Any]:
    (found,) = box.items("nodes")
    return found


def card_records(box: Box) -> tuple[DeviceRecord, ...]:
    return node_annotation.read(node(box)["metadata"]["annotations"]).cards


def condition(box: Box, kind: str) -> dict[str, Any]:
    return next(c for c in node(box)["status"]["conditions"] if c["type"] == kind)


def event_reasons(box: Box) -> set[str]:
    return {event["reason"] for event in box.items("events")}


def gpu_table(box: Box) -> list[dict[str, Any]]:
    return json.loads(box.windlass("gpu", "-o", "json").stdout)["items"]


@pytest.fixture(scope="module")
def sliced(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Box, Script]]:
    """One card in MIG mode, one that is not."""
    two = [card(A100_40, 0, migMode=True), card(A100_40, 1)]
    with gpu_box(tmp_path_factory.mktemp("mig"), two) as found:
        yield found


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Box, Script]]:
    """Two cards with an MPS control daemon."""
    folder = tmp_path_factory.mktemp("mps")
    two = [card(H100_80, 0, links=["switch"]), card(H100_80, 1, links=["switch"], numa=1)]
    with mps_daemon(folder), gpu_box(folder, two) as found:
        yield found


class TestMig:
    """One card in MIG mode, one that is not."""

    def test_a_slice_is_carved_where_it_was_decided_and_survives_the_agent(
        self, sliced: tuple[Box, Script]
    ) -> None:
        box, script = sliced
        up = box.windlass("up", "--detach").stdout
        assert "GPUs:       2 × NVIDIA-A100-SXM4-40GB (1 in MIG mode)\n" in up
        labels = node(box)["metadata"]["labels"]
        assert labels["nvidia.com/gpu.product"] == "NVIDIA-A100-SXM4-40GB"
        assert labels["windlass.dev/mig"] == "dynamic"
        assert labels["gpu-tier"] == "high-performance"
        assert node(box)["status"]["allocatable"]["nvidia.com/gpu"] == "1"
        apply(
            box,
            gpu_pod("small", {"nvidia.com/mig-1g.5gb": "1"}, STAY),
            gpu_pod("large", {"nvidia.com/mig-3g.20gb": "1"}, STAY),
            gpu_pod("whole", {"nvidia.com/gpu": "1"}, STAY),
        )
        running(box, "small", "large", "whole")
        made = {i["profile"]: i for i in script.cards[0]["instances"]}
        assert set(made) == {"1g.5gb", "3g.20gb"}
        assert said(box, "small") == f"CUDA={made['1g.5gb']['uuid']}\n"
        assert said(box, "large") == f"CUDA={made['3g.20gb']['uuid']}\n"
        assert said(box, "whole") == f"CUDA={script.cards[1]['uuid']}\n"
        decided = box.get("pod", "small")["metadata"]["annotations"]["windlass.dev/device-slices"]
        assert decided == f"0:1g.5gb@{made['1g.5gb']['start']}"

        kill_agent(box)
        box.wait_for("the agent tells of the slices", lambda: len(card_records(box)[0].instances) == 2)
        assert {i["profile"]: i for i in script.cards[0]["instances"]} == made  # nothing was made anew
        assert phase(box, "small") == "Running"
        rows = {row["index"]: row for row in gpu_table(box)}
        assert {s["profile"]: s["pod"] for s in rows[0]["slices"]} == {
            "1g.5gb": "default/small",
            "3g.20gb": "default/large",
        }
        assert rows[1]["holders"] == [{"pod": "default/whole", "whole": True}]
        assert "small(1g.5gb@" in box.windlass("gpu", node(box)["metadata"]["name"], "-o", "wide").stdout

        box.windlass("delete", "pod", "small", "whole")
        box.wait_for(
            "the slice is gone", lambda: [i["profile"] for i in script.cards[0]["instances"]] == ["3g.20gb"]
        )
        box.windlass("delete", "pod", "large")
        box.wait_for("all slices are gone", lambda: not script.cards[0]["instances"])
        box.wait_for("the node says so", lambda: not card_records(box)[0].instances)

    def test_memory_is_served_by_the_smallest_slice_that_has_as_much(
        self, sliced: tuple[Box, Script]
    ) -> None:
        box, script = sliced
        blocker = gpu_pod("blocker", {"nvidia.com/gpu": "1"}, STAY)
        apply(box, blocker)
        running(box, "blocker")
        apply(box, gpu_pod("ten", {"aliyun.com/gpu-mem": "9"}, STAY))
        running(box, "ten")
        (made,) = script.cards[0]["instances"]
        assert made["profile"] in ("2g.10gb", "1g.10gb")  # 9856 MiB
        assert said(box, "ten") == f"CUDA={made['uuid']}\n"
        box.windlass("delete", "pod", "ten", "blocker")
        box.wait_for("the slice is gone", lambda: not script.cards[0]["instances"])

    def test_a_refusal_is_told_and_the_pod_does_not_stay(self, sliced: tuple[Box, Script]) -> None:
        box, script = sliced
        with script.open() as state:
            state["createRefusal"] = 3
        try:
            apply(box, gpu_pod("refused", {"nvidia.com/mig-2g.10gb": "1"}, STAY))
            box.wait_for("it is refused", lambda: phase(box, "refused") == "Failed")
            status = box.get("pod", "refused")["status"]
            assert status["reason"] == "UnexpectedAdmissionError"
            assert "GPU 0: the driver does not create 2g.10gb" in status["message"]
            # The card is not offered again.
            box.wait_for("the card is not carved any more", lambda: not card_records(box)[0].dynamic)
        finally:
            with script.open() as state:
                del state["createRefusal"]
            box.windlass("delete", "pod", "refused")


def test_slices_that_others_made_are_handed_out_as_they_are(tmp_path: Path) -> None:
    made = [
        {
            "id": number,
            "profileId": 19,
            "profile": "1g.5gb",
            "start": start,
            "size": 1,
            "compute": 1,
            "uuid": f"MIG-{number}",
            "computeProfile": 0,
        }
        for number, start in ((1, 2), (2, 5))
    ]
    with gpu_box(tmp_path, [card(A100_40, 0, migMode=True, instances=made)]) as (box, script):
        assert node(box)["status"]["allocatable"]["nvidia.com/mig-1g.5gb"] == "2"
        assert node(box)["metadata"]["labels"]["nvidia.com/mig.strategy"] == "mixed"
        names = ["a", "b", "c"]
        apply(box, *(gpu_pod(name, {"nvidia.com/mig-1g.5gb": "1"}, STAY) for name in names))
        box.wait_for("two run", lambda: len(those_running(box, names)) == 2)
        held = those_running(box, names)
        assert {said(box, name) for name in held} == {"CUDA=MIG-1\n", "CUDA=MIG-2\n"}
        kill_agent(box)
        owners = {s["uuid"]: s["pod"] for row in gpu_table(box) for s in row["slices"]}
        assert set(owners.values()) == {f"default/{name}" for name in held}
        box.windlass("delete", "pod", held[0])
        (last,) = [name for name in names if name not in held]
        running(box, last)
        assert script.cards[0]["instances"] == made


class TestSharesAndHealth:
    """Two cards with an MPS control daemon."""

    def test_sharers_are_held_to_their_shares_by_mps(self, served: tuple[Box, Script]) -> None:
        box, _ = served
        assert [(c.mps, c.numa, c.link_group) for c in card_records(box)] == [(True, 0, 0), (True, 1, 0)]
        words = "echo $CUDA_MPS_PINNED_DEVICE_MEM_LIMIT $CUDA_MPS_ACTIVE_THREAD_PERCENTAGE; sleep 600"
        for name in ("one", "two"):
            apply(
                box,
                gpu_pod(name, {"aliyun.com/gpu-mem": "10", "aliyun.com/gpu-core.percentage": "30"}, words),
            )
        running(box, "one", "two")
        assert said(box, "one") == "0=10G 30\n"
        rows = gpu_table(box)
        shared = next(row for row in rows if row["holders"])
        assert [h["pod"] for h in shared["holders"]] == ["default/one", "default/two"]
        assert shared["free"] == {
            "whole": False,
            "computePercent": 40.0,
            "memoryMib": 81559 - 20480,
            "slices": {},
        }
        box.wait_for("it is told", lambda: "DeviceShareEnforced" in event_reasons(box))
        box.windlass("delete", "pod", "one", "two")

    def test_work_moves_away_from_a_card_that_went_bad(self, served: tuple[Box, Script]) -> None:
        box, script = served
        box.windlass("submit", "--name", "train", "--gpus", "1", "--", "sh", "-c", STAY)
        box.wait_for("it runs", lambda: box.job_phase("train") == "Running")
        (pod,) = box.items("pods", labels="volcano.sh/job-name=train")
        index = int(pod["metadata"]["annotations"]["windlass.dev/devices"])
        patch = json.dumps({"metadata": {"annotations": {"windlass.dev/unhealthy-device-seconds": "1"}}})
        with box.client() as client:
            client.patch(PODS, pod["metadata"]["name"], json.loads(patch), "default")
        script.xid(index, 31)  # the program's own fault: nothing happens
        script.xid(index, 79)
        box.wait_for("the card is marked", lambda: not card_records(box)[index].healthy)
        assert card_records(box)[index].reason == "XID 79"
        words = f"GPU {index}: XID 79"
        box.wait_for("it is told", lambda: condition(box, "GPUsHealthy")["message"] == words)
        assert condition(box, "GPUsHealthy")["status"] == "False"
        status = node(box)["status"]
        assert (status["capacity"]["nvidia.com/gpu"], status["allocatable"]["nvidia.com/gpu"]) == ("2", "1")

        def moved() -> bool:
            pods = box.items("pods", labels="volcano.sh/job-name=train")
            return any(
                p["metadata"]["uid"] != pod["metadata"]["uid"]
                and p.get("status", {}).get("phase") == "Running"
                and p["metadata"]["annotations"]["windlass.dev/devices"] == str(1 - index)
                for p in pods
            )

        box.wait_for("it runs on the other card", moved)
        box.wait_for("both are told", lambda: {"GPUUnhealthy", "DeviceUnhealthy"} <= event_reasons(box))
        done = box.windlass("doctor", check=False).stdout
        assert f"GPU {index} (NVIDIA-H100-80GB-HBM3) is not used for new pods: XID 79" in done

        kill_agent(box)  # its successor knows of the error
        assert not card_records(box)[index].healthy
        name = node(box)["metadata"]["name"]
        box.windlass("gpu", "clear", name, str(index))
        box.wait_for("the card is well", lambda: card_records(box)[index].healthy)
        box.wait_for("the node says so", lambda: condition(box, "GPUsHealthy")["status"] == "True")
        box.windlass("cancel", "train", "--yes")
        box.wait_for("it is gone", lambda: not any(row["holders"] for row in gpu_table(box)))

    def test_a_process_from_outside_on_a_card_that_was_given_is_told(
        self, served: tuple[Box, Script]
    ) -> None:
        box, script = served
        apply(box, gpu_pod("mine", {"nvidia.com/gpu": "1"}, STAY))
        running(box, "mine")
        index = int(box.get("pod", "mine")["metadata"]["annotations"]["windlass.dev/devices"])
        with subprocess.Popen(["sleep", "600"]) as stranger:
            try:
                script.run(index, stranger.pid, 500)
                box.wait_for("it is told", lambda: condition(box, "GPUsUsedAsGiven")["status"] == "False")
                told = condition(box, "GPUsUsedAsGiven")
                assert told["reason"] == "ForeignProcess"
                assert (
                    f"process {stranger.pid} (sleep) belongs to no pod and uses GPU {index}"
                    in told["message"]
                )
            finally:
                stranger.kill()
        script.change(index, processes=[])
        box.wait_for("all is well", lambda: condition(box, "GPUsUsedAsGiven")["status"] == "True")
        box.windlass("delete", "pod", "mine")


@pytest.mark.timeout(500)
def test_the_check_for_real_cards_runs(tmp_path: Path) -> None:
    """`make gpu-check`, as far as it goes without CUDA."""
    with mps_daemon(tmp_path):
        cards = [card(H100_80, 0), card(A100_40, 1, migMode=True)]
        script = Script.write(tmp_path / "nvml.json", cards)
        environment = {**os.environ, **gpu_environment(tmp_path, script)}
        out = tmp_path / "transcript.md"
        done = subprocess.run(
            [sys.executable, str(ROOT / "tools" / "gpu_check.py"), "--out", str(out)],
            env=environment,
            capture_output=True,
            text=True,
            timeout=450,
            check=False,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    text = out.read_text()
    assert "over a scripted NVML: no GPU is behind it" in text
    assert "ok: the pod was told of the GPU that was decided, and of no other" in text
    assert "ok: MPS is told the limit of memory ({'0=26G'})" in text
    assert "ok: the pod was told of its slice and of nothing else" in text
    assert "FAILED" not in text


class TestAcceptance03:
    """The users' manifest of a pod that takes 10 GiB of one shared card."""

    @pytest.mark.parametrize(("memory", "most"), [("16GiB", 1), ("24GiB", 2)])
    def test_as_many_fit_as_there_is_memory(self, memory: str, most: int, tmp_path: Path) -> None:
        (shared,) = acceptance_manifests.documents(3)
        shared["spec"]["containers"][0]["command"] = ["sh", "-c", STAY]
        pods = [
            {**shared, "metadata": {"name": f"share-{number}", "namespace": "default"}} for number in range(3)
        ]
        with Box("--gpus", f"simulated:1:{memory}") as box:
            done = box.windlass("apply", "-f", "-", stdin=yaml.safe_dump_all(pods))
            (warning,) = acceptance_manifests.expected_warnings(3)
            assert warning in done.stderr
            names = [pod["metadata"]["name"] for pod in pods]
            box.wait_for("as many run as fit", lambda: len(those_running(box, names)) == most)
            held = those_running(box, names)
            (waiting, *_) = [name for name in names if name not in held]
            box.wait_for("it is explained", lambda: "why:" in box.windlass("explain", waiting).stdout)
            assert those_running(box, names) == held
            for name in held:
                annotations = box.get("pod", name)["metadata"]["annotations"]
                assert annotations["windlass.dev/device-shares"] == "0:0/10240"
            box.wait_for("it is told", lambda: "DeviceShareNotEnforced" in event_reasons(box))
            events = [e for e in box.items("events") if e["reason"] == "DeviceShareNotEnforced"]
            assert "accounted, but not enforced" in events[0]["message"]
            (row,) = gpu_table(box)
            assert len(row["holders"]) == most
            box.windlass("delete", "pod", held[0])
            rest = [name for name in names if name != held[0]]
            box.wait_for("the next one runs", lambda: len(those_running(box, rest)) == most)


def those_running(box: Box, names: list[str]) -> list[str]:
    return [name for name in names if phase(box, name) == "Running"]


def test_cards_of_other_makers_are_handed_out_by_their_own_words() -> None:
    wanted = {
        "amd": (
            "amd.com/gpu",
            "2",
            "$ROCR_VISIBLE_DEVICES $HIP_VISIBLE_DEVICES [$CUDA_VISIBLE_DEVICES]",
            "0,1 0,1 []\n",
        ),
        "gaudi": ("habana.ai/gaudi", "1", "$HABANA_VISIBLE_MODULES [$ROCR_VISIBLE_DEVICES]", "0 []\n"),
        "ascend": ("huawei.com/Ascend910", "2", "$ASCEND_RT_VISIBLE_DEVICES", "0,1\n"),
    }
    with Box("--gpus", "simulated:2xMI300X,1xGaudi3,2xAscend910B") as box:
        for name, (resource, count, words, _) in wanted.items():
            apply(box, gpu_pod(name, {resource: count}, f'echo "{words}"'))
        for name, (_, _, _, expected) in wanted.items():
            assert said(box, name) == expected


def test_slices_as_cards(tmp_path: Path) -> None:
    """MIG strategy *single*."""
    made = [
        {
            "id": number,
            "profileId": 9,
            "profile": "3g.20gb",
            "start": start,
            "size": 4,
            "compute": 3,
            "uuid": f"MIG-{number}",
            "computeProfile": 2,
        }
        for number, start in ((1, 0), (2, 4))
    ]
    cut = card(A100_40, 0, migMode=True, instances=made)
    with gpu_box(tmp_path, [cut], gpus="auto:single") as (box, script):
        found = node(box)
        assert found["status"]["allocatable"]["nvidia.com/gpu"] == "2"
        assert found["metadata"]["labels"]["nvidia.com/gpu.product"] == "NVIDIA-A100-SXM4-40GB-MIG-3g.20gb"
        assert found["metadata"]["labels"]["nvidia.com/mig.strategy"] == "single"
        apply(box, gpu_pod("both", {"nvidia.com/gpu": "2"}, STAY))
        running(box, "both")
        assert said(box, "both") == "CUDA=MIG-1,MIG-2\n"
        script.xid(0, 79)  # of the card below: both are gone
        box.wait_for("both are marked", lambda: [c.healthy for c in card_records(box)] == [False, False])
