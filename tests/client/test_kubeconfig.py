from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from throwaway_certificates import Authority

from windlass.api.errors import WindlassError
from windlass.client import errors
from windlass.client.connection import Connection, ExecPlugin, ssl_context
from windlass.client.credentials import Credentials
from windlass.client.kubeconfig import load, namespace_of_box, search_path
from windlass.kits.clock import FakeClock


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def config(**changes: Any) -> dict[str, Any]:
    cluster = {"server": "https://gpu-box:6443", "certificate-authority-data": b64(b"CA")}
    made: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "main",
        "clusters": [{"name": "c", "cluster": cluster | changes.pop("cluster", {})}],
        "users": [{"name": "u", "user": changes.pop("user", {"token": "t"})}],
        "contexts": [
            {
                "name": "main",
                "context": {"cluster": "c", "user": "u", "namespace": "team"} | changes.pop("context", {}),
            }
        ],
    }
    return made | changes


def write(path: Path, document: Any) -> Path:
    path.write_text(yaml.safe_dump(document))
    return path


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "config"


class TestGood:
    def test_inline(self, file: Path) -> None:
        pair = {"client-certificate-data": b64(b"CERT"), "client-key-data": b64(b"KEY")}
        loaded = load(write(file, config(user=pair)))
        assert loaded == Connection(
            server="https://gpu-box:6443",
            ca_data=b"CA",
            client_cert=b"CERT",
            client_key=b"KEY",
            namespace="team",
            context="main",
            source=str(file),
        )
        assert loaded.address == ("gpu-box", 6443)
        assert loaded.secure

    def test_proxy_url(self, file: Path) -> None:
        loaded = load(write(file, config(cluster={"proxy-url": "http://me:secret@proxy:3128"})))
        assert loaded.proxy_url == "http://me:secret@proxy:3128"
        assert "secret" not in repr(loaded)

    def test_json_is_yaml_too(self, file: Path) -> None:
        file.write_text(json.dumps(config()))
        assert load(file).token == "t"

    def test_files_are_relative_to_the_kubeconfig(self, file: Path, tmp_path: Path) -> None:
        (tmp_path / "pki").mkdir()
        for name in ("ca", "crt", "key", "token"):
            (tmp_path / "pki" / name).write_text(name)
        document = config(
            user={
                "client-certificate": "pki/crt",
                "client-key": str(tmp_path / "pki" / "key"),
                "tokenFile": "pki/token",
            }
        )
        document["clusters"][0]["cluster"] = {"server": "https://h", "certificate-authority": "pki/ca"}
        loaded = load(write(file, document))
        assert (loaded.ca_data, loaded.client_cert, loaded.client_key) == (b"ca", b"crt", b"key")
        assert loaded.token_file == str(tmp_path / "pki" / "token")
        assert loaded.address == ("h", 443)

    def test_another_context(self, file: Path) -> None:
        document = config()
        document["contexts"].append({"name": "other", "context": {"cluster": "c", "user": "u"}})
        assert load(write(file, document), "other").namespace == "default"

    def test_insecure_and_server_name(self, file: Path) -> None:
        document = config()
        document["clusters"][0]["cluster"] = {
            "server": "https://10.0.0.1:6443",
            "insecure-skip-tls-verify": True,
            "tls-server-name": "gpu-box",
        }
        loaded = load(write(file, document))
        assert loaded.insecure
        assert loaded.tls_server_name == "gpu-box"
        assert not ssl_context(loaded).check_hostname

    def test_who_is_to_be_acted_as(self, file: Path) -> None:
        """Without a word of it the administrator's own rights would be used."""
        user = {
            "token": "t",
            "as": "alice",
            "as-uid": "7",
            "as-groups": ["a", "b"],
            "as-user-extra": {"example.com/why": ["x"]},
        }
        loaded = load(write(file, config(user=user)))
        assert loaded.impersonate == (
            ("impersonate-user", "alice"),
            ("impersonate-uid", "7"),
            ("impersonate-group", "a"),
            ("impersonate-group", "b"),
            ("impersonate-extra-example.com%2Fwhy", "x"),
        )

    def test_basic_authentication(self, file: Path) -> None:
        loaded = load(write(file, config(user={"username": "a", "password": "b"})))
        assert Credentials(loaded, FakeClock()).header() == "Basic YTpi"

    def test_where_it_looks(self, tmp_path: Path) -> None:
        assert search_path("x", {"KUBECONFIG": "y"}) == [Path("x")]
        assert search_path(None, {"KUBECONFIG": "a::b", "HOME": "/h"}) == [Path("a"), Path("b")]
        assert search_path(None, {"HOME": "/h"}) == [Path("/h/.kube/config")]

    def test_several_files_are_merged_and_the_first_wins(self, tmp_path: Path) -> None:
        first = write(tmp_path / "1", {"clusters": [{"name": "c", "cluster": {"server": "https://first"}}]})
        second = write(tmp_path / "2", config())
        merged = load(environ={"KUBECONFIG": f"{first}:{tmp_path / 'absent'}:{second}"})
        assert merged.server == "https://first"
        assert merged.token == "t"
        assert merged.source == str(first)


