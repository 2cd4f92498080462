"""Command line of ``python -m windlass.app``.

The ``windlass`` command uses it to start its processes, and the supervisor to start its
children. Users run the ``windlass`` command.
"""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from windlass.api.errors import WindlassError
from windlass.app.settings import REFUSED, Setting, Values, defaults, read
from windlass.kits.state import StateFolder
from windlass.node.images import encode, load
from windlass.node.options import ImageEntry

if TYPE_CHECKING:
    from windlass.model.cluster.ownership import OtherScheduler

DEFAULT_PORT = 7443


@dataclass(frozen=True, slots=True)
class UpOptions:
    """Options of ``up``; ``port`` and ``gpus`` are ``None`` if the user left the choice
    to Windlass."""

    state: StateFolder
    port: int | None = None
    gpus: str | None = None
    node_name: str | None = None
    images: Mapping[str, ImageEntry] | None = None
    """Image map of this machine, as read from the user's file."""
    kubelet: tuple[str, ...] = ()
    """Flags of the kubelet for the node agent."""
    allow_network: bool = False
    implicit: bool = False
    """True if a job started it because nothing was running; the options of the last
    ``up`` apply."""
    report: int | None = None
    """File descriptor for progress as JSON lines; ``None``: text on standard output."""

    def asked(self) -> dict[str, object]:
        """Return the user's choices, as recorded and as compared by a second ``up``."""
        images = encode(self.images) if self.images is not None else None
        chosen: dict[str, object] = {
            "port": self.port,
            "gpus": self.gpus,
            "nodeName": self.node_name,
            "images": images,
        }
        chosen["kubelet"] = list(self.kubelet) or None
        chosen["allowNetwork"] = self.allow_network or None
        return {key: value for key, value in chosen.items() if value is not None}


@dataclass(frozen=True, slots=True)
class ChildOptions:
    """Options that the supervisor passes to one of the three processes."""

    role: str
    state: StateFolder
    parent: int
    tcp: int = -1
    unix: int = -1
    gpus: str = "auto"
    node_name: str = ""


@dataclass(frozen=True, slots=True)
class SettingsSource:
    """Settings file as read at the start, and the values of flags."""

    path: str
    text: str
    flags: Values


@dataclass(frozen=True, slots=True)
class RemoteOptions:
    """Options of the scheduler or the controllers as separate processes, against any API server."""

    role: str
    kubeconfig: Path | None
    context: str | None
    scheduler_names: tuple[str, ...]
    config: Path | None
    metrics: str
    leader_elect: bool
    metrics_details: tuple[str, ...] = ()
    metrics_names: tuple[str, ...] = ()
    own_namespace: str = "kube-system"
    log_format: str = "text"
    log_level: str = "info"
    errors_as_json: bool = False
    beside: tuple[OtherScheduler, ...] = ()
    wait_for_group: tuple[str, ...] = ("volcano",)
    bind_guard: str = ""
    bind_guard_secret: str = ""
    own_pod: str = ""
    otlp_endpoint: str = ""
    settings: SettingsSource | None = None
    """Settings file that is followed; ``None`` without one."""
    values: Values = field(default_factory=defaults)
    """Values of :data:`windlass.app.settings.FIELDS`: flags, otherwise the file,
    otherwise defaults."""


def check_gpus(text: str) -> None:
    """Check the value of ``--gpus``.

    :raises WindlassError: the value is not ``auto``, ``none`` or ``simulated:…``
    """
    if text.removesuffix("+mps") in ("auto", "auto:dynamic", "auto:mixed", "auto:single") or text == "none":
        return
    kind, colon, _ = text.partition(":")
    why = "it takes auto, auto+mps, none, or simulated:N (also simulated:8xH100-80GB, simulated:2xA100-40GB+mig,1xT4)"
    if kind == "simulated" and colon:
        from windlass.node.devices.simulated import SimulationError, simulated_devices

        try:
            simulated_devices(text)
            return
        except SimulationError as error:
            why = str(error)
    raise WindlassError(
        "WL-USE-400",
        f"--gpus {text!r} is not understood",
        evidence=why,
        remedies=("windlass up --gpus simulated:2", "windlass up --gpus simulated:4xA100-80GB"),
    )


def check_node_name(name: str) -> None:
    """Check a name for a node, also as host name label.

    :raises WindlassError: the name is invalid
    """
    from windlass.api.validation.names import LABEL_MAX, dns_subdomain

    if len(name) <= LABEL_MAX and not dns_subdomain(name):
        return
    better = re.sub(r"[^a-z0-9.-]+", "-", name.lower()).strip("-.")[:63].rstrip("-.")
    raise WindlassError(
        "WL-USE-400",
        f"--node-name {name!r} cannot be the name of a node",
        evidence="it takes up to 63 small letters, digits, '-' and '.', beginning and ending with a letter or digit",
        remedies=(f"windlass up --node-name {better}",) if better else (),
    )


