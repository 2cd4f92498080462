"""Launch spec of an attempt, computed from the pod object.

:func:`launch_spec_of` makes the shim's record from the container, the pod's facts, its volumes
and the capabilities of this machine. It starts nothing, and reads only the user database.
"""

from __future__ import annotations

import os
import pwd
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from windlass.api.annotations import UMASK
from windlass.node.devices.container_devices import VisibleDevice, visible_environment, without_mps
from windlass.node.devices.mps import Daemon
from windlass.node.lifecycle import restart_rules as rules
from windlass.node.lifecycle.probe_results import ProbeKind
from windlass.node.limits import Enforcement
from windlass.node.options import ImageEntry, image_entry
from windlass.node.pods.environment import (
    ContainerConfigError,
    Lookup,
    PodFacts,
    base_environment,
    command_line,
    environment,
    expand,
)
from windlass.node.pods.files.volumes import PodVolume, container_mounts
from windlass.node.runtime.attempt_files import ATTEMPT_MARK
from windlass.node.runtime.mounts import Mount
from windlass.node.sandbox.hosts import substitute
from windlass.node.sandbox.pod_network import Capabilities


@dataclass(frozen=True, slots=True)
class PodSetting:
    """Settings that all containers of a pod share.

    ``directory``: the pod's own.
    ``devices``: container → its part of the pod's devices.
    ``names``: name → address, to substitute where the pod has no hosts file of its own.
    ``device_kinds``: resource names of this node's devices. A container without a device of a
    kind must not see any device of that kind.
    ``mps_daemon``: enforces device shares, if one is running.
    ``service_environment``: variables with the addresses of Services.
    """

    facts: PodFacts
    lookup: Lookup
    directory: Path
    volumes: Mapping[str, PodVolume]
    hostname: str
    capabilities: Capabilities
    devices: Mapping[str, Sequence[VisibleDevice]]
    images: Mapping[str, ImageEntry]
    own_environment: Mapping[str, str]
    system_files: Sequence[Mount] = ()
    names: Mapping[str, str] = field(default_factory=dict)
    sandbox: Mapping[str, Any] | None = None
    device_kinds: Sequence[str] = ()
    mps_daemon: Daemon | None = None
    tools: Sequence[Path] = ()
    """Directories with programs of the agent, which precede the PATH."""
    tool_environment: Mapping[str, str] = field(default_factory=dict)
    service_environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LaunchSpec:
    """Record for the shim.

    ``placeholder``: neither manifest nor image map has a command, and it gets no shell.
    """

    record: dict[str, Any]
    placeholder: bool


def launch_spec_of(
    container: Mapping[str, Any], attempt: int, setting: PodSetting, limits: Enforcement, log: Path
) -> LaunchSpec:
    """Return the launch spec of one attempt.

    Raises :class:`ContainerConfigError`. Then nothing was started, and the attempt may be retried.
    """
    spec = setting.facts.pod["spec"]
    entry = image_entry(setting.images, container.get("image") or "")
    values = _values(container, setting, entry)
    mounted = container_mounts(container, setting.volumes, values)
    argv = command_line(container, values)
    if not argv and rules.job_set_of(setting.facts.pod):
        argv = rules.worker_command(container, values)
    if not argv and entry is not None:
        argv = list(entry.command)
    argv = argv or _shell(container)
    placeholder = not argv
    if placeholder:
        argv = _placeholder(container, spec)
    commands = commands_of(container)
    if not setting.capabilities.mounts:
        argv, values = _substituted(argv, values, setting.names, mounted.paths)
        commands = {
            name: _substituted(words, {}, setting.names, mounted.paths)[0] for name, words in commands.items()
        }
    uid = setting.facts.pod["metadata"]["uid"]
    values[ATTEMPT_MARK] = f"{uid}/{container['name']}/{attempt}"
    directory = setting.directory / "containers" / container["name"] / str(attempt)
    cwd = container.get("workingDir") or (entry.path if entry else "") or str(setting.directory / "work")
    if not setting.capabilities.mounts:
        cwd = _with_paths(cwd, mounted.paths)
    record: dict[str, Any] = {
        "attempt": attempt,
        "argv": argv,
        "commands": commands,
        "env": values,
        "cwd": cwd,
        "umask": _umask(setting.facts.pod["metadata"].get("annotations") or {}),
        "log": str(log),
        "grace_seconds": spec.get("terminationGracePeriodSeconds", 30),
        "join": _join(setting.sandbox),
        "mount_namespace": setting.capabilities.mounts,
        "pid_namespace": setting.capabilities.pid and setting.capabilities.mounts and not spec.get("hostPID"),
        "mounts": [
            _as_record(mount)
            for mount in (*mounted.mounts, *_work_mount(setting, mounted.paths), *setting.system_files)
        ],
        "staging": str(directory / "root"),
        "affinity": list(limits.affinity),
        "cgroup": limits.cgroup,
        "memory_watch_bytes": limits.memory_watch_bytes,
        **_console(container),
        **_identity(container, spec, setting.capabilities),
    }
    return LaunchSpec(record, placeholder)


