"""Checkpoints go to a file elsewhere and to a webhook."""

import http.server
import shutil
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from toolkeep import open_keep
from toolkeep.storage.log.audit_log import AuditLog
from toolkeep.storage.log.checkpoint_publisher import Publisher
from toolkeep.storage.log.verify_folder import verify


class Receiver(http.server.BaseHTTPRequestHandler):
    """Notes what is posted; answers with a status of the test's choice."""

    def do_POST(self) -> None:
        server = self.server
        if not isinstance(server, Server):
            raise TypeError
        server.bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(server.status)
        self.send_header("Location", f"{server.url}/elsewhere")
        self.end_headers()

    def do_GET(self) -> None:
        server = self.server
        if not isinstance(server, Server):
            raise TypeError
        server.followed.append(self.path)
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


class Server(http.server.HTTPServer):
    status = 200

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Receiver)
        self.bodies: list[bytes] = []
        self.followed: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/checkpoints"


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as made:
        thread = threading.Thread(target=made.serve_forever)
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def call_something(project: Path) -> Path:
    """Call a tool once; the state folder."""
    with open_keep(project=project) as keep:
        assert keep.call_sync("agent_hello_world", {"name": "Ada"}).ok
        return keep._pipeline.record.folder  # type: ignore[attr-defined,no-any-return]


def configure(project: Path, text: str) -> None:
    home_file = Path.home() / ".agent" / "config.yml"
    home_file.parent.mkdir(exist_ok=True)
    home_file.write_text(text)


def test_a_configured_file_holds_the_last_checkpoint_when_a_keep_is_closed(tmp_path: Path) -> None:
    outside = tmp_path / "elsewhere.txt"
    configure(tmp_path, f"audit:\n  checkpoint_file: {outside}\n")
    state = call_something(tmp_path / "project")
    report = verify(state, outside_checkpoints={"elsewhere": outside.read_text()})
    assert (report.is_intact, report.covered, list(report.outside)) == (True, report.records, ["elsewhere"])


def test_a_file_that_shows_that_the_log_was_put_back_or_begun_anew_is_left_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    outside, state = tmp_path / "elsewhere.txt", tmp_path / "state"

    def grow(count: int) -> None:
        with AuditLog(state) as log:
            for number in range(count):
                log.append({"n": number}).result()
        publisher = Publisher(state, file=str(outside), every_s=3600)
        publisher.publish()
        publisher.close()

    grow(2)
    shutil.copytree(state, tmp_path / "earlier")
    grow(2)
    kept = outside.read_text()
    assert verify(state, outside_checkpoints={"elsewhere": kept}).is_intact
    for again in ("put back", "begun anew"):
        shutil.rmtree(state)
        if again == "put back":
            shutil.copytree(tmp_path / "earlier", state)
        grow(1)
        assert outside.read_text() == kept
    assert [record.message for record in caplog.records] == 2 * [
        "the checkpoint elsewhere is of a longer or another log, and is left there"
    ]
    outside.unlink()
    grow(1)
    assert verify(state, outside_checkpoints={"elsewhere": outside.read_text()}).is_intact


def test_closing_does_not_wait_for_a_webhook_that_never_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolkeep.storage.log.checkpoint_publisher._CLOSE_SECONDS", 0.01)
    (tmp_path / "audit").mkdir()
    (tmp_path / "audit" / "checkpoint").write_bytes(b"signed")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        publisher = Publisher(tmp_path, webhook=f"http://127.0.0.1:{listener.getsockname()[1]}/", every_s=0.0)
        connection, _ = listener.accept()
        publisher.close()
        assert publisher._thread.is_alive()
        connection.close()
    publisher._thread.join(30)
    assert not publisher._thread.is_alive()


def test_a_configured_webhook_gets_the_checkpoint(tmp_path: Path, server: Server) -> None:
    configure(tmp_path, f"audit:\n  checkpoint_webhook: {server.url}\n")
    state = call_something(tmp_path / "project")
    assert server.bodies[-1] == (state / "audit" / "checkpoint").read_bytes()


@pytest.mark.parametrize("status", [302, 500])
def test_what_was_not_taken_is_sent_again_and_a_redirect_is_not_followed(
    tmp_path: Path, server: Server, status: int
) -> None:
    state = call_something(tmp_path)
    server.status = status
    publisher = Publisher(state, webhook=server.url, every_s=3600)
    publisher.publish()
    server.status = 200
    publisher.publish()
    publisher.publish()
    publisher.close()
    assert (len(server.bodies), server.followed) == (2, [])


def test_a_webhook_that_is_not_there_holds_nothing_up(tmp_path: Path) -> None:
    configure(tmp_path, "audit:\n  checkpoint_webhook: http://127.0.0.1:1/nobody\n")
    report = verify(call_something(tmp_path / "project"))
    assert (report.is_intact, report.covered) == (True, report.records)


def test_what_is_no_answer_ends_nothing(tmp_path: Path) -> None:
    (tmp_path / "audit").mkdir()
    (tmp_path / "audit" / "checkpoint").write_bytes(b"signed")
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def babble() -> None:
            for _ in range(2):
                connection, _ = listener.accept()
                with connection:
                    connection.recv(4096)
                    connection.sendall(b"no status line\r\n\r\n")

        server = threading.Thread(target=babble, daemon=True)
        server.start()
        publisher = Publisher(tmp_path, webhook=f"http://127.0.0.1:{listener.getsockname()[1]}/", every_s=0.0)
        server.join(30)  # it came back after the first one
        assert not server.is_alive()
    publisher.close()
