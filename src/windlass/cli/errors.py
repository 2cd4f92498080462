"""Errors in one shape (what, why, try), and the exit status that belongs to each.

The text goes to standard error: ``error[WL-QUEUE-404]: queue "reseach" does not
exist``, then ``why: …`` and ``try: …``. With ``-o json`` it is the same as JSON.

Exit statuses: 0 ok, 1 job failed (the job's own status while following), 2 usage, 3 not
found, 4 forbidden, 5 conflict, 6 can never be scheduled, 7 server unreachable, 130
interrupted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeVar

from windlass.api.errors import StatusError, WindlassError
from windlass.kits.printable import visible

if TYPE_CHECKING:
    from windlass.api.resources import Resource
    from windlass.cli.invocation import InvocationContext
    from windlass.client.blocking import BlockingClient

Result = TypeVar("Result")
OK, FAILED, USAGE, NOT_FOUND, FORBIDDEN, CONFLICT, UNSCHEDULABLE, UNREACHABLE = range(8)
INTERRUPTED = 130
_DISK_FULL = "WL-STORE-507"
_NOT_RUNNING = "WL-SERVER-502"


def exit_status(error: WindlassError) -> int:
    """Return the exit status by the number at the end of the code (``api.error_codes``)."""
    from windlass.api.error_codes import exit_status_of

    return exit_status_of(error.code)


def as_text(error: WindlassError, paint: Callable[[str, str], str] = lambda text, _colour: text) -> str:
    lines = [f"{paint(f'error[{error.code}]:', 'red')} {visible(error.message)}"]
    if error.evidence:
        lines.append(f"{paint('why:', 'yellow')} {visible(error.evidence)}")
    lines += [f"{paint('try:', 'green')} {visible(remedy)}" for remedy in error.remedies]
    return "".join(f"{line}\n" for line in lines)


def unless_forbidden(ask: Callable[[], Result], otherwise: Result) -> Result:
    """Return the result of ``ask``, or ``otherwise`` if this user is not allowed to ask.

    Raises all other errors of ``ask``.
    """
    return _unless((403,), ask, otherwise)


def if_served(ask: Callable[[], Result], otherwise: Result) -> Result:
    """Return the result of ``ask``, or ``otherwise`` if the kind is unknown or forbidden.

    Raises all other errors of ``ask``.
    """
    return _unless((403, 404), ask, otherwise)


def _unless(codes: tuple[int, ...], ask: Callable[[], Result], otherwise: Result) -> Result:
    try:
        return ask()
    except StatusError as error:
        if error.code in codes:
            return otherwise
        raise


def check_is_local(command: str, flags: str, instead: str) -> None:
    """Reject flags that name a cluster, as ``command`` (``up``, ``down``) is local only.

    Raises :class:`WindlassError`, with ``instead`` as the command for clusters.
    """
    if flags and not flags.startswith("--state "):
        raise WindlassError(
            "WL-USE-400",
            f"windlass {command} works only on the control plane of this machine",
            evidence=f"{flags} names a cluster; nothing was changed",
            remedies=(f"windlass {command}", f"windlass {instead}"),
        )


_OFFLINE = frozenset({"help", "completion", "convert", "crds", "version", "--help"})
_NO_CLUSTER = _OFFLINE | {"up", "down"}
"""Commands that do not depend on a cluster."""


def with_target(error: WindlassError, context: InvocationContext) -> WindlassError:
    """Return the error with remedies for the control plane that the user named.

    Its flags (``--context NAME``, ``--state DIR``) are added to each command, so that
    the command can be copied. If nothing runs on this machine, the evidence says why,
    as far as known. If the user named nothing and a kubeconfig exists, a remedy
    mentions it.
    """
    evidence, remedies = (
        error.evidence,
        [remedy_with_target(remedy, context.target_flags) for remedy in error.remedies],
    )
    if error.code == _NOT_RUNNING:
        from windlass.cli.bootstrap import down_reason, is_full
        from windlass.client.kubeconfig import search_path

        if context.local_state is not None and (reason := down_reason(context.local_state)):
            evidence = reason
        if context.local_state is not None and is_full(context.local_state.path):
            remedies[:0] = [f"df -h {context.local_state.path}", "free disk space there first"]
        if not context.target_flags and any(file.is_file() for file in search_path()):
            remedies.append("windlass --context NAME status   (for a cluster of your kubeconfig)")
    return WindlassError(error.code, error.message, evidence=evidence, remedies=remedies)


def remedy_with_target(remedy: str, flags: str) -> str:
    """Return a remedy with the flags added to its commands.

    These are the commands that begin with ``windlass`` or ``kubectl``. Other text is
    returned unchanged.
    """
    if not flags:
        return remedy
    return " && ".join(_command_with_target(part, flags) for part in remedy.split(" && "))


def _command_with_target(line: str, flags: str) -> str:
    command, _, rest = line.partition(" ")
    local = flags.startswith("--state ")
    commands, excluded = (("windlass",), _OFFLINE) if local else (("windlass", "kubectl"), _NO_CLUSTER)
    words = {word.partition("=")[0] for word in rest.partition(" -- ")[0].split()}
    if command not in commands or not rest or words & {"--kubeconfig", "--state"}:
        return line
    if "--context" in words and local:
        return line
    if "--context" in words or line.startswith("kubectl config "):  # the second needs no context
        flags = flags.partition("--context ")[0].rstrip()
    return line if not flags or rest.split()[0].rstrip(",") in excluded else f"{command} {flags} {rest}"


# Words and short names of the kinds in codes and commands.
_SUBJECTS = {
    "pods": ("POD", "pod"),
    "nodes": ("NODE", "node"),
    "queues": ("QUEUE", "queue"),
    "jobs": ("JOB", "job"),
    "podgroups": ("GROUP", "pod group"),
    "namespaces": ("NAMESPACE", "namespace"),
}


def subject(plural: str) -> tuple[str, str]:
    """Return the word for codes and the word for sentences: ``("QUEUE", "queue")``."""
    return _SUBJECTS.get(plural, ("OBJECT", plural.removesuffix("s") or "object"))


def nearest(name: str, known: Iterable[str], count: int = 3) -> list[str]:
    """Return the names closest to a mistyped one, best first."""
    import difflib

    return difflib.get_close_matches(name, list(known), n=count, cutoff=0.6)


def missing(plural: str, name: str, known: Iterable[str], namespace: str | None = None) -> WindlassError:
    """Return ``WL-…-404`` with the nearest names. ``namespace``: where the object was looked for."""
    word, noun = subject(plural)
    names = sorted(set(known))
    close = nearest(name, names)
    listing = {
        "queues": "windlass queue ls",
        "nodes": "windlass node ls",
        "jobs": "windlass ps",
        "pods": "windlass get pods -A",
        "podgroups": "windlass get podgroups -A",
        "resources": "windlass describe nodes",
    }.get(plural, f"windlass get {plural}")
    prefixed = [
        candidate for candidate in names if candidate.startswith(f"{name}-")
    ]  # such as the pods of a Deployment
    where = f" in namespace {namespace}" if namespace else ""
    existing = f"{noun}s that begin with this name" if prefixed else f"existing {noun}s"
    names = prefixed or names
    shown = ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
    return WindlassError(
        f"WL-{word}-404",
        f'{noun} "{name}" does not exist{where}',
        evidence=f"{existing}: {shown}" if names else f"there are no {noun}s{where}",
        remedies=(*(f"did you mean {match}?" for match in close), *_made_by(plural, name), listing),
    )


def _made_by(plural: str, name: str) -> tuple[str, ...]:
    """Return the command that creates an object which no other command of Windlass creates."""
    return (f"kubectl create namespace {name}",) if plural == "namespaces" else ()


def check_namespace(client: BlockingClient, name: str | None) -> None:
    """Raise ``WL-NAMESPACE-404`` if the namespace does not exist.

    Called when nothing was found, because a mistyped namespace is then the likely
    cause. ``default`` always exists and is not looked up.
    """
    from windlass.api.resources import NAMESPACES

    if name and name != "default" and unless_forbidden(lambda: client.find(NAMESPACES, name), {}) is None:
        known = unless_forbidden(lambda: client.list(NAMESPACES).items, [])
        raise missing("namespaces", name, [item["metadata"]["name"] for item in known])


def check_queue(client: BlockingClient, name: str) -> None:
    """Raise ``WL-QUEUE-404`` if the queue does not exist.

    An operation on all of a mistyped queue would do nothing, without an error.
    """
    from windlass.api.resources import QUEUES

    if unless_forbidden(lambda: client.find(QUEUES, name), {}) is None:
        known = unless_forbidden(lambda: client.list(QUEUES).items, [])
        raise missing("queues", name, [item["metadata"]["name"] for item in known])


def translate(error: StatusError, client: BlockingClient | None = None) -> WindlassError:
    """Return the server's Status as an error with a code and remedies."""
    plural = str(error.details.get("kind") or "").lower()
    name = str(error.details.get("name") or "")
    code_word, noun = subject(plural if plural.endswith("s") else plural + "s" if plural else "")
    handlers: dict[int, Callable[[], WindlassError]] = {
        401: lambda: WindlassError(
            "WL-AUTH-401",
            "the server does not accept your credentials",
            evidence=error.message,
            remedies=("kubectl auth whoami",)
            if client is not None and not client.connection.unix_socket
            else ("use the kubeconfig that `windlass status` shows", "windlass status"),
        ),
        404: lambda: _not_found(error, plural, name, client),
        409: lambda: _conflict(error, code_word, noun, name),
        410: lambda: WindlassError(
            "WL-OBJECT-410",
            "the list expired while it was being read",
            evidence=error.message,
            remedies=("run the command again",),
        ),
        413: lambda: WindlassError(
            "WL-SERVER-413",
            "the object is larger than the server accepts",
            evidence=error.message,
            remedies=("store large data in files or a volume, and refer to it in the object",),
        ),
        422: lambda: _invalid(error, code_word, noun, name),
        429: lambda: WindlassError(
            "WL-SERVER-429",
            "the server is overloaded",
            evidence=error.message,
            remedies=(f"try again in {error.retry_after_seconds or 1} s",),
        ),
        507: lambda: WindlassError(
            "WL-STATE-507",
            "the control plane's disk is full; nothing was written",
            evidence=error.message.removeprefix(f"{_DISK_FULL}: "),
            remedies=("df -h", "free disk space, then: windlass up"),
        ),
    }
    full = error.message.startswith(f"{_DISK_FULL}:")  # the store's error, passed on by the server
    handler = handlers.get(507 if full else error.code)
    if handler is not None:
        return handler()
    if error.code == 403:
        return _forbidden(error, code_word)
    if error.code in (400, 405, 406, 415):
        return WindlassError(
            f"WL-{code_word}-400", error.message or "the server did not understand the request", evidence=""
        )
    return WindlassError(
        f"WL-SERVER-{error.code}",
        error.message or f"the server answered {error.code}",
        evidence=f"HTTP {error.code} {error.reason}".strip(),
        remedies=("windlass status", "windlass doctor"),
    )


