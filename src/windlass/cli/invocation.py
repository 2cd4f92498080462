"""One run of a command: where the server is, how to print, and the time.

All access of a command to the outside goes through an :class:`Invocation`. Tests
replace its :class:`InvocationContext`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from windlass.cli import terminal
from windlass.cli.terminal import Terminal
from windlass.kits.clock import SystemClock
from windlass.kits.printable import visible
from windlass.kits.state import StateFolder

if TYPE_CHECKING:
    import click

    from windlass.client.blocking import BlockingClient


class PausingClock(Protocol):
    """Time without an event loop."""

    def now(self) -> float: ...

    def monotonic(self) -> float: ...

    def pause(self, seconds: float) -> None: ...


@dataclass(slots=True)
class ServerTarget:
    """Control plane of a command.

    Either that of this machine (by its state directory), or one of a kubeconfig.
    """

    state: StateFolder
    kubeconfig: str | None = None
    context: str | None = None

    @property
    def remote(self) -> bool:
        return bool(self.kubeconfig or self.context)


def target(state: str | None, kubeconfig: str | None, context: str | None) -> ServerTarget:
    """Return the control plane that flags or the environment name.

    Flags come first, then ``WINDLASS_KUBECONFIG`` and ``WINDLASS_CONTEXT``. Without any
    of them it is the control plane of this machine. ``KUBECONFIG`` alone does not send
    ``windlass run`` to a cluster.
    """
    if state is None:
        kubeconfig = kubeconfig or os.environ.get("WINDLASS_KUBECONFIG") or None
        context = context or os.environ.get("WINDLASS_CONTEXT") or None
    return ServerTarget(StateFolder.locate(state), kubeconfig, context)


def connect(server: ServerTarget) -> BlockingClient:
    """Return a client for ``server``. Nothing is sent yet."""
    from windlass.client.blocking import BlockingClient
    from windlass.client.connection import Connection

    if server.remote:
        from windlass.client import kubeconfig

        return BlockingClient(kubeconfig.load(server.kubeconfig, server.context))
    return BlockingClient(Connection(unix_socket=str(server.state.socket)))


def box_namespace(state: StateFolder) -> str:
    """Return the namespace of commands for the control plane of this machine."""
    from windlass.client.kubeconfig import namespace_of_box

    return namespace_of_box(state.kubeconfig) or "default"


@dataclass(slots=True)
class InvocationContext:
    """Dependencies of a command that tests replace, and the options before its name."""

    connect: Callable[[ServerTarget], BlockingClient] = connect
    clock: PausingClock = field(default_factory=SystemClock)
    defaults: dict[str, Any] = field(default_factory=dict)
    """Options given before the command's name.

    The command's own options take precedence.
    """
    target_flags: str = ""
    """Flags of the command line that name a cluster or a state directory."""
    local_state: StateFolder | None = None
    """State directory of this machine's control plane; ``None`` if a cluster was named.
    """
    last_client: BlockingClient | None = None
    """Client that the command used last, so that a failure can name the nearest names.
    """


@dataclass(slots=True)
class Invocation:
    """One run of a command.

    ``output``: empty for people, else ``json``, ``yaml``, ``wide``, ``name`` or a
    jsonpath template.
    """

    context: InvocationContext
    target: ServerTarget
    namespace: str = ""
    all_namespaces: bool = False
    output: str = ""
    _client: BlockingClient | None = None
    _out: Terminal | None = None
    _err: Terminal | None = None
    warnings: list[str] = field(default_factory=list)
    _context_namespace: str | None = None

    @property
    def clock(self) -> PausingClock:
        return self.context.clock

    @property
    def out(self) -> Terminal:
        if self._out is None:
            self._out = terminal.output()
        return self._out

    @property
    def err(self) -> Terminal:
        if self._err is None:
            self._err = terminal.errors()
        return self._err

    @property
    def client(self) -> BlockingClient:
        if self._client is None:
            self._client = self.context.last_client = self.new_client()
        return self._client

    def new_client(self) -> BlockingClient:
        """Return another client, as each thread needs one.

        Its warnings go to standard error.
        """
        client = self.context.connect(self.target)
        client.on_warning = self.warn
        return client

    @property
    def wide(self) -> bool:
        return self.output == "wide"

    @property
    def structured(self) -> bool:
        """Return whether the output is for programs."""
        return self.output not in ("", "wide")

    @property
    def home_namespace(self) -> str:
        """Default namespace: by the flag, else by the kubeconfig's context as in kubectl, else ``default``."""
        return self.namespace or self.context_namespace

    @property
    def context_namespace(self) -> str:
        """Namespace of a command without ``-n``."""
        if self.target.remote:
            return getattr(self.client.connection, "namespace", "") or "default"
        if self._context_namespace is None:
            self._context_namespace = box_namespace(self.target.state)
        return self._context_namespace

    def namespace_flag(self, namespace: str) -> str:
        """Return ``" -n NAMESPACE"`` for a command to copy; empty if it is the default one."""
        return "" if namespace == self.context_namespace else f" -n {namespace}"

    @property
    def listed_namespace(self) -> str | None:
        """Namespace for lists; ``None`` means all."""
        return None if self.all_namespaces else self.home_namespace

    def warn(self, text: str) -> None:
        """Print a warning of the server as kubectl does; each text once."""
        if text not in self.warnings:
            self.warnings.append(text)
            self.err.line(f"{self.err.paint('Warning:', 'yellow')} {visible(text)}")

    def note(self, text: str) -> None:
        """Print a line for the person to standard error."""
        self.err.line(visible(text))


def context_of(context: click.Context) -> InvocationContext:
    if context.obj is None:
        context.obj = InvocationContext()
    return context.obj
