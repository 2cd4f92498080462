"""`make gpu-check`: what Windlass does with the GPUs of this machine, recorded step by step.

Discovery and labels, a whole device handed out exactly, a device shared by two pods with MPS limits (a control
daemon is started for it where ``nvidia-cuda-mps-control`` is installed), a MIG slice where a device is in MIG mode;
each pod asks CUDA itself what it sees (:file:`gpu_probe.py`). The transcript says on which devices it was
done, or that a script stood in for NVML (``SCRIPTED_NVML``). Nothing of the machine is changed: no MIG mode, no reset.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PROBE = Path(__file__).resolve().parent / "gpu_probe.py"
WINDLASS = str(Path(sys.executable).parent / "windlass")
_PATIENCE_SECONDS = 60.0
_HOLD_SECONDS = 20


class CheckFailed(Exception):
    """Something is not as it was decided; the text says what."""


class Check:
    """One box in a folder of its own, and what was recorded of it."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.lines: list[str] = []
        self.failures: list[str] = []
        path = f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}"
        self.environment = {
            **os.environ,
            **environment,
            "PATH": path,
            "WINDLASS_STATE": str(folder / "state"),
            "NO_COLOR": "1",
            "COLUMNS": "160",
        }

    def windlass(self, *arguments: str, stdin: str | None = None, check: bool = True) -> str:
        done = subprocess.run(
            [WINDLASS, *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            env=self.environment,
            check=False,
        )
        if check and done.returncode != 0:
            raise CheckFailed(f"windlass {' '.join(arguments)}: {done.stdout}{done.stderr}")
        return done.stdout

    def tell(self, text: str) -> None:
        print(text, flush=True)
        self.lines.append(text)

    def show(self, *arguments: str) -> None:
        """A command and what it printed."""
        self.tell(
            f"```console\n$ windlass {' '.join(arguments)}\n{self.windlass(*arguments).rstrip()}\n```\n"
        )

    def holds(self, what: str, true: bool, evidence: object = "") -> None:
        self.tell(f"- {'ok' if true else 'FAILED'}: {what}{f' ({evidence})' if evidence else ''}")
        if not true:
            self.failures.append(what)

    def cards(self) -> list[dict[str, Any]]:
        return json.loads(self.windlass("gpu", "-o", "json"))["items"]

    def probe(self, name: str, limits: dict[str, str]) -> None:
        """Start a pod that asks for ``limits`` and tells what it sees."""
        container = {
            "name": "main",
            "image": "windlass.dev/host",
            "command": [sys.executable, str(PROBE), str(_HOLD_SECONDS)],
            "resources": {"limits": limits},
        }
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name},
            "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [container]},
        }
        self.windlass("apply", "-f", "-", stdin=json.dumps(pod))

    def said(self, name: str) -> dict[str, Any]:
        """Return the output of the pod's probe."""

        def words() -> str:
            return self.windlass("logs", name, check=False).strip()

        return json.loads(until(f"pod {name} says what it sees", words).splitlines()[0])

    def annotation(self, name: str, key: str) -> str:
        pod = json.loads(self.windlass("get", "pod", name, "-o", "json"))
        return pod["metadata"]["annotations"].get(key, "")

    def gone(self, *names: str) -> None:
        self.windlass("delete", "pod", *names)
        until("the GPUs are free again", lambda: not any(card["holders"] for card in self.cards()))


