"""Equivalents of commands and options of Slurm, PBS, docker and kubectl."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

_NOTEBOOK = "windlass run --gpus 1 --host-network -- jupyter lab --no-browser"
COMMANDS = {
    "sbatch": "windlass submit -- COMMAND",
    "qsub": "windlass submit -- COMMAND",
    "srun": "windlass run -- COMMAND",
    "salloc": "windlass run -- COMMAND",
    "squeue": "windlass ps",
    "qstat": "windlass ps",
    "jobs": "windlass ps",
    "ls": "windlass ps",
    "list": "windlass ps",
    "sacct": "windlass ps --all",
    "scancel": "windlass cancel JOB",
    "qdel": "windlass cancel JOB",
    "kill": "windlass cancel JOB",
    "stop": "windlass cancel JOB",
    "scontrol": "windlass show JOB",
    "seff": "windlass show JOB",
    "sstat": "windlass show JOB",
    "sdiag": "windlass status",
    "sacctmgr": "windlass queue ls",
    "hold": "windlass suspend JOB",
    "release": "windlass resume JOB",
    "sinfo": "windlass node ls",
    "top": "windlass status",
    "sprio": "windlass explain JOB",
    "why": "windlass explain JOB",
    "sshare": "windlass queue tree",
    "drain": "windlass node drain NODE",
    "cordon": "windlass node cordon NODE",
    "uncordon": "windlass node uncordon NODE",
    "create": "windlass apply -f FILE",
    "edit": "windlass apply -f FILE",
    "attach": "windlass logs JOB -f   (or kubectl attach POD)",
    "sattach": "windlass logs JOB -f",
    "tail": "windlass logs JOB -f",
    "notebook": _NOTEBOOK,
    "jupyter": _NOTEBOOK,
    "port-forward": "kubectl port-forward POD PORT",
    "events": "windlass describe KIND NAME",
    "wait": "windlass logs JOB -f   (to its end; or windlass submit --wait)",
    "info": "windlass status",
    "start": "windlass up",
}
"""Foreign command → the nearest command of Windlass."""
_ARRAY = "windlass apply -f FILE, a Job with that many replicas, or a loop of windlass submit -e TASK=$i …"
_WHOLE_NODES = "--gpus, as many as a node has: GPUs are shared only on request"
_NODES = "windlass apply -f FILE, with nodeSelector or nodeAffinity"
_DETACHED = "windlass submit, which returns at once; windlass logs JOB -f follows the job"
_FILES = (
    "not needed on one machine, where jobs see its files; on a cluster windlass apply -f FILE, with volumes"
)
OPTIONS = {
    "--account": "--queue",
    "-A": "--queue",
    "--chdir": "--workdir",
    "-D": "--workdir",
    "--constraint": "--gpu-model, or --near",
    "-C": "--gpu-model, or --near",
    "--cpus-per-gpu": "--cpus, for each rank",
    "--cpus-per-task": "--cpus",
    "-c": "--cpus",
    "--dependency": "windlass submit --wait … && windlass submit …",
    "-d": "windlass submit, which returns at once   (to run after another job: windlass submit --wait … && …)",
    "--detach": _DETACHED,
    "--detach-run": _DETACHED,
    "--array": _ARRAY,
    "-a": _ARRAY,
    "--begin": "at, or cron, with windlass submit",
    "-b": "at, or cron, with windlass submit",
    "--exclude": _NODES,
    "-x": _NODES,
    "--exclusive": _WHOLE_NODES,
    "--export": "--env",
    "--gpu-bind": "not needed: each rank sees only its own GPUs",
    "--gpus-per-node": "--gpus",
    "--gpus-per-task": "--gpus",
    "--gres": "--gpus",
    "-G": "--gpus",
    "--hold": "windlass submit, at the time when the job shall run",
    "-H": "windlass submit, at the time when the job shall run",
    "--job-name": "--name",
    "-J": "--name",
    "--kill-on-bad-exit": "not needed: if one rank fails, the others are ended",
    "-K": "not needed: if one rank fails, the others are ended",
    "--label": "not needed: lines of several ranks begin with [RANK]",
    "-l": "not needed: lines of several ranks begin with [RANK]",
    "--mail-type": "windlass submit --wait …; mail …",
    "--mail-user": "windlass submit --wait …; mail …",
    "--mem": "--memory",
    "--mem-per-cpu": "--memory, for each rank",
    "--mem-per-gpu": "--memory, for each rank",
    "--nice": "--priority",
    "--nodelist": _NODES,
    "-w": _NODES,
    "--ntasks": "--nodes, the number of ranks",
    "--ntasks-per-node": "--nodes, the number of ranks",
    "-N": "--nodes",
    "--error": "windlass logs JOB",
    "--open-mode": "windlass logs JOB",
    "--parsable": "not needed: only the name is printed",
    "--partition": "--queue",
    "-p": "--queue",
    "--pty": "not available: a job has no standard input",
    "--qos": "--priority",
    "--requeue": "not needed: an evicted job runs again",
    "--signal": "not available: SIGTERM is sent when --time is over, SIGKILL 30 s later",
    "--switches": "--near",
    "--test-only": "windlass submit …; windlass explain JOB",
    "--time-min": "--time",
    "-W": "windlass submit --wait",
    "--wrap": "windlass submit -- sh -c 'COMMANDS'",
    "--interactive": "not available: a job has no standard input",
    "-i": "not available: a job has no standard input",
    "--tty": "not available: a job has no standard input",
    "--rm": "not needed: windlass delete JOB removes the job",
    "--volume": _FILES,
    "-v": _FILES,
    "--mount": _FILES,
}
"""Option of sbatch, srun, docker run and sky → the equivalent for ``run`` and ``submit``.
"""
_QUEUE_OPTIONS = {
    **{
        f"--{kind}": f"{kind}.RESOURCE=AMOUNT, as in {kind}.nvidia.com/gpu=8"
        for kind in ("capability", "deserved", "guarantee")
    },
    "--limit": "capability.RESOURCE=AMOUNT, as in capability.nvidia.com/gpu=8",
    "--quota": "capability.RESOURCE=AMOUNT, as in capability.nvidia.com/gpu=8",
    "--weight": "weight=NUMBER",
    "-w": "weight=NUMBER",
    "--priority": "priority=NUMBER",
    "--parent": "parent=QUEUE",
    "--state": "state=Open, or state=Closed",
    "--reclaimable": "reclaimable=true, or reclaimable=false",
}
"""Option of vcctl or Kueue → the setting for ``queue create`` and ``queue set``."""
_DIRECTIVE = re.compile(r"#SBATCH\s+(--?[A-Za-z][A-Za-z-]*)")
_HEAD_BYTES = 16384


def equivalent_option(name: str, path: str) -> str:
    """Return what to type instead of an option that a command does not have.

    Known are options of Slurm for ``run`` and ``submit``, and settings of queues, which
    have no dashes. Empty for any other option.
    """
    if path.endswith((" queue create", " queue set")):
        return _QUEUE_OPTIONS.get(name, "")
    return OPTIONS.get(name, "") if path.split()[-1] in ("run", "submit") else ""


def equivalent_gpu_flags(complaint: str) -> str:
    """Return the flags for a number of GPUs in the syntax of Slurm or docker; else empty.

    The value is found in click's error message. Slurm writes ``a100:2``, ``gpu:2`` and
    ``gpu:a100:2``, docker writes ``all``.
    """
    if "'all'" in complaint:
        return "--gpus N, as many as windlass node ls shows for one node"
    if re.search(r"'0?\.[0-9]+'", complaint):
        return "--gpu-memory 10Gi   (a share of one GPU: windlass docs share-a-gpu)"
    match = re.search(r"'(?:gpu:)?(?:([\w.-]+):)?([0-9]+)'", complaint)
    if match is None:
        return ""
    model, count = match.groups()
    return f"--gpus {count}" + (f" --gpu-model {model}" if model and model != "gpu" else "")


def equivalent_command(verb: str, noun: str) -> str:
    """Return the command for a verb that ``queue``, ``node`` or ``gpu`` lacks; else empty."""
    if verb in ("list", "get"):
        return f"windlass {noun} ls"
    if noun == "gpu":
        return ""
    if verb in ("delete", "rm", "remove"):
        return f"windlass delete {noun} NAME"
    return f"windlass describe {noun} NAME" if verb in ("describe", "show") else ""


def slurm_directives(command: Sequence[str], directory: Path) -> tuple[str, list[str]]:
    """Return the script in a command that has ``#SBATCH`` lines, and their options.

    ``("", [])`` if there is none.
    """
    for argument in [argument for argument in command if not argument.startswith("-")][:2]:
        path = directory / argument
        try:
            with path.open("rb") as file:
                head = file.read(_HEAD_BYTES).decode("utf-8", "replace") if path.is_file() else ""
        except OSError:
            continue
        if head.startswith("#!") and (options := _DIRECTIVE.findall(head)):
            return argument, list(dict.fromkeys(options))
    return "", []


def duration_from_slurm(text: str) -> str:
    """Return a time limit of Slurm as a duration; empty if the text is not one.

    Slurm writes ``D-H``, ``D-H:M:S``, ``H:M:S``, ``M:S``, or minutes.
    """
    match = re.fullmatch(r"(?:([0-9]+)-)?([0-9]+)(?::([0-9]+))?(?::([0-9]+))?", text)
    if match is None:
        return ""
    days, *rest = match.groups()
    values = [int(part) for part in rest if part is not None]
    if days is not None:
        hours, minutes, seconds = (*values, 0, 0)[:3]
    elif len(values) == 3:
        hours, minutes, seconds = values
    else:
        hours, minutes, seconds = 0, *(*values, 0)[:2]
    sizes = ((int(days or 0), "d"), (hours, "h"), (minutes, "m"), (seconds, "s"))
    return "".join(f"{count}{unit}" for count, unit in sizes if count)
