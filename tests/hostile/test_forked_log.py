"""Servers and a witness apart cosign each other's logs: the owner of one cannot rewrite its history unnoticed."""

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.server.talk import until
from tests.storage.log.test_witness_folder import forget, grow
from toolkeep.audit.signed_note import VerifierKey
from toolkeep.storage.keys import Keys
from toolkeep.storage.log.cosigned_checkpoints import cosigned_notes
from toolkeep.storage.log.verify_folder import verify
from toolkeep.storage.log.witness_folder import Witness


class Machine:
    """The home, state and log output of one server."""

    def __init__(self, folder: Path) -> None:
        self.home = folder
        self.state = folder / "state"
        self.output = folder / "output"
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port: int = free.getsockname()[1]
        self.state.mkdir(parents=True, mode=0o700)
        grow(self.state, 0, 1, 2)
        self.log_key = str(Keys(self.state).public_key())
        self.witness_key = Witness(self.state / "witness", name=f"{folder.name}/witness").public_key

    def trusts(self, peer: "Machine", *others: str) -> None:
        (self.home / ".agent").mkdir()
        witnesses = [
            f"{{url: '{url}', key: '{key}'}}" for url, key in [peer.address, *map(str.split, others)]
        ]
        text = f"audit: {{witnesses: [{', '.join(witnesses)}], witness_for: ['{peer.log_key}']}}\n"
        (self.home / ".agent" / "config.yml").write_text(text)

    @property
    def address(self) -> tuple[str, str]:
        return f"http://127.0.0.1:{self.port}/witness", str(self.witness_key)

    @contextlib.contextmanager
    def runs(self, *command: str) -> Iterator[None]:
        project = self.home / "project"
        project.mkdir(exist_ok=True)
        environment = {**os.environ, "HOME": str(self.home), "TOOLKEEP_HOME": str(self.state)}
        with self.output.open("a") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "toolkeep", *command],
                cwd=project,
                env=environment,
                stdout=output,
                stderr=output,
            )
        try:
            yield
        finally:
            process.terminate()
            process.wait(30)

    def serves(self) -> "contextlib.AbstractContextManager[None]":
        return self.runs("serve", "--port", str(self.port), "--no-page")

    def said(self, line: str) -> bool:
        return line in self.output.read_text()

    def is_cosigned_by(self, *witnesses: VerifierKey) -> bool:
        return len(cosigned_notes(self.state)) == 1 and verify(self.state, witnesses=witnesses).is_intact


def wait(happened: Callable[[], bool]) -> None:
    asyncio.run(until(happened))


@pytest.mark.spec("AUD-2")
def test_a_forked_log_is_found_by_the_other_server_and_by_a_witness_apart(tmp_path: Path) -> None:
    ann, bob, apart = (Machine(tmp_path / name) for name in ("ann", "bob", "apart"))
    key = apart.witness_key
    ann.trusts(bob, f"http://127.0.0.1:{apart.port} {key}")
    bob.trusts(ann)
    watch = ("audit", "witness", str(apart.state / "witness"), "--trust", ann.log_key)
    with apart.runs(*watch, "--serve", f"127.0.0.1:{apart.port}"), bob.serves():
        with ann.serves():
            wait(lambda: ann.is_cosigned_by(bob.witness_key, key))
            wait(lambda: bob.is_cosigned_by(ann.witness_key))
        forget(ann.state)
        grow(ann.state, 0, 1, 99)
        assert not bob.said("contradicts")
        with ann.serves():
            wait(lambda: ann.said("a witness contradicts this log"))
            wait(lambda: bob.said("a log contradicts what it signed before"))
            wait(lambda: apart.said("a log contradicts what it signed before"))
    assert not verify(ann.state, witnesses=[bob.witness_key]).is_intact
    for machine in (bob, apart):
        assert len(list((machine.state / "witness").glob("*.fork"))) == 1
