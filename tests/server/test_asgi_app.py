"""The door: who is spoken to, which route, who calls, what they may, how much at once."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from tests.server.talk import Client, served, until
from toolkeep import Keep
from toolkeep.errors import StateUnusable
from toolkeep.limits import ServerLimits

Act = Callable[[Client], Coroutine[Any, Any, Any]]


def talk(keep: Keep, act: Act, **options: Any) -> Any:
    async def run() -> Any:
        async with served(keep, **options) as client:
            return await act(client)

    return asyncio.run(run())


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"host": "localhost"}, 200),
        ({"host": "[::1]:8765"}, 200),
        ({"origin": "http://127.0.0.1:8765"}, 200),
        ({"host": "keep.example.org"}, 403),
        ({"host": "127.0.0.1.example.org"}, 403),
        ({"host": ""}, 403),
        ({"origin": "http://example.org"}, 403),
        ({"origin": "null"}, 403),
    ],
)
@pytest.mark.parametrize("path", ["/healthz", "/v1/tools", "/mcp"])
@pytest.mark.spec("WEB-1")
def test_only_requests_to_this_machine_and_from_it_are_taken(
    keep: Keep, headers: dict[str, str], status: int, path: str
) -> None:
    response = talk(keep, lambda client: client.get(path, headers=headers))
    expected = 405 if path == "/mcp" and status == 200 else status
    assert response.status == expected
    if status == 403:
        assert response.code == "ACODE-TSR-064"


def test_further_hosts_are_those_that_the_operator_named(keep: Keep) -> None:
    async def act(client: Client) -> Any:
        return [
            (await client.get("/healthz", headers={"host": h})).status
            for h in ("keep.example.org", "localhost")
        ]

    assert talk(keep, act, hosts=["keep.example.org"]) == [200, 403]


@pytest.mark.parametrize(
    "authorization",
    [
        "",
        "Bearer",
        "Bearer x",
        "Basic YTpi",
        "Bearer tk_0123456789abcdef_" + "A" * 43,
        "bearer\ttk",
        "Bearer a b",
    ],
)
@pytest.mark.parametrize(
    "path", ["/v1/tools", "/openapi.json", "/metrics", "/v1/audit", "/v1/approvals", "/mcp"]
)
@pytest.mark.spec("WEB-1")
def test_without_a_token_that_counts_nobody_gets_in(keep: Keep, authorization: str, path: str) -> None:
    response = talk(keep, lambda client: client.get(path, headers={"authorization": authorization}))
    assert (response.status, response.code) == (401, "ACODE-TSR-060")
    scope = {"/mcp": "mcp", "/v1/audit": "audit:read", "/v1/approvals": "approve"}.get(path, "")
    challenge = response.headers["www-authenticate"]
    url = "http://127.0.0.1:8765/.well-known/oauth-protected-resource"
    assert f'resource_metadata="{url}", scope="{scope}' in challenge
    assert ('error="invalid_token"' in challenge) is ("tk_" in authorization)
    assert "tk_" not in response.body.decode()


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
def test_the_name_of_the_scheme_is_read_in_any_case(keep: Keep, scheme: str) -> None:
    async def act(client: Client) -> Any:
        return await client.get("/v1/tools", headers={"authorization": f"{scheme} {client.token}"})

    assert talk(keep, act).status == 200


def test_a_token_in_the_query_is_no_token_and_is_not_repeated(keep: Keep) -> None:
    async def act(client: Client) -> Any:
        return await Client(client.app, client.tokens).get(f"/v1/tools?access_token={client.token}")

    response = talk(keep, act)
    assert (response.status, response.code) == (400, "ACODE-TSR-062")
    assert "tk_" not in response.body.decode()


def test_a_token_that_was_revoked_elsewhere_is_out_within_a_second(keep: Keep) -> None:
    async def act(client: Client) -> Any:
        authenticator = client.app.service.authenticator
        authenticator.clock = lambda: 100.0
        ada = client.as_agent("ada", "tools:read")
        before = (await ada.get("/v1/tools")).status
        client.tokens.revoke(ada.token.split("_")[1])
        authenticator.clock = lambda: 101.0
        return before, (await ada.get("/v1/tools")).status

    assert talk(keep, act) == (200, 401)


def test_a_token_whose_time_is_over_is_out_also_if_it_was_recognized_before(
    keep: Keep, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def act(client: Client) -> Any:
        client.app.service.authenticator.clock = lambda: 100.0
        ada = client.as_agent("ada", "tools:read")
        before = (await ada.get("/v1/tools")).status
        later = time.time() + 1000 * 86_400
        monkeypatch.setattr(time, "time", lambda: later)
        client.tokens._clock = lambda: later
        return before, (await ada.get("/v1/tools")).status

    assert talk(keep, act) == (200, 401)


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/", 404, "ACODE-TSR-065"),
        ("GET", "/v1", 404, "ACODE-TSR-065"),
        ("GET", "/v1/tools/add/more/and/more", 404, "ACODE-TSR-065"),
        ("POST", "/v1/tools/add:explode", 404, "ACODE-TSR-065"),
        ("GET", "/v1/*", 404, "ACODE-TSR-065"),
        ("PATCH", "/v1/tools", 405, "ACODE-TSR-066"),
        ("GET", "/v1/tools/add:call", 405, "ACODE-TSR-066"),
        ("POST", "/healthz", 405, "ACODE-TSR-066"),
        ("GET", "/v1/tools/" + "x" * 200, 400, "ACODE-TSR-062"),
        ("GET", "/v1/tools/a b", 400, "ACODE-TSR-062"),
        ("GET", "/v1/tools?limit=0", 400, "ACODE-TSR-062"),
        ("GET", "/v1/tools?limit=many", 400, "ACODE-TSR-062"),
        ("GET", "/v1/tools?limit=1&limit=2", 400, "ACODE-TSR-062"),
        ("GET", "/v1/tools?colour=red", 400, "ACODE-TSR-062"),
        ("GET", "/v1/tools?danger=huge", 400, "ACODE-TSR-062"),
        ("GET", "/v1/tools?cursor=%21%21", 400, "ACODE-TSR-062"),
        ("GET", "/v1/tools?limit", 400, "ACODE-TSR-062"),
        ("GET", "/v1/tools?search=%ff", 400, "ACODE-TSR-062"),
    ],
)
def test_what_no_route_declares_is_refused_with_a_problem_document(
    keep: Keep, method: str, path: str, status: int, code: str
) -> None:
    response = talk(keep, lambda client: client.send(method, path))
    assert (response.status, response.code) == (status, code)
    assert response.data["type"] == f"urn:toolkeep:problem:{code}"
    assert response.data["title"]
    assert response.data["detail"]


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (b"", 400),
        (b"[]", 400),
        (b"{", 400),
        (b'{"arguments":{"a":1}} x', 400),
        (b'{"arguments":{"a":1},"arguments":{"a":2}}', 400),
        (b'{"session":"a","arguments":{"a":1},"session":"b"}', 400),
        (b'{"arguments":{"a":1},"agent":"bob"}', 400),
        (b'{"arguments":{"a":1},"timeout_s":"soon"}', 400),
        (b'{"arguments":{"a":1,"a":2}}', 422),
        (b'{"arguments":[1]}', 422),
        (b'{"arguments":{"a":NaN}}', 400),
        (b'{"arguments":{"a":1}}', 200),
        (b'  {"session": "s", "arguments": {"a": 1}}', 200),
        (b"{}", 422),
        (b"\xff\xfe", 400),
        (b"[" * 100_000, 400),
    ],
)
def test_bodies_are_read_strictly(keep: Keep, raw: bytes, status: int) -> None:
    response = talk(keep, lambda client: client.send("POST", "/v1/tools/add:call", raw=raw))
    assert response.status == status, response.body


@pytest.mark.parametrize(
    "headers",
    [{"content-type": "text/plain"}, {"content-type": ""}, {"content-encoding": "gzip"}],
)
def test_a_body_that_says_it_is_no_json_is_not_read(keep: Keep, headers: dict[str, str]) -> None:
    response = talk(keep, lambda client: client.call("add", {"a": 1}, headers=headers))
    assert (response.status, response.code) == (415, "ACODE-TSR-069")


@pytest.mark.parametrize("raw", [[b"x" * 600, b"x" * 600], b"x" * 1200])
def test_a_body_beyond_the_limit_is_refused(keep: Keep, raw: Any) -> None:
    limits = ServerLimits(body_bytes=1000)
    response = talk(keep, lambda client: client.send("POST", "/v1/tools/add:call", raw=raw), limits=limits)
    assert (response.status, response.code) == (413, "ACODE-TSR-063")
    assert response.headers["connection"] == "close"


def test_requests_of_one_token_are_bounded_in_number_and_rate(keep: Keep) -> None:
    limits = ServerLimits(token_in_flight=1, requests_per_second=0.001, burst=3)

    async def act(client: Client) -> Any:
        ada, bob = client.as_agent("ada", "call"), client.as_agent("bob", "call")
        waiting = ada.begin("POST", "/v1/tools/wait_for_ever:call", {"arguments": {"label": "x"}})
        await until(lambda: client.app.service.calls.in_flight)
        at_once = await ada.call("add", {"a": 1})
        others = await bob.call("add", {"a": 1})
        waiting.leave()
        await waiting.answered()
        later = [(await ada.call("add", {"a": 1})).status for _ in range(3)]
        return at_once, others.status, later

    at_once, others, later = talk(keep, act, limits=limits)
    assert (at_once.status, at_once.code, at_once.headers["retry-after"]) == (429, "ACODE-TSR-029", "1")
    assert others == 200
    assert later == [200, 200, 429]


def test_servers_on_one_database_divide_the_rate_of_a_token(keep: Keep) -> None:
    async def act(client: Client) -> list[int]:
        keep._pipeline.admission.divide(3)
        ada = client.as_agent("ada", "call")
        return [(await ada.call("add", {"a": 1})).status for _ in range(2)]

    assert talk(keep, act, limits=ServerLimits(requests_per_second=0.001, burst=3)) == [200, 429]


def test_a_full_server_says_so(keep: Keep) -> None:
    response = talk(keep, lambda client: client.get("/v1/tools"), limits=ServerLimits(in_flight=0))
    assert (response.status, response.code) == (503, "ACODE-TSR-068")


def test_a_bug_of_ours_is_answered_with_its_code_alone(keep: Keep, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("the password is hunter2")

    monkeypatch.setattr(keep, "tools", broken)
    response = talk(keep, lambda client: client.get("/v1/tools"))
    assert (response.status, response.code) == (500, "ACODE-TSR-014")
    assert "hunter2" not in response.body.decode()


def test_no_answer_may_be_kept_or_guessed_at(keep: Keep) -> None:
    response = talk(keep, lambda client: client.get("/v1/tools"))
    assert response.headers["cache-control"] == "no-store"
    assert response.headers["x-content-type-options"] == "nosniff"


def test_what_is_wrong_with_our_machine_is_not_told_to_clients(
    keep: Keep, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise StateUnusable("/home/ada/state", "cannot be used: disk full", hint="fix /home/ada")

    monkeypatch.setattr(keep, "tools", broken)
    response = talk(keep, lambda client: client.get("/v1/tools"))
    assert (response.status, response.code) == (500, "ACODE-TSR-023")
    assert "/home/ada" not in response.body.decode()
