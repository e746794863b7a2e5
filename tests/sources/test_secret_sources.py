"""Secrets of an upstream: read when a call needs one, from where the configuration says, and shown nowhere."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import keyring
import pytest
from keyring.backend import KeyringBackend
from keyring.backends.fail import Keyring as FailKeyring
from keyring.backends.null import Keyring as NullKeyring
from keyrings.alt.file import PlaintextKeyring

from toolkeep.config.settings import Run, SecretKind, SecretSource
from toolkeep.errors import Code, SecretUnavailable
from toolkeep.sources.secret_sources import UpstreamSecrets


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
    assert reason(given) == "the secret 'key' is not available: the environment variable SHOP_KEY is not set"
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
    assert reason(secrets("file", str(path))) == "the secret 'key' is not available: its file cannot be read"
    path.write_text("")
    assert "empty" in reason(secrets("file", str(path)))
    path.write_text("x" * 70_000)
    assert "too large" in reason(secrets("file", str(path)))
    path.write_bytes(b"\xff\xfe")
    assert "cannot be read" in reason(secrets("file", str(path)))
    path.write_text("fine")
    path.chmod(0o646)
    assert "everyone may write it" in reason(secrets("file", str(path)))
    assert "cannot be read" in reason(secrets("file", str(tmp_path)))


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[PlaintextKeyring]:
    """The real keyring package, with a back-end that needs no desktop."""
    before, backend = keyring.get_keyring(), PlaintextKeyring()
    backend.file_path = str(tmp_path / "keyring.cfg")
    keyring.set_keyring(backend)
    yield backend
    keyring.set_keyring(before)


def test_from_the_keyring(kept: PlaintextKeyring) -> None:
    kept.set_password("shop", "ada/lovelace", "s3cret")
    kept.set_password("empty", "ada", "")
    assert secrets("keyring", "shop/ada/lovelace")["key"] == "s3cret"
    kept.set_password("shop", "ada/lovelace", "änother")
    assert secrets("keyring", "shop/ada/lovelace")["key"] == "änother"
    for missing in ("shop/ada", "other/ada/lovelace", "shop", "empty/ada"):
        assert "does not have it" in reason(secrets("keyring", missing))


@pytest.mark.usefixtures("kept")
@pytest.mark.parametrize(
    ("backend", "words"), [(NullKeyring, "does not have it"), (FailKeyring, "the keyring did not give it")]
)
def test_a_machine_without_a_keyring_says_so(backend: type[KeyringBackend], words: str) -> None:
    keyring.set_keyring(backend())
    assert words in reason(secrets("keyring", "shop/ada"))


def test_a_keyring_that_breaks_tells_nothing(kept: PlaintextKeyring) -> None:
    Path(kept.file_path).write_text("[shop]\nada = no base64, s3cret\n")
    said = reason(secrets("keyring", "shop/ada"))
    assert said == "the secret 'key' is not available: the keyring did not give it"


def test_a_keyring_that_ends_the_process_does_not(
    kept: PlaintextKeyring, monkeypatch: pytest.MonkeyPatch
) -> None:
    def leave(*_: str) -> str:
        raise SystemExit

    monkeypatch.setattr(kept, "get_password", leave)
    assert "the keyring did not give it" in reason(secrets("keyring", "shop/ada"))


def test_what_the_hint_says_is_what_helps(tmp_path: Path) -> None:
    """In processes of their own, which find the back-end as users name it."""
    environment = {**os.environ, "PYTHON_KEYRING_BACKEND": "keyrings.alt.file.PlaintextKeyring", "XDG_DATA_HOME": str(tmp_path)}  # fmt: skip

    def run(*words: str, given: str = "") -> str:
        done = subprocess.run(
            [sys.executable, *words], env=environment, input=given, capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    program = (
        "from toolkeep.config.settings import SecretSource; from toolkeep.errors import SecretUnavailable\n"
        "from toolkeep.sources.secret_sources import UpstreamSecrets\n"
        "try: print(UpstreamSecrets({'key': SecretSource(kind='keyring', where='shop/ada')})['key'])\n"
        "except SecretUnavailable as error: print(error.hint)"
    )
    hint = run("-c", program)
    assert hint == "run: keyring set shop ada"
    run("-m", *hint.removeprefix("run: ").split(), given="s3cret\n")
    assert run("-c", program) == "s3cret"


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