def _not_found(error: StatusError, plural: str, name: str, client: BlockingClient | None) -> WindlassError:
    if not plural or not name:
        if client is not None and (absent := absent_kinds(client)):
            return _not_installed([resource.qualified for resource in absent])
        return WindlassError(
            "WL-OBJECT-404",
            error.message,
            evidence="the server does not serve this path",
            remedies=("windlass crds",),
        )
    return missing(plural, name, _known(plural, str(error.details.get("group") or ""), client))


def absent_kinds(client: BlockingClient) -> list[Resource]:
    """Return the kinds that Windlass needs and the server does not serve.

    Raises ``Unreachable``, and ``StatusError`` for any status except 404.
    """
    from windlass.api.resources import POD_GROUPS, QUEUES, VOLCANO_JOBS
    from windlass.client.transport import Request

    absent = []
    for resource in (QUEUES, POD_GROUPS, VOLCANO_JOBS):
        try:
            served = client.call(Request("GET", f"/apis/{resource.api_version}"))
        except StatusError as error:
            if error.code != 404:
                raise
            served = b""
        if f'"{resource.plural}"'.encode() not in served:
            absent.append(resource)
    return absent


def _not_installed(absent: list[str]) -> WindlassError:
    whole = len(absent) > 2
    return WindlassError(
        "WL-OBJECT-404",
        f"this cluster does not have the kinds {', '.join(absent)}",
        evidence="Windlass is not installed in this cluster"
        if whole
        else "it has other kinds of Windlass: the installation is incomplete",
        remedies=("windlass install", "windlass plan   (needs none of these kinds)"),
    )