class TestBad:
    def refused(self, file: Path, document: Any, context: str | None = None) -> WindlassError:
        with pytest.raises(WindlassError) as caught:
            load(write(file, document), context)
        error = caught.value
        assert error.code == errors.KUBECONFIG
        assert str(file) in error.message or str(file) in error.evidence
        assert error.remedies
        return error

    def test_absent(self, file: Path) -> None:
        with pytest.raises(WindlassError, match="there is no kubeconfig") as caught:
            load(file)
        assert caught.value.code == errors.KUBECONFIG_MISSING
        with pytest.raises(WindlassError, match="does not exist") as caught:
            load(environ={"HOME": str(file)})
        assert caught.value.remedies[0] == "windlass up"

    def test_a_folder(self, tmp_path: Path) -> None:
        with pytest.raises(WindlassError, match="cannot be read"):
            load(tmp_path)

    @pytest.mark.parametrize("text", ["{", "a: [", "\t- x: :"])
    def test_no_yaml(self, file: Path, text: str) -> None:
        file.write_text(text)
        with pytest.raises(WindlassError, match="is not YAML"):
            load(file)

    @pytest.mark.parametrize("text", ["- a\n", "word"])
    def test_no_mapping(self, file: Path, text: str) -> None:
        file.write_text(text)
        with pytest.raises(WindlassError, match="must be a mapping"):
            load(file)

    def test_an_empty_file_has_no_context(self, file: Path) -> None:
        file.write_text("")
        with pytest.raises(WindlassError, match="current-context: not set"):
            load(file)

    def test_no_such_context(self, file: Path) -> None:
        error = self.refused(file, config(**{"current-context": "x"}))
        assert 'there is no context "x"' in error.message
        assert "main" in error.evidence
        assert error.remedies == ("kubectl config get-contexts",)
        mistyped = self.refused(file, config(**{"current-context": "mian"}))
        assert mistyped.remedies == ("did you mean main?", "kubectl config get-contexts")

    def test_no_such_cluster_or_user(self, file: Path) -> None:
        error = self.refused(file, config(context={"cluster": "lost"}))
        assert 'context "main": cluster: there is no cluster "lost"' in error.message
        error = self.refused(file, config(context={"user": "lost"}))
        assert 'context "main": user: there is no user "lost"' in error.message

    @pytest.mark.parametrize(
        ("changes", "text"),
        [
            ({"cluster": {"server": ""}}, 'cluster "c": server: not set'),
            ({"cluster": {"server": "gpu-box:6443"}}, "must read https://HOST:PORT"),
            ({"cluster": {"server": "https://h:x"}}, "cannot be used"),
            ({"cluster": {"certificate-authority-data": "%%%"}}, "certificate-authority-data: is not base64"),
            ({"cluster": {"insecure-skip-tls-verify": True}}, "together with a certificate-authority"),
            ({"cluster": {"insecure-skip-tls-verify": "yes"}}, "must be true or false"),
            ({"user": {"client-certificate": "nowhere.crt"}}, "nowhere.crt cannot be read: No such file"),
            ({"user": {"client-certificate-data": b64(b"x")}}, "client-key: not set"),
            ({"user": {"client-key-data": b64(b"x")}}, "client-certificate: not set"),
            ({"user": {"token": 5}}, "token: must be a string, not int"),
            ({"user": {"auth-provider": {"name": "gcp"}}}, "auth-provider: was removed"),
            ({"user": {"exec": {"apiVersion": "client.authentication.k8s.io/v1"}}}, "exec.command: not set"),
            ({"user": {"exec": {"command": "x", "apiVersion": "v9"}}}, "'v9' is not supported"),
            ({"cluster": {"proxy-url": "socks5://p"}}, "proxy-url: socks5:// proxies are not supported"),
            ({"cluster": {"proxy-url": "http://"}}, "proxy-url: the host is missing"),
            ({"user": {"as-groups": ["a"]}}, 'user "u": as: not set'),
            ({"user": {"as": "a", "as-groups": "b"}}, "as-groups: must be a list"),
            ({"user": {"as": "a\r\nx: y"}}, "cannot be sent in a request header"),
            ({"clusters": {"c": 1}}, "clusters: must be a list"),
            ({"users": [{"user": {}}]}, "users[0]: must have a name and a user"),
        ],
    )
    def test_the_entry_and_the_field_are_named(self, file: Path, changes: dict[str, Any], text: str) -> None:
        assert text in self.refused(file, config(**changes)).message


