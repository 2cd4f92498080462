"""Schedulers as processes against a real API server: Windlass' two, and Kubernetes' own.

Every process dies with the one that started it; ``stop`` ends it in order, ``kill`` at once.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from realkube import RealKube, end, free_ports, spawn, tools_folder

_TICKS = os.sysconf("SC_CLK_TCK")


def usage(pid: int) -> tuple[float, float]:
    """CPU seconds so far, and the most memory ever resident (MiB)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    status = Path(f"/proc/{pid}/status").read_text()
    peak = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))
    return (int(fields[11]) + int(fields[12])) / _TICKS, round(peak / 1024, 1)


class Part:
    """A process with a probe and metrics at ``port``."""

    scheme = "http"

    def __init__(self, argv: list[str], log: Path, port: int, more: Mapping[str, str] | None = None) -> None:
        """``more``: of its environment."""
        self.log = log
        self.port = port
        self._process = spawn(argv, log, env={**os.environ, **(more or {})})

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    @property
    def exit_status(self) -> int | None:
        """None while it runs."""
        return self._process.poll()

    def ask(self, path: str) -> tuple[int, str]:
        """Status and body; 0 while nothing listens."""
        try:
            with urllib.request.urlopen(f"{self.scheme}://127.0.0.1:{self.port}{path}", timeout=30) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except OSError as error:
            return 0, str(error)

    @property
    def ready(self) -> bool:
        return self.ask("/readyz")[0] == 200

    def value(self, metric: str) -> float:
        """A metric without labels, or with those in ``metric``; 0 while it is not there."""
        for line in self.ask("/metrics")[1].splitlines():
            if line.startswith(f"{metric} "):
                return float(line.rsplit(" ", 1)[1])
        return 0.0

    def text(self) -> str:
        return self.log.read_text(errors="replace")

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def kill(self) -> None:
        """As by a crash."""
        self._process.kill()
        self._process.wait()

    def stop(self) -> int:
        """Returns the exit status."""
        if self.alive:
            self._process.send_signal(signal.SIGCONT)
        end(self._process)
        return self._process.returncode


class WindlassPart(Part):
    """``role`` is ``scheduler`` or ``controller``; ``kubeconfig`` that of the server, unless another is named."""

    def __init__(
        self,
        kube: RealKube,
        role: str,
        *options: str,
        name: str = "",
        through: Path | None = None,
        more: Mapping[str, str] | None = None,
    ) -> None:
        (port,) = free_ports(1)
        argv = [sys.executable, "-m", "windlass.app", role, "--kubeconfig", str(through or kube.kubeconfig)]
        argv += ["--metrics-bind", f"127.0.0.1:{port}", *options]
        super().__init__(argv, kube.folder / f"windlass-{name or role}.log", port, more)

    @property
    def leads(self) -> bool:
        return self.value("windlass_scheduler_leader") == 1.0


class KubeScheduler(Part):
    """kube-scheduler, without leader election, with a client that is not held back unless it is to be ``limited``
    as it is where nobody says otherwise."""

    BINARY = "kube-scheduler"
    PROFILES: ClassVar[list[dict[str, Any]]] = []

    def __init__(self, kube: RealKube, *, limited: bool = False) -> None:
        (port,) = free_ports(1)
        config = kube.folder / f"{self.BINARY}.json"
        client = {"kubeconfig": str(kube.kubeconfig), **({} if limited else {"qps": 10000, "burst": 10000})}
        config.write_text(
            json.dumps(
                {
                    "apiVersion": "kubescheduler.config.k8s.io/v1",
                    "kind": "KubeSchedulerConfiguration",
                    "clientConnection": client,
                    "leaderElection": {"leaderElect": False},
                    **({"profiles": self.PROFILES} if self.PROFILES else {}),
                }
            )
        )
        argv = [str(tools_folder() / self.BINARY), f"--config={config}", "--authentication-skip-lookup"]
        argv += [f"--secure-port={port}", "--bind-address=127.0.0.1"]
        argv += [f"--cert-dir={kube.folder / f'{self.BINARY}-certs'}"]
        super().__init__(argv, kube.folder / f"{self.BINARY}.log", port)

    @property
    def ready(self) -> bool:
        """Its port is TLS with a certificate of its own: whether it has begun is told by its log."""
        return self.alive and "Serving securely" in self.text()