def _umask(annotations: Mapping[str, str]) -> int:
    text = annotations.get(UMASK) or "0022"
    if not _UMASK.fullmatch(text):
        raise ContainerConfigError(
            f'annotation {UMASK}: "{text}" is not a umask: write an octal number from 0000 to 0777'
        )
    return int(text, 8)


_UMASK = re.compile("0?[0-7]{1,3}")


def commands_of(container: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return field → command, of the probes and hooks with an exec action.

    As in the kubelet, commands of probes are expanded with the variables that have a value in the
    manifest. Commands of hooks are not expanded.
    """
    commands: dict[str, list[str]] = {}
    plain = {variable["name"]: variable.get("value") or "" for variable in container.get("env") or ()}
    for kind in ProbeKind:
        command = ((container.get(kind.field) or {}).get("exec") or {}).get("command")
        if command:
            commands[kind.field] = [expand(word, plain) for word in command]
    for hook, handler in (container.get("lifecycle") or {}).items():
        command = (handler.get("exec") or {}).get("command") if isinstance(handler, dict) else None
        if command:
            commands[hook] = list(command)
    return commands


def _work_mount(setting: PodSetting, targets: Iterable[str]) -> list[Mount]:
    """Return the mount of the pod's working directory, if a volume such as one at ``/tmp`` hides it."""
    work = str(setting.directory / "work")
    return [Mount(work, work)] if any(work.startswith(f"{target}/") for target in targets) else []


def _as_record(mount: Mount) -> dict[str, Any]:
    return {
        "source": mount.source,
        "target": mount.target,
        "read_only": mount.read_only,
        "optional": mount.optional,
    }


def _console(container: Mapping[str, Any]) -> dict[str, bool]:
    """Return what of stdin and a terminal the container has; nothing in the usual case."""
    names = {"stdin": "stdin", "stdinOnce": "stdin_once", "tty": "tty"}
    return {name: True for field_name, name in names.items() if container.get(field_name)}


def _join(sandbox: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if sandbox is None:
        return None
    return {name: sandbox[name] for name in ("pid", "start_time", "namespaces")}


def _values(container: Mapping[str, Any], setting: PodSetting, entry: ImageEntry | None) -> dict[str, str]:
    base = base_environment(setting.own_environment, setting.hostname)
    if container.get("tty"):
        base["TERM"] = "xterm"
    if entry is not None:
        base.update(_entry_environment(entry, base["PATH"]))
    base.update(setting.service_environment)
    values = environment(container, setting.facts, setting.lookup, base)
    devices = setting.devices.get(container["name"], ())
    values = {**without_mps(devices, setting.mps_daemon), **values}
    # Overrides the manifest.
    values.update(visible_environment(devices, setting.device_kinds, setting.mps_daemon))
    if setting.tools:
        values["PATH"] = os.pathsep.join([*map(str, setting.tools), values.get("PATH", os.defpath)])
        values.update(setting.tool_environment)
    return values


def _entry_environment(entry: ImageEntry, path: str) -> dict[str, str]:
    values = dict(entry.env)
    first = [os.path.join(path, "bin") for path in (entry.venv, entry.path) if path]
    if first:
        values["PATH"] = os.pathsep.join([*first, values.get("PATH", path)])
    if entry.venv:
        values["VIRTUAL_ENV"] = entry.venv
    return values


def _shell(container: Mapping[str, Any]) -> list[str]:
    """Return a shell for a container with a terminal that reads input: what its image would start."""
    return ["/bin/sh"] if container.get("stdin") and container.get("tty") else []


def _placeholder(container: Mapping[str, Any], spec: Mapping[str, Any]) -> list[str]:
    """Return a command that succeeds after a second.

    With restart policy ``Always`` it runs until it is stopped, since it would only be restarted.
    """
    policy = container.get("restartPolicy") or ""
    if container["name"] in [main["name"] for main in spec.get("containers") or ()]:
        policy = policy or spec.get("restartPolicy") or "Always"
    stays = policy == "Always"
    words = (
        f"container {container['name']} has no command and its image is not run on this machine: "
        f"this placeholder runs instead and {'runs until it is stopped' if stays else 'ends with 0'}"
    )
    # A trap, because the first process of a PID namespace ignores signals that it does not handle.
    then = "trap 'kill $!; exit 0' TERM; sleep infinity & wait" if stays else "sleep 1"
    return ["/bin/sh", "-c", f"echo '{words}'; {then}"]


def _substituted(
    argv: list[str], values: dict[str, str], names: Mapping[str, str], paths: Mapping[str, str]
) -> tuple[list[str], dict[str, str]]:
    """Replace the pod's names and mount paths by addresses and paths of this machine."""

    def replaced(text: str) -> str:
        return _with_paths(substitute(text, names), paths)  # names first: the pod's directory has none

    kept = ("PATH", "HOME", "HOSTNAME")
    return (
        [replaced(word) for word in argv],
        {name: text if name in kept else replaced(text) for name, text in values.items()},
    )


def _with_paths(text: str, paths: Mapping[str, str]) -> str:
    for path in sorted(paths, key=len, reverse=True):
        text = _replace_path(text, path, paths[path])
    return text


def _replace_path(text: str, path: str, by: str) -> str:
    out, position = [], 0
    while (at := text.find(path, position)) >= 0:
        end = at + len(path)
        before = text[at - 1] if at else ""
        after = text[end] if end < len(text) else ""
        whole = not (before.isalnum() or before in ("/", "_", "-", ".")) and not (
            after.isalnum() or after in ("_", "-", ".")
        )
        out += [text[position:at], by if whole else path]
        position = end
    return "".join([*out, text[position:]])


def _identity(
    container: Mapping[str, Any], spec: Mapping[str, Any], capabilities: Capabilities
) -> dict[str, Any]:
    """Return the user of the processes: the agent's own, or for root that of ``securityContext``."""
    context = {**(spec.get("securityContext") or {}), **(container.get("securityContext") or {})}
    own_uid, own_gid = os.geteuid(), os.getegid()
    wanted = context.get("runAsUser")
    if own_uid != 0:
        if context.get("runAsNonRoot") and wanted == 0:
            raise ContainerConfigError("container's runAsUser breaks non-root policy")
        nested = capabilities.user and bool(capabilities.namespaces)
        return {"own_ids": {"uid": own_uid, "gid": own_gid}} if nested else {}
    if context.get("runAsNonRoot") and not wanted:
        raise ContainerConfigError(
            "container has runAsNonRoot and image will run as root: set runAsUser, or start windlass as "
            "an ordinary user"
        )
    if wanted is None and context.get("runAsGroup") is None:
        return {}
    uid = 0 if wanted is None else int(wanted)
    gid = context.get("runAsGroup")
    if gid is None:
        gid = _primary_group(uid)
    groups = {int(gid), *(int(g) for g in context.get("supplementalGroups") or ())}
    if context.get("fsGroup") is not None:
        groups.add(int(context["fsGroup"]))
    return {"uid": uid, "gid": int(gid), "groups": sorted(groups)}


def _primary_group(uid: int) -> int:
    try:
        return pwd.getpwuid(uid).pw_gid
    except KeyError:
        return 0
