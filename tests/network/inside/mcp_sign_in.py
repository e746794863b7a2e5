"""Signing in to MCP servers, well-behaved and hostile, in an internet of our own. Run by `tests/mcp_client/oauth`."""

import asyncio
import io
import json
import logging
import os
import stat
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from msgspec.structs import replace

from tests.config.projects import accept
from tests.mcp_client.servers import call_all
from tests.network.inside.driver import command
from tests.network.inside.site import Asked, Site, answer
from tests.network.world import LOCAL, METADATA, OTHER_PUBLIC, PRIVATE, PUBLIC, World
from toolkeep.mcp_client.client import value_of
from toolkeep.mcp_client.elicitation_audit import ActiveCall
from toolkeep.mcp_client.http_session import Access
from toolkeep.mcp_client.oauth.challenge import Challenge
from toolkeep.mcp_client.oauth.client_registration import OAuthSettings
from toolkeep.mcp_client.oauth.credentials import ClientCredentials, InteractiveSignIn, StoredCredentials
from toolkeep.mcp_client.oauth.discovery import find_issuer, find_protected
from toolkeep.mcp_client.oauth.http_client import AuthorizationServerClient
from toolkeep.mcp_client.oauth.redirect_listener import listening
from toolkeep.mcp_client.oauth.sign_in_flow import sign_in
from toolkeep.mcp_client.oauth.token_endpoint import exchange_code
from toolkeep.mcp_client.session import McpSession, start_http
from toolkeep.mcp_client.transport import UpstreamFailed
from toolkeep.network.allowlist import HostAllowlist
from toolkeep.network.hosts import HostScope
from toolkeep.stores.sign_ins import Client, MemorySignIns, StoredSignIn

URL = "https://mcp.example/mcp"
PRM = "/.well-known/oauth-protected-resource/mcp"
ISSUER = "https://auth.example"
META = "/.well-known/oauth-authorization-server"
TOKEN = "at-PLANTED-0123456789"
CHALLENGE = f'Bearer resource_metadata="https://mcp.example{PRM}", scope="read"'
ECHO = {"name": "echo", "description": "Gives back.", "inputSchema": {"type": "object"}}
KEPT = StoredSignIn(
    url=URL, issuer=ISSUER, resource=URL, token_endpoint=f"{ISSUER}/token", client=Client(id="c1"),
    access_token=TOKEN, refresh_token="rt-PLANTED-1", scope="read",
)  # fmt: skip
NOT_PUBLIC = {"private": PRIVATE, "metadata": METADATA, "local": LOCAL}


class Browser:
    """Opens the address that a person is shown: the authorization server sends it back with a code."""

    def __init__(self, change: Callable[[dict[str, str]], dict[str, str]] = dict) -> None:
        self.change = change
        self.shown: list[dict[str, str]] = []
        self.visits: list[asyncio.Task[None]] = []
        self.has_opened = asyncio.Event()

    def __call__(self, url: str) -> None:
        asked = dict(parse_qsl(urlsplit(url).query))
        self.shown.append(asked)
        back = self.change({"code": "c0de", "state": asked["state"], "iss": ISSUER})
        self.visits.append(asyncio.create_task(visit(asked["redirect_uri"], back)))
        self.has_opened.set()


