"""Who is signed in, which changes are theirs, and what browsers are told; spoken to in this process."""

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlencode

import pytest

from tests.approval.examples import question
from tests.server.talk import Client, Response, served, until
from toolkeep import Keep
from toolkeep.limits import APPROVALS_WAITING, SHOWN_CHARS
from toolkeep.server.web import live_updates
from toolkeep.server.web.app import ROUTES
from toolkeep.storage.sqlite.sign_in_codes import MemorySignInCodes

ORIGIN = "http://127.0.0.1:8765"
FORM = "application/x-www-form-urlencoded"


class Visitor:
    """A browser without a screen."""

    def __init__(self, client: Client, codes: MemorySignInCodes) -> None:
        self.client = Client(client.app, client.tokens)
        self.operator = client
        self.codes = codes
        self.headers: dict[str, str] = {}
        self.key = ""

    async def get(self, path: str, **headers: str) -> Response:
        return await self.client.get(path, headers={**self.headers, **headers})

    async def post(self, path: str, fields: Any = (), **headers: str) -> Response:
        sent = {"content-type": FORM, "origin": ORIGIN, **self.headers, **headers}
        return await self.client.post(
            path, raw=urlencode(fields).encode(), headers={k: v for k, v in sent.items() if v}
        )

    async def sign_in(self, **fields: str) -> Response:
        answer = await self.post("/ui/sign-in", fields or {"code": self.codes.make()})
        if answer.status == 200:
            self.headers["cookie"] = answer.headers["set-cookie"].partition(";")[0]
            self.key = answer.body.decode()
        return answer

    async def open_tab(self) -> Response:
        answer = await self.post("/ui/tab", **{"x-toolkeep-key": self.key})
        if answer.status == 200:
            self.headers["x-toolkeep-tab"] = answer.body.decode()
        return answer


@asynccontextmanager
async def visiting(keep: Keep) -> AsyncIterator[Visitor]:
    codes = MemorySignInCodes()
    async with served(keep, codes=codes) as client:
        yield Visitor(client, codes)


def visit(keep: Keep, act: Callable[[Visitor], Coroutine[Any, Any, Any]], *, signed_in: bool = True) -> Any:
    async def run() -> Any:
        async with visiting(keep) as visitor:
            if signed_in:
                await visitor.sign_in()
                await visitor.open_tab()
            return await act(visitor)

    return asyncio.run(run())


PAGES = [
    "/ui/",
    "/ui/tools",
    "/ui/tools/add",
    "/ui/approvals",
    "/ui/audit",
    "/ui/policies",
    "/ui/tokens",
    "/ui/agents",
    "/ui/agents/show?agent=local",
]


@pytest.mark.parametrize("path", PAGES)
def test_nobody_sees_a_page_without_signing_in(keep: Keep, path: str) -> None:
    answer = visit(keep, lambda visitor: visitor.get(path), signed_in=False)
    assert (answer.status, answer.headers["location"], answer.body) == (303, "/ui/sign-in", b"")


@pytest.mark.parametrize("path", PAGES)
@pytest.mark.spec("WEB-2")
def test_every_page_tells_the_browser_what_not_to_do(keep: Keep, path: str) -> None:
    async def act(visitor: Visitor) -> tuple[Response, Response]:
        return await visitor.get(path), await visitor.get(path)

    first, second = visit(keep, act)
    assert first.status == 200
    policy = first.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "base-uri 'none'" in policy
    assert "unsafe" not in policy
    assert first.headers["x-frame-options"] == "DENY"
    assert first.headers["cache-control"] == "no-store"
    assert first.headers["cross-origin-resource-policy"] == "same-origin"
    nonces = [
        re.findall(r"'nonce-([^']+)'", one.headers["content-security-policy"]) for one in (first, second)
    ]
    assert len({nonce for found in nonces for nonce in found}) == 2
    text = first.body.decode()
    assert re.findall(r"<script(?! nonce| type=\"application/json\")", text) == []
    assert not re.search(r"\son\w+=|\sstyle=|https?://(?!127)", text.replace('xmlns="http://www.w3.org', ""))