class TestPlugins:
    def plugin(self, tmp_path: Path, script: str, **extra: Any) -> Credentials:
        tool = tmp_path / "tool"
        tool.write_text(f"#!/bin/sh\n{script}\n")
        tool.chmod(0o755)
        spec = {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": "./tool",
            "args": ["get-token"],
            "env": [{"name": "REGION", "value": "eu"}],
            **extra,
        }
        loaded = load(write(tmp_path / "config", config(user={"exec": spec})))
        self.clock = FakeClock()
        return Credentials(loaded, self.clock)

    def answer(self, **status: str) -> str:
        body = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status}
        return f"echo '{json.dumps(body)}'"

    def test_a_token_is_kept_until_shortly_before_it_expires(self, tmp_path: Path) -> None:
        count = f"echo run >> {tmp_path}/runs; "
        answer = self.answer(token="tok", expirationTimestamp="2026-01-01T12:10:00Z")
        credentials = self.plugin(tmp_path, count + answer)
        assert credentials.header() is None
        credentials.refresh()
        assert credentials.header() == "Bearer tok"
        self.clock.jump(580)
        assert credentials.header() == "Bearer tok"
        self.clock.jump(15)
        assert credentials.header() is None
        credentials.refresh()
        assert (tmp_path / "runs").read_text().count("run") == 2

    def test_it_is_told_arguments_environment_and_cluster(self, tmp_path: Path) -> None:
        script = f'echo "$1 $REGION" > {tmp_path}/seen; echo "$KUBERNETES_EXEC_INFO" > {tmp_path}/info; '
        credentials = self.plugin(tmp_path, script + self.answer(token="tok"), provideClusterInfo=True)
        credentials.refresh()
        assert (tmp_path / "seen").read_text() == "get-token eu\n"
        info = json.loads((tmp_path / "info").read_text())
        assert info["kind"] == "ExecCredential"
        assert info["spec"]["interactive"] is False
        assert info["spec"]["cluster"] == {
            "server": "https://gpu-box:6443",
            "certificate-authority-data": b64(b"CA"),
        }

    def test_a_client_certificate(self, tmp_path: Path) -> None:
        pair = Authority().client("alice")
        credentials = self.plugin(
            tmp_path,
            self.answer(clientCertificateData=pair.cert.decode(), clientKeyData=pair.key.decode()).replace(
                "echo", "printf '%s'"
            ),
        )
        credentials.refresh()
        assert credentials.client_cert == pair.cert
        ssl_context(Connection("https://x", insecure=True), credentials.client_cert, credentials.client_key)

    @pytest.mark.parametrize(
        ("script", "text"),
        [
            ("echo not logged in >&2; exit 3", "exit status 3: not logged in"),
            ("echo nonsense", "cannot be parsed"),
            ('echo \'{"apiVersion":"v2"}\'', "has apiVersion 'v2'"),
            (
                'echo \'{"apiVersion":"client.authentication.k8s.io/v1","status":{}}\'',
                "neither a token nor a certificate",
            ),
        ],
    )
    def test_failures_say_what_the_plugin_said(self, tmp_path: Path, script: str, text: str) -> None:
        credentials = self.plugin(tmp_path, script)
        with pytest.raises(WindlassError) as caught:
            credentials.refresh()
        assert caught.value.code == errors.CREDENTIALS
        assert text in caught.value.evidence

    def test_a_missing_plugin_shows_its_install_hint(self) -> None:
        plugin = ExecPlugin("windlass-no-such-tool", install_hint="apt install it")
        credentials = Credentials(Connection("https://x", exec_plugin=plugin), FakeClock())
        with pytest.raises(WindlassError) as caught:
            credentials.refresh()
        assert caught.value.remedies[0] == "apt install it"

    def test_a_token_file_is_read_every_minute(self, tmp_path: Path) -> None:
        file = tmp_path / "token"
        file.write_text("one\n")
        clock = FakeClock()
        credentials = Credentials(Connection("https://x", token_file=str(file)), clock)
        credentials.refresh()
        file.write_text("two\n")
        assert credentials.header() == "Bearer one"
        clock.jump(61)
        assert credentials.header() is None
        credentials.refresh()
        assert credentials.header() == "Bearer two"
        file.unlink()
        with pytest.raises(WindlassError, match="cannot be read"):
            credentials.refresh()


