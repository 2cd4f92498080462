"""``windlass version``: versions of the command, and of the server if one responds."""

from __future__ import annotations

import click

from windlass import __version__
from windlass.api.errors import WindlassError
from windlass.cli.invocation import Invocation
from windlass.cli.options import standard
from windlass.cli.output.formats import emit


@click.command("version")
@click.option("--client", "client_only", is_flag=True, help="Show only the version of the command.")
@standard(namespace=False)
def command(invocation: Invocation, client_only: bool) -> int:
    """Show the versions of the command and the server."""
    record = {"client": __version__}
    if not client_only:
        import msgspec

        from windlass.client.transport import Request

        try:
            version = msgspec.json.decode(invocation.client.call(Request("GET", "/version")))
            record["server"] = str(version.get("gitVersion", ""))
            record["kubernetes"] = f"{version.get('major', '?')}.{version.get('minor', '?')}"
        except WindlassError:
            record["server"] = ""
    if invocation.structured:
        emit(invocation, record, names=[f"windlass/{__version__}"])
        return 0
    invocation.out.line(f"windlass {__version__}")
    if not client_only:
        server = record["server"]
        invocation.out.line(
            f"server   {server} (Kubernetes API {record['kubernetes']})" if server else "server   not running"
        )
    return 0
