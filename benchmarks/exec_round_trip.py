"""Round trip of a command in a running container: from the request to its exit code.

``python -m benchmarks.exec_round_trip [-o json]``. The client is a WebSocket on the Unix socket of
a box of its own. The same with kubectl, which starts a process and speaks TLS, is shown, too.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import time
from pathlib import Path

from websockets.sync.client import unix_connect
from websockets.typing import Subprotocol

from benchmarks.cold_start import Home, timed

ROUNDS = 30
POD = """
apiVersion: v1
kind: Pod
metadata: {name: target}
spec: {containers: [{name: main, image: python, command: [sleep, infinity]}]}
"""
PATH = "/api/v1/namespaces/default/pods/target/exec?command=true&stdout=true&stderr=true"


def socket_round_trip(socket: Path) -> float:
    """Return the seconds of one command over the Unix socket. Raises ``RuntimeError`` if it fails."""
    begin = time.perf_counter()
    protocol = Subprotocol("v5.channel.k8s.io")
    with unix_connect(str(socket), f"ws://localhost{PATH}", subprotocols=[protocol]) as connection:
        for message in connection:
            if message[:1] == b"\x03":
                status = json.loads(message[1:])
                if status["status"] != "Success":
                    raise RuntimeError(status["message"])
                break
        return time.perf_counter() - begin
    raise RuntimeError("the connection ended without a status")


def kubectl_round_trip(home: Home, kubeconfig: Path) -> float:
    """Return the seconds of one ``kubectl exec``."""
    command = ["kubectl", "--kubeconfig", str(kubeconfig), "exec", "target", "--", "true"]
    begin = time.perf_counter()
    subprocess.run(command, env=home.environment, check=True, capture_output=True, timeout=60)
    return time.perf_counter() - begin


def measure() -> dict[str, float]:
    with Home() as home:
        timed(home, "up", "--detach", "--gpus", "none")
        state = home.path / ".local" / "state" / "windlass"
        (home.path / "pod.yaml").write_text(POD)
        timed(home, "apply", "-f", "pod.yaml")
        while b"Running" not in home.run("get", "pod", "target").stdout:
            time.sleep(0.1)
        times = sorted(socket_round_trip(state / "windlass.sock") for _ in range(ROUNDS))
        found = {"seconds": statistics.median(times), "p90_seconds": times[int(0.9 * ROUNDS)]}
        if shutil.which("kubectl"):
            found["kubectl_seconds"] = statistics.median(
                kubectl_round_trip(home, state / "kubeconfig") for _ in range(ROUNDS // 3)
            )
        return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text")
    found = measure()
    if parser.parse_args().output == "json":
        print(json.dumps(found))
        return
    for name, seconds in found.items():
        print(f"{name:<16} {seconds * 1000:7.1f} ms")


if __name__ == "__main__":
    main()
