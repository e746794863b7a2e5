"""Secrets of an upstream: read when a call needs one, from where the configuration says, and shown nowhere."""

import sys
from pathlib import Path
from types import ModuleType

import pytest

from toolkeep.config.settings import Run, SecretKind, SecretSource
from toolkeep.errors import Code, SecretUnavailable
from toolkeep.sources.secrets import UpstreamSecrets


def secrets(kind: SecretKind, where: str) -> UpstreamSecrets:
    return UpstreamSecrets({"key": SecretSource(kind=kind, where=where)})


def reason(given: UpstreamSecrets) -> str:
    with pytest.raises(SecretUnavailable) as caught:
        given["key"]
    assert caught.value.code is Code.SECRET_UNAVAILABLE
    assert list(given) == []
    return caught.value.message


def test_from_the_environment_at_the_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    given = secrets("env", "SHOP_KEY")
    monkeypatch.delenv("SHOP_KEY", raising=False)
    assert reason(given) == "the secret 'key' cannot be had: the environment variable SHOP_KEY is not set"
    monkeypatch.setenv("SHOP_KEY", "one")
    assert given["key"] == "one"
    monkeypatch.setenv("SHOP_KEY", "two")
    assert dict(given) == {"key": "two"}


@pytest.mark.parametrize(
    ("content", "secret"), [("s3cret\n", "s3cret"), ("s3cret", "s3cret"), ("a\r\n", "a"), (" a ", " a ")]
)
def test_from_a_file(tmp_path: Path, content: str, secret: str) -> None:
    path = tmp_path / "key"
    path.write_text(content, newline="")
    assert secrets("file", str(path))["key"] == secret


def test_a_file_that_is_none_says_so_and_nothing_of_it(tmp_path: Path) -> None:
    path = tmp_path / "key"
    assert reason(secrets("file", str(path))) == "the secret 'key' cannot be had: its file cannot be read"
    path.write_text("")
    assert "empty" in reason(secrets("file", str(path)))
    path.write_text("x" * 70_000)
    assert "too large" in reason(secrets("file", str(path)))
    path.write_bytes(b"\xff\xfe")
    assert "cannot be read" in reason(secrets("file", str(path)))
    path.write_text("fine")
    path.chmod(0o646)
    assert "everybody may change it" in reason(secrets("file", str(path)))
    assert "cannot be read" in reason(secrets("file", str(tmp_path)))


def test_from_the_keyring(monkeypatch: pytest.MonkeyPatch) -> None:
    keyring = ModuleType("keyring")
    asked = []

    def get_password(service: str, user: str) -> str | None:
        asked.append((service, user))
        return {"shop": "s3cret"}.get(service)

    keyring.get_password = get_password  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "keyring", keyring)
    assert secrets("keyring", "shop/ada/lovelace")["key"] == "s3cret"
    assert asked == [("shop", "ada/lovelace")]
    assert "does not hold it" in reason(secrets("keyring", "other/ada"))


def test_a_keyring_that_breaks_tells_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    keyring = ModuleType("keyring")

    def get_password(*_: str) -> str:
        raise RuntimeError("s3cret")

    keyring.get_password = get_password  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "keyring", keyring)
    assert (
        reason(secrets("keyring", "shop/ada"))
        == "the secret 'key' cannot be had: the keyring did not give it"
    )


def test_without_the_package_the_keyring_is_named_as_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "keyring", None)
    assert "no keyring package" in reason(secrets("keyring", "shop/ada"))


def test_nothing_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_KEY", "s3cret")
    given = secrets("env", "SHOP_KEY")
    run = Run(kind="http", target={}, secrets=given)
    assert "s3cret" not in f"{given!r} {run!r} {given} {run}"


def test_an_operation_gets_only_the_secrets_that_it_needs() -> None:
    both = UpstreamSecrets({n: SecretSource(kind="env", where=n.upper()) for n in ("a", "b")})
    assert len(both.only(["a", "c"])) == 1
    with pytest.raises(KeyError):
        both.only(["a"])["b"]
