"""Query parameters, parsed once and validated as in kube-apiserver."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import parse_qsl

from windlass.api.errors import FieldError, StatusError, bad_request, failure
from windlass.api.selectors import EVERYTHING, FieldTerm, Selector, SelectorError, parse_fields, parse_labels

NOT_OLDER_THAN = "NotOlderThan"
EXACT = "Exact"
_VERSION_DIGITS = 19
"""Maximum number of digits of a resourceVersion."""


def parse_query(query: str) -> dict[str, str]:
    """Return the first value of each parameter."""
    if not query:
        return {}
    params: dict[str, str] = {}
    for key, value in parse_qsl(query, keep_blank_values=True):
        params.setdefault(key, value)
    return params


def options_invalid(kind: str, errors: list[FieldError]) -> StatusError:
    """Return 422 for invalid combinations of options.

    ``kind``: ListOptions, DeleteOptions …
    """
    texts = [f"{error.field}: {error.message}" for error in errors]
    body = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    causes = [{"reason": e.reason, "message": e.message, "field": e.field} for e in errors]
    details = {"group": "meta.k8s.io", "kind": kind, "causes": causes}
    return failure(422, "Invalid", f'{kind}.meta.k8s.io "" is invalid: {body}', details)


def truth(params: Mapping[str, str], key: str) -> bool | None:
    """Return a boolean parameter; ``None`` if absent.

    As in Go, only ``0``, ``f``, ``false`` and the empty text are false.
    """
    value = params.get(key)
    return None if value is None else value.lower() not in ("", "0", "false", "f")


def number(params: Mapping[str, str], key: str) -> int | None:
    """Return an integer parameter; ``None`` if absent or empty. Raises 400."""
    value = params.get(key)
    if not value:
        return None
    try:
        return int(value)
    except ValueError:
        raise bad_request(f'strconv.ParseInt: parsing "{value}": invalid syntax')


def version(text: str) -> int | None:
    """Return a resourceVersion; ``None`` if unset. Raises 400."""
    if not text:
        return None
    number = text.isascii() and text.isdigit()
    if number and len(text) <= _VERSION_DIGITS:
        return int(text)
    raise bad_request(
        f'invalid resource version: resourceVersion: Invalid value: "{text}": '
        f'strconv.ParseUint: parsing "{text}": {"value out of range" if number else "invalid syntax"}'
    )


@dataclass(frozen=True, slots=True)
class ListOptions:
    """Options of list, watch and deletecollection.

    ``rv`` is ``None`` if unset, ``timeout_seconds`` if any.
    """

    labels: Selector = EVERYTHING
    fields: tuple[FieldTerm, ...] = ()
    limit: int = 0
    token: str = ""
    rv: int | None = None
    match: str = ""
    watch: bool = False
    bookmarks: bool = False
    timeout_seconds: int | None = None
    initial_events: bool | None = None


def list_options(params: Mapping[str, str], *, watch: bool = False) -> ListOptions:
    """Return the options of a list or watch.

    Raises 400 if a value cannot be parsed, and 422 for an invalid combination.
    """
    if not params and not watch:
        return ListOptions()
    watching = watch or bool(truth(params, "watch"))
    try:
        labels = parse_labels(params.get("labelSelector", ""))
        fields = parse_fields(params.get("fieldSelector", ""))
    except SelectorError as error:
        raise bad_request(str(error))
    text = params.get("resourceVersion", "")
    options = ListOptions(
        labels=labels,
        fields=fields,
        limit=max(0, number(params, "limit") or 0),
        token=params.get("continue", ""),
        rv=version(text),
        match=params.get("resourceVersionMatch", ""),
        watch=watching,
        bookmarks=bool(truth(params, "allowWatchBookmarks")),
        timeout_seconds=number(params, "timeoutSeconds"),
        initial_events=truth(params, "sendInitialEvents"),
    )
    problems = _watch_problems(options) if watching else _list_problems(options)
    if problems:
        raise options_invalid("ListOptions", problems)
    if options.token and options.rv is not None and not watching and options.rv != 0:
        raise bad_request("specifying resource version is not allowed when using continue")
    return options


def _list_problems(options: ListOptions) -> list[FieldError]:
    problems = []
    field, match = "resourceVersionMatch", options.match
    if match:
        if options.rv is None:
            problems.append(
                FieldError.forbidden(field, f"{field} is forbidden unless resourceVersion is provided")
            )
        if options.token:
            problems.append(FieldError.forbidden(field, f"{field} is forbidden when continue is provided"))
        if match not in (EXACT, NOT_OLDER_THAN):
            problems.append(FieldError.not_supported(field, match, (EXACT, NOT_OLDER_THAN, "")))
        if match == EXACT and options.rv == 0:
            problems.append(
                FieldError.forbidden(field, f'{field} "exact" is forbidden for resourceVersion "0"')
            )
    if options.initial_events is not None:
        problems.append(FieldError.forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"))
    return problems


def _watch_problems(options: ListOptions) -> list[FieldError]:
    problems = []
    field, match = "resourceVersionMatch", options.match
    if options.initial_events is not None:
        if match != NOT_OLDER_THAN:
            problems.append(
                FieldError.forbidden(
                    field, f"sendInitialEvents requires setting resourceVersionMatch to {NOT_OLDER_THAN}"
                )
            )
    elif match:
        problems.append(
            FieldError.forbidden(
                field, f"{field} is forbidden for watch unless sendInitialEvents is provided"
            )
        )
    if match:
        if match != NOT_OLDER_THAN:
            problems.append(FieldError.not_supported(field, match, (NOT_OLDER_THAN,)))
        if options.token:
            problems.append(FieldError.forbidden(field, f"{field} is forbidden when continue is provided"))
    return problems


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """Options of create, update and patch."""

    dry_run: bool = False
    validation: str = ""
    manager: str = ""
    force: bool = False


def write_options(params: Mapping[str, str], kind: str) -> WriteOptions:
    """Return the options of a write. Raises 422.

    ``kind``: CreateOptions, UpdateOptions or PatchOptions.
    """
    if not params:
        return WriteOptions()
    return WriteOptions(
        dry_run=dry_run(params.get("dryRun"), kind),
        validation=params.get("fieldValidation", ""),
        manager=params.get("fieldManager", ""),
        force=bool(truth(params, "force")),
    )


def dry_run(value: str | None, kind: str) -> bool:
    """Return whether ``dryRun`` is requested. Raises 422 for any value but ``All``."""
    if not value:
        return False
    if value != "All":
        message = f'Unsupported value: ["{value}"]: supported values: "All"'
        raise options_invalid(kind, [FieldError("dryRun", message, "FieldValueNotSupported")])
    return True
