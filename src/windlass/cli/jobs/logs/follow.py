"""Following of a job from its submission to its end: phases, output, exit status.

One thread per stream feeds one queue. Only the main thread decides and prints. A log
stream belongs to one start of one container, so that restarts and retries are followed.
"""

from __future__ import annotations

import queue
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from windlass.api import annotations as names
from windlass.api.errors import StatusError, WindlassError
from windlass.api.reasons import Explanation
from windlass.api.resources import POD_GROUPS, PODS
from windlass.cli import errors
from windlass.cli.invocation import Invocation
from windlass.cli.jobs.creation_errors import note_creation_errors
from windlass.cli.jobs.job_index import find, refresh
from windlass.cli.jobs.jobs import Job, cause_of, end_message, pod_phase, rank_of, rank_text, task_of
from windlass.cli.jobs.logs.log_lines import LogView, Printer
from windlass.cli.jobs.logs.log_pieces import Piece
from windlass.cli.jobs.logs.log_stream import LogFeed
from windlass.cli.jobs.logs.watch import Changes, Watched
from windlass.cli.jobs.reasons import brief, exit_text, waiting_text
from windlass.cli.text import nodes_text
from windlass.cli.ungrouped_gangs import GANG

HEARTBEAT_TERMINAL_SECONDS = 10.0
HEARTBEAT_LOG_SECONDS = 60.0
_DRAIN_SECONDS = 5.0
_UNSCHEDULABLE_SECONDS = 3.0
_RESYNC_SECONDS = 5.0
_UNEXPLAINED_SECONDS = 0.7
_CUT_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class _Start:
    """One start of one container."""

    uid: str
    container: str
    restarts: int


@dataclass(frozen=True, slots=True)
class _Pieces:
    start: _Start
    pieces: list[Piece]


@dataclass(frozen=True, slots=True)
class _Ended:
    start: _Start
    problem: str = ""


class Phases:
    """Progress before and between the output, on standard error; in place on a terminal."""

    def __init__(self, invocation: Invocation, *, quiet: bool = False) -> None:
        self._invocation = invocation
        self._quiet = quiet
        self._shown = ""
        self._open = False
        self._at = 0.0
        self.before_text: Callable[[], None] = lambda: None
        """Called before text is shown, to end a line that the job's output left unfinished."""

    def show(self, text: str) -> None:
        """Show a phase.

        On a terminal it replaces the one before. Elsewhere it is printed if it is new.
        """
        now = self._invocation.clock.monotonic()
        err = self._invocation.err
        beat = HEARTBEAT_TERMINAL_SECONDS if err.interactive else HEARTBEAT_LOG_SECONDS
        if self._quiet or (text == self._shown and now - self._at < beat):
            return
        self.before_text()
        if err.interactive:
            err.write(f"\r\x1b[K{err.paint(text[: err.width - 1], 'dim')}")
            self._open = True
        else:
            err.line(text)
        self._shown, self._at = text, now

    def end_line(self, text: str = "") -> None:
        """End the line that is shown in place, and print ``text``."""
        if self._open:
            self._invocation.err.write("\r\x1b[K")
            self._open = False
        if text and not self._quiet:
            self.before_text()
            self._invocation.err.line(text)


