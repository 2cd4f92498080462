"""Connection of this program to one control plane, and the thread that follows its jobs."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windlass.api.annotations import SDK_SESSION
from windlass.api.errors import StatusError, WindlassError
from windlass.api.resources import CONFIG_MAPS, VOLCANO_JOBS
from windlass.cli.invocation import Invocation, InvocationContext, target
from windlass.kits import rng as chance

if TYPE_CHECKING:
    from windlass.cli.jobs.requests.job_builder import JobRequest
    from windlass.sdk.future import Future

log = logging.getLogger("windlass.sdk")
CALL_FOLDER = "/var/run/windlass/call"
"""Folder of the call in pods of a cluster."""
_RETRY_SECONDS = 0.5
_CHECKED_SECONDS = 5.0
"""Time in seconds for which a job like one that was created is not checked again."""
KEPT_SECONDS = 7 * 86_400.0
"""Age in seconds at which the files of a call are removed that no program has taken the result of."""


class SessionInvocation(Invocation):
    """Invocation without a terminal: words of the server become Python warnings and log messages."""

    def warn(self, text: str) -> None:
        if text not in self.warnings:
            self.warnings.append(text)
            warnings.warn(text, stacklevel=2)

    def note(self, text: str) -> None:
        log.info("%s", text)


@dataclass(frozen=True, slots=True)
class Target:
    """Control plane and namespace of jobs; the defaults are those of the command line."""

    namespace: str = ""
    kubeconfig: str | None = None
    context: str | None = None
    state: str | None = None


@dataclass(slots=True)
class Session:
    """One control plane. Its thread ends when no job of this program is open."""

    invocation: SessionInvocation
    id: str = field(default_factory=lambda: chance.name_suffix(chance.system(), 10))
    _open: dict[str, Future] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _creates: threading.Lock = field(default_factory=threading.Lock)
    """Held while a job is created: its client serves one thread at a time."""
    _thread: threading.Thread | None = None
    _checked: dict[str, float] = field(default_factory=dict)
    """Shape of a job → time of its last check, in seconds."""
    cleaned: bool = False
    """True once the files of old calls were removed."""

    @property
    def remote(self) -> bool:
        return self.invocation.target.remote

    @property
    def namespace(self) -> str:
        return self.invocation.home_namespace

    def submit(self, future: Future, request: JobRequest, parts: dict[str, bytes]) -> dict[str, Any]:
        """Create the job of a call and return it. Raises :class:`WindlassError` and :class:`StatusError`."""
        from windlass.cli.jobs.requests.job_flags import create_job

        call = _ClusterCall(self, request, parts) if self.remote else _LocalCall(self, request, parts)
        with self._creates, self.explained(), call.kept() as prepared:
            shape, now = _shape(request), self.invocation.clock.monotonic()
            before = self._checked.pop(shape, now - _CHECKED_SECONDS)
            checked = now - before < _CHECKED_SECONDS
            job = create_job(
                self.invocation,
                prepared,
                lambda text: log.info("%s", text),
                adjust=call.adjusted,
                checked=checked,
            )
            self._checked[shape] = before if checked else now
            call.created(job)
        with self._lock:
            self._open[job["metadata"]["uid"]] = future
            if self._thread is None:
                self._thread = threading.Thread(target=self._follow, name="windlass jobs", daemon=True)
                self._thread.start()
        return job

    def create(self, request: JobRequest) -> dict[str, Any]:
        """Create the job of a command and return it. Raises as :meth:`submit`."""
        from windlass.cli.jobs.requests.job_flags import create_job

        with self._creates, self.explained():
            return create_job(self.invocation, request, lambda text: log.info("%s", text))

    @contextlib.contextmanager
    def explained(self) -> Iterator[None]:
        """Add cause and remedies to an error as notes, which a traceback shows."""
        from windlass.cli.errors import translate

        try:
            yield
        except (StatusError, WindlassError) as problem:
            error = (
                translate(problem, self.invocation.client) if isinstance(problem, StatusError) else problem
            )
            fields = error.evidence if error.code.endswith("-422") else ""
            if fields:  # the message alone names no field
                error.args = (f"{error.message}: {fields}",)
            for note in (
                error.evidence and not fields and f"why: {error.evidence}",
                *(f"try: {one}" for one in error.remedies),
            ):
                if note:
                    error.add_note(note)
            raise error from None

    def started(self) -> None:
        """Start the control plane of this machine if it does not run."""
        from windlass.cli.bootstrap import is_ready, is_running, start

        state = self.invocation.target.state
        if not self.remote and not (is_running(state) and is_ready(state)):
            start(state, ["--implicit"], progress=lambda text: log.info("%s", text))

    def results(self, name: str) -> Path:
        """Return the folder of a job's outcomes on this machine."""
        return self.invocation.target.state.path / "calls" / self.namespace / name

    def forget(self, name: str) -> None:
        """Remove the files of a job after its outcome was read."""
        import shutil

        if not self.remote:
            shutil.rmtree(self.results(name), ignore_errors=True)

    def _follow(self) -> None:
        """Watch the jobs of this session until none is open."""
        while True:
            try:
                with contextlib.closing(self.invocation.new_client()) as client:
                    while self._watch_once(client):
                        pass
                    return
            except (StatusError, WindlassError) as problem:
                log.debug("the jobs cannot be followed: %s", problem)
                self.invocation.clock.pause(_RETRY_SECONDS)

    def _watch_once(self, client: Any) -> bool:
        """List the jobs and watch them; return whether some are open when the server ends the watch."""
        labels = f"{SDK_SESSION}={self.id}"
        found = client.list(VOLCANO_JOBS, self.namespace, labels=labels)
        present = {job["metadata"]["uid"] for job in found.items}
        for uid in [uid for uid in list(self._open) if uid not in present]:
            self._ended(uid, None)
        for job in found.items:
            self._changed("ADDED", job)
        if self._idle():
            return False
        for kind, job in client.watch(
            VOLCANO_JOBS, self.namespace, labels=labels, resource_version=found.resource_version
        ):
            self._changed(kind, job)
            if self._idle():
                return False
        return True

    def _idle(self) -> bool:
        with self._lock:
            if self._open:
                return False
            self._thread = None
            return True

    def _changed(self, kind: str, job: dict[str, Any]) -> None:
        from windlass.cli.jobs.jobs import FINISHED

        if kind == "DELETED":
            self._ended(job["metadata"]["uid"], None)
        elif ((job.get("status") or {}).get("state") or {}).get("phase") in FINISHED:
            self._ended(job["metadata"]["uid"], job)

    def _ended(self, uid: str, job: dict[str, Any] | None) -> None:
        with self._lock:
            future = self._open.pop(uid, None)
        if future is not None:
            future.settle(job)


