"""Foreign words in every field, tried in every page of a real browser: nothing of them runs."""

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlencode

import pytest
from playwright.sync_api import expect

from tests.server.web.conftest import Reader, World
from toolkeep import ToolDefinition

Read = Callable[..., Reader]

ATTACK = (
    "\"'><img src=x onerror=window.ran=1><script>window.ran=1</script><svg onload=window.ran=1>"
    "</script></textarea></title><a href=javascript:window.ran=1 hx-get=/ui/tools hx-trigger=load>x</a>{{7919*104729}}"
)
BIDI = "\u202egnp.exe\u2066"
HOSTILE: dict[str, Any] = {
    "name": "hostile",
    "description": ATTACK + BIDI,
    "version": "1.0.0",
    "category": "general",
    "danger": "medium",
    "usage_metadata": ATTACK,
    "aliases": ["hostile_alias"],
    "required_permissions": [],
    "capabilities": [],
    "metadata": {ATTACK: ATTACK},
    "client_executed": True,
    "parameters": {
        "type": "object",
        "properties": {
            ATTACK: {"type": "string", "description": ATTACK, "default": ATTACK, "title": ATTACK},
            "choice": {"type": "string", "enum": [ATTACK, "fine"], "description": ATTACK},
            "nested": {"type": "object", "properties": {ATTACK: {"type": "array", "description": ATTACK}}},
        },
    },
    "output_schema": {"type": "object", "description": ATTACK},
}
POLICY = """
@id("hostile")
@reason("'><img src=x onerror=window.ran=1><script>window.ran=1</script>")
permit (principal, action, resource);
"""


def make_hostile(world: World) -> None:
    """A keep in which every word is hostile, with a call that waits and some that are recorded."""
    keep = world.keep
    keep.register(ToolDefinition.from_elsewhere(HOSTILE))
    changed = {**HOSTILE, "version": "2.0.0", "description": f"{ATTACK}2"}
    changed["parameters"] = {"type": "object", "properties": {f"{ATTACK}2": {"type": "string"}}}
    keep.register(ToolDefinition.from_elsewhere(changed))
    keep.declare_agent(ATTACK)
    keep.use_policies(POLICY)
    world.server.tokens.make("plain", ["call"], agent="plain")
    keep.call_sync("order", {"title": ATTACK, "copies": ATTACK}, agent=ATTACK)
    keep.call_sync("price", {"title": ATTACK, "copies": 1}, agent=ATTACK, session=ATTACK, conversation=ATTACK)
    keep.call_sync(ATTACK, {}, agent=ATTACK)
    arguments = {"title": ATTACK + BIDI, "copies": 1}
    world.call_meanwhile("order", arguments, agent=ATTACK, session=ATTACK, conversation=ATTACK)


@pytest.mark.spec("WEB-2", "POL-4")
def test_foreign_words_run_nothing_in_any_page(read: Read, world: World) -> None:
    make_hostile(world)
    reader = read()
    page = reader.go("/ui/approvals")
    expect(page.get_by_role("button", name="Approve once")).to_be_visible()
    # What nobody would see is written out, and no letter is turned around.
    expect(page.get_by_label("Arguments")).to_contain_text("\\u202egnp.exe\\u2066")
    calls = {entry.record["call"] for entry in world.keep.record.log.read_back()}
    paths = ["/ui/", "/ui/tools", "/ui/tools?search=hostile", "/ui/tools/hostile", "/ui/tools/hostile@1.0.0"]
    paths += ["/ui/policies", "/ui/tokens", "/ui/audit", "/ui/definitions/new", "/ui/tools/no_such_tool"]
    paths += ["/ui/sessions", f"/ui/sessions/show?{urlencode({'agent': ATTACK, 'session': ATTACK})}"]
    for path in [*paths, *(f"/ui/calls/{call}" for call in calls)]:
        reader.go(path)
        page.wait_for_load_state("networkidle") if path == "/ui/" else None
        assert page.evaluate("window.ran") is None, path
        assert (
            page.locator("main img, main script:not([type='application/json']), main svg[onload]").count()
            == 0
        ), path
        assert page.locator("a[href^='javascript']").count() == 0, path
        assert "829348951" not in page.content(), path
        assert "\u202e" not in page.content(), path

    # Words that come back from what a person does.
    reader.go("/ui/tools/price")
    page.get_by_label("title").fill(ATTACK)
    page.get_by_label("copies").fill(ATTACK)
    page.get_by_role("button", name="Call").click()
    expect(page.locator(".field.has-error")).to_be_visible()
    assert page.get_by_label("copies").input_value() == ATTACK
    page.get_by_label("copies").fill("2")
    page.get_by_role("button", name="Call").click()
    expect(page.locator("#outcome")).to_contain_text("It succeeded")
    reader.go("/ui/policies")
    page.get_by_label("Agent").fill(ATTACK)
    page.get_by_label("Tool", exact=True).fill(ATTACK[:64])
    page.get_by_role("button", name="Explain").click()
    expect(page.locator("#explained .message")).to_be_visible()
    reader.go("/ui/policies/edit")
    page.locator(".cm-content").fill(ATTACK)
    expect(page.locator("#tried .message.bad")).to_be_visible()
    reader.go("/ui/definitions/new")
    for label in ("Tool name", "Description", "Version"):
        page.get_by_label(label, exact=True).first.fill(ATTACK[:60])
    expect(page.locator("#error-version")).to_contain_text("semantic version")
    assert page.evaluate("window.ran") is None
    assert {url.split("/ui")[0] for url in reader.asked} == {world.url}


