"""Reader of kubeconfig files.

The result is a :class:`~windlass.client.connection.Connection`.

Order: the given path, ``$KUBECONFIG`` (several files, merged as in kubectl: the first
definition of a name wins), ``~/.kube/config``, the ServiceAccount of the pod. Every
error names the file, the entry, the field and a remedy.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from windlass.api.errors import WindlassError
from windlass.client import errors, incluster, proxies
from windlass.client.connection import Connection, ExecPlugin, over_socket, ssl_context

__all__ = ["Connection", "load", "namespace_of_box", "over_socket", "search_path", "ssl_context"]

_SECTIONS = (("clusters", "cluster"), ("users", "user"), ("contexts", "context"))


def search_path(path: str | Path | None = None, environ: Mapping[str, str] | None = None) -> list[Path]:
    """Return the files that :func:`load` reads, in order. They need not exist."""
    if path is not None:
        return [Path(path)]
    env = os.environ if environ is None else environ
    listed = [Path(part) for part in env.get("KUBECONFIG", "").split(os.pathsep) if part]
    if listed:
        return listed
    home = env.get("HOME") or os.path.expanduser("~")
    return [Path(home) / ".kube" / "config"]


def load(
    path: str | Path | None = None,
    context: str | None = None,
    *,
    environ: Mapping[str, str] | None = None,
) -> Connection:
    """Return the connection of ``context`` (default: the file's current one).

    In a pod without a file and a requested context, it is the ServiceAccount's. Raises
    :class:`WindlassError`.
    """
    files = search_path(path, environ)
    merged = _Merged()
    for file in files:
        merged.add(file, required=path is not None)
    if not merged.files:
        inside = incluster.connection(environ) if path is None and not context else None
        if inside is not None:
            return inside
        names = ", ".join(map(str, files))
        raise WindlassError(
            errors.KUBECONFIG_MISSING,
            f"there is no kubeconfig: {names} does not exist",
            evidence=f"looked at {names}",
            remedies=("windlass up", "export KUBECONFIG=PATH"),
        )
    return merged.connection(context)


def namespace_of_box(own: Path, *, environ: Mapping[str, str] | None = None) -> str:
    """Return the namespace that kubectl uses for the server of a box; empty: none is set.

    ``own``: kubeconfig of the box. If the current context of kubectl (``$KUBECONFIG``,
    ``~/.kube/config``) leads to the same server, its namespace counts, else that of ``own``.
    Raises :class:`WindlassError` for a file that is not a kubeconfig.
    """
    try:
        raw = own.read_bytes()
    except OSError:
        return ""  # the box was never started: its server is reached by the socket only
    server = re.search(rb"server\W+(https?://[^\s\"']+)", raw)
    texts = {file: _content(file) for file in search_path(environ=environ)}
    texts.pop(own, None)
    if server and any(server[1] in text for text in texts.values()):
        address, namespace = _current_place(search_path(environ=environ))
        if address == server[1].decode():
            return namespace
    if set(re.findall(rb"namespace\W+([^\s\"']+)", raw)) <= {b"default"}:
        return ""  # as it was written: most commands need no YAML parser
    return _current_place([own])[1]


def _current_place(files: Iterable[Path]) -> tuple[str, str]:
    """Return server and namespace of the current context in these files."""
    merged = _Merged()
    for file in files:
        merged.add(file, required=False)
    return merged.current_place()


def _content(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError:
        return b""


class _Entry:
    """Named cluster, user or context, and the file that defines it."""

    def __init__(self, file: Path, section: str, name: str, body: Mapping[str, Any]) -> None:
        self.file = file
        self.section = section
        self.name = name
        self.body = body

    def refuse(self, field: str, why: str, *remedies: str) -> WindlassError:
        singular = self.section.removesuffix("s")
        return WindlassError(
            errors.KUBECONFIG,
            f'{self.file}: {singular} "{self.name}": {field}: {why}',
            evidence=f"read from {self.file}",
            remedies=remedies or (f"correct {field} in {self.file}",),
        )

    def text(self, field: str) -> str:
        value = self.body.get(field)
        if value is None:
            return ""
        if not isinstance(value, str):
            raise self.refuse(field, f"must be a string, not {type(value).__name__}")
        return value

    def flag(self, field: str) -> bool:
        value = self.body.get(field, False)
        if not isinstance(value, bool):
            raise self.refuse(field, f"must be true or false, not {value!r}")
        return value

    def resolve(self, name: str) -> Path:
        """Return a path; relative paths start at the file's own directory."""
        return self.file.parent / os.path.expanduser(name)

    def material(self, field: str) -> bytes:
        """Return ``FIELD-data`` (base64), else the content of the file in ``FIELD``."""
        inline = self.text(f"{field}-data")
        if inline:
            try:
                return base64.b64decode(inline, validate=True)
            except (binascii.Error, ValueError) as error:
                raise self.refuse(f"{field}-data", f"is not base64: {error}") from error
        name = self.text(field)
        if not name:
            return b""
        try:
            return self.resolve(name).read_bytes()
        except OSError as error:
            raise self.refuse(
                field, f"the file {self.resolve(name)} cannot be read: {error.strerror}"
            ) from error

    def files(self, first: str, second: str) -> tuple[str, str] | None:
        """Return the paths in two fields, if both are read from files."""
        if any(self.text(f"{field}-data") or not self.text(field) for field in (first, second)):
            return None
        return str(self.resolve(self.text(first))), str(self.resolve(self.text(second)))


class _Merged:
    def __init__(self) -> None:
        self.files: list[Path] = []
        self.current = ""
        self._entries: dict[str, dict[str, _Entry]] = {section: {} for section, _ in _SECTIONS}

    def add(self, file: Path, *, required: bool) -> None:
        try:
            raw = file.read_bytes()
        except FileNotFoundError:
            if required:
                raise WindlassError(
                    errors.KUBECONFIG_MISSING,
                    f"there is no kubeconfig {file}",
                    remedies=("windlass up", "windlass --kubeconfig PATH …"),
                ) from None
            return
        except OSError as error:
            raise WindlassError(
                errors.KUBECONFIG,
                f"the kubeconfig {file} cannot be read: {error.strerror}",
                evidence=str(error),
                remedies=(f"ls -l {file}",),
            ) from error
        document = _parse(file, raw)
        self.files.append(file)
        current = document.get("current-context")
        if isinstance(current, str) and not self.current:
            self.current = current
        for section, singular in _SECTIONS:
            for entry in _named(file, section, singular, document.get(section)):
                self._entries[section].setdefault(entry.name, entry)

    def current_place(self) -> tuple[str, str]:
        """Return server and namespace of the current context; empty where they are not set."""
        context = self._entries["contexts"].get(self.current)
        if context is None:
            return "", ""
        cluster = self._entries["clusters"].get(context.text("cluster"))
        return cluster.text("server") if cluster else "", context.text("namespace")

    def connection(self, wanted: str | None) -> Connection:
        name = wanted or self.current
        files = ", ".join(map(str, self.files))
        if not name:
            raise WindlassError(
                errors.KUBECONFIG,
                f"{files}: current-context: not set",
                remedies=(f"kubectl config use-context NAME  (one of: {self._names('contexts')})",),
            )
        context = self._entry("contexts", name, f"{files}: current-context" if not wanted else "--context")
        cluster = self._linked(context, "cluster", "clusters")
        user = self._linked(context, "user", "users")
        return _connection(context, cluster, user)

    def _linked(self, context: _Entry, field: str, section: str) -> _Entry:
        name = context.text(field)
        if not name:
            if field == "user":
                return _Entry(context.file, section, "", {})
            raise context.refuse(field, "not set")
        return self._entry(section, name, f'{context.file}: context "{context.name}": {field}')

    def _entry(self, section: str, name: str, origin: str) -> _Entry:
        entry = self._entries[section].get(name)
        if entry is None:
            import difflib  # seldom needed; every command line starts with this file

            singular = section.removesuffix("s")
            close = difflib.get_close_matches(name, self._entries[section], 1)
            raise WindlassError(
                errors.KUBECONFIG,
                f'{origin}: there is no {singular} "{name}"',
                evidence=f"{section} defined: {self._names(section)}",
                remedies=(*(f"did you mean {match}?" for match in close), "kubectl config get-contexts"),
            )
        return entry

    def _names(self, section: str) -> str:
        return ", ".join(sorted(self._entries[section])) or "none"


def _parse(file: Path, raw: bytes) -> Mapping[str, Any]:
    """Parse YAML, or JSON, which needs no import of the YAML parser."""
    try:
        if raw.lstrip()[:1] == b"{":
            import msgspec

            document = msgspec.json.decode(raw)
        else:
            import yaml

            loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
            try:
                document = yaml.load(raw, loader)
            except yaml.YAMLError as error:
                raise ValueError(str(error)) from error
    except ValueError as error:
        raise WindlassError(
            errors.KUBECONFIG,
            f"{file}: is not YAML",
            evidence=str(error),
            remedies=(f"kubectl --kubeconfig {file} config view",),
        ) from error
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise WindlassError(
            errors.KUBECONFIG,
            f"{file}: is not a kubeconfig: its top level must be a mapping",
            evidence=f"found {type(document).__name__}",
            remedies=(f"kubectl --kubeconfig {file} config view",),
        )
    return document


def _named(file: Path, section: str, singular: str, value: object) -> Iterable[_Entry]:
    if value is None:
        return
    if not isinstance(value, list):
        raise _Entry(file, section, "", {}).refuse(section, "must be a list")
    for index, item in enumerate(value):
        name = item.get("name") if isinstance(item, dict) else None
        body = (item.get(singular) or {}) if isinstance(item, dict) else None
        if not isinstance(name, str) or not isinstance(body, dict):
            raise _Entry(file, section, str(name or index), {}).refuse(
                f"{section}[{index}]", f"must have a name and a {singular}"
            )
        yield _Entry(file, section, name, body)


def _connection(context: _Entry, cluster: _Entry, user: _Entry) -> Connection:
    server = cluster.text("server")
    if not server:
        raise cluster.refuse("server", "not set")
    insecure = cluster.flag("insecure-skip-tls-verify")
    ca_data = cluster.material("certificate-authority")
    if insecure and ca_data:
        raise cluster.refuse(
            "insecure-skip-tls-verify", "cannot be true together with a certificate-authority"
        )
    cert, key = user.material("client-certificate"), user.material("client-key")
    if cert and not key:
        raise user.refuse("client-key", "not set, but client-certificate is")
    if key and not cert:
        raise user.refuse("client-certificate", "not set, but client-key is")
    token_file = user.text("tokenFile")
    if "auth-provider" in user.body:
        raise user.refuse(
            "auth-provider", "was removed from Kubernetes 1.26", "use an exec credential plugin instead"
        )
    connection = Connection(
        server=server,
        ca_data=ca_data,
        token=user.text("token"),
        token_file="" if not token_file else str(user.resolve(token_file)),
        client_cert=cert,
        client_key=key,
        client_files=user.files("client-certificate", "client-key"),
        username=user.text("username"),
        password=user.text("password"),
        exec_plugin=_exec(user),
        namespace=context.text("namespace") or "default",
        insecure=insecure,
        tls_server_name=cluster.text("tls-server-name"),
        impersonate=tuple(_impersonation(user)),
        proxy_url=_proxy(cluster),
        context=context.name,
        source=str(cluster.file),
    )
    _ = connection.address  # refuses what is no address, naming the file
    return connection


def _proxy(cluster: _Entry) -> str:
    address = cluster.text("proxy-url")
    if address:
        try:
            proxies.parse(address, "proxy-url")
        except ValueError as error:
            raise cluster.refuse("proxy-url", str(error), "set proxy-url to http://HOST:PORT") from error
    return address


def _impersonation(user: _Entry) -> Iterator[tuple[str, str]]:
    """Yield the impersonation headers of a user entry, if it names an identity.

    Without them, the user's own rights would be used, which are mostly wider.
    """
    name, uid = user.text("as"), user.text("as-uid")
    groups, extra = user.body.get("as-groups") or [], user.body.get("as-user-extra") or {}
    if not isinstance(groups, list) or not isinstance(extra, dict):
        raise user.refuse("as-groups", "must be a list, and as-user-extra a mapping of lists")
    if (uid or groups or extra) and not name:
        raise user.refuse("as", "not set, but as-uid, as-groups or as-user-extra is")
    headers = [("impersonate-user", name)] if name else []
    headers += [("impersonate-uid", uid)] if uid else []
    headers += [("impersonate-group", str(group)) for group in groups]
    for key, values in extra.items():
        headers += [(f"impersonate-extra-{quote(str(key), safe='')}", str(value)) for value in values]
    for header, value in headers:
        if not value.isprintable() or not value.isascii():
            raise user.refuse("as", f"{value!r} cannot be sent in a request header")
        yield header, value


def _exec(user: _Entry) -> ExecPlugin | None:
    body = user.body.get("exec")
    if body is None:
        return None
    if not isinstance(body, dict) or not body.get("command"):
        raise user.refuse("exec.command", "not set")
    version = body.get("apiVersion") or ""
    if version not in ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1"):
        raise user.refuse(
            "exec.apiVersion",
            f"{version!r} is not supported",
            "use client.authentication.k8s.io/v1 (or v1beta1)",
        )
    try:
        env = {str(pair["name"]): str(pair["value"]) for pair in body.get("env") or ()}
        args = tuple(str(argument) for argument in body.get("args") or ())
    except (KeyError, TypeError) as error:
        raise user.refuse("exec", f"env must be a list of name and value, args a list: {error!r}") from error
    if body.get("interactiveMode") == "Always":
        raise user.refuse("exec.interactiveMode", "Always is not supported", "use IfAvailable or Never")
    return ExecPlugin(
        command=str(body["command"]),
        args=args,
        env=env,
        api_version=version,
        install_hint=str(body.get("installHint") or ""),
        provide_cluster_info=bool(body.get("provideClusterInfo")),
        folder=str(user.file.parent),
    )
