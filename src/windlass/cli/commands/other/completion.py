"""``windlass completion``: completion script for a shell."""

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

    Without SHELL it is for your login shell ($SHELL).
    """
    form = check_format(output or "", ("json",))
    shell = shell or _own_shell()
    shell_class = get_completion_class(shell)
    assert shell_class is not None, "click knows the three shells"
    completion = shell_class(
        cli=click.Command("windlass"), ctx_args={}, prog_name="windlass", complete_var=VARIABLE
    )
    if shell == "bash":
        # Not click's source(), which starts bash to check its version and is slow.
        script = completion.source_template % completion.source_vars()
    else:
        script = completion.source()
    text = f"{_HOW[shell]}\n{script}\n"
    terminal.output().write(to_json({"shell": shell, "script": text}) if form == "json" else text)
    return 0


def _own_shell() -> str:
    """Return the user's shell.

    Raises :class:`WindlassError` if ``$SHELL`` names no known one.
    """
    shell = os.environ.get("SHELL", "")
    name = os.path.basename(shell)
    if name in _HOW:
        return name
    raise WindlassError(
        "WL-USE-400",
        f"$SHELL is {shell}, for which there is no completion" if shell else "$SHELL is not set",
        evidence=f"shells: {', '.join(_HOW)}",
        remedies=("windlass completion bash",),
    )


VARIABLE = "_WINDLASS_COMPLETE"
"""Variable set by the shell's function, so that ``cli.main`` completes instead of running.
"""