def test_a_link_signs_in_once(keep: Keep) -> None:
    async def act(visitor: Visitor) -> list[int]:
        code = visitor.codes.make()
        answers = [await visitor.sign_in(code=code), await visitor.sign_in(code=code)]
        answers += [await visitor.sign_in(code="x" * 43), await visitor.sign_in(code="")]
        return [answer.status for answer in answers]

    assert visit(keep, act, signed_in=False) == [200, 401, 401, 401]


def test_the_cookie_is_for_the_page_alone(keep: Keep) -> None:
    async def act(visitor: Visitor) -> Any:
        answer = await visitor.sign_in()
        api = await visitor.client.get("/v1/tools", headers=visitor.headers)
        mcp = await visitor.client.post("/mcp", {}, headers=visitor.headers)
        return answer.headers["set-cookie"], api.status, mcp.status

    cookie, api, mcp = visit(keep, act, signed_in=False)
    assert re.fullmatch(r"toolkeep-8765=[\w-]{64,}; Path=/ui; HttpOnly; SameSite=Strict", cookie)
    assert (api, mcp) == (401, 401)


CHANGES = [
    "/ui/tools/add:disable",
    "/ui/tools/add:enable",
    "/ui/tools/add:try",
    "/ui/tools:change",
    "/ui/calls:undo",
    "/ui/tools/add:accept",
    "/ui/tools/add:reject",
    "/ui/tools/add:declare",
    "/ui/tools/add:undeclare",
    "/ui/definitions",
    "/ui/definitions:check",
    "/ui/definitions/add:delete",
    "/ui/approvals/0123:decide",
    "/ui/approvals/0123:preview",
    "/ui/approvals:decide",
    "/ui/approvals:selected",
    "/ui/responses/0123:decide",
    "/ui/rules/rule-1:revoke",
    "/ui/audit:verify",
    "/ui/audit/0123/receipt:verify",
    "/ui/policies:explain",
    "/ui/policies:check",
    "/ui/policies:put",
    "/ui/start:connect",
    "/ui/policies:drop",
    "/ui/agents:seen",
    "/ui/agents:change",
    "/ui/tokens",
    "/ui/tokens/0123:revoke",
    "/ui/tokens/0123:rotate",
    "/ui/sign-out",
]


@pytest.mark.parametrize(
    "lie",
    [
        {"x-toolkeep-tab": ""},
        {"x-toolkeep-tab": "a" * 43},
        {"origin": ""},
        {"origin": "http://127.0.0.1:9999"},
        {"origin": "http://localhost:8765"},
        {"origin": "https://127.0.0.1:8765"},
    ],
    ids=["no tab", "wrong tab", "no origin", "another port", "another name", "another scheme"],
)
@pytest.mark.spec("WEB-2")
def test_a_change_needs_the_tab_and_the_origin_of_the_page(keep: Keep, lie: dict[str, str]) -> None:
    async def act(visitor: Visitor) -> tuple[set[int], str]:
        answers = {(await visitor.post(path, {"act": "call"}, **lie)).status for path in CHANGES}
        state = (await visitor.operator.get("/v1/tools/add")).data["tool"]["state"]
        return answers, state

    assert visit(keep, act) == ({403}, "enabled")


def test_every_change_of_the_page_was_tried() -> None:
    names = {re.sub(r"\{\w+\}", "*", route.path) for route in ROUTES if route.method == "POST"}
    tried = {re.sub(r"/(add|0123|rule-1)(?=:|/|$)", "/*", path) for path in CHANGES}
    assert names - tried == set()


def test_with_the_tab_and_the_origin_the_change_is_made(keep: Keep) -> None:
    async def act(visitor: Visitor) -> tuple[int, str]:
        answer = await visitor.post("/ui/tools/add:disable")
        state = (await visitor.operator.get("/v1/tools/add")).data["tool"]["state"]
        return answer.status, state

    assert visit(keep, act) == (200, "disabled")


def test_whoever_has_only_the_cookie_gets_no_tab(keep: Keep) -> None:
    async def act(visitor: Visitor) -> list[int]:
        page = (await visitor.get("/ui/tools")).body.decode()
        assert visitor.key not in page
        assert visitor.headers["x-toolkeep-tab"] not in page
        visitor.key = "b" * 43
        return [(await visitor.open_tab()).status, (await visitor.post("/ui/tab")).status]

    assert visit(keep, act) == [403, 403]


