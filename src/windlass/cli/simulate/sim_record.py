"""Input of ``windlass sim record``: history of a cluster, or of Slurm, as a trace."""

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
from windlass.cli.simulate.trace_files import read_table, trace_error
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


def start_of(invocation: Invocation, text: str) -> float:
    """Return the time ``30d`` or ``12h`` ago in Unix seconds; ``-inf`` for ``""``.

    Raises :class:`WindlassError`.
    """
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
            "WL-USE-400", f"--since {text} is in the future", remedies=("windlass sim record --since 30d",)
        )
    return invocation.clock.now() - seconds


def from_slurm(name: str, since: float) -> Recording:
    """Read the output of ``sacct``. Raises :class:`WindlassError`."""
    return read_table(name, lambda lines, file: sacct.record(lines, file, since), sacct.COMMAND)


def from_cluster(invocation: Invocation, since: float, unfinished: bool) -> Recording:
    """Read the history that a cluster still has.

    Raises :class:`WindlassError`, ``StatusError`` and ``Unreachable``.
    """
    client = invocation.client
    objects = [obj for _, obj in live_cluster.objects(client, invocation.warn)]
    now = invocation.clock.now()
    config_map = learned_config_map(client, embedded=not invocation.target.remote)
    run_times = SampledRunTimes(history_of(config_map, from_objects(objects).model))
    try:
        return kubernetes.record(
            objects,
            "cluster",
            since=since,
            now=now,
            expected=run_times.expected if unfinished else lambda _: None,
        )
    except TraceError as error:
        raise trace_error(error) from error


def learned_config_map(client: BlockingClient, embedded: bool) -> Mapping[str, Any] | None:
    """Return the ConfigMap in which the scheduler stores what it has learned.

    Raises ``StatusError`` and ``Unreachable``.
    """
    if embedded:
        return if_served(lambda: client.find(CONFIG_MAPS, NAME, OWN_NAMESPACE), None)
    return live_cluster.installed_config_map(client, NAME)


def history_of(config_map: Mapping[str, Any] | None, model: ClusterModel) -> History:
    """Return the stored run times; if there are none, those of ended pods in the model."""
    history = stored_history(config_map)
    if not history.version and not history.as_record().keys:
        learn(history, model)
    return history


def stored_history(config_map: Mapping[str, Any] | None) -> History:
    """Return the history in the ConfigMap; an empty one if there is none, or it is invalid."""
    text = ((config_map or {}).get("data") or {}).get(KEY)
    try:
        return History.of_record(msgspec.json.decode(text, type=HistoryRecord)) if text else History()
    except msgspec.MsgspecError:
        return History()


def as_csv(recording: Recording) -> str:
    return "".join(table.write(recording.jobs))


def document(recording: Recording) -> dict[str, Any]:
    """Return the recording for programs."""
    result: dict[str, Any] = {"jobs": [asdict(job) for job in recording.jobs]}
    if recording.jobs:
        result["firstSubmission"] = rfc3339(recording.first)
    counts = ("unfinished", "running", "waiting", "earlier")
    return {
        **result,
        **{name: getattr(recording, name) for name in counts},
        "neverRan": recording.never_ran,
        "madeAnew": recording.made_anew,
    }
