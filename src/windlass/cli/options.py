"""Flags that commands share."""

from __future__ import annotations

import functools
import os
import shlex
from collections.abc import Callable, Mapping
from math import isfinite
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from windlass.api.errors import WindlassError
from windlass.cli.invocation import Invocation, context_of, target
from windlass.cli.output.formats import FORMATS, check_format, formats_text

Function = TypeVar("Function", bound=Callable[..., Any])


def target_flags(function: Function) -> Function:
    """Add the flags that choose the control plane; the default is that of this machine."""
    for decorator in (
        click.option("--context", "context_name", metavar="NAME", help="Context of the kubeconfig."),
        click.option("--kubeconfig", metavar="FILE", help="Use the API server of this kubeconfig."),
        click.option("--state", metavar="DIR", help="State directory of the control plane on this machine."),
    ):
        function = decorator(function)
    return function


class Once(click.Option):
    """Option with one value, which is rejected if given twice (click takes the last).

    ``instead``: hint for the user.
    """

    def __init__(self, *names: Any, instead: str = "", **rest: Any) -> None:
        super().__init__(*names, multiple=True, **rest)
        self._instead = instead

    def process_value(self, ctx: click.Context, value: Any) -> Any:
        values = super().process_value(ctx, value)
        if len(values) > 1:
            hint = f": {self._instead}" if self._instead else ""
            raise click.BadOptionUsage(
                self.name or "", f"{self.opts[-1]} is given {len(values)} times{hint}", ctx
            )
        return values[0] if values else None


def check_values(context: click.Context) -> None:
    """Raise :class:`WindlassError` if an option took ``--`` as its value."""
    for option in context.command.params:
        value = context.params.get(option.name or "")
        if isinstance(option, click.Option) and "--" in (value if isinstance(value, tuple) else (value,)):
            flag = max(option.opts, key=len)
            metavar = option.make_metavar(context)
            rest = " -- COMMAND..." if context.command_path.split()[-1] in ("run", "submit") else ""
            raise WindlassError(
                "WL-USE-400",
                f'{flag} is given "--" as its {metavar}',
                evidence=f"{flag} takes the next word as its value",
                remedies=(f"{context.command_path} {flag} {metavar}{rest}", f"omit {flag}"),
            )


def home_expanded(context: click.Context, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of options, with ``~`` expanded in those that are paths.

    A shell expands ``--kubeconfig ~/file``, but not ``--kubeconfig=~/file``.
    """
    paths = {
        option.name
        for option in context.command.params
        if isinstance(option, click.Option) and option.metavar in ("FILE", "DIR")
    }
    return {name: _expanded(value) if name in paths else value for name, value in values.items()}


def _expanded(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return type(value)(_expanded(item) for item in value)
    return os.path.expanduser(value) if isinstance(value, str) and value.startswith("~") else value


def output_flag(formats: tuple[str, ...]) -> Callable[[Function], Function]:
    """Return the option ``-o FORMAT`` alone.

    Its command calls :func:`~windlass.cli.output.formats.check_format`.
    """
    return click.option(
        "-o",
        "--output",
        metavar="FORMAT",
        help=f"{formats_text(formats)}.",
        shell_complete=lambda *_: [f"{form}=" if form == "jsonpath" else form for form in formats],
    )


def standard(
    *,
    output: bool = True,
    formats: tuple[str, ...] = FORMATS,
    namespace: bool = True,
    short_namespace: bool = True,
    all_namespaces: bool = False,
) -> Callable[[Function], Function]:
    """Add the shared flags; the function receives an :class:`Invocation` first."""

    def decorate(function: Function) -> Function:
        @click.pass_context
        @functools.wraps(function)
        def wrapped(context: click.Context, /, **values: Any) -> Any:
            check_values(context)
            values = home_expanded(context, values)
            invocation_context = context_of(context)
            chosen = {key: values.pop(key) or invocation_context.defaults.get(key) for key in _TARGETS}
            invocation_context.target_flags = _target_flags(chosen)
            server = target(chosen["state"], chosen["kubeconfig"], chosen["context_name"])
            invocation_context.local_state = None if server.remote else server.state
            invocation = Invocation(
                invocation_context,
                server,
                namespace=values.pop("namespace", None) or invocation_context.defaults.get("namespace") or "",
                all_namespaces=values.pop("all_namespaces", False),
                output=check_format(values.pop("output", "") or "", formats),
            )
            return function(invocation, **values)

        decorators: list[Callable[[Any], Any]] = [target_flags]
        if namespace:
            names = ("-n", "--namespace") if short_namespace else ("--namespace",)
            decorators.append(
                click.option(
                    *names, metavar="NAME", help="Namespace [default: that of the kubeconfig's context]."
                )
            )
        if all_namespaces:
            decorators.append(
                click.option("-A", "--all-namespaces", is_flag=True, help="Objects of all namespaces.")
            )
        if output:
            decorators.append(output_flag(formats))
        result: Any = wrapped
        for decorator in reversed(decorators):
            result = decorator(result)
        return result

    return decorate


_TARGETS = ("state", "kubeconfig", "context_name")


def _target_flags(chosen: dict[str, str | None]) -> str:
    """Return the flags that name a cluster; else those that name a state directory."""
    flags = [("--kubeconfig", chosen["kubeconfig"]), ("--context", chosen["context_name"])]
    if not any(value for _, value in flags):
        flags = [("--state", chosen["state"])]
    return shlex.join(word for flag, value in flags if value for word in (flag, value))


Completer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def completer(kind: str) -> Completer:
    """Return completion with the live names of a kind; none without a server."""

    def complete(
        context: click.Context, _parameter: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        from windlass.cli.completion import live_names

        return [CompletionItem(name) for name in live_names(context, kind, incomplete)]

    return complete


def queue_flag(help_text: str = "Queue.") -> Callable[[Function], Function]:
    return click.option("-q", "--queue", metavar="NAME", help=help_text, shell_complete=completer("queues"))


class Number(click.FloatRange):
    """Finite number within bounds; neither ``nan`` nor ``inf``."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        result = super().convert(value, param, ctx)
        if not isfinite(result):
            self.fail(f"{value!r} is not a finite number.", param, ctx)
        return result


def yes_flag() -> Callable[[Function], Function]:
    return click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")


def job_argument(**more: Any) -> Callable[[Function], Function]:
    return click.argument("job", metavar="JOB", shell_complete=completer("jobs"), **more)
