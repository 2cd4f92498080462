"""What ``windlass sim record`` reads: a cluster's history, or Slurm's, → a trace as text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from math import inf
from typing import Any

import msgspec

from windlass.api.errors import WindlassError
from windlass.api.resources import CONFIG_MAPS
from windlass.cli.errors import if_served
from windlass.cli.invocation import Invocation
from windlass.cli.simulate import live_cluster
from windlass.cli.simulate.trace_files import read_table, wrong_trace
from windlass.client.blocking import BlockingClient
from windlass.kits import durations
from windlass.kits.timestamps import rfc3339
from windlass.model.cluster.cluster_model import ClusterModel
from windlass.model.cluster.snapshot import from_objects
from windlass.predict.history import History, HistoryRecord
from windlass.scheduler.estimates.run_times import KEY, NAME
from windlass.scheduler.options import OWN_NAMESPACE
from windlass.sim.traces import kubernetes, sacct, table
from windlass.sim.traces.recording import Recording
from windlass.sim.traces.rows import TraceError
from windlass.sim.whatif.run_times import SampledRunTimes, learn


def since_of(invocation: Invocation, text: str) -> float:
    """Unix seconds of ``30d`` or ``12h`` ago; all of the past for ``""``. Raises :class:`WindlassError`."""
    if not text:
        return -inf
    try:
        seconds = durations.parse_long(text)
    except ValueError as error:
        raise WindlassError(
            "WL-USE-400", f"--since {text}: {error}", remedies=("windlass sim record --since 30d",)
        ) from None
    if seconds < 0:
        raise WindlassError(
            "WL-USE-400", f"--since {text}: that is to come", remedies=("windlass sim record --since 30d",)
        )
    return invocation.clock.now() - seconds


def of_slurm(name: str, since: float) -> Recording:
    """From what ``sacct`` printed. Raises :class:`WindlassError`."""
    return read_table(name, lambda lines, file: sacct.record(lines, file, since), sacct.COMMAND)


def of_cluster(invocation: Invocation, since: float, unfinished: bool) -> Recording:
    """From what a cluster still knows. Raises :class:`WindlassError`, ``StatusError``, ``Unreachable``."""
    client = invocation.client
    objects = [obj for _, obj in live_cluster.objects(client, invocation.warn)]
    now = invocation.clock.now()
    kept = kept_of(client, embedded=not invocation.target.remote)
    run_times = SampledRunTimes(history_of(kept, from_objects(objects).model))
    try:
        return kubernetes.record(
            objects,
            "cluster",
            since=since,
            now=now,
            expected=run_times.expected if unfinished else lambda _: None,
        )
    except TraceError as error:
        raise wrong_trace(error) from error


def kept_of(client: BlockingClient, embedded: bool) -> Mapping[str, Any] | None:
    """The ConfigMap in which the scheduler keeps what it has learned, in its own namespace. Raises ``StatusError``,
    ``Unreachable``."""
    if embedded:
        return if_served(lambda: client.find(CONFIG_MAPS, NAME, OWN_NAMESPACE), None)
    return live_cluster.own_config_map(client, NAME)


def history_of(config_map: Mapping[str, Any] | None, model: ClusterModel) -> History:
    """What the scheduler keeps of earlier runs where it learns; else what has ended among the pods that are there."""
    history = kept_history(config_map)
    if not history.version and not history.as_record().keys:
        learn(history, model)
    return history


def kept_history(config_map: Mapping[str, Any] | None) -> History:
    """Of the ConfigMap in which the scheduler keeps it; an empty one where there is none, or nothing in it that can
    be read."""
    text = ((config_map or {}).get("data") or {}).get(KEY)
    try:
        return History.of_record(msgspec.json.decode(text, type=HistoryRecord)) if text else History()
    except msgspec.MsgspecError:
        return History()


def as_csv(recording: Recording) -> str:
    return "".join(table.write(recording.jobs))


def document(recording: Recording) -> dict[str, Any]:
    """For programs."""
    found: dict[str, Any] = {"jobs": [asdict(job) for job in recording.jobs]}
    if recording.jobs:
        found["firstSubmission"] = rfc3339(recording.first)
    counts = ("unfinished", "running", "waiting", "earlier")
    return {
        **found,
        **{name: getattr(recording, name) for name in counts},
        "neverRan": recording.never_ran,
        "madeAnew": recording.made_anew,
    }