def test_a_tab_belongs_to_one_session(keep: Keep) -> None:
    async def act(visitor: Visitor) -> int:
        tab = visitor.headers.pop("x-toolkeep-tab")
        await visitor.sign_in()
        return (await visitor.post("/ui/tools/add:disable", **{"x-toolkeep-tab": tab})).status

    assert visit(keep, act) == 403


def test_signing_out_ends_the_session(keep: Keep) -> None:
    async def act(visitor: Visitor) -> list[int]:
        return [
            (await visitor.get("/ui/tools")).status,
            (await visitor.post("/ui/sign-out")).status,
            (await visitor.get("/ui/tools")).status,
        ]

    assert visit(keep, act) == [200, 200, 303]


def test_a_token_signs_in_with_its_scopes_until_it_is_revoked(keep: Keep) -> None:
    async def act(visitor: Visitor) -> list[int]:
        made = visitor.operator.tokens.make("approver", ["approve"], agent="ada")
        found = [(await visitor.sign_in(token=made.text)).status, (await visitor.open_tab()).status]
        for path in ("/ui/approvals", "/ui/tools", "/ui/audit", "/ui/tokens", "/ui/definitions/new"):
            found.append((await visitor.get(path)).status)
        found.append((await visitor.post("/ui/tools/add:disable")).status)
        await visitor.operator.post(f"/v1/tokens/{made.token.id}:revoke")
        return [*found, (await visitor.get("/ui/approvals")).status]

    assert visit(keep, act, signed_in=False) == [200, 200, 200, 403, 403, 403, 403, 403, 303]


def test_tabs_of_one_token_keep_nobody_else_from_listening(
    keep: Keep, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_updates, "CALLER_LISTENERS", 2)

    async def act(visitor: Visitor) -> Any:
        token = visitor.operator.tokens.make("a token", ["admin"], agent="ada").text
        other = Visitor(visitor.operator, visitor.codes)
        await other.sign_in(token=token)
        tabs = [other.client.begin("GET", "/ui/events", headers=other.headers) for _ in range(3)]
        tabs.append(visitor.client.begin("GET", "/ui/events", headers=visitor.headers))
        await until(lambda: all(tab.response.body for tab in tabs))
        for tab in tabs:
            tab.leave()
            await tab.task
        return [tab.response.status for tab in tabs]

    assert visit(keep, act) == [200, 200, 503, 200]


def test_what_is_no_token_signs_nobody_in(keep: Keep) -> None:
    answer = visit(
        keep, lambda visitor: visitor.sign_in(token="tk_0123456789abcdef_" + "a" * 43), signed_in=False
    )
    assert answer.status == 401
    assert b"tk_" not in answer.body


def test_the_first_page_of_a_token_is_one_that_it_may_see(keep: Keep) -> None:
    async def act(visitor: Visitor) -> Response:
        made = visitor.operator.tokens.make("approver", ["approve"], agent="ada")
        await visitor.sign_in(token=made.text)
        return await visitor.get("/ui/")

    answer = visit(keep, act, signed_in=False)
    assert (answer.status, answer.headers["location"]) == (303, "/ui/approvals")