class Follower:
    """Follows one job. :meth:`run` returns its exit status."""

    def __init__(
        self,
        invocation: Invocation,
        job: Job,
        options: LogView,
        *,
        phases: Phases,
        give_up: bool = False,
        silent: bool = False,
    ) -> None:
        self._invocation = invocation
        self._job = job
        self._options = options
        self._phases = phases
        self._give_up = give_up
        self._silent = silent
        self._printer = Printer(invocation.out, options, prefixed=_shows_ranks(job, options))
        phases.before_text = self._printer.break_line
        self._changes = Changes(invocation)
        self._streams: dict[_Start, str] = {}
        self._feeds: dict[_Start, LogFeed] = {}
        self._closed: dict[_Start, float] = {}  # output has ended, end of the container not yet seen
        self._open: set[_Start] = set()
        self._running_shown = job.finished
        self._unschedulable_since: float | None = None
        self._started_at = self._refreshed_at = invocation.clock.monotonic()

    @property
    def job(self) -> Job:
        """Job at its last refresh."""
        return self._job

    def run(self) -> int:
        """Follow until the job has ended and all its output is printed.

        Raises :class:`WindlassError`.

        With ``give_up``, a job that waiting cannot help raises ``WL-JOB-413`` after a
        few seconds.
        """
        with closing(self._changes):
            self._watch()
            return self._until_ended()

    def _until_ended(self) -> int:
        ended_at: float | None = None
        refresh = True
        while True:
            if refresh:
                self._refresh()
            now = self._invocation.clock.monotonic()
            if self._job.finished:
                ended_at = ended_at or now
                if not self._open or now - ended_at > _DRAIN_SECONDS:
                    self._printer.end()
                    self._phases.end_line()
                    return self._exit_status()
            refresh = self._process(ended_at)

    def _exit_status(self) -> int:
        code = self._job.exit_code or 0
        if self._options.as_json and not self._silent:
            ended = {"job": self._job.name, "namespace": self._job.namespace, "phase": self._job.phase}
            self._printer.record({**ended, "exitCode": code})
        return code

    def _watch(self) -> None:
        space, job = self._job.namespace, self._job
        if job.kind == GANG:
            self._changes.watch(Watched(PODS, space))
            return
        itself = Watched(job.resource, space, fields=f"metadata.name={job.name}")
        if job.definition is not None:
            group = job.definition.group(job.obj)
            self._changes.watch(
                itself,
                Watched(PODS, space, labels=job.definition.pods_of(job.obj)),
                Watched(POD_GROUPS, space, fields=f"metadata.name={group}"),
            )
        elif job.kind == "PodGroup":
            self._changes.watch(itself, Watched(PODS, space))
        else:
            self._changes.watch(itself)

    # Refresh of the job.

    def _refresh(self) -> None:
        job = refresh(self._invocation, self._job)
        self._refreshed_at = self._invocation.clock.monotonic()
        if job is None:
            self._phases.end_line()
            raise WindlassError(
                "WL-JOB-410",
                f'job "{self._job.name}" was deleted',
                evidence="the object no longer exists, so the job's exit status is unknown",
                remedies=("windlass ps",),
            )
        note_creation_errors(self._invocation, [job])
        self._job = job
        self._printer.prefixed = _shows_ranks(job, self._options)
        for pod in () if self._silent else job.pods:
            if is_selected(pod, self._options):
                self._open_streams(pod)
        self._show_phase()

    def _show_phase(self) -> None:
        job = self._job
        if job.finished:
            self._show_running()
            return
        if job.waiting:
            self._running_shown = False
            if job.explanation is None and not job.condition_message and self._just_started:
                return
            self._phases.show(f"{job.name}: queued in {job.queue}: {waiting_text(job)}")
            self._consider_giving_up(job.explanation)
            return
        self._unschedulable_since = None
        up = sum(1 for pod in job.pods if pod_phase(pod) != "Pending")
        if up < job.members:
            if not job.nodes:
                self._phases.show(f"{job.name}: {job.state.lower()}")
                return
            what = f"ranks {up}/{job.members}" if job.members > 1 else f"on {nodes_text(job.nodes)}"
            self._phases.show(f"{job.name}: starting {what}")
        else:
            self._show_running()

    def _show_running(self) -> None:
        """Print once where the job runs, also for a job that has already ended."""
        job = self._job
        started = [pod for pod in job.pods if pod_phase(pod) != "Pending"]
        nodes = job.nodes or Counter(
            node for pod in started if (node := (pod.get("spec") or {}).get("nodeName"))
        )
        if started and nodes and not self._running_shown:
            self._running_shown = True
            self._phases.end_line(f"{job.name}: running on {nodes_text(nodes)}")

    @property
    def _just_started(self) -> bool:
        """Return whether the scheduler may not have explained the job yet."""
        return self._refreshed_at - self._started_at < _UNEXPLAINED_SECONDS

    def _consider_giving_up(self, record: Explanation | None) -> None:
        if not self._give_up or record is None or record.waiting_helps != "no":
            self._unschedulable_since = None
            return
        now = self._invocation.clock.monotonic()
        if self._unschedulable_since is None:
            self._unschedulable_since = now
        if now - self._unschedulable_since >= _UNSCHEDULABLE_SECONDS:
            self._phases.end_line()
            raise unschedulable(self._job, record)

    # Streams.

    def _open_streams(self, pod: dict[str, Any]) -> None:
        for status in _container_statuses(pod, self._options):
            state = status.get("state") or {}
            if not state.get("running") and not state.get("terminated"):
                continue
            start = _Start(pod["metadata"]["uid"], status["name"], int(status.get("restartCount") or 0))
            if start in self._feeds and not self._was_cut(start, running=bool(state.get("running"))):
                continue
            self._streams[start] = rank_of(pod)
            name = pod["metadata"]["name"]
            feed = LogFeed(self._job.namespace, name, start.container, self._options)
            self._feeds.setdefault(start, feed)
            self._open.add(start)
            threading.Thread(target=self._read, args=(start, self._feeds[start]), daemon=True).start()

    def _was_cut(self, start: _Start, *, running: bool) -> bool:
        """Return whether the output ended clearly before the container did.

        This happens, for example, when the server ends.
        """
        closed_at = self._closed.get(start)
        if closed_at is None:
            return False
        cut_off = self._refreshed_at - closed_at > _CUT_SECONDS
        if cut_off or not running:
            del self._closed[start]
        return cut_off

    def _read(self, start: _Start, feed: LogFeed) -> None:
        """Read one container's output until it ends (in a thread)."""
        items = self._changes.items
        problem = ""
        try:
            for pieces in feed.pieces(self._invocation.new_client, self._invocation.clock):
                items.put(_Pieces(start, pieces))
        except StatusError as error:
            problem = errors.translate(error).message
        except WindlassError as error:
            problem = error.message
        items.put(_Ended(start, problem))

    def _process(self, finished_at: float | None) -> bool:
        """Handle queued items, or wait for one.

        Return whether the job must be refreshed.
        """
        items = self._changes.items
        clock = self._invocation.clock
        changed = False
        try:
            item = items.get(timeout=self._timeout(finished_at))
            while True:
                changed = self._handle(item) or changed
                self._flush_if_due()
                item = items.get_nowait()
        except queue.Empty:
            self._flush_if_due()
        return changed or clock.monotonic() - self._refreshed_at >= _RESYNC_SECONDS or self._needs_polling

    def _flush_if_due(self) -> None:
        self._printer.flush_due(self._invocation.clock.monotonic())

    @property
    def _needs_polling(self) -> bool:
        """Return whether the follower waits for something that no event announces."""
        return (
            self._unschedulable_since is not None
            or self._job.finished
            or self._just_started
            or bool(self._closed)
        )

    def _timeout(self, finished_at: float | None) -> float:
        longest = 0.5 if finished_at is not None else _RESYNC_SECONDS
        if self._unschedulable_since is not None or self._just_started or self._closed:
            longest = min(longest, 0.5)
        due = self._printer.due
        if due is not None:
            longest = min(longest, max(0.0, due - self._invocation.clock.monotonic()))
        return longest

    def _handle(self, item: Any) -> bool:
        """Handle one item. Return whether the job must be refreshed."""
        if isinstance(item, _Pieces):
            self._phases.end_line()
            now = self._invocation.clock.monotonic()
            self._printer.pieces(self._streams[item.start], item.pieces, now)
            return False
        if isinstance(item, _Ended):
            self._open.discard(item.start)
            if not item.problem:
                self._closed[item.start] = self._invocation.clock.monotonic()
            else:
                self._phases.end_line(f"{self._streams[item.start]}: log: {item.problem}")
        return True


