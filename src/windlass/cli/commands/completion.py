"""``windlass completion``: the script that a shell has to read."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from windlass.cli import terminal
from windlass.cli.options import output_flag
from windlass.cli.output import check_format, to_json

_HOW = {
    "bash": '# eval "$(windlass completion bash)"   # in ~/.bashrc',
    "zsh": '# eval "$(windlass completion zsh)"   # in ~/.zshrc, after compinit',
    "fish": "# windlass completion fish > ~/.config/fish/completions/windlass.fish",
}


@click.command("completion")
@click.argument("shell", type=click.Choice(list(_HOW)))
@output_flag(("json",))
def command(shell: str, output: str | None) -> int:
    """Print the shell's completion script."""
    form = check_format(output or "", ("json",))
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


VARIABLE = "_WINDLASS_COMPLETE"
"""Set by the shell's function; ``cli.main`` answers then instead of running a command."""
