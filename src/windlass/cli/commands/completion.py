"""``windlass completion``: the script that a shell has to read."""

from __future__ import annotations

import os

import click
from click.shell_completion import get_completion_class

from windlass.api.errors import WindlassError
from windlass.cli import terminal
from windlass.cli.options import output_flag
from windlass.cli.output.formats import check_format, to_json

_HOW = {
    "bash": '# eval "$(windlass completion bash)"   # in ~/.bashrc',
    "zsh": '# eval "$(windlass completion zsh)"   # in ~/.zshrc, after compinit',
    "fish": "# windlass completion fish > ~/.config/fish/completions/windlass.fish",
}


@click.command("completion")
@click.argument("shell", type=click.Choice(list(_HOW)), required=False)
@output_flag(("json",))
def command(shell: str | None, output: str | None) -> int:
    """Print the shell's completion script.

    Without SHELL it is that of the shell you log in with ($SHELL).
    """
    form = check_format(output or "", ("json",))
    shell = shell or _own_shell()
    found = get_completion_class(shell)
    assert found is not None, "click knows the three shells"
    completion = found(
        cli=click.Command("windlass"), ctx_args={}, prog_name="windlass", complete_var=VARIABLE
    )
    if shell == "bash":
        # Not click's source(): it starts bash to ask its version, which costs more than the answer.
        script = completion.source_template % completion.source_vars()
    else:
        script = completion.source()
    text = f"{_HOW[shell]}\n{script}\n"
    terminal.output().write(to_json({"shell": shell, "script": text}) if form == "json" else text)
    return 0


def _own_shell() -> str:
    """Raises :class:`WindlassError` where ``$SHELL`` names none that completion is known for."""
    told = os.environ.get("SHELL", "")
    name = os.path.basename(told)
    if name in _HOW:
        return name
    raise WindlassError(
        "WL-USE-400",
        f"$SHELL is {told}, for which there is no completion"
        if told
        else "$SHELL does not say which shell is meant",
        evidence=f"shells: {', '.join(_HOW)}",
        remedies=("windlass completion bash",),
    )


VARIABLE = "_WINDLASS_COMPLETE"
"""Set by the shell's function; ``cli.main`` answers then instead of running a command."""
