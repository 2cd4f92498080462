"""A real Slurm on this machine: munged, slurmctld and one slurmd per node, in its own
directory, on loopback.

The configuration and state of an installed Slurm are not used, and there is no
database: the jobs themselves report what ran. Devices are plain files, of which Slurm
allocates as many as configured; the number of CPUs is configured, too. All processes
run as the calling user, without systemd.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from windlass.node.runtime.syscalls import start_time

DAEMONS = ("munged", "slurmctld", "slurmd")
CLIENTS = ("sbatch", "srun", "squeue", "scontrol", "sinfo", "scancel")
_PATH = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin", "/usr/local/sbin", "/sbin"))
_READY_SECONDS = 30.0
_END_SECONDS = 10.0


def missing() -> list[str]:
    """Programs of Slurm and munge that this machine lacks."""
    return [name for name in (*DAEMONS, *CLIENTS) if shutil.which(name, path=_PATH) is None]


@dataclass(frozen=True, slots=True)
class Nodes:
    """Alike nodes; ``cpus`` and ``gpus`` of each are pretended."""

    count: int = 1
    gpus: int = 8
    cpus: int = 16

    @property
    def names(self) -> list[str]:
        return [f"n{number}" for number in range(1, self.count + 1)]


class Slurm:
    """A cluster that runs inside ``with``. ``scheduler``: settings of ``SchedulerParameters``; empty for Slurm's own
    defaults. Raises ``RuntimeError`` with the daemon's last words where one does not come up."""

    def __init__(self, nodes: Nodes, scheduler: str = "") -> None:
        self.nodes = nodes
        self.scheduler = scheduler
        # short: the path of munge's socket has to fit into 107 bytes
        self.folder = Path(tempfile.mkdtemp(prefix="windlass-slurm-", dir="/tmp"))
        self.environment = {
            "PATH": _PATH,
            "HOME": str(self.folder),
            "LANG": os.environ.get("LANG", "C.UTF-8"),
            "SLURM_CONF": str(self.folder / "slurm.conf"),
        }

    def __enter__(self) -> Slurm:
        try:
            self._write()
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def run(self, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """A command of Slurm's, or any with its environment. Raises ``RuntimeError`` when it fails and ``check``."""
        done = subprocess.run(
            words,
            env=self.environment,
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        if check and done.returncode:
            raise RuntimeError(f"{' '.join(words)}: {done.stderr or done.stdout}")
        return done

    def pids(self) -> dict[str, int]:
        """Return the process ids of the running daemons, by name."""
        found = {}
        for file in sorted((self.folder / "run").glob("*.pid")):
            try:
                pid = int(file.read_text())
                os.kill(pid, 0)
            except (OSError, ValueError):
                continue
            found[file.stem] = pid
        return found

    def stop(self) -> None:
        """End the daemons, jobs first, and remove the folder."""
        if "slurmctld" in self.pids():
            user = pwd.getpwuid(os.getuid()).pw_name
            self.run("scancel", "--full", "--signal=KILL", f"--user={user}", check=False)
        for wave in (("slurmd",), ("slurmctld",), ("munged",)):
            running = [pid for name, pid in self.pids().items() if name.startswith(wave)]
            _end(running)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _write(self) -> None:
        folder = self.folder
        folder.chmod(0o755)
        for name in ("run", "log", "state", "munge", "dev", *(f"spool/{node}" for node in self.nodes.names)):
            (folder / name).mkdir(parents=True)
        for card in range(self.nodes.gpus):
            (folder / "dev" / f"nvidia{card}").touch()
        key = folder / "munge" / "munge.key"
        key.touch(mode=0o600)
        key.write_bytes(os.urandom(1024))
        (folder / "slurm.conf").write_text("\n".join(self._configuration()) + "\n")
        cards = f"File={folder}/dev/nvidia[0-{self.nodes.gpus - 1}]"
        (folder / "gres.conf").write_text(f"NodeName={_range(self.nodes.names)} Name=gpu {cards}\n")
        (folder / "cgroup.conf").write_text("CgroupAutomount=no\n")

    def _configuration(self) -> list[str]:
        folder, nodes = self.folder, self.nodes
        user = pwd.getpwuid(os.getuid()).pw_name
        host = socket.gethostname().partition(".")[0]
        controller, *ports = _free_ports(1 + nodes.count)
        return [
            "ClusterName=bench",
            f"SlurmctldHost={host}(127.0.0.1)",
            f"SlurmctldPort={controller}",
            "AuthType=auth/munge",
            "CredType=cred/munge",
            f"AuthInfo=socket={folder}/munge/socket",
            f"SlurmUser={user}",
            f"SlurmdUser={user}",
            f"StateSaveLocation={folder}/state",
            f"SlurmdSpoolDir={folder}/spool/%n",
            f"SlurmctldPidFile={folder}/run/slurmctld.pid",
            f"SlurmdPidFile={folder}/run/slurmd-%n.pid",
            f"SlurmctldLogFile={folder}/log/slurmctld.log",
            f"SlurmdLogFile={folder}/log/slurmd-%n.log",
            "SlurmdParameters=config_overrides",
            "ProctrackType=proctrack/linuxproc",
            "TaskPlugin=task/none",
            "SwitchType=switch/none",
            "MpiDefault=none",
            "JobAcctGatherType=jobacct_gather/none",
            "AccountingStorageType=accounting_storage/none",
            "ReturnToService=2",
            "MaxArraySize=10001",
            "SchedulerType=sched/backfill",
            *([f"SchedulerParameters={self.scheduler}"] if self.scheduler else []),
            "SelectType=select/cons_tres",
            "SelectTypeParameters=CR_Core",
            "GresTypes=gpu",
            *(
                f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs={nodes.cpus} Boards=1"
                f" SocketsPerBoard=1 CoresPerSocket={nodes.cpus} ThreadsPerCore=1 RealMemory=64000"
                f" Gres=gpu:{nodes.gpus}"
                for name, port in zip(nodes.names, ports, strict=True)
            ),
            f"PartitionName=main Nodes={_range(nodes.names)} Default=YES MaxTime=INFINITE State=UP",
        ]

    def _start(self) -> None:
        munge = self.folder / "munge"
        self.run(
            "munged",
            "--force",
            f"--key-file={munge}/munge.key",
            f"--socket={munge}/socket",
            f"--pid-file={self.folder}/run/munged.pid",
            f"--log-file={munge}/log",
            f"--seed-file={munge}/seed",
        )
        self.run("slurmctld", "-c")
        for name in self.nodes.names:
            self.run("slurmd", "-N", name)
        deadline = time.monotonic() + _READY_SECONDS
        while self._idle() < self.nodes.count:
            if time.monotonic() > deadline:
                raise RuntimeError(f"Slurm did not come up in {_READY_SECONDS:g} s:\n{self._last_words()}")
            time.sleep(0.05)

    def _idle(self) -> int:
        done = self.run("sinfo", "-h", "-t", "idle", "-o", "%D", check=False)
        return sum(int(word) for word in done.stdout.split() if word.isdecimal())

    def _last_words(self) -> str:
        files = sorted((self.folder / "log").glob("*.log"))
        return "\n".join(f"{file.name}: {file.read_text(errors='replace')[-1500:]}" for file in files)


def _range(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"n[1-{len(names)}]"


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


def _end(pids: Sequence[int]) -> None:
    """Ask, wait, and insist."""
    for pid in pids:
        _signal(pid, signal.SIGTERM)
    deadline = time.monotonic() + _END_SECONDS
    while any(start_time(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.02)
    for pid in pids:
        _signal(pid, signal.SIGKILL)


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
