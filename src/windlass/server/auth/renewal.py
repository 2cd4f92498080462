"""Certificates are renewed while the server runs, so that a box may run for years.

:func:`windlass.server.auth.pki.ensure` renews what is near its end; a new handshake then meets the new certificate, and
connections that are open stay as they are. The authority lasts ten years; should it end under a running server, it is
made anew, the kubeconfig says so, and who comes with a certificate of the old one is still known.
"""

from __future__ import annotations

import logging
import ssl

from windlass.api.errors import WindlassError
from windlass.kits.clock import Clock
from windlass.kits.state import StateFolder
from windlass.server.auth import kubeconfig, pki

LOOK_SECONDS = 3600.0
_log = logging.getLogger("windlass.server")


async def keep_fresh(state: StateFolder, clock: Clock, context: ssl.SSLContext, url: str) -> None:
    """Look after the certificates until cancelled. ``context``: of the port that is served at ``url``.

    What cannot be renewed is told, and tried again: there is a month for it."""
    while True:
        await clock.sleep(LOOK_SECONDS)
        try:
            renew(state, clock, context, url)
        except (WindlassError, OSError) as error:  # ssl.SSLError is an OSError
            _log.error("certificates not renewed: %s", error)


def renew(state: StateFolder, clock: Clock, context: ssl.SSLContext, url: str) -> bool:
    """Renew what is near its end and serve it; whether anything was. Raises :class:`WindlassError`, ``OSError``."""
    before = _served(state)
    pki.ensure(state, clock)
    if _served(state) == before:
        return False
    context.load_verify_locations(cafile=str(state.ca_cert))
    context.load_cert_chain(state.server_cert, state.server_key)
    kubeconfig.write(state, url)
    _log.info("certificates renewed")
    return True


def _served(state: StateFolder) -> tuple[bytes, bytes]:
    return state.ca_cert.read_bytes(), state.server_cert.read_bytes()