def _shows_ranks(job: Job, options: LogView) -> bool:
    return options.rank is None and job.members > 1


def is_selected(pod: dict[str, Any], options: LogView) -> bool:
    """Return whether a pod is one of the selected ranks."""
    metadata = pod["metadata"]
    labels = {**(metadata.get("annotations") or {}), **(metadata.get("labels") or {})}
    if options.task is not None and task_of(pod) != options.task:
        return False
    if options.rank is None:
        return True
    return options.rank in (rank_of(pod), labels.get(names.TASK_INDEX), metadata["name"])


def _container_statuses(pod: dict[str, Any], options: LogView) -> list[dict[str, Any]]:
    statuses = (pod.get("status") or {}).get("containerStatuses") or []
    if options.container is not None:
        return [status for status in statuses if status["name"] == options.container]
    return statuses


def unschedulable(job: Job, record: Explanation) -> WindlassError:
    """Return the error for a job that cannot start unless something changes."""
    return WindlassError(
        "WL-JOB-413",
        f'job "{job.name}" cannot run as submitted: {record.message}',
        evidence=f"{record.code}: {record.facts.meaning} It stays queued.",
        remedies=(*record.remedies, f"windlass explain {job.name}", f"windlass cancel {job.name}"),
    )


def summary(job: Job) -> str:
    """Return one line about how the job ended."""
    if not job.exit_code:
        return (
            f"{job.name}: completed, {brief(job)}"
            if job.succeeded < job.members
            else f"{job.name}: completed"
        )
    failed = job.first_failure
    if failed is None:
        return f"{job.name}: {job.phase.lower()}, {exit_text(job.exit_code)}"
    first = f" ({rank_text(failed[0])} first)" if job.members > 1 else ""
    why = end_message(*failed)
    text = f"{job.name}: {job.phase.lower()}, {exit_text(failed[1], cause_of(*failed))}{first}"
    return f"{text}: {why}" if why else text


def wait_for_end(invocation: Invocation, name: str) -> int:
    """Wait for the end of a job without its output, and return its exit status.

    Raises ``WL-JOB-413`` if waiting does not help.
    """
    follower = Follower(
        invocation,
        find(invocation, name),
        LogView(),
        phases=Phases(invocation, quiet=not invocation.err.interactive),
        give_up=True,
        silent=True,
    )
    code = follower.run()
    if code:
        invocation.note(summary(follower.job))
    return code