@dataclass(slots=True)
class _LocalCall:
    """Call with its files in the state directory, as the ranks run on this machine."""

    session: Session
    request: JobRequest
    parts: dict[str, bytes]

    @contextlib.contextmanager
    def kept(self) -> Any:
        from dataclasses import replace

        folder = self.session.results(self.request.name)
        if not self.session.cleaned:
            self.session.cleaned = True
            remove_old(folder.parent, self.session.invocation.clock.now() - KEPT_SECONDS)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name, data in self.parts.items():
            path = folder / name
            path.write_bytes(data)
            path.chmod(0o600)
        command = (sys.executable, "-u", str(folder / "remote_call.py"), str(folder), str(folder))
        try:
            yield replace(self.request, command=command)
        except BaseException:
            self.session.forget(self.request.name)
            raise

    def adjusted(self, job: dict[str, Any]) -> dict[str, Any]:
        return _labelled(job, self.session)

    def created(self, job: dict[str, Any]) -> None:
        """Nothing is left to do: the folder is there."""


@dataclass(slots=True)
class _ClusterCall:
    """Call with its files in a ConfigMap, which is deleted with the job."""

    session: Session
    request: JobRequest
    parts: dict[str, bytes]

    @contextlib.contextmanager
    def kept(self) -> Any:
        from dataclasses import replace

        from windlass.sdk import payload

        client, name = self.session.invocation.client, self.request.name
        client.create(CONFIG_MAPS, payload.config_map(name, self.session.namespace, self.parts))
        command = ("python3", "-u", f"{CALL_FOLDER}/remote_call.py", CALL_FOLDER)
        try:
            yield replace(self.request, command=command)
        except BaseException:
            with contextlib.suppress(StatusError, WindlassError):
                client.delete(CONFIG_MAPS, name, self.session.namespace)
            raise

    def adjusted(self, job: dict[str, Any]) -> dict[str, Any]:
        for task in job["spec"]["tasks"]:
            pod = task["template"]["spec"]
            pod["volumes"] = [{"name": "call", "configMap": {"name": self.request.name}}]
            pod["containers"][0]["volumeMounts"] = [
                {"name": "call", "mountPath": CALL_FOLDER, "readOnly": True}
            ]
        return _labelled(job, self.session)

    def created(self, job: dict[str, Any]) -> None:
        metadata = job["metadata"]
        owner = {
            "apiVersion": VOLCANO_JOBS.api_version,
            "kind": VOLCANO_JOBS.kind,
            "name": metadata["name"],
            "uid": metadata["uid"],
        }
        self.session.invocation.client.patch(
            CONFIG_MAPS, self.request.name, {"metadata": {"ownerReferences": [owner]}}, metadata["namespace"]
        )


def _shape(request: JobRequest) -> str:
    """Return a text that is equal for jobs that differ in name and command only."""
    from dataclasses import replace

    return repr(replace(request, name="", command=()))


def remove_old(folder: Path, before: float) -> None:
    """Remove the folders of programs that ended before their jobs; not those with a file ``keep``."""
    import shutil

    for call in folder.iterdir() if folder.is_dir() else ():
        with contextlib.suppress(OSError):
            if (call / "keep").exists():
                continue
            if max(path.stat().st_mtime for path in (call, *call.iterdir())) < before:
                shutil.rmtree(call)


def _labelled(job: dict[str, Any], session: Session) -> dict[str, Any]:
    job["metadata"].setdefault("labels", {})[SDK_SESSION] = session.id
    return job


_sessions: dict[tuple[int, Target], Session] = {}
_sessions_lock = threading.Lock()


def session_of(where: Target, connect: Callable[..., Any] | None = None) -> Session:
    """Return the session of this process for a target. ``connect``: other way to the server, for tests."""
    key = (os.getpid(), where)  # a forked process has no threads of its parent
    with _sessions_lock:
        if key not in _sessions:
            context = InvocationContext(connect) if connect is not None else InvocationContext()
            server = target(where.state, where.kubeconfig, where.context)
            _sessions[key] = Session(SessionInvocation(context, server, where.namespace))
        return _sessions[key]
