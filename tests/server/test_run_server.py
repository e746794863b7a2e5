"""The server as it runs: what a client may send before it is heard, and how it ends."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.server.conftest import begun
from tests.server.running import Running, running
from toolkeep import Keep, tool
from toolkeep.limits import ServerLimits
from toolkeep.server.run_server import is_loopback, names_of

ROOT = Path(__file__).resolve().parents[2]
TIGHT = ServerLimits(header_bytes=2000, grace_s=1)
IMPATIENT = ServerLimits(head_s=0.3, send_s=0.3, grace_s=1)


def spoken(server: Running, *parts: bytes) -> tuple[int, Any]:
    """Status and problem document of what comes back when these bytes are sent."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as client:
        for part in parts:
            client.sendall(part)
        received = b""
        while more := client.recv(65536):
            received += more
    head, _, body = received.partition(b"\r\n\r\n")
    return int(head.split(b" ")[1]), json.loads(body)


@pytest.mark.parametrize(
    ("parts", "status", "code"),
    [
        ([b"nonsense\r\n\r\n"], 400, "ACODE-TSR-062"),
        (
            [b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nx: " + b"a" * 3000 + b"\r\n\r\n"],
            431,
            "ACODE-TSR-063",
        ),
        ([b"GET /" + b"a" * 3000 + b" HTTP/1.1\r\nhost: localhost\r\n\r\n"], 431, "ACODE-TSR-063"),
        ([b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nx: " + b"a" * 400_000], 431, "ACODE-TSR-063"),
        ([b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n"], 408, "ACODE-TSR-063"),
        ([b""], 408, "ACODE-TSR-063"),
    ],
)
@pytest.mark.spec("WEB-1")
def test_what_cannot_be_heard_is_refused_with_a_problem_document(
    keep: Keep, parts: list[bytes], status: int, code: str
) -> None:
    limits = IMPATIENT if status == 408 else TIGHT
    with running(keep, limits) as server:
        answered, problem = spoken(server, *parts)
    assert (answered, problem["status"], problem["code"]) == (status, status, code)


def test_a_body_that_does_not_arrive_is_not_waited_for(keep: Keep) -> None:
    with running(keep, IMPATIENT) as server:
        head = (
            f"authorization: Bearer {server.token()}\r\ncontent-type: application/json\r\ncontent-length: 50"
        )
        request = f"POST /v1/tools/add:call HTTP/1.1\r\nhost: localhost\r\n{head}\r\n\r\n{{"
        status, problem = spoken(server, request.encode())
    assert (status, problem["code"]) == (408, "ACODE-TSR-063")


@pytest.mark.parametrize(
    ("limits", "sent"),
    [
        (
            ServerLimits(head_s=0.2, send_s=1_000, grace_s=1),
            b"POST /v1/tools/add:call HTTP/1.1\r\nhost: local",
        ),
        (
            ServerLimits(head_s=1_000, send_s=0.2, grace_s=1),
            b"POST /v1/tools/add:call HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n\r\n{",
        ),
    ],
    ids=["head", "body"],
)
def test_head_and_body_of_a_request_have_a_time_each(keep: Keep, limits: ServerLimits, sent: bytes) -> None:
    with running(keep, limits) as server:
        token = f"\r\ncontent-type: application/json\r\nauthorization: Bearer {server.token()}".encode()
        status, problem = spoken(server, sent.replace(b"HTTP/1.1", b"HTTP/1.1" + token))
    assert (status, problem["code"]) == (408, "ACODE-TSR-063")


def test_half_sent_heads_of_one_server_are_not_those_of_another(keep: Keep) -> None:
    with running(keep) as one, running(keep) as other:
        protocols: list[Any] = [each.server.config.http for each in (one, other)]
        assert protocols[0].heads is not protocols[1].heads


def pour(client: socket.socket, count: int) -> None:
    for _ in range(count // 100_000):
        client.sendall(b"x" * 100_000)


def test_what_follows_an_answer_is_not_read_without_end(keep: Keep) -> None:
    body = 200_000_000
    head = f"POST /v1/tools/add:call HTTP/1.1\r\nhost: localhost\r\ncontent-length: {body}\r\n\r\n"
    with running(keep) as server, socket.create_connection(("127.0.0.1", server.port), timeout=20) as client:
        client.sendall(head.encode())
        assert client.recv(1000).startswith(b"HTTP/1.1 401 ")
        with pytest.raises(ConnectionError):
            pour(client, body)


def test_connections_beyond_the_limit_are_sent_away(keep: Keep) -> None:
    with running(keep, ServerLimits(connections=1, grace_s=1)) as server:
        address = ("127.0.0.1", server.port)
        with socket.create_connection(address, timeout=20) as first:
            first.sendall(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
            assert first.recv(100).startswith(b"HTTP/1.1 200")
            with socket.create_connection(address, timeout=20) as second, suppress(ConnectionResetError):
                assert second.recv(100) == b""


@pytest.mark.parametrize("sent", [b"", b"GET /healthz HTTP/1.1\r\nhost: local"])
def test_half_sent_heads_are_few_and_do_not_keep_others_out(keep: Keep, sent: bytes) -> None:
    with running(keep, ServerLimits(heads=4, connections=20, grace_s=1)) as server, ExitStack() as stack:
        for _ in range(50):
            client = stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=20))
            client.sendall(sent)
        until_true(lambda: len(server.server.server_state.connections) <= 4)
        assert asked(server.url, server.token(), "/healthz")[0] == 200


def test_a_half_sent_head_behind_a_request_is_not_waited_for(keep: Keep) -> None:
    with running(keep, IMPATIENT) as server:
        whole = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n"
        found = answers(server, whole, b"GET /healthz HTTP/1.1\r\nhost: local")
    assert [answer[:3] for answer in found] == [b"200"]


# --- requests that two parsers read differently ---------------------------------------------------

UPGRADE = (
    "connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABkAARAAAAAAAIAAAAA\r\n"
)
LAST = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"


def answers(server: Running, *parts: bytes) -> list[bytes]:
    """Every answer on one connection to what is sent in these pieces, each one sent by itself."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        received = b""
        for part in parts:
            client.sendall(part)
            client.settimeout(0.05)
            with suppress(TimeoutError):
                received += client.recv(65536)
            client.settimeout(20)
        while more := client.recv(65536):
            received += more
    return received.split(b"HTTP/1.1 ")[1:]


def posted(server: Running, body: bytes, *headers: str) -> bytes:
    said = [
        "host: localhost",
        f"authorization: Bearer {server.token()}",
        "content-type: application/json",
        *headers,
    ]
    lines = "\r\n".join(["POST /v1/tools/add:call HTTP/1.1", *said, "", ""])
    return lines.encode() + body


@pytest.mark.parametrize("cut", [0, 30, -25, -5])
@pytest.mark.parametrize("is_chunked", [False, True])
def test_a_request_that_offers_another_protocol_is_answered_in_ours(
    keep: Keep, cut: int, is_chunked: bool
) -> None:
    body = b'{"arguments":{"a":41}}'
    length = "transfer-encoding: chunked" if is_chunked else f"content-length: {len(body)}"
    sent = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body) if is_chunked else body
    with running(keep) as server:
        whole = posted(server, sent, length, *UPGRADE.splitlines())
        first, last = answers(server, whole[:cut], whole[cut:], LAST)
    assert first.startswith(b"200 ")
    assert b'"value":42' in first
    assert last.startswith(b"200 ")


def test_many_that_offer_another_protocol_at_once_are_answered(keep: Keep) -> None:
    offer = f"GET /healthz HTTP/1.1\r\nhost: localhost\r\n{UPGRADE}\r\n".encode()
    with running(keep) as server:
        statuses = [answer[:3] for answer in answers(server, offer * 1500 + LAST)]
    assert statuses == [b"200"] * 1501


def test_the_body_of_a_request_is_never_read_as_another(keep: Keep) -> None:
    with running(keep) as server:
        hidden = LAST.replace(b"connection: close\r\n", b"")
        head = posted(server, b"", f"content-length: {len(hidden)}", *UPGRADE.splitlines())
        statuses = [answer[:3] for answer in answers(server, head, hidden, LAST)]
    assert statuses == [b"400", b"200"]


FRAMED = b"16\r\n" + b'{"arguments":{"a":41}}' + b"\r\n0\r\n\r\n"


@pytest.mark.parametrize(
    "said",
    [
        ["content-length: 22", "transfer-encoding: chunked"],
        ["transfer-encoding: chunked", "content-length: 22"],
        ["content-length: 22", "content-length: 22"],
        ["content-length: 22, 22"],
        ["content-length: +22"],
        ["content-length: 0x16"],
        ["content-length : 22"],
        ["transfer-encoding: identity", "content-length: 22"],
        ["transfer-encoding: xchunked"],
        ["transfer-encoding: gzip, chunked"],
        ["transfer-encoding: chunked, identity"],
        ["transfer-encoding: chunked", "transfer-encoding: chunked"],
        ["transfer-encoding:\r\n chunked"],
        ["transfer-encoding: \x0bchunked"],
        ["transfer-encoding: chunked", "x: a\rb"],
    ],
)
def test_a_body_whose_end_can_be_read_in_two_ways_is_refused(keep: Keep, said: list[str]) -> None:
    with running(keep) as server:
        status, problem = spoken(server, posted(server, FRAMED, *said))
    assert (status, problem["code"]) == (400, "ACODE-TSR-062")


@pytest.mark.parametrize(
    "body",
    [FRAMED.replace(b"16\r", b"0x16\r"), FRAMED.replace(b"\r\n", b"\n"), FRAMED.replace(b"}\r\n0", b"}0")],
)
def test_chunks_that_can_be_read_in_two_ways_are_refused(keep: Keep, body: bytes) -> None:
    with running(keep) as server:
        found = answers(server, posted(server, body, "transfer-encoding: chunked"))
    assert [answer[:3] for answer in found] == [b"400"]


def test_nothing_is_tunnelled(keep: Keep) -> None:
    with running(keep) as server:
        status, problem = spoken(
            server, b"CONNECT localhost:80 HTTP/1.1\r\nhost: localhost:80\r\n\r\n" + LAST
        )
    assert (status, problem["code"]) == (400, "ACODE-TSR-062")


@pytest.mark.parametrize(
    ("target", "host", "status"),
    [
        ("http://localhost/healthz", "localhost", 200),
        ("http://evil.example/healthz", "localhost", 403),
        ("http://localhost/healthz", "evil.example", 403),
        ("http://localhost@evil.example/healthz", "localhost", 403),
        ("http://evil.example?/healthz", "localhost", 400),
    ],
)
def test_a_target_that_names_a_host_names_the_one_that_is_spoken_to(
    keep: Keep, target: str, host: str, status: int
) -> None:
    with running(keep) as server:
        said = f"GET {target} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n"
        assert spoken(server, said.encode())[0] == status


# --- what a client does not read ------------------------------------------------------------------


def test_a_client_that_does_not_read_its_answer_is_sent_away(keep: Keep) -> None:
    @tool(side_effects=[])
    def pour() -> str:
        """Give much."""
        return "x" * 5_000_000

    keep.register(pour)
    with running(keep, ServerLimits(read_s=0.2, grace_s=1)) as server:
        head = posted(server, b"{}", "content-length: 2").replace(b"/add:", b"/pour:")
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.connect(("127.0.0.1", server.port))
            client.sendall(head)
            until_true(lambda: server.server.server_state.connections)
            until_true(lambda: not server.server.server_state.connections)


def until_true(happened: Callable[[], object]) -> None:
    ends = time.monotonic() + 20
    while not happened():
        assert time.monotonic() < ends
        time.sleep(0.005)


@pytest.mark.parametrize(
    ("host", "names"),
    [
        ("127.0.0.1", {"localhost", "127.0.0.1", "[::1]"}),
        ("::1", {"localhost", "127.0.0.1", "[::1]"}),
        ("Keep.Example.org", {"keep.example.org"}),
        ("fd00::1", {"[fd00::1]"}),
    ],
)
def test_a_server_is_spoken_to_by_the_names_of_its_address(host: str, names: set[str]) -> None:
    assert names_of(host) == names


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.0.1", "example.org", "::", ""])  # noqa: S104 -- not bound
def test_other_addresses_are_reached_by_others(host: str) -> None:
    assert not is_loopback(host)


# --- how it ends ---------------------------------------------------------------------------------


def linger(release: threading.Event) -> Any:
    @tool(danger="safe", side_effects=["DbWrite"], capabilities=["db.write:notes"])
    async def linger() -> str:
        """Write, once it may."""
        begun.append("linger")
        while not release.is_set():  # noqa: ASYNC110 -- set by another thread
            await asyncio.sleep(0.005)
        return "written"

    return linger


def called(server: Running) -> "Future[tuple[int, Any]]":
    """A call of `linger` that has begun."""
    pool = ThreadPoolExecutor(1)
    answer = pool.submit(asked, server.url, server.token(), "/v1/tools/linger:call", {})
    pool.shutdown(wait=False)
    while not begun:
        time.sleep(0.005)
    return answer


def test_a_call_in_flight_is_finished_and_answered(keep: Keep) -> None:
    release = threading.Event()
    keep.register(linger(release))
    with running(keep, ServerLimits(grace_s=30)) as server:
        answer = called(server)
        server.server.handle_exit(signal.SIGTERM, None)
        release.set()
        assert answer.result(30)[1]["value"] == "written"


@pytest.mark.spec("WEB-1")
def test_a_call_that_outlasts_the_grace_is_recorded_as_unknown(keep: Keep) -> None:
    keep.register(linger(threading.Event()))
    with running(keep, ServerLimits(grace_s=1)) as server:
        answer = called(server)
        server.server.handle_exit(signal.SIGTERM, None)
        status, problem = answer.result(30)
    assert (status, problem["code"]) == (503, "ACODE-TSR-040")
    last = next(keep.record.log.read_back()).record
    assert (last["type"], last["status"], last["codes"]) == ("ToolCompleted", "error", ["ACODE-TSR-040"])


def test_readiness_is_off_before_anything_else_ends(keep: Keep) -> None:
    with running(keep) as server:
        app = server.server.config.app
        server.server.handle_exit(signal.SIGTERM, None)
        assert app.service.health.is_stopping  # type: ignore[union-attr]


def test_a_server_that_drains_serves_without_being_ready(keep: Keep) -> None:
    with running(keep, ServerLimits(drain_s=1000, grace_s=1)) as server:
        kept = socket.create_connection(("127.0.0.1", server.port), timeout=20)
        with kept:
            assert said_on(kept, "/readyz") == (200, False)
            server.server.handle_exit(signal.SIGTERM, None)
            until_true(lambda: (b"connection", b"close") in server.server.server_state.default_headers)
            assert said_on(kept, "/healthz") == (200, True)
        status, readiness = asked(server.url, "", "/readyz")
        assert (status, readiness["checks"]["serving"]) == (503, False)
        called = asked(server.url, server.token(), "/v1/tools/add:call", {"arguments": {"a": 1}})
        assert (called[0], called[1]["value"]) == (200, 2)
        server.server.handle_exit(signal.SIGTERM, None)
        until_true(lambda: not is_answered(server))


def test_a_drain_ends_by_itself(keep: Keep) -> None:
    with running(keep, ServerLimits(drain_s=0.2, grace_s=1)) as server:
        server.server.handle_exit(signal.SIGTERM, None)
        until_true(lambda: not is_answered(server))


def test_a_second_signal_cancels_the_calls_in_flight(keep: Keep) -> None:
    keep.register(linger(threading.Event()))
    with running(keep, ServerLimits(drain_s=1000, grace_s=1000)) as server:
        answer = called(server)
        for _ in range(2):
            server.server.handle_exit(signal.SIGTERM, None)
        status, problem = answer.result(30)
    assert (status, problem["code"]) == (503, "ACODE-TSR-040")


def said_on(client: socket.socket, path: str) -> tuple[int, bool]:
    """The status of an answer on a connection, and whether it is the last one there."""
    client.sendall(f"GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
    head = client.recv(65536)
    return int(head.split(b" ")[1]), b"\r\nconnection: close\r\n" in head


def is_answered(server: Running) -> bool:
    try:
        return asked(server.url, "", "/healthz")[0] == 200
    except OSError:
        return False


# --- as a process --------------------------------------------------------------------------------


@contextmanager
def process(tmp_path: Path, *options: str) -> Iterator[tuple["subprocess.Popen[str]", str, str]]:
    """`toolkeep serve`, its address, and a token."""
    environment = {**os.environ, "TOOLKEEP_HOME": str(tmp_path / "state"), "HOME": str(tmp_path)}
    command = [sys.executable, "-m", "toolkeep"]
    common = {"cwd": tmp_path, "env": environment, "text": True}
    made = subprocess.run(
        [*command, "token", "make", "me", "--scope", "admin", "--agent", "operator"],
        capture_output=True,
        check=True,
        **common,  # type: ignore[call-overload]
    )
    running = subprocess.Popen(
        [*command, "serve", "--port", "0", "--json", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        **common,  # type: ignore[call-overload]
    )
    assert running.stdout is not None
    lines = ""
    while not lines.endswith("}\n"):
        line = running.stdout.readline()
        assert line, running.stderr.read() if running.stderr else ""
        lines += line
    try:
        yield running, json.loads(lines)["address"], made.stdout.strip()
    finally:
        if running.poll() is None:
            running.kill()
        running.communicate(timeout=30)


def asked(url: str, token: str, path: str, body: Any = None) -> tuple[int, Any]:
    data = None if body is None else json.dumps(body).encode()
    headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}
    request = urllib.request.Request(url + path, data, headers)  # noqa: S310 -- our own server
    try:
        with urllib.request.urlopen(request, timeout=60) as response:  # noqa: S310 -- the same
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def test_it_ends_when_the_calls_in_flight_have_and_takes_no_more(tmp_path: Path) -> None:
    with process(tmp_path) as (server, url, token):
        status, data = asked(url, token, "/v1/tools/agent_hello_world:call", {"arguments": {"name": "Ada"}})
        assert (status, data["status"]) == (200, "ok")
        assert asked(url, token, "/readyz")[0] == 200
        server.send_signal(signal.SIGTERM)
        output, errors = server.communicate(timeout=30)
    assert server.returncode == 0
    assert token not in output + errors
    assert "Traceback" not in errors
    shown = subprocess.run(
        [sys.executable, "-m", "toolkeep", "audit", "verify"],
        cwd=tmp_path,
        env={**os.environ, "TOOLKEEP_HOME": str(tmp_path / "state"), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert shown.returncode == 0, shown.stdout


@pytest.mark.spec("REG-1")
def test_a_running_server_refuses_a_tool_that_another_process_disables(tmp_path: Path) -> None:
    environment = {**os.environ, "TOOLKEEP_HOME": str(tmp_path / "state"), "HOME": str(tmp_path)}

    def statuses(url: str, token: str) -> Iterator[str]:
        for _ in range(200):
            data = asked(url, token, "/v1/tools/agent_hello_world:call", {"arguments": {"name": "Ada"}})[1]
            yield data.get("status", "")
            time.sleep(0.05)

    with process(tmp_path) as (_, url, token):
        assert next(statuses(url, token)) == "ok"
        subprocess.run(
            [sys.executable, "-m", "toolkeep", "disable", "agent_hello_world"],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            check=True,
        )
        assert any(status != "ok" for status in statuses(url, token))


@pytest.mark.parametrize("told", [signal.SIGINT, signal.SIGTERM])
def test_a_server_that_is_told_to_end_again_and_again_before_its_first_call_ends(
    tmp_path: Path, told: signal.Signals
) -> None:
    with process(tmp_path) as (server, url, token):
        assert (
            asked(url, token, "/healthz")[0] == 200
        )  # its signal handler is in place, its pipeline not made
        for _ in range(1000):  # a handler that waits for a lock would be interrupted while it holds it
            server.send_signal(told)
            with suppress(subprocess.TimeoutExpired):
                server.wait(0.01)
                break
        server.communicate(timeout=30)
    assert server.returncode is not None


def test_a_server_without_tokens_says_how_to_make_one_and_shows_none(tmp_path: Path) -> None:
    environment = {**os.environ, "TOOLKEEP_HOME": str(tmp_path / "state"), "HOME": str(tmp_path)}
    server = subprocess.Popen(
        [sys.executable, "-m", "toolkeep", "serve", "--port", "0"],
        cwd=tmp_path,
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert server.stderr is not None
    lines = [server.stderr.readline() for _ in range(4)]
    server.terminate()
    server.communicate(timeout=30)
    assert "serving at http://127.0.0.1:" in lines[0]
    assert "token link" in lines[1]
    assert "toolkeep token make" in lines[3]
    assert not any("tk_" in line for line in lines)
