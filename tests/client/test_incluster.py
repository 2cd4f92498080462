"""The connection of a process in a pod."""

from __future__ import annotations

from pathlib import Path

import pytest

from windlass.api.errors import WindlassError
from windlass.client import incluster, kubeconfig

POD = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443"}


@pytest.fixture
def mounted(tmp_path: Path) -> Path:
    for name, text in {"token": "t0k", "ca.crt": "PEM", "namespace": "windlass-system\n"}.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def test_a_pod_speaks_as_its_service_account(mounted: Path) -> None:
    found = incluster.connection(POD, mounted)
    assert found is not None
    assert (found.server, found.ca_data, found.namespace) == (
        "https://10.96.0.1:443",
        b"PEM",
        "windlass-system",
    )
    assert found.token_file == str(mounted / "token")  # read anew when the kubelet renews it
    assert found.token == ""


def test_an_address_of_the_sixth_version(mounted: Path) -> None:
    found = incluster.connection({**POD, "KUBERNETES_SERVICE_HOST": "fd00::1"}, mounted)
    assert found is not None
    assert found.address == ("fd00::1", 443)


def test_nothing_outside_a_pod(mounted: Path, tmp_path: Path) -> None:
    assert incluster.connection({}, mounted) is None
    assert incluster.connection(POD, tmp_path / "none") is None


def test_half_a_mount_is_told(mounted: Path) -> None:
    (mounted / "ca.crt").unlink()
    with pytest.raises(WindlassError, match=r"ca\.crt cannot be read"):
        incluster.connection(POD, mounted)


def test_a_kubeconfig_goes_before(mounted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(incluster, "FOLDER", mounted)
    monkeypatch.setattr(incluster.connection, "__defaults__", (None, mounted))
    home = tmp_path / "home"
    (home / ".kube").mkdir(parents=True)
    environ = {**POD, "HOME": str(home)}
    assert kubeconfig.load(environ=environ).context == "in-cluster"
    with pytest.raises(WindlassError, match="there is no kubeconfig"):
        kubeconfig.load(context="other", environ=environ)
    (home / ".kube" / "config").write_text(
        '{"clusters": [{"name": "c", "cluster": {"server": "https://there:6443"}}], '
        '"contexts": [{"name": "x", "context": {"cluster": "c"}}], "current-context": "x"}'
    )
    assert kubeconfig.load(environ=environ).server == "https://there:6443"
