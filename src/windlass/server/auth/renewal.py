"""Renewal of certificates while the server runs.

:func:`windlass.server.auth.pki.ensure` renews certificates that are about to expire.
New handshakes use the new
certificate, and open connections are not affected. If the authority expires, it is
replaced, too. The kubeconfig then
contains the new authority, and clients with a certificate of the old authority are
still accepted.
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
    """Renew certificates until cancelled.

    ``context``: TLS context of the port that is served at ``url``. A failed renewal is
    logged and retried; certificates
    are renewed a month before they expire.
    """
    while True:
        await clock.sleep(LOOK_SECONDS)
        try:
            renew(state, clock, context, url)
        except (WindlassError, OSError) as error:  # ssl.SSLError is an OSError
            _log.error("certificates not renewed: %s", error)


def renew(state: StateFolder, clock: Clock, context: ssl.SSLContext, url: str) -> bool:
    """Renew expiring certificates, serve them, and return whether one was renewed.

    Raises :class:`WindlassError`, ``OSError``.
    """
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
