"""Reasons of rows and of generation jobs, in words for ``windlass help``."""

from __future__ import annotations

import re

HTTP = "HTTP400"
"""Reason of a row that stands for any status of a server."""
ITEM_REASONS = {
    "DiskFull": "The disk of the outputs is full. The job goes on by itself once there is space.",
    "EmptyInput": "The input has no row. Look at spec.input: the file, its format, and its filter.",
    HTTP: "The server refused the request of a row with this status; the message of the row is its answer. "
    "windlass items dead JOB lists the rows.",
    "InputUnreadable": "The driver cannot read spec.input: the path does not exist on its node, it has no right to "
    "it, or it is in another format.",
    "InvalidAnswer": "The server or program answered something that is not a row: it must be a JSON object. "
    "A program gives each answer the id of its row, and logs to standard error.",
    "InvalidOutput": "The function or program returned something that is not a row: it must be a JSON object.",
    "InvalidRow": "A row of the input has no id, one that another row has, or no field that the prompt names. "
    "spec.input.idField (--id) names the field with the id.",
    "InvalidSpec": "The driver cannot run the spec of the job; the message names the field.",
    "LeaseLost": "A worker did not report on a row within spec.items.leaseSeconds, and another worker gets the row.",
    "LowQuality": "The score of an output is below spec.outputs.quality.min (--min-quality).",
    "MissingPackage": "The format of the input or the outputs needs a Python package that is not installed.",
    "NoOutput": "The worker sent neither a row nor an error for a row.",
    "OutputInUse": "Another job writes to spec.outputs.path. Give one of them another path (--output).",
    "OutputIsInput": "spec.outputs.path (--output) or spec.items.deadLetter.path is the file of the input. "
    "Give it another path.",
    "OutputIsOccupied": "A file that no generation job wrote is at spec.outputs.path (--output): its rows have no id. "
    "Move it, or give another path.",
    "OutputUnwritable": "The driver cannot write to spec.outputs.path (--output): the folder cannot be created, or "
    "it has no right to it.",
    "ProcessExited": "The program of the template ended while it had rows; its last lines are in the message. "
    "windlass logs JOB shows the rest.",
    "ProgramError": "The program answered a row with an error.",
    "ScorerFailed": "The scorer of spec.outputs.quality failed three times on an output, or its score is not "
    "from 0 to 100. The error row keeps the output. Correct the scorer, then run the rows again: "
    "windlass items retry JOB.",
    "ScorerUnreachable": "The server of the scorer cannot be reached. Rows are tried again.",
    "ServerOverloaded": "The server answered for 15 min that it is overloaded (429, 503). Rows are tried again.",
    "ServerUnreachable": "The server of spec.runtimeRef.url (--url) cannot be reached from the worker's pod. Rows are "
    "tried again. 127.0.0.1 is the pod itself, or its node with spec.template.spec.hostNetwork: true.",
    "Timeout": "A row took longer than spec.items.timeoutSeconds, or than the runtime allows.",
    "ProgramDoesNotStart": "The program ended 5 times with the same error before its first answer. "
    "Correct its command, then start the job again.",
    "TooManyFailedItems": "More rows failed than spec.items.maxFailedPercent (--max-failed) allows. "
    "windlass items dead JOB lists them.",
    "TooManyInvalidRows": "More rows of the input are invalid than spec.items.maxFailedPercent (--max-failed) allows.",
    "Unfinished": "A worker ended before it had reported on the row.",
}
"""Reason → meaning and remedy."""


def meaning_of(word: str) -> tuple[str, str] | None:
    """Return the reason as it is written, and its meaning; ``None`` for an unknown one."""
    if re.fullmatch(r"http[1-5]\d\d", word.lower()):
        return word.upper(), ITEM_REASONS[HTTP]
    for reason, text in ITEM_REASONS.items():
        if reason.lower() == word.lower():
            return reason, text
    return None
