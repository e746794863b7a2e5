"""A real round: back up the database, go on, restore it; what is refused, and what works."""

import asyncio
import contextlib
import subprocess
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.calls.test_shared_claims import CONFIGURATION, KEY, Till
from tests.storage.cluster import Cluster, find_programs
from toolkeep import Code, ToolResult, open_keep, tool
from toolkeep.cli.main import cli
from toolkeep.errors import StoreUnavailable
from toolkeep.keep.open import open_tokens
from toolkeep.server.app_factory import _database_answers
from toolkeep.stores.api_tokens import Tokens


class Server:
    """One server, opened anew for each step, as after a restart."""

    def __init__(self, folder: Path, url: str, till: Till, patch: pytest.MonkeyPatch) -> None:
        self._home, self.project = folder / "home", folder / "project"
        (self._home / ".agent").mkdir(parents=True)
        (self._home / ".agent" / "config.yml").write_text(CONFIGURATION.format(url=url, key=KEY))
        self.project.mkdir()
        self._till, self._patch = till, patch

    def pay(self, order: str) -> tuple[ToolResult, bool | None]:
        """The result of a keyed call, and whether the server can use its database after it."""
        self._patch.setenv("HOME", str(self._home))
        with open_keep(project=self.project, built_in=False) as keep:
            keep.register(tool(name="pay", effects="writes", danger="low")(self._till.pay))
            while not _database_answers(keep):  # as a load balancer waits until a server is ready
                time.sleep(0.01)
            result = asyncio.run(keep.call("pay", {"amount": 1}, idempotency_key=order))
            return result, _database_answers(keep)

    def tokens(self) -> "contextlib.closing[Tokens]":
        return contextlib.closing(open_tokens(self.project))


def run(program: str, *words: str | Path) -> None:
    programs = find_programs()
    assert programs is not None
    subprocess.run([programs / program, *words], check=True, capture_output=True)


def test_a_restored_database_is_refused_until_a_person_accepts_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, postgres: Cluster
) -> None:
    url, till = postgres.clean(), Till()
    server = Server(tmp_path / "server", url, till, monkeypatch)
    assert server.pay("order 1")[0].value == 1
    with server.tokens() as tokens:
        token = tokens.make("a token", ["call"], agent="ada")
    run("pg_dump", "--format=custom", "--file", tmp_path / "dump", url)
    assert server.pay("order 2")[0].value == 2
    with server.tokens() as tokens:
        tokens.revoke(token.token.id)

    run("pg_restore", "--clean", "--if-exists", "--dbname", url, tmp_path / "dump")
    refused, is_usable = server.pay("order 2")
    assert (refused.code, is_usable) == (Code.NOT_RECORDED, False)
    with server.tokens() as tokens, pytest.raises(StoreUnavailable, match="toolkeep database restored"):
        tokens.list()
    assert till.paid == [1, 1]

    accepted = CliRunner().invoke(cli, ["database", "restored", "--project", str(server.project)])
    assert accepted.exit_code == 0
    assert server.pay("order 1")[0].is_repeated
    # What the database learnt after the backup is lost, as the command says.
    assert server.pay("order 2")[0].value == 3
    with server.tokens() as tokens:
        assert [held.revoked_at for held in tokens.list()] == [None]


def test_a_database_that_was_not_restored_is_never_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, postgres: Cluster
) -> None:
    url, till = postgres.clean(), Till()
    one, other = (Server(tmp_path / name, url, till, monkeypatch) for name in ("one", "other"))
    paid = [server.pay(f"order {number}")[0].value for number, server in enumerate((one, other, one, one))]
    assert paid == [1, 2, 3, 4]