def test_without_the_escape_the_attack_would_be_markup() -> None:
    """What the test above looks for is what unescaped words become."""
    assert all(
        mark in ATTACK for mark in ("<img", "<script", "onload=", "href=javascript:", "{{7919*104729}}")
    )
    assert 7919 * 104729 == 829348951


@pytest.mark.spec("VAL-6", "POL-4")
def test_a_secret_is_shown_as_its_length_and_never_comes_back(read: Read, world: World) -> None:
    secret = {"type": "string", "writeOnly": True, "description": "The key.", "default": "sk-default-9"}
    world.keep.register(
        ToolDefinition.from_dict(
            {
                "name": "post",
                "description": "Post.",
                "version": "1.0.0",
                "danger": "medium",
                "client_executed": True,
                "parameters": {
                    "type": "object",
                    "properties": {"key": secret, "size": {"type": "integer", "description": "Of it."}},
                },
            }
        )
    )
    reader = read()
    page = reader.go("/ui/tools/post")
    page.get_by_label("key").fill("sk-very-secret")
    page.get_by_label("size").fill("large")
    page.get_by_role("button", name="Call").click()
    expect(page.locator(".field.has-error")).to_be_visible()
    assert page.get_by_label("key").input_value() == ""
    page.get_by_label("key").fill("sk-very-secret")
    page.get_by_label("size").fill("3")
    page.get_by_role("button", name="Call").click()
    page.get_by_role("link", name="Look at it in the inbox").click()
    expect(page.get_by_label("Arguments")).to_contain_text("14 characters")
    for path in ("/ui/tools/post", "/ui/approvals"):
        assert "sk-" not in reader.go(path).content()


@pytest.fixture
def other_port() -> Iterator[Callable[[str], str]]:
    """Another program of this machine that serves a page, on a port of its own; it also sees the cookies."""
    pages: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.end_headers()
            self.wfile.write(pages[-1].encode())

        def log_message(self, *_: object) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()

    def serve(text: str) -> str:
        pages.append(text)
        return f"http://127.0.0.1:{server.server_port}/"

    yield serve
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.mark.spec("WEB-2")
def test_a_page_of_another_port_changes_and_frames_nothing(
    read: Read, world: World, other_port: Callable[[str], str]
) -> None:
    reader = read()
    page = reader.page
    target = f"{world.url}/ui/tools/order:disable"
    page.goto(
        other_port(
            f"""<iframe id=frame src="{world.url}/ui/tools/order"></iframe><form id=form method=post action="{target}"></form>
            <script>window.answers = Promise.allSettled([
                fetch("{target}", {{method: "POST", credentials: "include", mode: "no-cors"}}),
                fetch("{world.url}/ui/tab", {{method: "POST", credentials: "include", mode: "no-cors"}}),
            ]).then(found => found.map(one => one.status))</script>"""
        )
    )
    assert page.evaluate("window.answers") == ["rejected", "rejected"]
    framed = page.frames[1]
    assert "Order copies of a book" not in framed.content()
    page.evaluate("document.getElementById('form').submit()")
    page.wait_for_url("**/ui/tools/order:disable")
    assert world.keep.get("order").is_enabled
    read_back = page.request.get(f"{world.url}/ui/tools/order")
    assert read_back.status == 200  # the cookie is there: what stops the change is not a missing session