async def visit(redirect_uri: str, fields: dict[str, str]) -> None:
    parts = urlsplit(redirect_uri)
    reader, writer = await asyncio.open_connection("127.0.0.1", parts.port)
    writer.write(f"GET {parts.path}?{urlencode(fields)} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    await reader.read()
    writer.close()


class Server(Site):
    """An MCP server that lets in who shows the token."""

    def __init__(self, **more: Any) -> None:
        super().__init__(**more)
        self.tokens = {TOKEN}
        self.scope = ""
        self.says: Callable[[Asked], str] = lambda _: "hello"
        self.pages |= {"/mcp": self.answer, PRM: {"resource": URL, "authorization_servers": [ISSUER]}}

    def answer(self, asked: Asked) -> bytes:
        shown = asked.headers.get("authorization", "").removeprefix("Bearer ")
        if shown not in self.tokens:
            return answer((401, {}), **{"WWW-Authenticate": "Basic", "Www-Authenticate": CHALLENGE})
        if self.scope and asked.json["method"] == "tools/call":
            wanted = f'Bearer error="insufficient_scope", scope="{self.scope}"'
            return answer((403, {}), WWW_Authenticate=wanted)
        if "id" not in asked.json:
            return b"HTTP/1.1 202 X\r\nContent-Length: 0\r\n\r\n"
        return answer({"jsonrpc": "2.0", "id": asked.json["id"], "result": self._result(asked)})

    def _result(self, asked: Asked) -> dict[str, Any]:
        if asked.json["method"] == "initialize":
            return {"protocolVersion": "2025-11-25", "capabilities": {}}
        if asked.json["method"] == "tools/list":
            return {"tools": [ECHO]}
        return {"content": [{"type": "text", "text": self.says(asked)}]}


def metadata(**more: Any) -> dict[str, Any]:
    return {
        "issuer": ISSUER,
        "authorization_endpoint": f"{ISSUER}/authorize",
        "token_endpoint": f"{ISSUER}/token",
        "registration_endpoint": f"{ISSUER}/register",
        "code_challenge_methods_supported": ["S256"],
        "token_endpoint_auth_methods_supported": ["none"],
        **more,
    }


def issuing(**more: Any) -> Site:
    token = {
        "access_token": TOKEN,
        "token_type": "Bearer",
        "refresh_token": "rt-PLANTED-1",
        "expires_in": 3600,
    }
    site = Site()
    site.pages = {META: metadata(**more), "/register": (201, {"client_id": "c1"}), "/token": token}
    return site


async def both(world: World, **more: Any) -> tuple[Server, Site]:
    server, auth = Server(), issuing(**more)
    await server.serve(world, "mcp.example", PUBLIC)
    await auth.serve(world, "auth.example", OTHER_PUBLIC)
    return server, auth


async def signed_in(
    browser: Browser | None = None, wanted: OAuthSettings | None = None, **more: Any
) -> StoredSignIn:
    challenge = Challenge(metadata_url=f"https://mcp.example{PRM}", scope="read")
    return await sign_in(URL, challenge, wanted or OAuthSettings(), browser or Browser(), **more)


async def talk(access: Access) -> McpSession:
    hosts = HostAllowlist(writes=(HostScope.read("mcp.example"),))
    return await start_http(URL, hosts, dict, access=access)


async def called(access: Access) -> Any:
    said = await (await talk(access)).client.call(
        "tools/call", {"name": "echo", "arguments": {}}, ActiveCall("call")
    )
    return value_of(said, wants_structure=False)


async def why_not(work: Any) -> str:
    try:
        await work
    except UpstreamFailed as failed:
        return failed.reason
    return ""


def kept(**more: Any) -> MemorySignIns:
    tokens = MemorySignIns()
    tokens.put("up", replace(KEPT, **more))
    return tokens


async def test_a_person_signs_in_and_calls_are_let_in(world: World) -> None:
    _, auth = await both(world)
    browser = Browser()
    access = InteractiveSignIn(URL, OAuthSettings(), browser)
    assert await called(access) == "hello"
    (shown,) = browser.shown
    assert (shown["resource"], shown["scope"], shown["client_id"]) == (URL, "read", "c1")
    assert shown["code_challenge_method"] == "S256"
    form = auth.asked[-1].form
    assert (form["resource"], form["grant_type"], form["code"]) == (URL, "authorization_code", "c0de")
    assert len(form["code_verifier"]) >= 43
    assert access.kept is not None
    assert (access.kept.access_token, access.kept.url, access.kept.issuer) == (TOKEN, URL, ISSUER)
    assert all(TOKEN not in str(asked) for asked in auth.asked)


async def test_tokens_are_shown_to_their_own_server_alone(world: World) -> None:
    server, _ = await both(world)
    assert await called(StoredCredentials("up", URL, kept())) == "hello"
    assert all(asked.headers["authorization"] == f"Bearer {TOKEN}" for asked in server.asked)
    other = kept(url="https://mcp.example/other")
    server.asked.clear()
    assert "toolkeep sign-in up" in await why_not(called(StoredCredentials("up", URL, other)))
    assert all("authorization" not in asked.headers for asked in server.asked)


async def test_a_redirect_takes_no_token_to_another_server(world: World) -> None:
    thief = await Site().serve(world, "thief.example", OTHER_PUBLIC)
    away = Site()
    away.pages["/mcp"] = b"HTTP/1.1 307 X\r\nLocation: https://thief.example/\r\nContent-Length: 0\r\n\r\n"
    await away.serve(world, "mcp.example", PUBLIC)
    assert "redirects to a host that this call may not reach" in await why_not(
        called(StoredCredentials("up", URL, kept()))
    )
    assert thief.asked == []


async def test_what_a_server_calls_its_document_is_its_own_and_public(world: World) -> None:
    server, auth = await both(world)
    inner = await Site().serve(world, "inner.example", PRIVATE)
    for place in (f"https://inner.example{PRM}", f"https://{METADATA}{PRM}", f"https://auth.example{PRM}"):
        assert "is on another server" in await why_not(
            find_protected(AuthorizationServerClient(), URL, place)
        )
    for place in (
        f"http://mcp.example{PRM}",
        "file:///etc/passwd",
        "javascript:alert(1)",
        "https://u:p@mcp.example/",
    ):
        assert "is not a plain https URL" in await why_not(
            find_protected(AuthorizationServerClient(), URL, place)
        )
    assert (server.asked, auth.asked, inner.asked) == ([], [], [])


async def test_an_issuer_inside_is_not_asked(world: World) -> None:
    for name, address in NOT_PUBLIC.items():
        inner = await Site().serve(world, f"{name}.example", address, 8443)
        for issuer in (f"https://{name}.example:8443", f"https://{address}:8443", "https://localhost:8443"):
            assert await why_not(find_issuer(AuthorizationServerClient(), issuer))
        assert inner.asked == []


async def test_endpoints_inside_are_not_asked(world: World) -> None:
    for number, (name, address) in enumerate(NOT_PUBLIC.items()):
        inner = await Site().serve(world, f"{name}.example", address)
        for endpoint in ("registration_endpoint", "token_endpoint"):
            fresh = World(world.authority)
            fresh.names = world.names
            await both(fresh, **{endpoint: f"https://{name}.example/x"})
            assert "resolves to an address that is not public" in await why_not(signed_in()), number
            await fresh.end()
        assert inner.asked == []


async def test_a_redirect_of_an_authorization_server_is_no_answer(world: World) -> None:
    inner = await Site().serve(world, "inner.example", PRIVATE)
    _, auth = await both(world)
    away = b"HTTP/1.1 302 X\r\nLocation: https://inner.example/\r\nContent-Length: 0\r\n\r\n"
    for page in (META, "/register", "/token"):
        before, auth.pages[page] = auth.pages[page], away
        assert "redirects" in await why_not(signed_in()), page
        auth.pages[page] = before
    assert inner.asked == []


async def test_a_redirect_to_another_public_server_or_page_is_no_answer_either(world: World) -> None:
    server, auth = await both(world)
    for host in ("mcp.example", "auth.example"):
        away = f"HTTP/1.1 307 X\r\nLocation: https://{host}/stolen\r\nContent-Length: 0\r\n\r\n"
        auth.pages["/token"] = away.encode()
        assert "redirects" in await why_not(signed_in())
    assert "/stolen" not in (*server.paths(), *auth.paths())


async def test_endpoints_of_another_kind_are_refused_before_anything_is_shown(world: World) -> None:
    _, auth = await both(world)
    for endpoint in ("authorization_endpoint", "token_endpoint", "registration_endpoint"):
        for url in (
            "javascript:alert(1)",
            "file:///etc/passwd",
            "http://auth.example/x",
            "data:text/html,x",
            "//x",
            7,
        ):
            auth.pages[META] = metadata(**{endpoint: url})
            browser = Browser()
            assert "is not a plain https URL" in await why_not(signed_in(browser)), (endpoint, url)
            assert browser.shown == []


async def test_documents_must_be_about_what_they_were_asked_for(world: World) -> None:
    server, auth = await both(world)
    for resource in (
        "https://bank.example/mcp",
        "https://mcp.example/mc",
        "https://mcp.example/mcp/more",
        None,
        7,
    ):
        server.pages[PRM] = {"resource": resource, "authorization_servers": [ISSUER]}
        assert "resource" in await why_not(signed_in()), resource
    server.pages[PRM] = {"resource": "https://mcp.example", "authorization_servers": [ISSUER]}
    assert (await signed_in()).resource == "https://mcp.example"
    for issuer in ("https://bank.example", f"{ISSUER}/", "https://AUTH.example", None):
        auth.pages[META] = metadata(issuer=issuer)
        assert "identifies itself as another one" in await why_not(signed_in()), issuer


async def test_the_configuration_decides_who_signs_in(world: World) -> None:
    _, auth = await both(world)
    wanted = OAuthSettings(client_id="us", client_secret="cs-PLANTED", issuer="https://known.example")
    assert "another issuer than the configuration names" in await why_not(signed_in(wanted=wanted))
    own = ClientCredentials(URL, replace(wanted, grant="client_credentials"))
    assert "another issuer than the configuration names" in await why_not(called(own))
    assert auth.asked == []


async def test_a_client_with_a_secret_of_its_own_gets_a_token(world: World) -> None:
    _, auth = await both(world, token_endpoint_auth_methods_supported=["client_secret_post"])
    wanted = OAuthSettings(
        client_id="us", client_secret="cs-PLANTED", issuer=ISSUER, grant="client_credentials"
    )
    assert await called(ClientCredentials(URL, wanted)) == "hello"
    form = auth.asked[-1].form
    assert (form["grant_type"], form["client_secret"], form["resource"]) == (
        "client_credentials",
        "cs-PLANTED",
        URL,
    )


async def test_an_answer_of_another_attempt_is_not_taken(world: World) -> None:
    _, auth = await both(world)
    browser = Browser(lambda back: {**back, "state": "forged"})
    work = asyncio.create_task(signed_in(browser))
    await browser.has_opened.wait()
    await asyncio.gather(*browser.visits)
    assert "/token" not in auth.paths()
    assert not work.done()
    asked = browser.shown[0]
    await visit(asked["redirect_uri"], {"code": "ours", "state": asked["state"]})
    assert (await work).access_token == TOKEN
    assert auth.asked[-1].form["code"] == "ours"


async def test_a_code_of_another_issuer_goes_nowhere(world: World) -> None:
    _, auth = await both(world, authorization_response_iss_parameter_supported=True)
    changes: dict[str, Callable[[dict[str, str]], dict[str, str]]] = {
        "is from another issuer": lambda back: {**back, "iss": "https://evil.example"},
        "lacks its issuer": lambda back: {key: text for key, text in back.items() if key != "iss"},
        "access was denied": lambda back: {"error": "access_denied", "state": back["state"], "iss": ISSUER},
    }
    for reason, change in changes.items():
        assert reason in await why_not(signed_in(Browser(change)))
    assert "/token" not in auth.paths()


async def test_a_server_without_pkce_is_not_signed_in_to(world: World) -> None:
    await both(world, code_challenge_methods_supported=["plain"])
    browser = Browser()
    assert "PKCE" in await why_not(signed_in(browser))
    assert browser.shown == []


async def test_a_document_without_end_is_not_read_to_its_end(world: World) -> None:
    sent = 0

    async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await reader.readuntil(b"\r\n\r\n")
        writer.write(
            b"HTTP/1.1 200 X\r\nContent-Length: 104857600\r\nContent-Type: application/json\r\n\r\n{"
        )
        while sent < 104_857_600 and not writer.is_closing():
            writer.write(b" " * 65536)
            await writer.drain()
            await asyncio.sleep(0)  # so that it is noticed when nobody listens any more
            sent += 65536

    world.name("auth.example", [OTHER_PUBLIC])
    await world.serve(endless, OTHER_PUBLIC, 443, names=["auth.example"])
    assert "has more than 262144 bytes" in await why_not(find_issuer(AuthorizationServerClient(), ISSUER))
    assert sent < 20_000_000


async def test_a_token_endpoint_that_never_answers_is_given_up(world: World) -> None:
    _, auth = await both(world)
    auth.pages["/token"] = None
    work = exchange_code(AuthorizationServerClient(seconds=0.2), KEPT, "c0de", "v")
    assert await why_not(work) == "'auth.example' did not answer in 0.2 s"


async def test_tokens_that_cannot_be_a_header_are_refused(world: World) -> None:
    _, auth = await both(world)
    for said in (
        {"access_token": "a\r\nX: y", "token_type": "Bearer"},
        {"access_token": "x" * 20_000, "token_type": "Bearer"},
        {"access_token": "", "token_type": "Bearer"},
        {"access_token": "é", "token_type": "Bearer"},
        {"access_token": TOKEN, "token_type": "mac"},
        {"access_token": TOKEN},
        {"access_token": [TOKEN], "token_type": "Bearer"},
    ):
        auth.pages["/token"] = said
        reason = await why_not(exchange_code(AuthorizationServerClient(), KEPT, "c0de", "v"))
        assert "issued a" in reason, said
        assert TOKEN not in reason


async def test_what_a_token_endpoint_says_is_in_no_error(world: World) -> None:
    _, auth = await both(world)
    for said in ({"error": f"invalid {TOKEN}"}, {"error": "invalid_grant", "error_description": TOKEN}, {}):
        auth.pages["/token"] = (400, said)
        reason = await why_not(exchange_code(AuthorizationServerClient(), KEPT, "c0de", "v"))
        assert TOKEN not in reason
        assert "issued no token" in reason


async def test_a_token_that_is_over_is_refreshed_and_kept(world: World) -> None:
    server, auth = await both(world)
    auth.pages["/token"] = {"access_token": "new-token-1", "token_type": "bearer", "refresh_token": "rt-2"}
    server.tokens = {"new-token-1"}
    tokens = kept(expires_at=time.time() - 1)
    assert await called(StoredCredentials("up", URL, tokens)) == "hello"
    form = auth.asked[0].form
    assert form == {
        "grant_type": "refresh_token",
        "refresh_token": "rt-PLANTED-1",
        "resource": URL,
        "client_id": "c1",
    }
    found = tokens.get("up")
    assert found is not None
    assert (found.access_token, found.refresh_token) == ("new-token-1", "rt-2")
    assert len(auth.asked) == 1
    assert all(asked.headers["authorization"] == "Bearer new-token-1" for asked in server.asked)


async def test_new_tokens_are_kept_also_where_the_call_is_given_up_meanwhile(world: World) -> None:
    _, auth = await both(world)
    asked, go_on = asyncio.Event(), asyncio.Event()
    serve_at_once = auth.__call__

    class Slow(Site):
        async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            asked.set()
            await go_on.wait()
            await serve_at_once(reader, writer)

    auth.pages["/token"] = {"access_token": "new-token-1", "token_type": "bearer", "refresh_token": "rt-2"}
    await Slow().serve(world, "slow.example", OTHER_PUBLIC, 8443)
    tokens = kept(expires_at=time.time() - 1, token_endpoint="https://slow.example:8443/token")
    access = StoredCredentials("up", URL, tokens)
    calling = asyncio.ensure_future(called(access))
    await asked.wait()
    calling.cancel()
    await asyncio.wait({calling})
    go_on.set()
    assert await access.authorization() == "Bearer new-token-1"
    found = tokens.get("up")
    assert found is not None
    assert found.refresh_token == "rt-2"
    assert len(auth.asked) == 1


async def test_a_token_that_is_always_refused_is_not_refreshed_for_ever(world: World) -> None:
    server, auth = await both(world)
    server.tokens = set()
    auth.pages["/token"] = {"access_token": "new-token-1", "token_type": "bearer"}
    assert "status 401" in await why_not(called(StoredCredentials("up", URL, kept())))
    assert len(auth.asked) == 3


async def test_a_sign_in_that_no_longer_counts_is_said_to_a_person(world: World) -> None:
    server, auth = await both(world)
    server.tokens = set()
    auth.pages["/token"] = (400, {"error": "invalid_grant"})
    tokens = kept()
    assert "run `toolkeep sign-in up`" in await why_not(called(StoredCredentials("up", URL, tokens)))
    found = tokens.get("up")
    assert found is not None
    assert (found.access_token, found.refresh_token) == ("", "")


async def test_a_call_asks_no_person_for_more_and_remembers_what_was_wanted(world: World) -> None:
    server, auth = await both(world)
    server.scope = "write read"
    tokens = kept()
    assert "requires scopes that the last sign-in did not grant" in await why_not(
        called(StoredCredentials("up", URL, tokens))
    )
    found = tokens.get("up")
    assert found is not None
    assert (found.wanted, found.access_token) == ("write read", TOKEN)
    assert auth.asked == []
    browser = Browser()
    access = InteractiveSignIn(URL, OAuthSettings(), browser, before=found)
    await access.begin()
    assert browser.shown[0]["scope"] == "read write"


async def test_who_signs_in_again_is_registered_again_only_where_that_is_needed(world: World) -> None:
    _, auth = await both(world)
    first = await signed_in()
    again = await signed_in(before=first)
    assert auth.paths().count("/register") == 1
    assert again.client == first.client
    async with listening(lambda _: False, int(first.client.redirect_uri.split(":")[2].split("/")[0])):
        other = await signed_in(before=again)  # the place to come back to is taken
    assert auth.paths().count("/register") == 2
    assert other.client.redirect_uri != first.client.redirect_uri
    elsewhere = await signed_in(before=replace(first, issuer="https://other.example"))
    assert auth.paths().count("/register") == 3
    assert elsewhere.issuer == ISSUER


async def test_a_refusal_for_good_is_no_question_of_signing_in(world: World) -> None:
    server, auth = await both(world)
    server.pages["/mcp"] = (403, {})
    tokens = kept()
    assert "status 403" in await why_not(called(StoredCredentials("up", URL, tokens)))
    assert (tokens.get("up"), auth.asked) == (KEPT, [])


async def test_a_server_that_always_wants_more_is_given_up(world: World) -> None:
    server, _ = await both(world)
    numbers = iter(range(100))
    browser = Browser()

    def more(asked: Asked) -> bytes:
        wanted = f'Bearer error="insufficient_scope", scope="s{next(numbers)}"'
        return answer((401 if "authorization" not in asked.headers else 403, {}), WWW_Authenticate=wanted)

    server.pages["/mcp"] = more
    assert "rejected a token" in await why_not(called(InteractiveSignIn(URL, OAuthSettings(), browser)))
    assert len(browser.shown) == 2


async def test_a_token_in_what_a_server_says_is_hidden(world: World) -> None:
    server, _ = await both(world)
    server.says = lambda asked: f"you showed {asked.headers['authorization']}"
    assert await called(StoredCredentials("up", URL, kept())) == "you showed Bearer (hidden)"
    error = {"code": -32000, "message": f"bad token {TOKEN}"}

    def failing(asked: Asked) -> dict[str, Any]:
        return {"jsonrpc": "2.0", "id": asked.json["id"], "error": error}

    server.pages["/mcp"] = failing
    reason = await why_not(called(StoredCredentials("up", URL, kept())))
    assert reason.endswith("bad token (hidden)")


async def test_nothing_that_is_kept_shows_its_secrets(world: World) -> None:
    shown = f"{KEPT!r} {KEPT.client!r} {OAuthSettings(client_secret=TOKEN)!r} {json.dumps(str(KEPT))}"
    assert "PLANTED" not in shown


async def test_tokens_stand_in_the_state_folder_and_nowhere_else(world: World) -> None:
    server, auth = await both(world, token_endpoint_auth_methods_supported=["client_secret_post"])
    auth.pages["/register"] = (201, {"client_id": "c1", "client_secret": "cs-PLANTED-9"})

    def authorize(asked: Asked) -> bytes:
        wanted = dict(parse_qsl(urlsplit(asked.path).query))
        back = urlencode({"code": "code-PLANTED", "state": wanted["state"], "iss": ISSUER})
        return answer((302, {}), Location=f"{wanted['redirect_uri']}?{back}")

    auth.pages["/authorize"] = authorize
    server.says = lambda asked: f"shown {asked.headers['authorization']}"
    logged = io.StringIO()
    handler = logging.StreamHandler(logged)
    logging.getLogger().addHandler(handler)
    logging.getLogger().setLevel(logging.DEBUG)
    try:
        with tempfile.TemporaryDirectory() as folder:
            told, state = await asyncio.to_thread(_as_a_person, Path(folder))
    finally:
        logging.getLogger().removeHandler(handler)
    assert "✓ added 'up'" in told
    assert "shown Bearer (hidden)" in told
    assert "PLANTED" not in told
    assert "PLANTED" not in logged.getvalue()
    assert state == {"home/sign-ins/up.json": 0o600}
    assert all("PLANTED" not in asked.path for asked in (*server.asked, *auth.asked))


def _as_a_person(folder: Path) -> tuple[str, dict[str, int]]:
    """Add a server, sign in to it, call it; what was told, and the files that hold something secret."""
    project, home = folder / "project", folder / "home"
    project.mkdir()
    home.mkdir(mode=0o700)
    os.environ["TOOLKEEP_HOME"] = str(home)
    status, told = command(project, "add", "mcp", "up", URL, "--sign-in", "--yes", "--log-level", "debug")
    assert status == 0, told
    accept(project)
    (result,) = call_all(project, [("echo", {})], "net.write:mcp.example")
    status, more = command(project, "sign-in", "up", "--json")
    assert status == 0, more
    held = {
        str(path.relative_to(folder)): stat.S_IMODE(path.stat().st_mode)
        for path in folder.rglob("*")
        if path.is_file() and b"PLANTED" in path.read_bytes()
    }
    return f"{told}{result}{more}", held
