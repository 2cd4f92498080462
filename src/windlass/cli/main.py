"""The ``windlass`` command: a group that imports a command's module when it is called.

Start-up time has a budget (``benchmarks/cold_start.py``). Therefore this module imports
neither asyncio, numpy, yaml nor a network library.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import click

from windlass import __version__
from windlass.api.errors import StatusError, WindlassError
from windlass.cli import errors, terminal
from windlass.cli.command_group import NamedContext, named
from windlass.cli.invocation import InvocationContext
from windlass.cli.options import check_values, home_expanded, target_flags

COMMANDS: dict[str, tuple[str, str]] = {
    "up": ("Daemon", "Start the control plane on this machine."),
    "down": ("Daemon", "Stop the control plane and all that it runs."),
    "status": ("Daemon", "Show health, the running parts by layer, capacity and queues."),
    "doctor": ("Daemon", "Check this machine or a cluster, and suggest fixes."),
    "run": ("Jobs", "Run a command as a job and follow it."),
    "submit": ("Jobs", "Queue a command as a job and return."),
    "generate": ("Jobs", "Work through the rows of a file with a model or a program."),
    "items": ("Jobs", "Items of a generation job: ls, dead, context, retry."),
    "ps": ("Jobs", "List jobs: where they run, or why they wait."),
    "show": ("Jobs", "Show one job."),
    "logs": ("Jobs", "Print or follow a job's output."),
    "exec": ("Jobs", "Run a command in a running pod of a job."),
    "explain": ("Jobs", "Explain why a job waits, and what would help."),
    "cancel": ("Jobs", "End jobs."),
    "suspend": ("Jobs", "End the pods of jobs; the jobs stay, to be resumed."),
    "resume": ("Jobs", "Queue suspended jobs again."),
    "requeue": ("Jobs", "End the pods of jobs and queue the jobs again."),
    "scale": ("Jobs", "Change the number of pods of a job."),
    "convert": ("Jobs", "Print the jobs of a manifest as jobs of another kind."),
    "workflow": ("Jobs", "Workflows: run, ls, show, graph, logs, retry, resubmit, stop, suspend, resume."),
    "apply": ("Objects", "Create or change objects from manifests."),
    "get": ("Objects", "List objects."),
    "describe": ("Objects", "Show objects with their events."),
    "delete": ("Objects", "Delete objects."),
    "queue": ("Cluster", "Queues: ls, tree, create, set."),
    "node": ("Cluster", "Nodes: ls, tree, add-simulated, cordon, uncordon, drain."),
    "gpu": ("Cluster", "GPUs: ls, clear."),
    "model": ("Cluster", "Models on the nodes: ls, pull, rm."),
    "plan": ("Cluster", "Show what the scheduler would do with a cluster."),
    "what-if": ("Cluster", "Show which jobs would start earlier or later in a changed cluster."),
    "defrag": ("Cluster", "Show which idle GPUs no pending job can use, and which moves would help."),
    "sim": ("Cluster", "Simulate: run, record, pack, claims, generate, formats, policies."),
    "plugin": ("Cluster", "Scheduling plugins: list them, try one before it is switched on."),
    "scheduler": ("Cluster", "Run only the scheduler, against any API server."),
    "controller": ("Cluster", "Run only the controllers, against any API server."),
    "batch-api": ("Jobs", "Serve OpenAI's files and batches; each batch runs as a job."),
    "reserve-device": ("Cluster", "Hold a GPU for pods that share it (in a reservation pod)."),
    "install": ("Cluster", "Install Windlass in a cluster, or update it."),
    "uninstall": ("Cluster", "Remove Windlass from a cluster; queues, jobs and running pods stay."),
    "upgrade": ("Cluster", "Check a cluster before an upgrade to this version."),
    "crds": ("Cluster", "Print the CustomResourceDefinitions."),
    "completion": ("Other", "Print the shell's completion script."),
    "docs": ("Other", "Print a page of the documentation, or list the topics."),
    "help": ("Other", "Explain an error code or a reason, offline."),
    "version": ("Other", "Show the versions of the command and the server."),
}
"""Name → section and summary.