@pytest.mark.parametrize("path", ["/", "/ui"])
def test_the_root_leads_to_the_page(keep: Keep, path: str) -> None:
    answer = visit(keep, lambda visitor: visitor.get(path), signed_in=False)
    assert (answer.status // 100, answer.headers["location"]) == (3, "/ui/")


def test_two_slashes_are_no_root(keep: Keep) -> None:
    assert visit(keep, lambda visitor: visitor.get("//evil.example/"), signed_in=False).status == 404


def test_a_keep_without_codes_has_no_page(keep: Keep) -> None:
    async def run() -> list[int]:
        async with served(keep) as client:
            return [(await client.get(path)).status for path in ("/", "/ui/", "/ui/sign-in")]

    assert asyncio.run(run()) == [404, 404, 404]


def test_what_is_wrong_is_said_in_a_page_or_a_part_of_one(keep: Keep) -> None:
    async def act(visitor: Visitor) -> tuple[Response, Response]:
        part = await visitor.get("/ui/tools/nothing", **{"hx-request": "true"})
        return await visitor.get("/ui/tools/nothing"), part

    whole, part = visit(keep, act)
    assert (whole.status, part.status) == (404, 404)
    assert whole.body.startswith(b"<!doctype html>")
    assert part.headers["hx-retarget"] == "#messages"
    assert b"<html" not in part.body


def test_a_token_that_was_made_is_shown_once_and_not_compressed(keep: Keep) -> None:
    async def act(visitor: Visitor) -> tuple[Response, Response]:
        fields = [("name", "ci"), ("agent", "ci"), ("days", "7"), ("scope", "call")]
        made = await visitor.post("/ui/tokens", fields, **{"accept-encoding": "gzip"})
        return made, await visitor.get("/ui/tokens")

    made, later = visit(keep, act)
    assert "content-encoding" not in made.headers
    (text,) = re.findall(r"tk_[0-9a-f]{16}_[\w-]{43}", made.body.decode())
    assert text not in later.body.decode()


def test_static_files_are_named_by_their_hash(keep: Keep) -> None:
    async def act(visitor: Visitor) -> list[Any]:
        page = (await visitor.get("/ui/sign-in")).body.decode()
        (path,) = re.findall(r'href="(/ui/static/[^"]+\.css)"', page)
        found = await visitor.get(path, **{"accept-encoding": "gzip"})
        other = await visitor.get(re.sub(r"/[0-9a-f]{12}/", "/000000000000/", path))
        outside = await visitor.get("/ui/static/../app.py")
        return [
            found.status,
            found.headers["content-encoding"],
            found.headers["cache-control"],
            other.status,
            outside.status,
        ]

    assert visit(keep, act, signed_in=False) == [
        200, "gzip", "public, max-age=31536000, immutable", 404, 404,
    ]  # fmt: skip


def test_a_word_that_is_not_typed_to_its_end_finds_tools_already(keep: Keep) -> None:
    answer = visit(keep, lambda visitor: visitor.get("/ui/tools?search=cou", **{"hx-request": "true"}))
    assert "count_up" in re.findall(r'href="/ui/tools/(\w+)"', answer.body.decode())


@pytest.mark.spec("POL-4")
def test_no_agent_keeps_the_questions_of_others_out_of_sight(keep: Keep) -> None:
    def ask(agent: str, number: int) -> None:
        now = time.time()
        asked = question(
            id=f"{number:016x}", agent=agent, asked_at=now + number / 1000, expires_at=now + 300 + number
        )
        assert keep.record.approvals.ask(asked)

    for number in range(2 * APPROVALS_WAITING):
        ask("mallory" if number % 2 else "trudy", number)
    ask("alice", 2 * APPROVALS_WAITING)

    async def act(visitor: Visitor) -> list[str]:
        paths = ("/ui/approvals", "/ui/approvals/list", "/ui/approvals/count", "/ui/")
        return [(await visitor.get(path)).body.decode() for path in paths]

    inbox, listed, count, overview = visit(keep, act)
    assert "alice" in inbox
    assert "alice" in listed
    assert (listed.count("<a href="), "101 more wait." in listed) == (100, True)
    assert ("201" in count, "201 calls wait" in overview, "alice" in overview) == (True, True, True)


@pytest.mark.spec("POL-4")
@pytest.mark.parametrize("more", [0, 1])
def test_a_call_that_is_too_long_to_be_seen_whole_is_said_to_be(keep: Keep, more: int) -> None:
    now = time.time()
    around = len(json.dumps({"text": ""}, indent=2))
    arguments = json.dumps({"text": "x" * (SHOWN_CHARS - around + more)})
    keep.record.approvals.ask(question(arguments=arguments, asked_at=now, expires_at=now + 300))

    async def act(visitor: Visitor) -> str:
        return (await visitor.get("/ui/approvals")).body.decode()

    shown = visit(keep, act)
    assert ("You do not see all of the call" in shown, "The call, whole" in shown) == (more == 1, more == 0)
    assert ("Long values are cut" in shown) == (more == 1)
