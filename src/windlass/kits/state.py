"""State directory of the embedded control plane.

One directory, mode 0700, holds everything that must survive a restart. Nothing lies
outside it, except the Unix socket if the path is longer than a socket address allows.
All components take their paths from here, so each name is spelled once.

Raises :class:`StateError` with a ``problem`` from :class:`StateProblem`. The command
line turns it into a message (this package has no domain words).
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Any

from windlass.kits.files import write_atomic

ENVIRONMENT = "WINDLASS_STATE"
_SOCKET_LIMIT_BYTES = 100
"""``sun_path`` holds 108 bytes; some are left for suffixes."""

NETWORK_FILESYSTEMS = frozenset(
    ("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "lustre", "gpfs", "beegfs", "fuse.sshfs")
)
"""File systems without reliable byte-range locks or ``mmap``, which SQLite's log needs."""


class StateProblem:
    """Problem of a state directory."""

    READ_ONLY = "read-only"
    DENIED = "denied"
    FULL = "full"
    NOT_A_FOLDER = "not-a-folder"
    NETWORK = "network-filesystem"
    FOREIGN = "foreign"
    OTHER = "other"


class StateError(Exception):
    """The directory cannot be used. ``problem``: a :class:`StateProblem`."""

    def __init__(self, problem: str, path: Path, detail: str) -> None:
        super().__init__(f"{path}: {detail}")
        self.problem = problem
        self.path = path
        self.detail = detail

    @staticmethod
    def of(path: Path, error: OSError) -> StateError:
        problem = {
            errno.EROFS: StateProblem.READ_ONLY,
            errno.EACCES: StateProblem.DENIED,
            errno.EPERM: StateProblem.DENIED,
            errno.ENOSPC: StateProblem.FULL,
            errno.EDQUOT: StateProblem.FULL,
            errno.ENOTDIR: StateProblem.NOT_A_FOLDER,
            errno.EEXIST: StateProblem.NOT_A_FOLDER,
        }.get(error.errno or 0, StateProblem.OTHER)
        return StateError(problem, path, error.strerror or str(error))


class StateFolder:
    """Paths in the state directory. Only :meth:`prepare` creates directories."""

    __slots__ = ("path",)

    def __init__(self, path: str | Path) -> None:
        self.path = Path(os.path.abspath(os.path.expanduser(path)))

    @staticmethod
    def locate(explicit: str | Path | None = None) -> StateFolder:
        """Return ``explicit``, else ``$WINDLASS_STATE``, else ``windlass`` in the XDG state directory."""
        chosen = explicit or os.environ.get(ENVIRONMENT)
        if chosen:
            return StateFolder(chosen)
        base = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
        return StateFolder(Path(base) / "windlass")

    def __repr__(self) -> str:
        return f"StateFolder({str(self.path)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StateFolder) and other.path == self.path

    def __hash__(self) -> int:
        return hash(self.path)

    @property
    def lock(self) -> Path:
        """Return the lock file that the supervisor holds while it runs."""
        return self.path / "lock"

    @property
    def socket(self) -> Path:
        """Return the Unix socket of the API. Access to it means administrator rights."""
        inside = self.path / "windlass.sock"
        if len(os.fsencode(inside)) <= _SOCKET_LIMIT_BYTES:
            return inside
        import hashlib  # rarely needed; the command line starts without it

        digest = hashlib.sha256(os.fsencode(self.path)).hexdigest()[:12]
        return Path(f"/tmp/windlass-{os.getuid()}-{digest}/windlass.sock")

    @property
    def control_socket(self) -> Path:
        """Return the Unix socket with health and metrics of the scheduler and the controllers."""
        return self.socket.with_name("control.sock")

    @property
    def node_socket(self) -> Path:
        """Return the Unix socket on which the node agent serves streams into its pods."""
        return self.socket.with_name("node.sock")

    @property
    def kubeconfig(self) -> Path:
        return self.path / "kubeconfig"

    @property
    def token(self) -> Path:
        return self.path / "token"

    @property
    def pki(self) -> Path:
        return self.path / "pki"

    @property
    def ca_cert(self) -> Path:
        return self.pki / "ca.crt"

    @property
    def ca_key(self) -> Path:
        return self.pki / "ca.key"

    @property
    def server_cert(self) -> Path:
        return self.pki / "server.crt"

    @property
    def server_key(self) -> Path:
        return self.pki / "server.key"

    @property
    def admin_cert(self) -> Path:
        return self.pki / "admin.crt"

    @property
    def admin_key(self) -> Path:
        return self.pki / "admin.key"

    @property
    def database(self) -> Path:
        return self.path / "db" / "windlass.db"

    @property
    def node(self) -> Path:
        """Return the node agent's directory."""
        return self.path / "node"

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    @property
    def supervisor(self) -> Path:
        return self.path / "supervisor.json"

    def log(self, process: str) -> Path:
        """The log file of one process: ``server``, ``control``, ``node``, ``supervisor``."""
        return self.logs / f"{process}.log"

    def prepare(self, *, allow_network: bool = False) -> None:
        """Create the directories (0700) and check that they are writable.

        Raises :class:`StateError`: read-only or full file system, missing permission, a
        file instead of a directory, a network file system (unless ``allow_network``),
        or another owner.
        """
        try:
            for folder in (self.path, self.pki, self.database.parent, self.node, self.logs):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            owner = self.path.stat()
            if owner.st_uid != os.geteuid():
                raise StateError(StateProblem.FOREIGN, self.path, f"belongs to user id {owner.st_uid}")
            if stat.S_IMODE(owner.st_mode) & 0o077:
                self.path.chmod(0o700)
            write_atomic(self.path / ".probe", b"x", durable=False)
            os.unlink(self.path / ".probe")
            self._prepare_socket_folder()
        except OSError as error:
            raise StateError.of(self.path, error) from error
        kind = filesystem_of(self.path)
        if kind in NETWORK_FILESYSTEMS and not allow_network:
            raise StateError(StateProblem.NETWORK, self.path, f"lies on a network file system ({kind})")

    def _prepare_socket_folder(self) -> None:
        folder = self.socket.parent
        if folder == self.path:
            return
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
            raise StateError(StateProblem.FOREIGN, folder, f"belongs to user id {found.st_uid}")
        folder.chmod(0o700)

    def read_supervisor(self) -> dict[str, Any] | None:
        """Return the supervisor's record of itself; ``None`` if it is absent or unreadable."""
        import json

        try:
            record = json.loads(self.supervisor.read_bytes())
        except (OSError, ValueError):
            return None
        return record if isinstance(record, dict) else None

    def write_supervisor(self, record: dict[str, Any]) -> None:
        import json

        write_atomic(self.supervisor, json.dumps(record, indent=1).encode(), durable=False)


def filesystem_of(path: Path) -> str:
    """Return the type of the file system of ``path`` (``ext4``, ``nfs4`` …); ``""`` if unknown."""
    try:
        lines = Path("/proc/self/mountinfo").read_text().splitlines()
    except OSError:
        return ""
    wanted = os.path.realpath(path)
    best, kind = -1, ""
    for line in lines:
        left, separator, right = line.partition(" - ")
        fields = left.split(" ")
        if not separator or len(fields) < 5:
            continue
        mount = fields[4].encode().decode("unicode_escape")
        inside = wanted == mount or wanted.startswith(mount.rstrip("/") + "/")
        if inside and len(mount) >= best:
            best, kind = len(mount), right.split(" ", 1)[0]
    return kind