Each command is one module, in the folder of its section below ``cli/commands``. A test compares the
summaries.
"""
FORMER_COMMANDS = {"reserve-card": "reserve-device"}
"""Former name → name. Reservation pods of the previous version run it until they are deleted."""


def command_of(name: str) -> click.Command:
    """Return the command of this name. Its module is imported."""
    section = COMMANDS[name][0].lower()
    return import_module(f"windlass.cli.commands.{section}.{name.replace('-', '_')}").command


class LazyGroup(click.Group):
    """Group that knows its commands by name and imports them on use."""

    context_class = NamedContext

    def make_context(self, *arguments: Any, **options: Any) -> click.Context:
        with terminal.detect_closed_output():  # --help is printed here
            return super().make_context(*arguments, **options)

    def invoke(self, ctx: click.Context) -> Any:
        with terminal.detect_closed_output():
            return super().invoke(ctx)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        cmd_name = FORMER_COMMANDS.get(cmd_name, cmd_name)
        if cmd_name not in COMMANDS:
            return None
        return named(command_of(cmd_name))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0] if args else ""
        if name and name not in COMMANDS and name not in FORMER_COMMANDS and not ctx.resilient_parsing:
            raise unknown_command(name, COMMANDS)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections: dict[str, list[tuple[str, str]]] = {}
        for name, (section, summary) in COMMANDS.items():
            sections.setdefault(section, []).append((name, summary))
        for section, rows in sections.items():
            with formatter.section(section):
                formatter.write_dl(rows)


def unknown_command(name: str, known: Sequence[str] | dict[str, tuple[str, str]]) -> WindlassError:
    from windlass.cli import foreign_commands

    close = errors.nearest(name, known)
    remedies = (
        (foreign_commands.COMMANDS[name],)
        if name in foreign_commands.COMMANDS
        else tuple(f"windlass {match}" for match in close)
    )
    return WindlassError(
        "WL-USE-404",
        f'there is no command "{name}"',
        remedies=remedies or ("windlass --help",),
    )


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    invoke_without_command=True,
)
@target_flags
@click.version_option(__version__, "-V", "--version", message="windlass %(version)s")
@click.pass_context
def windlass(
    context: click.Context, state: str | None, kubeconfig: str | None, context_name: str | None
) -> None:
    """Run AI jobs on this machine or on a cluster, with queues, gangs and GPUs.

    Start with: windlass run -- python train.py
    """
    check_values(context)
    if context.obj is None:
        context.obj = InvocationContext()
    options = {"state": state, "kubeconfig": kubeconfig, "context_name": context_name}
    options = home_expanded(context, options)
    context.obj.defaults.update({key: value for key, value in options.items() if value})
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


def wants_json(arguments: Sequence[str]) -> bool:
    """Return whether errors shall be JSON, even if the command line cannot be parsed."""
    head = list(arguments)
    if "--" in head:
        head = head[: head.index("--")]
    joined = ("-ojson", "-o=json", "--output=json")
    return any(argument in joined for argument in head) or any(
        argument in ("-o", "--output") and head[at : at + 1] == ["json"]
        for at, argument in enumerate(head, 1)
    )


_WHOLE_NUMBERS, _NUMBERS = (
    re.compile("is not a valid integer( range)?"),
    re.compile("is not a valid float( range)?"),
)


def _long_options_meant(words: Sequence[str], known: Sequence[str]) -> list[str]:
    """Return the options that were written with a single dash: ``--gpus`` for ``-gpus``."""
    head = words[: words.index("--")] if "--" in words else words
    written = [f"-{word.partition('=')[0]}" for word in head if re.match(r"-[a-z]{2}", word)]
    return [name for name in dict.fromkeys(written) if name in known]


def usage_error(error: click.UsageError, words: Sequence[str] = ()) -> WindlassError:
    """Return click's error in the common shape. ``words``: the command line."""
    context = error.ctx
    path = context.command_path if context is not None else "windlass"
    known = [name for p in (context.command.params if context else ()) for name in p.opts]
    known = [name for name in known if name.startswith("--")]
    meant = _long_options_meant(words, known)
    remedies = [f"did you mean {name}?" for name in meant]
    message = error.format_message().rstrip(".")
    if isinstance(error, click.NoSuchOption):
        message = f"there is no option {error.option_name}"
        from windlass.cli import foreign_commands

        equivalent = foreign_commands.equivalent_option(error.option_name, path)
        close = errors.nearest(error.option_name, known)
        if not meant:
            remedies += [equivalent] if equivalent else [f"did you mean {match}?" for match in close]
    if isinstance(error, click.BadParameter) and error.param and "--gpus" in error.param.opts:
        from windlass.cli import foreign_commands

        remedies += [device_flags] if (device_flags := foreign_commands.equivalent_gpu_flags(message)) else []
    long_names = [name for name in getattr(getattr(error, "param", None), "opts", ()) if name != "-n"]
    message = _NUMBERS.sub("is not a number", _WHOLE_NUMBERS.sub("is not a whole number", message))
    not_whole = "is not a whole number" in message
    if (
        isinstance(error, click.BadParameter)
        and error.param
        and "-n" in error.param.opts
        and long_names
        and not_whole
    ):
        remedies.append(f"--namespace NAME   (-n means {long_names[0]} in this command)")
    remedies.append(f"{path} --help")
    usage = context.get_usage().replace("Usage: ", "usage: ") if context is not None else ""
    if isinstance(error, click.NoSuchOption | click.BadParameter) and not isinstance(
        error, click.MissingParameter
    ):
        usage = ""  # it does not explain the value
    return WindlassError(
        "WL-USE-400",
        message[:1].lower() + message[1:] if message[1:2].islower() else message,
        evidence=" ".join(usage.split()),
        remedies=remedies,
    )