def until(what: str, condition: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < deadline:
        if found := condition():
            return found
        time.sleep(0.2)
    raise CheckFailed(f"{what}: not within {_PATIENCE_SECONDS:.0f} s")


@contextmanager
def mps_daemon(folder: Path) -> Iterator[dict[str, str]]:
    """An MPS control daemon of our own, or the one that the environment names; what clients are told."""
    given = os.environ.get("CUDA_MPS_PIPE_DIRECTORY")
    program = shutil.which("nvidia-cuda-mps-control")
    if given or program is None:
        yield {"CUDA_MPS_PIPE_DIRECTORY": given} if given else {}
        return
    words = {
        "CUDA_MPS_PIPE_DIRECTORY": str(folder / "mps"),
        "CUDA_MPS_LOG_DIRECTORY": str(folder / "mps-log"),
    }
    for path in words.values():
        Path(path).mkdir()
    environment = {**os.environ, **words}
    subprocess.run([program, "-d"], env=environment, check=True)
    try:
        yield words
    finally:
        subprocess.run([program], input="quit\n", text=True, env=environment, check=False)


def check_discovery(check: Check) -> None:
    check.tell("## What was found\n")
    check.show("gpu", "-o", "wide")
    (node,) = json.loads(check.windlass("get", "nodes", "-o", "json"))["items"]
    labels = {key: text for key, text in node["metadata"]["labels"].items() if "gpu" in key or "mig" in key}
    check.tell(
        "```yaml\n" + "\n".join(f"{key}: {text!r}" for key, text in sorted(labels.items())) + "\n```\n"
    )
    cards = check.cards()
    check.holds("every GPU has a UUID, a model and its memory", all(_known(card) for card in cards))
    check.holds("every GPU is well", all(card["healthy"] for card in cards))
    capacity = node["status"]["capacity"].get("nvidia.com/gpu", "0")
    whole = sum(not card["mig"] for card in cards)
    check.holds("nvidia.com/gpu counts the GPUs that are not in MIG mode", capacity == str(whole), capacity)


def _known(card: dict[str, Any]) -> bool:
    return bool(card["uuid"] and card["model"] and card["memoryMib"])


def check_whole(check: Check, card: dict[str, Any]) -> None:
    check.tell("\n## A whole GPU\n")
    check.probe("whole", {"nvidia.com/gpu": "1"})
    said = check.said("whole")
    check.tell(f"```json\n{json.dumps(said, indent=1)}\n```\n")
    index = int(check.annotation("whole", "windlass.dev/devices"))
    wanted = next(c["uuid"] for c in check.cards() if c["index"] == index)
    seen = said["environment"].get("CUDA_VISIBLE_DEVICES", "")
    check.holds("the pod was told of the GPU that was decided, and of no other", seen == wanted, seen)
    if "devices" in said:
        uuids = [f"GPU-{device['uuid']}" for device in said["devices"]]
        check.holds("CUDA shows it this GPU and no other", uuids == [wanted], uuids)
    check.gone("whole")


def check_shared(check: Check, card: dict[str, Any]) -> None:
    check.tell("\n## One GPU for two pods\n")
    gib = max(1, card["memoryMib"] // 1024 // 3)
    limits = {"aliyun.com/gpu-mem": str(gib), "aliyun.com/gpu-core.percentage": "30"}
    for name in ("one", "two"):
        check.probe(name, limits)
    said = {name: check.said(name) for name in ("one", "two")}
    for name, words in said.items():
        check.tell(f"```json\n{json.dumps({name: words}, indent=1)}\n```\n")
    check.show("gpu")
    same = {check.annotation(name, "windlass.dev/devices") for name in said}
    check.holds("both are on one GPU", len(same) == 1, ", ".join(same))
    shares = {check.annotation(name, "windlass.dev/device-shares") for name in said}
    check.holds("each has its share", shares == {f"{same.pop()}:300/{gib * 1024}"}, shares)
    environments = [words["environment"] for words in said.values()]
    if not any(c["mps"] for c in check.cards()):
        check.tell("- no MPS control daemon serves the GPUs: the shares are accounted, not enforced")
        check.gone(*said)
        return
    bound = {words.get("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT") for words in environments}
    check.holds("MPS is told the limit of memory", bound == {f"0={gib}G"}, bound)
    threads = {words.get("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE") for words in environments}
    check.holds("MPS is told the limit of threads", threads == {"30"}, threads)
    for name, words in said.items():
        for device in words.get("devices", ()):
            check.holds(
                f"{name} cannot take more memory than its share",
                0 < device["tookMib"] <= gib * 1024 and bool(device["refusal"]),
                f"took {device['tookMib']} MiB, then {device['refusal']}",
            )
    check.gone(*said)


def check_slice(check: Check, card: dict[str, Any]) -> None:
    check.tell("\n## A MIG slice\n")
    profile = min(card["free"]["slices"], key=lambda name: (len(name), name))
    check.probe("slice", {f"nvidia.com/mig-{profile.replace('+', '.')}": "1"})
    said = check.said("slice")
    check.tell(f"```json\n{json.dumps(said, indent=1)}\n```\n")
    seen = said["environment"].get("CUDA_VISIBLE_DEVICES", "")
    made = [s for c in check.cards() for s in c["slices"] if s["pod"] == "default/slice"]
    check.holds(
        "the pod was told of its slice and of nothing else", [s["uuid"] for s in made] == [seen], seen
    )
    if "devices" in said:
        check.holds("CUDA shows it one device", len(said["devices"]) == 1)
    check.gone("slice")


def run(check: Check) -> None:
    check.windlass("up", "--gpus", "auto", "--detach")
    cards = check.cards()
    if not cards:
        raise CheckFailed(f"this machine has no GPU:\n{check.windlass('doctor', check=False)}")
    scripted = (
        "over a scripted NVML: no GPU is behind it" if os.environ.get("SCRIPTED_NVML") else "on real GPUs"
    )
    models = ", ".join(sorted({card["model"] for card in cards}))
    check.tell("# GPUs on this machine\n")
    check.tell(f"Recorded by `make gpu-check`, {scripted}: {len(cards)} × {models}.\n")
    check_discovery(check)
    plain = [card for card in cards if not card["mig"]]
    cut = [card for card in cards if card["mig"] and card["free"]["slices"]]
    if plain:
        check_whole(check, plain[0])
        check_shared(check, plain[0])
    if cut:
        check_slice(check, cut[0])
    else:
        check.tell("\nNo GPU is in MIG mode: slices were not tried.")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--out", type=Path, help="also write the transcript to this file")
    out = parser.parse_args().out
    with tempfile.TemporaryDirectory(prefix="windlass-gpu-check-") as name:
        folder = Path(name)
        with mps_daemon(folder) as words:
            check = Check(folder, words)
            try:
                run(check)
            except CheckFailed as error:
                check.tell(f"\nFAILED: {error}")
                check.failures.append(str(error))
            finally:
                check.windlass("down", check=False)
    if out is not None:
        out.write_text("\n".join(check.lines) + "\n")
    print(f"\n{len(check.failures)} failed" if check.failures else "\nall as it was decided")
    return 1 if check.failures else 0


if __name__ == "__main__":
    raise SystemExit(main())
