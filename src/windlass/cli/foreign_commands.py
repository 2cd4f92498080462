"""What users of Slurm, PBS and kubectl type out of habit, and what it is here."""

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
    "hold": "windlass apply -f FILE, a Command with action AbortJob",
    "suspend": "windlass apply -f FILE, a Command with action AbortJob",
    "release": "windlass apply -f FILE, a Command with action ResumeJob",
    "resume": "windlass apply -f FILE, a Command with action ResumeJob",
    "requeue": "windlass apply -f FILE, a Command with action RestartJob",
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
    "attach": "windlass logs JOB -f",
    "sattach": "windlass logs JOB -f",
    "tail": "windlass logs JOB -f",
    "notebook": _NOTEBOOK,
    "jupyter": _NOTEBOOK,
    "port-forward": "windlass run --host-network -- COMMAND   (its ports are those of its node)",
    "events": "windlass describe KIND NAME",
    "wait": "windlass logs JOB -f   (to its end; or windlass submit --wait)",
    "info": "windlass status",
    "start": "windlass up",
    "scale": "windlass submit --nodes N -- COMMAND",
}
"""Command → the nearest one here."""
_ARRAY = "windlass apply -f FILE, a Job with so many replicas, or a loop of windlass submit -e TASK=$i …"
_WHOLE_NODES = "--gpus, as many as a node has: cards are never shared unless asked for"
_NODES = "windlass apply -f FILE, with nodeSelector or nodeAffinity"
_DETACHED = "windlass submit, which waits for nothing; windlass logs JOB -f follows it"
_FILES = "none needed on a box, where jobs see its files; on a cluster windlass apply -f FILE, with volumes"
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
    "-d": "windlass submit, which waits for nothing   (to go after another: windlass submit --wait … && …)",
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
    "--gpu-bind": "none needed: each rank sees its own cards",
    "--gpus-per-node": "--gpus",
    "--gpus-per-task": "--gpus",
    "--gres": "--gpus",
    "-G": "--gpus",
    "--hold": "windlass submit, when it is to run",
    "-H": "windlass submit, when it is to run",
    "--job-name": "--name",
    "-J": "--name",
    "--kill-on-bad-exit": "none needed: a rank that fails ends the others",
    "-K": "none needed: a rank that fails ends the others",
    "--label": "none needed: lines of several ranks begin with [RANK]",
    "-l": "none needed: lines of several ranks begin with [RANK]",
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
    "--parsable": "none needed: the name alone is printed",
    "--partition": "--queue",
    "-p": "--queue",
    "--pty": "none: a job has no standard input",
    "--qos": "--priority",
    "--requeue": "none needed: who is evicted runs again",
    "--signal": "none: SIGTERM comes when --time is over, SIGKILL 30 s later",
    "--switches": "--near",
    "--test-only": "windlass submit …; windlass explain JOB",
    "--time-min": "--time",
    "-W": "windlass submit --wait",
    "--wrap": "windlass submit -- sh -c 'COMMANDS'",
    "--interactive": "none: a job has no standard input",
    "-i": "none: a job has no standard input",
    "--tty": "none: a job has no standard input",
    "--rm": "none needed: windlass delete JOB takes it away",
    "--volume": _FILES,
    "-v": _FILES,
    "--mount": _FILES,
}
"""Option of sbatch, srun, docker run and sky → what to give ``run`` and ``submit`` instead."""
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
"""What who comes from vcctl or Kueue gives ``queue create`` and ``queue set`` as an option → the setting."""
_DIRECTIVE = re.compile(r"#SBATCH\s+(--?[A-Za-z][A-Za-z-]*)")
_HEAD_BYTES = 16384


def option_here(name: str, path: str) -> str:
    """What to type instead of an option that a command (``windlass submit``, ``windlass queue create``) does not have:
    of Slurm's, and of a setting of queues, which is written without dashes; empty if nothing is known."""
    if path.endswith((" queue create", " queue set")):
        return _QUEUE_OPTIONS.get(name, "")
    return OPTIONS.get(name, "") if path.split()[-1] in ("run", "submit") else ""


def devices_here(complaint: str) -> str:
    """What to type instead of a number of cards as ``--gres`` and ``--gpus`` of Slurm have it (``a100:2``, ``gpu:2``,
    ``gpu:a100:2``), or as docker has it (``all``), of what is said of it; empty if it is none."""
    if "'all'" in complaint:
        return "--gpus N, as many as windlass node ls shows of a node"
    found = re.search(r"'(?:gpu:)?(?:([\w.-]+):)?(\d+)'", complaint)
    if found is None:
        return ""
    model, count = found.groups()
    return f"--gpus {count}" + (f" --gpu-model {model}" if model and model != "gpu" else "")


def verb_elsewhere(verb: str, noun: str) -> str:
    """The command for what somebody wants of a ``queue``, ``node`` or ``gpu`` and that is no command of these; empty if
    there is none."""
    if verb in ("list", "get"):
        return f"windlass {noun} ls"
    if noun == "gpu":
        return ""
    if verb in ("delete", "rm", "remove"):
        return f"windlass delete {noun} NAME"
    return f"windlass describe {noun} NAME" if verb in ("describe", "show") else ""


def directives(command: Sequence[str], folder: Path) -> tuple[str, list[str]]:
    """The script among the words of a command that has ``#SBATCH`` lines, and their options; ``("", [])`` if none."""
    for word in [word for word in command if not word.startswith("-")][:2]:
        path = folder / word
        try:
            with path.open("rb") as file:
                head = file.read(_HEAD_BYTES).decode("utf-8", "replace") if path.is_file() else ""
        except OSError:
            continue
        if head.startswith("#!") and (found := _DIRECTIVE.findall(head)):
            return word, list(dict.fromkeys(found))
    return "", []


def slurm_time(text: str) -> str:
    """A time limit of Slurm's (``D-H``, ``D-H:M:S``, ``H:M:S``, ``M:S``, minutes) as a duration; empty if it is
    none."""
    found = re.fullmatch(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", text)
    if found is None:
        return ""
    days, *rest = found.groups()
    given = [int(part) for part in rest if part is not None]
    if days is not None:
        hours, minutes, seconds = (*given, 0, 0)[:3]
    elif len(given) == 3:
        hours, minutes, seconds = given
    else:
        hours, minutes, seconds = 0, *(*given, 0)[:2]
    sizes = ((int(days or 0), "d"), (hours, "h"), (minutes, "m"), (seconds, "s"))
    return "".join(f"{count}{unit}" for count, unit in sizes if count)
