"""Options of commands that take flags of the kubelet."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from windlass.api.annotations import LIMITS
from windlass.api.errors import WindlassError
from windlass.api.resources import NODES
from windlass.cli.errors import unless_forbidden
from windlass.cli.invocation import Invocation
from windlass.node.kubelet_flags import EFFECTIVE, KubeletFlags, parse, words_of

Function = TypeVar("Function", bound=Callable[..., Any])
_FILE = "kubelet_flags"


def kubelet_options(*omitted: str) -> Callable[[Function], Function]:
    """Return a decorator that adds ``--kubelet-flags`` and an option for each effective flag.

    ``omitted``: flags that the command has already.
    """

    def decorate(function: Function) -> Function:
        for name, text in reversed(list(EFFECTIVE.items())):
            if name not in omitted:
                function = click.option(f"--{name}", metavar="VALUE", help=f"Flag of the kubelet. {text}")(
                    function
                )
        return click.option(
            "--kubelet-flags", _FILE, metavar="FILE", help="File with flags of the kubelet, --NAME=VALUE."
        )(function)

    return decorate


def flags_of(invocation: Invocation, given: Mapping[str, Any]) -> list[str]:
    """Return the flags of the file and of the options, which take precedence.

    Prints a warning for each flag without an effect. Raises :class:`WindlassError`.
    """
    words: list[str] = []
    if path := given.get(_FILE):
        words += words_of(_read(Path(os.path.expanduser(path))))
    for name in EFFECTIVE:
        value = given.get(name.replace("-", "_"))
        if value is not None:
            words.append(f"--{name}={value}")
    for warning in parse(words)[1]:
        invocation.warn(warning)
    return words


def warn_about_pids(invocation: Invocation, words: Sequence[str], node: str) -> None:
    """Print a warning if this machine cannot limit the processes of a pod."""
    if not any(word.startswith("--pod-max-pids") for word in words):
        return
    found = unless_forbidden(lambda: invocation.client.find(NODES, node), None)
    limits = ((found or {}).get("metadata", {}).get("annotations") or {}).get(LIMITS, "")
    if "pod-max-pids has no effect" in limits:
        invocation.warn(f"--pod-max-pids has no effect on this machine: {_reason(limits)}")


def _reason(limits: str) -> str:
    """Return why no cgroup is used, from the node's description of its limits."""
    return limits.partition("cgroups: ")[2].partition(";")[0] or limits


def parsed_file(invocation: Invocation, path: str | None) -> KubeletFlags | None:
    """Return the flags of a file; ``None`` without a file. Raises :class:`WindlassError`."""
    return parse(flags_of(invocation, {_FILE: path}))[0] if path else None


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise WindlassError(
            "WL-USE-400",
            f"the file of kubelet flags {path} cannot be read",
            evidence=why or str(error),
            remedies=(f"ls -l {path}",),
        ) from error
