"""Certificates, tokens, kubeconfig."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest
import yaml
from cryptography import x509
from cryptography.x509.oid import NameOID

from windlass.api.errors import StatusError, WindlassError
from windlass.client.kubeconfig import load
from windlass.kits.clock import FakeClock
from windlass.kits.state import StateFolder
from windlass.server.auth import kubeconfig, pki
from windlass.server.auth.authentication import Authenticator, user_of_certificate
from windlass.server.http.listeners import tls_context
from windlass.server.request.users import ADMIN, ANONYMOUS, UserInfo

DAY = 86_400.0


@pytest.fixture
def state(tmp_path: Path, fake_clock: FakeClock) -> StateFolder:
    folder = StateFolder(tmp_path / "state")
    folder.prepare()
    pki.ensure(folder, fake_clock)
    return folder


def certificate(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def contents(state: StateFolder) -> dict[str, bytes]:
    found = {path.name: path.read_bytes() for path in state.pki.iterdir()}
    return {**found, "token": state.token.read_bytes()}


class TestMaking:
    def test_files_and_modes(self, state: StateFolder) -> None:
        for path in (state.ca_key, state.server_key, state.admin_key, state.token):
            assert path.stat().st_mode & 0o777 == 0o600
        assert state.pki.stat().st_mode & 0o777 == 0o700
        assert len(pki.read_token(state)) >= 40

    def test_the_server_is_known_by_all_its_names(self, state: StateFolder) -> None:
        found = certificate(state.server_cert)
        found.verify_directly_issued_by(certificate(state.ca_cert))
        names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        assert "localhost" in names.get_values_for_type(x509.DNSName)
        addresses = [str(address) for address in names.get_values_for_type(x509.IPAddress)]
        assert addresses == ["127.0.0.1", "::1", "10.96.0.1"]
        assert tls_context(state).verify_mode.name == "CERT_OPTIONAL"

    def test_the_administrator_is_in_the_right_group(self, state: StateFolder) -> None:
        subject = certificate(state.admin_cert).subject
        assert subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value == ADMIN.name
        assert subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)[0].value == "system:masters"

    def test_a_second_start_changes_nothing(self, state: StateFolder, fake_clock: FakeClock) -> None:
        before = contents(state)
        fake_clock.jump(100 * DAY)
        pki.ensure(state, fake_clock)
        assert contents(state) == before


class TestRenewing:
    def changed(self, state: StateFolder, before: dict[str, bytes]) -> set[str]:
        return {name for name, data in contents(state).items() if before.get(name) != data}

    def test_expiring_certificate_is_renewed(self, state: StateFolder, fake_clock: FakeClock) -> None:
        before = contents(state)
        fake_clock.jump(340 * DAY)
        pki.ensure(state, fake_clock)
        assert self.changed(state, before) == {"server.crt", "server.key", "admin.crt", "admin.key"}
        now = datetime.datetime.fromtimestamp(fake_clock.now(), datetime.UTC)
        assert certificate(state.server_cert).not_valid_after_utc > now + datetime.timedelta(days=300)

    def test_another_host_name(
        self, state: StateFolder, fake_clock: FakeClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        before = contents(state)
        monkeypatch.setattr("socket.gethostname", lambda: "renamed")
        pki.ensure(state, fake_clock)
        assert self.changed(state, before) == {"server.crt", "server.key"}

    def test_a_clock_that_went_back(self, state: StateFolder, fake_clock: FakeClock) -> None:
        before = contents(state)
        fake_clock.jump(-2 * DAY)
        pki.ensure(state, fake_clock)
        now = datetime.datetime.fromtimestamp(fake_clock.now(), datetime.UTC)
        assert certificate(state.server_cert).not_valid_before_utc <= now
        assert "token" not in self.changed(state, before)

    def test_files_of_another_authority(self, state: StateFolder, fake_clock: FakeClock) -> None:
        before = contents(state)
        state.ca_cert.unlink()
        state.ca_key.unlink()
        pki.ensure(state, fake_clock)
        assert self.changed(state, before) == set(before) - {"token"}
        certificate(state.server_cert).verify_directly_issued_by(certificate(state.ca_cert))

    def test_a_missing_key(self, state: StateFolder, fake_clock: FakeClock) -> None:
        before = contents(state)
        state.server_key.unlink()
        pki.ensure(state, fake_clock)
        assert self.changed(state, before) == {"server.crt", "server.key"}

    def test_an_empty_token(self, state: StateFolder, fake_clock: FakeClock) -> None:
        state.token.write_text("\n")
        pki.ensure(state, fake_clock)
        assert len(pki.read_token(state)) >= 40

    @pytest.mark.parametrize("damage", [b"rubbish", b""])
    def test_damaged_authority_is_reported(
        self, state: StateFolder, fake_clock: FakeClock, damage: bytes
    ) -> None:
        state.ca_key.write_bytes(damage)
        with pytest.raises(WindlassError) as told:
            pki.ensure(state, fake_clock)
        assert told.value.code == pki.UNUSABLE
        assert told.value.remedies

    def test_keys_that_do_not_match(self, state: StateFolder, fake_clock: FakeClock) -> None:
        state.ca_key.write_bytes(state.server_key.read_bytes())
        with pytest.raises(WindlassError, match="certificates"):
            pki.ensure(state, fake_clock)


class TestKubeconfig:
    def test_clients_can_read_it(self, state: StateFolder) -> None:
        kubeconfig.write(state, "https://127.0.0.1:6443")
        assert state.kubeconfig.stat().st_mode & 0o777 == 0o600
        connection = load(state.kubeconfig)
        assert connection.server == "https://127.0.0.1:6443"
        assert connection.token == pki.read_token(state)
        assert connection.ca_data == state.ca_cert.read_bytes()
        assert connection.namespace == "default"

    def test_it_is_rewritten_only_when_it_changes(self, state: StateFolder) -> None:
        kubeconfig.write(state, "https://127.0.0.1:6443")
        before = state.kubeconfig.stat().st_mtime_ns
        kubeconfig.write(state, "https://127.0.0.1:6443")
        assert state.kubeconfig.stat().st_mtime_ns == before
        kubeconfig.write(state, "https://127.0.0.1:7443")
        config = yaml.safe_load(state.kubeconfig.read_text())
        assert config["clusters"][0]["cluster"]["server"].endswith(":7443")

    def test_the_namespace_that_its_user_chose_is_kept(self, state: StateFolder) -> None:
        kubeconfig.write(state, "https://127.0.0.1:6443")
        config = yaml.safe_load(state.kubeconfig.read_text())
        config["contexts"][0]["context"]["namespace"] = "research"
        state.kubeconfig.write_text(yaml.safe_dump(config))
        kubeconfig.write(state, "https://127.0.0.1:7443")
        connection = load(state.kubeconfig)
        assert (connection.namespace, connection.server) == ("research", "https://127.0.0.1:7443")
        state.kubeconfig.write_text("namespace: research: [")
        kubeconfig.write(state, "https://127.0.0.1:7443")
        assert load(state.kubeconfig).namespace == "default"

    def test_contexts_that_its_user_added_are_kept(self, state: StateFolder) -> None:
        kubeconfig.write(state, "https://127.0.0.1:6443")
        config = yaml.safe_load(state.kubeconfig.read_text())
        config["clusters"].insert(0, {"name": "prod", "cluster": {"server": "https://prod:6443"}})
        config["users"].append({"name": "me", "user": {"token": "t"}})
        config["contexts"].append({"name": "prod", "context": {"cluster": "prod", "user": "me"}})
        config |= {"current-context": "prod", "preferences": {"colors": True}}
        state.kubeconfig.write_text(yaml.safe_dump(config))
        kubeconfig.write(state, "https://127.0.0.1:7443")
        assert load(state.kubeconfig).server == "https://prod:6443"
        own = load(state.kubeconfig, kubeconfig.NAME)
        assert (own.server, own.token) == ("https://127.0.0.1:7443", pki.read_token(state))
        assert yaml.safe_load(state.kubeconfig.read_text())["preferences"] == {"colors": True}
        written = state.kubeconfig.stat().st_mtime_ns
        kubeconfig.write(state, "https://127.0.0.1:7443")
        assert state.kubeconfig.stat().st_mtime_ns == written
        assert state.kubeconfig.stat().st_mode & 0o777 == 0o600
        config["contexts"] = []  # the context of the user is gone, and is no longer the current one
        state.kubeconfig.write_text(yaml.safe_dump(config))
        kubeconfig.write(state, "https://127.0.0.1:7443")
        assert load(state.kubeconfig).server == "https://127.0.0.1:7443"


class TestWho:
    def test_tokens(self) -> None:
        authenticator = Authenticator("right")
        assert authenticator.user(None, "Bearer right") is ADMIN
        assert authenticator.user(None, "bearer right") is ADMIN
        assert authenticator.user(None, None) is ANONYMOUS
        assert authenticator.user(None, "Basic cmlnaHQ=") is ANONYMOUS
        for wrong in ("Bearer wrong", "Bearer ", "Bearer righ", "Bearer rechté"):
            with pytest.raises(StatusError) as told:
                authenticator.user(None, wrong)
            assert (told.value.code, told.value.reason) == (401, "Unauthorized")

    def test_the_connection_comes_first(self) -> None:
        alice = UserInfo("alice")
        assert Authenticator("right").user(alice, "Bearer wrong") is alice

    def test_empty_token_is_rejected(self) -> None:
        with pytest.raises(ValueError, match="empty token"):
            Authenticator("")

    def test_certificates(self) -> None:
        subject = ((("organizationName", "system:masters"),), (("commonName", "root"),))
        found = user_of_certificate({"subject": subject})
        assert found is not None
        assert (found.name, found.is_admin) == ("root", True)
        assert user_of_certificate(None) is None
        assert user_of_certificate({}) is None
        assert user_of_certificate({"subject": ()}) is None
