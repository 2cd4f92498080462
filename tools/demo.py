"""`make demo`: the main job, from an empty directory to a trained model, in a dozen lines.

Everything is in ``.demo`` next to this checkout and is removed afterwards. Every step
is a command that a user could type. ``--keep`` leaves the control plane running.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
STATE = ROOT / ".demo"
EXAMPLES = ROOT / "examples"
WINDLASS = str(Path(sys.executable).parent / "windlass")
GANG, SECOND = "digits", "waiting-gang"


class DemoFailed(Exception):
    """A step did not do what it should; the text says which."""


def say(text: str) -> None:
    print(f"\033[1m▸\033[0m {text}" if sys.stdout.isatty() else f"> {text}", flush=True)


def windlass(*arguments: str, stdin: str | None = None, check: bool = True) -> str:
    """Run a command; its standard output. Raises :class:`DemoFailed` with what it wrote on failure."""
    done = subprocess.run(
        [WINDLASS, *arguments], input=stdin, capture_output=True, text=True, env=environment(), check=False
    )
    if check and done.returncode != 0:
        raise DemoFailed(
            f"windlass {' '.join(arguments)} ended with {done.returncode}\n{done.stdout}{done.stderr}"
        )
    return done.stdout


def environment() -> dict[str, str]:
    path = f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}"
    return {**os.environ, "PATH": path, "WINDLASS_STATE": str(STATE), "NO_COLOR": "1"}


def gpus_held(job: str) -> int:
    pods = json.loads(windlass("get", "pods", "-l", f"volcano.sh/job-name={job}", "-o", "json"))["items"]
    return sum(bool(pod["spec"].get("nodeName")) for pod in pods)


def wait_until(what: str, condition, seconds: float = 40.0):
    """Poll until ``condition()`` is truthy and return it. Raises :class:`DemoFailed`."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if result := condition():
            return result
        time.sleep(0.1)
    raise DemoFailed(f"not within {seconds:.0f} s: {what}")


def phase(job: str) -> str:
    record = json.loads(windlass("get", f"vcjob/{job}", "-o", "json"))
    return record.get("status", {}).get("state", {}).get("phase", "")


def completed(job: str) -> bool:
    """Return whether the job ran to its end. Raises :class:`DemoFailed` with its log when it ended otherwise."""
    now = phase(job)
    if now in ("Failed", "Aborted", "Terminated"):
        raise DemoFailed(f"{job} is {now}; its log:\n{windlass('logs', job, '--all', check=False)}")
    return now == "Completed"


def tell() -> None:
    windlass("up", "--state", str(STATE), "--gpus", "simulated:4", "--detach")
    say("one box with 4 simulated GPUs is up: API server, scheduler, controllers, node agent")
    pack = subprocess.run(
        [sys.executable, str(EXAMPLES / "01-distributed-digits/pack.py")],
        capture_output=True,
        text=True,
        check=True,
    )
    windlass("apply", "-f", "-", stdin=pack.stdout)
    windlass("apply", "-f", str(EXAMPLES / "01-distributed-digits/job.yaml"))
    say("submitted the main job, a Volcano Job: 4 ranks, minAvailable 4, one GPU each")
    wait_until("all four ranks have a GPU", lambda: gpus_held(GANG) == 4)
    windlass("apply", "-f", str(EXAMPLES / "02-waiting-gang/job.yaml"))
    say("submitted a second gang of 3 GPUs, which does not fit in addition; its position and reason:")
    waiting = wait_until("the second gang has its reason", lambda: waiting_line())
    print(f"    {waiting}", flush=True)
    for line in windlass("explain", SECOND).splitlines():
        if line.lstrip().startswith(("why:", "will it run:")):
            print(f"    {' '.join(line.split())}", flush=True)
    if held := gpus_held(SECOND):
        raise DemoFailed(f"the waiting gang holds {held} GPUs")
    say("meanwhile it holds no GPU. The main job's own words:")
    follow(GANG)
    wait_until("the main job is completed", lambda: completed(GANG))
    wait_until("the second gang ran", lambda: completed(SECOND))
    say("the second gang got its GPUs when the first ended:")
    print(f"    {windlass('logs', SECOND, '--all').splitlines()[0]}", flush=True)


def waiting_line() -> str:
    rows = windlass("ps").splitlines()
    row = next((line for line in rows if SECOND in line), "")
    return row if re.search(r"[Ww]ait|[Ii]nsufficient|#\d|GPU", row.removeprefix(SECOND)) else ""


def follow(job: str) -> None:
    """Print the relevant lines of the job's log: the ranks, then the result."""
    shown = ("rank 0 of", "rank 1 of", "rank 2 of", "rank 3 of", "rank 0: parameters", "test accuracy")
    with subprocess.Popen(
        [WINDLASS, "logs", job, "-f", "--all"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=environment(),
    ) as reader:
        accuracy = False
        for line in reader.stdout or ():
            accuracy |= "test accuracy" in line
            if any(word in line for word in shown):
                print(f"    {line.rstrip()}", flush=True)
    if reader.returncode != 0 or not accuracy:
        raise DemoFailed(f"the main job ended with {reader.returncode}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keep", action="store_true", help="leave the control plane running")
    options = parser.parse_args()
    began = time.monotonic()
    windlass("down", "--state", str(STATE), check=False)
    shutil.rmtree(STATE, ignore_errors=True)
    STATE.mkdir(mode=0o700)
    failed = False
    try:
        tell()
    except DemoFailed as error:
        print(f"demo failed: {error}", file=sys.stderr)
        failed = True
    finally:
        if options.keep:
            say(f"left running: export WINDLASS_STATE={STATE}; stop it with: windlass down --purge")
        else:
            windlass("down", "--state", str(STATE), check=False)
            if not failed:
                shutil.rmtree(STATE, ignore_errors=True)
    if not failed:
        say(f"stopped everything, nothing left running; {time.monotonic() - began:.0f} s in all")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