def _known(plural: str, group: str, client: BlockingClient | None) -> list[str]:
    from windlass.api.resources import ALL

    resource = next((r for r in ALL if r.plural == plural and r.group == group), None)
    if resource is None or client is None:
        return []
    try:
        items = client.list(resource).items
    except (StatusError, WindlassError):
        return []
    return [item["metadata"]["name"] for item in items]


def _conflict(error: StatusError, code_word: str, noun: str, name: str) -> WindlassError:
    if error.reason == "AlreadyExists":
        return WindlassError(
            f"WL-{code_word}-409",
            f'{noun} "{name}" already exists',
            evidence=error.message,
            remedies=(
                "choose another name",
                f"windlass queue set {name} KEY=VALUE   (to change it)"
                if noun == "queue"
                else "windlass apply -f FILE   (to change it)",
            ),
        )
    return WindlassError(
        f"WL-{code_word}-409",
        f'{noun} "{name}" was changed by another client in the meantime',
        evidence=error.message,
        remedies=("run the command again",),
    )


def _invalid(error: StatusError, code_word: str, noun: str, name: str) -> WindlassError:
    causes = error.details.get("causes") or ()
    problems = [f"{c.get('field', '')}: {c.get('message', '')}".strip(": ") for c in causes]
    return WindlassError(
        f"WL-{code_word}-422",
        f'{noun} "{name}" is not valid' if name else f"the {noun} is not valid",
        evidence="; ".join(problems) or error.message,
        remedies=(f"correct {causes[0]['field']}",) if causes and causes[0].get("field") else (),
    )


_RIGHT = re.compile(
    r'cannot (?P<verb>\w+) resource "(?P<what>[^"]+)" in API group "(?P<group>[^"]*)"'
    r'(?: in the namespace "(?P<space>[^"]+)")?'
)
"""Message of a cluster's authorizer."""


def _forbidden(error: StatusError, code_word: str) -> WindlassError:
    if "exceeded quota" in error.message:
        return WindlassError(
            f"WL-{code_word}-403",
            "the namespace's quota does not allow this request",
            evidence=error.message,
            remedies=("windlass get resourcequota -A",),
        )
    remedies: tuple[str, ...] = ()
    if match := _RIGHT.search(error.message):
        what = ".".join(filter(None, (match["what"], match["group"])))
        where = f"-n {match['space']}" if match["space"] else "-A"
        remedies = (
            f"kubectl auth can-i {match['verb']} {what} {where}",
            f"ask an administrator of the cluster for this permission: {match['verb']} {what}",
        )
    return WindlassError(
        f"WL-{code_word}-403", "you are not allowed to do this", evidence=error.message, remedies=remedies
    )
