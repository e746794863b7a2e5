"""Which addresses a granted host has."""

import asyncio
import socket
from pathlib import Path
from typing import Any

import pytest

from toolkeep.network import resolve
from toolkeep.network.errors import HostUnreachable, NetworkRefused
from toolkeep.network.hosts import HostScope, read_url
from toolkeep.network.resolve import resolve_host


@pytest.fixture(autouse=True)
def _hosts_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of the operator's, and a name server that knows nothing."""
    (tmp_path / "hosts").write_text(
        "# 8.8.4.4 commented.test\n8.8.8.8 named.test Alias.test # 1.1.1.1\nnot-an-address broken.test\n"
        "10.0.0.1 private.test\n8.8.8.8 mixed.test\n10.0.0.1 mixed.test\n"
    )
    monkeypatch.setattr(resolve, "HOSTS_FILE", str(tmp_path / "hosts"))

    def unknown(*_: Any, **__: Any) -> Any:
        raise socket.gaierror(socket.EAI_NONAME, "unknown")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)


def addresses(name: str) -> tuple[str, ...]:
    return asyncio.run(resolve_host(read_url(f"https://{name}/"), [HostScope.read(name)])).addresses


@pytest.mark.spec("SBX-4")
@pytest.mark.parametrize("name", ["named.test", "alias.test"])
def test_a_name_that_stands_only_in_the_hosts_file_is_found(name: str) -> None:
    assert addresses(name) == ("8.8.8.8",)


@pytest.mark.parametrize("name", ["private.test", "mixed.test", "broken.test"])
def test_what_the_hosts_file_says_is_vetted_as_any_answer_is(name: str) -> None:
    with pytest.raises(NetworkRefused):
        addresses(name)


@pytest.mark.parametrize("name", ["commented.test", "other.test"])
def test_a_name_that_stands_nowhere_is_not_found(name: str) -> None:
    with pytest.raises(HostUnreachable):
        addresses(name)
