"""Errors of a server that cannot be reached, or that does not answer as expected.

A rejection by the server is an :class:`windlass.api.errors.StatusError` instead.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Sequence

from windlass.api.errors import WindlassError

# Stable codes; each has a page in the reference of error codes.
UNREACHABLE = "WL-SERVER-503"
NOT_RUNNING = "WL-SERVER-502"
TLS = "WL-SERVER-495"
UNAUTHORIZED = "WL-SERVER-401"
PROTOCOL = "WL-SERVER-505"
KUBECONFIG = "WL-KUBECONFIG-422"
KUBECONFIG_MISSING = "WL-KUBECONFIG-404"
CREDENTIALS = "WL-CREDENTIALS-401"
PROXY_ADDRESS = "WL-PROXY-400"
PROXY_REFUSED = "WL-PROXY-403"
PROXY_UNREACHABLE = "WL-PROXY-503"
_LOOPBACK = re.compile(r"//(127\.|localhost\b|\[::1\])")


class Unreachable(WindlassError):
    """No response can be obtained.

    ``refused``: true if no process listens there. The request was then certainly not
        processed.
    ``processed``: true if the request may have been processed although no response
        arrived.
    """

    def __init__(
        self,
        code: str,
        message: str,
        *,
        evidence: str = "",
        remedies: Sequence[str] = (),
        refused: bool = False,
        processed: bool = False,
    ) -> None:
        super().__init__(code, message, evidence=evidence, remedies=remedies)
        self.refused = refused
        self.processed = processed


def connect_failed(error: OSError, where: str, *, unix: bool) -> Unreachable:
    """Return the error for a failed connection to ``where``, with its cause and a remedy."""
    evidence = f"{where}: {error.strerror or error}"
    number = error.errno
    if unix and number in (errno.ENOENT, errno.ECONNREFUSED):
        what = "there is no socket" if number == errno.ENOENT else "no process listens on the socket"
        return Unreachable(
            NOT_RUNNING,
            f"the control plane is not running: {what} {where}",
            evidence=evidence,
            remedies=("windlass up", "windlass status"),
            refused=True,
        )
    if unix and number in (errno.EACCES, errno.EPERM):
        return Unreachable(
            UNREACHABLE,
            f"no permission to open the control plane's socket {where}",
            evidence=evidence,
            remedies=("run the command as the user who started the control plane",),
        )
    if number == errno.ECONNREFUSED:
        return Unreachable(
            UNREACHABLE,
            f"connection refused: no server listens on {where}",
            evidence=evidence,
            remedies=(
                "check the server address: kubectl config view --minify",
                *(
                    ("windlass up   (if it is this machine's control plane)",)
                    if _LOOPBACK.search(where)
                    else ()
                ),
            ),
            refused=True,
        )
    return Unreachable(
        UNREACHABLE,
        f"cannot connect to {where}: {error.strerror or error}",
        evidence=evidence,
        remedies=("check the server address: kubectl config view --minify",),
    )


def tls_failed(error: Exception, where: str) -> Unreachable:
    """Return the error for a failed TLS handshake.

    Causes are a server without TLS, an unknown authority, a wrong name or an expired
    certificate.
    """
    text = str(error)
    remedies: tuple[str, ...] = ("check certificate-authority-data of the cluster in the kubeconfig",)
    why = "the TLS handshake failed"
    if "WRONG_VERSION_NUMBER" in text or "record layer failure" in text.lower():
        why = "the server does not speak TLS on this port"
        remedies = ("use http:// in the server address, or the TLS port",)
    elif "IP address mismatch" in text or "Hostname mismatch" in text or "doesn't match" in text:
        why = "the server's certificate is for another host"
        remedies = ("set tls-server-name of the cluster in the kubeconfig to a name in the certificate",)
    elif "certificate has expired" in text:
        why = "the server's certificate has expired"
        remedies = ("renew the certificate", "check this machine's clock: date")
    elif "CERTIFICATE_VERIFY_FAILED" in text:
        why = "the server's certificate is not signed by the authority in the kubeconfig"
        remedies = (*remedies, "if the control plane was set up again, use its new kubeconfig")
    elif "alert" in text.lower():
        why = "the server refused the TLS handshake (a client certificate that it does not accept?)"
        remedies = ("check client-certificate-data of the user in the kubeconfig",)
    return Unreachable(TLS, f"{why}: {where}", evidence=text, remedies=remedies)


def timed_out(where: str, what: str, seconds: float, *, processed: bool) -> Unreachable:
    return Unreachable(
        UNREACHABLE,
        f"{where} did not answer: {what} took more than {seconds:g} s",
        evidence=f"waited {seconds:g} s",
        remedies=("windlass status",),
        processed=processed,
    )


def disconnected(where: str, detail: str, *, processed: bool) -> Unreachable:
    return Unreachable(
        UNREACHABLE,
        f"the connection to {where} broke: {detail}",
        evidence=detail,
        remedies=("windlass status",),
        processed=processed,
    )


def garbled(where: str, detail: str) -> Unreachable:
    return Unreachable(
        PROTOCOL,
        f"{where}: not a response of a Kubernetes API server",
        evidence=detail,
        remedies=("check that this is the address of a Kubernetes API server (and https://, not http://)",),
        processed=True,
    )