class TestNamespaceOfBox:
    """The namespace of commands on a box is that which kubectl uses for the same server."""

    @pytest.fixture
    def own(self, tmp_path: Path) -> Path:
        return write(tmp_path / "kubeconfig", config(context={"namespace": "default"}))

    def test_the_own_file_counts_if_kubectl_uses_another_server(self, own: Path, tmp_path: Path) -> None:
        other = write(tmp_path / "other", config(cluster={"server": "https://lab:6443"}))
        for environ in ({"HOME": str(tmp_path)}, {"KUBECONFIG": str(own)}, {"KUBECONFIG": str(other)}):
            write(own, config(context={"namespace": "default"}))
            assert namespace_of_box(own, environ=environ) == ""
            write(own, config(context={"namespace": "research"}))
            assert namespace_of_box(own, environ=environ) == "research"

    def test_the_context_of_kubectl_counts_if_it_leads_to_the_box(self, own: Path, tmp_path: Path) -> None:
        merged = tmp_path / ".kube" / "config"
        merged.parent.mkdir()
        write(merged, config())
        assert namespace_of_box(own, environ={"HOME": str(tmp_path)}) == "team"
        environ = {"KUBECONFIG": f"{own}:{merged}", "HOME": str(tmp_path)}
        assert namespace_of_box(own, environ=environ) == "default"  # the first definition wins
        document = config()
        document["clusters"].append({"name": "lab", "cluster": {"server": "https://lab:6443"}})
        document["contexts"].append({"name": "away", "context": {"cluster": "lab", "namespace": "there"}})
        write(merged, document | {"current-context": "away"})
        assert namespace_of_box(own, environ={"HOME": str(tmp_path)}) == ""

    def test_a_box_that_was_never_started_has_none(self, tmp_path: Path) -> None:
        assert namespace_of_box(tmp_path / "kubeconfig", environ={"HOME": str(tmp_path)}) == ""

    def test_a_file_that_is_not_a_kubeconfig_is_named(self, own: Path) -> None:
        own.write_text("namespace: team\n\tx: [")
        with pytest.raises(WindlassError, match=f"{own}: is not YAML"):
            namespace_of_box(own, environ={"KUBECONFIG": str(own)})
