"""Plan of shadows and mounts. Pure. test_isolation tests the real mounts."""

from __future__ import annotations

from windlass.node.runtime.mounts import BindMount, Make, Mount, Shadow, ancestor, plan, shadows


class Files:
    """A file system in words: names that end in ``/`` are folders."""

    def __init__(self, *names: str) -> None:
        self.folders = {"/", *(n.rstrip("/") for n in names if n.endswith("/"))}
        self.files = {n for n in names if not n.endswith("/")}
        self.links = {"/var/run": "/run"}

    def real(self, path: str) -> str:
        for link, target in self.links.items():
            if path == link or path.startswith(link + "/"):
                return target + path[len(link) :]
        return path

    def exists(self, path: str) -> bool:
        return path in self.folders or path in self.files

    def is_directory(self, path: str) -> bool:
        return path in self.folders


FILES = Files("/etc/", "/home/", "/home/u/", "/run/", "/v/", "/w/", "/etc/hosts", "/f")


def test_ancestor_is_the_deepest_that_exists() -> None:
    assert ancestor("/etc/volcano", FILES) == "/etc"
    assert ancestor("/a/b/c", FILES) == "/"
    assert ancestor("/home/u/x/y", FILES) == "/home/u"


def test_existing_mount_points_need_no_shadow() -> None:
    steps = plan([Mount("/v", "/home/u"), Mount("/f", "/etc/hosts", optional=True)], FILES)
    assert steps == [BindMount("/f", "/etc/hosts", False), BindMount("/v", "/home/u", False)]


def test_missing_ones_are_made_under_a_shadow_of_their_ancestor_once() -> None:
    steps = plan([Mount("/v", "/etc/volcano"), Mount("/f", "/etc/x/y", True)], FILES)
    assert steps == [
        Shadow("/etc"),
        Make("/etc/volcano", True),
        BindMount("/v", "/etc/volcano", False),
        Make("/etc/x/y", False),
        BindMount("/f", "/etc/x/y", True),
    ]


def test_the_root_is_shadowed_first() -> None:
    assert shadows([Mount("/v", "/etc/a"), Mount("/w", "/data")], FILES) == ["/", "/etc"]


def test_a_mount_inside_another_volume_is_made_in_it() -> None:
    steps = plan([Mount("/w", "/data/in/side"), Mount("/v", "/data")], FILES)
    assert steps == [
        Shadow("/"),
        Make("/data", True),
        BindMount("/v", "/data", False),
        Make("/data/in/side", True),
        BindMount("/w", "/data/in/side", False),
    ]
    # also when the machine has a folder of that name: the volume hides it
    steps = plan([Mount("/v", "/home"), Mount("/w", "/home/u")], FILES)
    assert steps == [
        BindMount("/v", "/home", False),
        Make("/home/u", True),
        BindMount("/w", "/home/u", False),
    ]


def test_generated_files_are_left_out_where_the_machine_has_none() -> None:
    assert plan([Mount("/f", "/etc/resolv.conf", optional=True)], FILES) == []


def test_symbolic_links_in_targets_are_followed() -> None:
    assert plan([Mount("/v", "/var/run/x")], FILES) == [
        Shadow("/run"),
        Make("/run/x", True),
        BindMount("/v", "/run/x", False),
    ]