def _boolean(text: str) -> bool:
    lowered = text.lower()
    if lowered not in ("true", "false", "1", "0", "yes", "no"):
        raise argparse.ArgumentTypeError(f"{text!r} is neither true nor false")
    return lowered in ("true", "1", "yes")


def check_kubelet(words: Sequence[str]) -> None:
    """Check flags of the kubelet, and that this machine has what they reserve.

    :raises WindlassError: a flag is invalid
    """
    if not words:
        return
    from windlass.node import kubelet_flags, machine

    flags, _ = kubelet_flags.parse(words)
    kubelet_flags.check_machine(flags, sorted(os.sched_getaffinity(0)), machine.usable_memory())


class _Parser(argparse.ArgumentParser):
    """Parser that reports errors in the common form of all commands."""

    def parse_known_args(  # type: ignore[override]: overloads there, one form here
        self, args: Any = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        parsed, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"not understood: {' '.join(unknown)}")
        return parsed, unknown

    def error(self, message: str) -> NoReturn:
        raise WindlassError(
            "WL-USE-400",
            message,
            evidence=" ".join(self.format_usage().split()),
            remedies=(f"{self.prog} --help",),
        )


def parser() -> argparse.ArgumentParser:
    """Return the parser of the processes' command line. Parsing raises :class:`WindlassError`."""
    top = _Parser(prog="python -m windlass.app", allow_abbrev=False)
    roles = top.add_subparsers(dest="role", required=True)

    up = roles.add_parser("up", allow_abbrev=False)
    up.add_argument("--state", required=True)
    up.add_argument("--port", type=int)
    up.add_argument("--gpus")
    up.add_argument("--node-name")
    up.add_argument("--images", type=Path)
    up.add_argument("--kubelet-flag", action="append", default=[])
    up.add_argument("--allow-network-filesystem", action="store_true")
    up.add_argument("--implicit", action="store_true")
    up.add_argument("--report-fd", type=int)

    for role in ("server", "control", "node"):
        child = roles.add_parser(role, allow_abbrev=False)
        child.add_argument("--state", required=True)
        child.add_argument("--parent", type=int, required=True)
        child.add_argument("--tcp-fd", type=int, default=-1)
        child.add_argument("--unix-fd", type=int, default=-1)
        child.add_argument("--gpus", default="auto")
        child.add_argument("--node-name", default="")

    for role in ("scheduler", "controller"):
        remote = roles.add_parser(role, allow_abbrev=False, prog=f"windlass {role}")
        _remote_arguments(remote, role)
    return top


def _remote_arguments(remote: argparse.ArgumentParser, role: str) -> None:
    """Add the arguments of scheduler and controllers."""
    remote.add_argument("-o", "--output", choices=("json",), help="tell errors as JSON")
    remote.add_argument(
        "--kubeconfig", metavar="FILE", help="file with the address and the credentials of the API server"
    )
    remote.add_argument("--context", help="context of the kubeconfig")
    remote.add_argument(
        "--leader-elect",
        type=_boolean,
        metavar="BOOL",
        help="of several instances only the holder of a lease works (default: false)",
    )
    remote.add_argument(
        "--own-namespace",
        metavar="NAME",
        help="where the lease and what is learned are kept (default: kube-system)",
    )
    remote.add_argument("--metrics-bind", metavar="ADDR", help="HOST:PORT for /metrics, /healthz and /readyz")
    remote.add_argument("--log-format", choices=("text", "json"), help="of the log (default: text)")
    remote.add_argument(
        "--otlp-endpoint",
        metavar="URL",
        help="send traces to this OTLP/HTTP collector (default: OTEL_EXPORTER_OTLP_ENDPOINT)",
    )
    remote.add_argument(
        "--log-level",
        choices=("debug", "info", "warning", "error"),
        help="what is logged (default: info)",
    )
    remote.add_argument(
        "--settings",
        metavar="FILE",
        help="file with settings (docs/reference/settings.md); followed while running",
    )
    remote.add_argument(
        "--beside",
        action="append",
        default=[],
        metavar="SCHEDULER",
        help="volcano or kai still runs; change only what it has handed over (windlass install --adopt)",
    )
    if role == "scheduler":
        _scheduler_arguments(remote)