def not_utf8(error: UnicodeEncodeError) -> WindlassError:
    """Return the error for an argument, variable or directory name that is not UTF-8."""
    before, text = error.object[: error.start], error.object
    word = text[before.rfind("\0") + 1 :].partition("\0")[0]
    shown = word.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return WindlassError(
        "WL-USE-400",
        f"this is not UTF-8: {shown[:200]}",
        evidence="arguments, variables and directory names are sent to the server as JSON, which is UTF-8",
        remedies=("echo $LANG $LC_ALL   (both should end in UTF-8)", "rename the file or directory"),
    )


def missing_directory() -> WindlassError | None:
    """Return the error for a current directory that was removed, if it was."""
    try:
        os.getcwd()
    except FileNotFoundError:
        return WindlassError(
            "WL-RUN-404",
            "the current directory does not exist any more",
            evidence="it was removed or replaced after the shell entered it: "
            f"{os.environ.get('PWD') or 'its name is unknown'}",
            remedies=("cd ~", 'cd "$PWD"   (if it was created again)'),
        )
    return None


def report(error: WindlassError, *, as_json: bool) -> int:
    """Print the error and return the exit status."""
    err = terminal.errors()
    if as_json:
        import msgspec

        err.line(msgspec.json.encode(error.as_dict()).decode())
    else:
        err.write(errors.as_text(error, err.paint))
    return errors.exit_status(error)


def run(arguments: Sequence[str] | None = None, context: InvocationContext | None = None) -> int:
    """Run one command line, print any error, and return the exit status."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        "\0".join(words).encode()
        return _run(words, context or InvocationContext())
    except UnicodeEncodeError as error:
        return report(not_utf8(error), as_json=wants_json(words))
    except FileNotFoundError:
        if (gone := missing_directory()) is None:
            raise
        return report(gone, as_json=wants_json(words))
    except (terminal.OutputClosed, BrokenPipeError):
        return terminal.discard_output()


def _run(words: list[str], context: InvocationContext) -> int:
    try:
        result = windlass.main(words, prog_name="windlass", standalone_mode=False, obj=context)
        return result if isinstance(result, int) else errors.OK
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return errors.USAGE
    except click.UsageError as error:
        return report(usage_error(error, words), as_json=wants_json(words))
    except click.ClickException as error:
        return report(WindlassError("WL-USE-400", error.format_message()), as_json=wants_json(words))
    except (click.Abort, KeyboardInterrupt):
        return errors.INTERRUPTED
    except WindlassError as error:
        return report(errors.with_target(error, context), as_json=wants_json(words))
    except StatusError as error:
        translated = errors.translate(error, context.last_client)
        return report(errors.with_target(translated, context), as_json=wants_json(words))
