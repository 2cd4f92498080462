"""``windlass help``: meaning of an error code or a reason, without a network."""

from __future__ import annotations

from typing import Any

import click

from windlass.api.error_codes import CODES
from windlass.api.errors import WindlassError
from windlass.api.reasons import FACTS, Reason
from windlass.cli.errors import nearest
from windlass.cli.generation.item_reasons import ITEM_REASONS, meaning_of
from windlass.cli.invocation import Invocation
from windlass.cli.jobs.reasons import END_CAUSES
from windlass.cli.options import standard
from windlass.cli.output.formats import emit
from windlass.cli.tables import pairs
from windlass.cli.text import plural

_SYSTEMS = {"Volcano": "volcano", "Kueue": "kueue", "Slurm": "slurm"}
"""Systems with own words for the reasons, and the field of ``Facts`` that holds them.
"""
_HELPS = {
    "yes": "Waiting helps.",
    "no": "Waiting does not help; the job or the cluster must change.",
    "maybe": "Waiting may help.",
}


@click.command("help")
@click.argument(
    "word", required=False, metavar="[CODE|REASON|COMMAND]", shell_complete=lambda *_: list(CODES)
)
@standard(namespace=False)
def command(invocation: Invocation, word: str | None) -> int:
    """Explain an error code or a reason, offline."""
    from windlass.cli.main import COMMANDS, windlass

    if word is None:
        invocation.out.write(windlass.get_help(click.Context(windlass, info_name="windlass")) + "\n")
        return 0
    if word in COMMANDS:
        root = click.Context(windlass, info_name="windlass")
        found = windlass.get_command(root, word)
        assert found is not None
        invocation.out.write(found.get_help(click.Context(found, info_name=word, parent=root)) + "\n")
        return 0
    record = _record(word)
    if invocation.structured:
        emit(invocation, record, names=[record["code"]])
        return 0
    invocation.out.line(f"{record['code']}: {record['title']}\n")
    invocation.out.line(record["text"])
    if record.get("words"):
        invocation.out.write("\n" + pairs(list(record["words"].items())))
    return 0


def _record(word: str) -> dict[str, Any]:
    code = CODES.get(word.upper())
    if code is not None:
        return {"code": code.code, "title": code.title, "text": code.text, "exitStatus": code.exit_status}
    for reason in Reason:
        if reason.value.lower() == word.lower():
            facts = FACTS[reason]
            return {
                "code": reason.value,
                "title": facts.meaning,
                "text": _HELPS[facts.waiting_helps],
                "words": {system: getattr(facts, field) for system, field in _SYSTEMS.items()},
            }
    for end, text in END_CAUSES.items():
        if end.lower() == word.lower():
            return {"code": end, "title": "cause of the end of a pod", "text": text}
    if (found := meaning_of(word)) is not None:
        return {"code": found[0], "title": "reason of a generation job or of its rows", "text": found[1]}
    for system, field in _SYSTEMS.items():
        matching = [reason for reason in Reason if getattr(FACTS[reason], field).lower() == word.lower()]
        if matching:
            return {
                "code": getattr(FACTS[matching[0]], field),
                "title": f"term of {system} for {plural(len(matching), 'reason')} of Windlass",
                "text": "Windlass reports one of these:",
                "words": {reason.value: FACTS[reason].meaning for reason in matching},
            }
    known = [*CODES, *(reason.value for reason in Reason), *END_CAUSES, *ITEM_REASONS]
    close = nearest(word, known) or nearest(word.upper(), known)
    raise WindlassError(
        "WL-USE-404",
        f'"{word}" is not an error code, a reason or a command',
        evidence=f"{len(CODES)} codes and {len(Reason) + len(ITEM_REASONS)} reasons are known",
        remedies=tuple(f"windlass help {match}" for match in close) or ("windlass help",),
    )