def _scheduler_arguments(remote: argparse.ArgumentParser) -> None:
    """Add the arguments of the scheduler."""
    remote.add_argument(
        "--scheduler-name",
        action="append",
        default=[],
        metavar="NAME",
        help="schedule pods that name it; may be repeated (default: windlass)",
    )
    remote.add_argument(
        "--wait-for-group",
        action="append",
        default=[],
        metavar="NAME",
        help="pods that name this scheduler wait until their PodGroup exists (default: volcano)",
    )
    remote.add_argument(
        "--with-controllers",
        type=_boolean,
        metavar="BOOL",
        help="do the work of `windlass controller` in this process, too (default: false)",
    )
    remote.add_argument(
        "--compat-metrics",
        action="append",
        default=[],
        choices=("kueue", "yunikorn"),
        help="export metrics under the names of this scheduler, too; may be repeated (default: none)",
    )
    remote.add_argument(
        "--config",
        metavar="FILE",
        help="scheduler configuration in Volcano's format; followed while running",
    )
    remote.add_argument(
        "--bind-guard",
        default="",
        metavar="ADDR",
        help="HOST:PORT of the webhook that checks bindings of other schedulers (HTTPS)",
    )
    remote.add_argument(
        "--bind-guard-secret",
        default="",
        metavar="FOLDER",
        help="tls.crt, tls.key and token of the bind guard",
    )
    remote.add_argument(
        "--own-pod",
        default="",
        metavar="NAME",
        help="this pod: labelled windlass.dev/leader while it leads",
    )


def up_options(parsed: argparse.Namespace) -> UpOptions:
    if parsed.gpus is not None:
        check_gpus(parsed.gpus)
    if parsed.node_name is not None:
        check_node_name(parsed.node_name)
    check_kubelet(parsed.kubelet_flag)
    return UpOptions(
        state=StateFolder(parsed.state),
        port=parsed.port,
        gpus=parsed.gpus,
        node_name=parsed.node_name,
        images=load(parsed.images) if parsed.images is not None else None,
        kubelet=tuple(parsed.kubelet_flag),
        allow_network=parsed.allow_network_filesystem,
        implicit=parsed.implicit,
        report=parsed.report_fd,
    )


def child_options(parsed: argparse.Namespace) -> ChildOptions:
    return ChildOptions(
        role=parsed.role,
        state=StateFolder(parsed.state),
        parent=parsed.parent,
        tcp=parsed.tcp_fd,
        unix=parsed.unix_fd,
        gpus=parsed.gpus,
        node_name=parsed.node_name,
    )


def remote_options(parsed: argparse.Namespace) -> RemoteOptions:
    from windlass.scheduler.configuration import read_text

    flags = _flags(parsed)
    source, file_values = None, {}
    if parsed.settings:
        text = read_text(parsed.settings)
        source, file_values = SettingsSource(parsed.settings, text, flags), read(text, parsed.settings)
    values = {**defaults(), **file_values, **flags}
    return RemoteOptions(
        role=parsed.role,
        kubeconfig=Path(parsed.kubeconfig) if parsed.kubeconfig else None,
        context=parsed.context,
        scheduler_names=values["scheduler.names"],  # type: ignore[arg-type]
        config=Path(str(values["scheduler.configuration"])) if values["scheduler.configuration"] else None,
        metrics=str(values["metrics.bind"]),
        metrics_details=values["metrics.details"],  # type: ignore[arg-type]
        metrics_names=values["metrics.compat"],  # type: ignore[arg-type]
        own_namespace=str(values["leaderElection.namespace"]),
        log_format=str(values["log.format"]),
        log_level=str(values["log.level"]),
        leader_elect=bool(values["leaderElection.enabled"]),
        errors_as_json=getattr(parsed, "output", None) == "json",
        beside=_peers(values["scheduler.beside"]),
        wait_for_group=values["scheduler.waitForGroup"],  # type: ignore[arg-type]
        bind_guard=getattr(parsed, "bind_guard", ""),
        bind_guard_secret=getattr(parsed, "bind_guard_secret", ""),
        own_pod=getattr(parsed, "own_pod", ""),
        otlp_endpoint=str(values["traces.endpoint"]),
        settings=source,
        values=values,
    )


def _peers(values: Setting) -> tuple[OtherScheduler, ...]:
    """Return the other schedulers of ``--beside``.

    :raises WindlassError: a value is invalid
    """
    from windlass.model.cluster.ownership import OtherScheduler

    try:
        return tuple(OtherScheduler.parse(text) for text in values)  # type: ignore[union-attr]
    except ValueError as error:
        raise WindlassError(REFUSED, f"scheduler.beside: {error}", remedies=("--beside=kai",)) from None


_FLAGS = {
    "log_level": "log.level",
    "log_format": "log.format",
    "metrics_bind": "metrics.bind",
    "compat_metrics": "metrics.compat",
    "otlp_endpoint": "traces.endpoint",
    "leader_elect": "leaderElection.enabled",
    "own_namespace": "leaderElection.namespace",
    "scheduler_name": "scheduler.names",
    "config": "scheduler.configuration",
    "beside": "scheduler.beside",
    "wait_for_group": "scheduler.waitForGroup",
    "with_controllers": "scheduler.withControllers",
}


def _flags(parsed: argparse.Namespace) -> dict[str, Setting]:
    """Return the settings that the command line gives, by their paths."""
    chosen: dict[str, Setting] = {}
    for flag, path in _FLAGS.items():
        value = getattr(parsed, flag, None)
        if value is not None and value != []:
            chosen[path] = tuple(value) if isinstance(value, list) else value
    return chosen
