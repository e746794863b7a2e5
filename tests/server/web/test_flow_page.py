"""Roles and labels of imported tools, declared on the page: reviewed, accepted, kept and taken back."""

import html
import json
import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from tests.cli.plainly import run
from tests.cli.upstreams import DOCUMENT
from tests.config.projects import accept, configure
from tests.server.api.test_review_routes import changes
from tests.server.talk import Response
from tests.server.web.conftest import Reader, open_world, price
from tests.server.web.test_app import Visitor, visit
from toolkeep import Code, Keep, open_keep
from toolkeep.definitions.vocabulary import Role, ToolState
from toolkeep.events import Event, FlowDeclared

pytestmark = pytest.mark.spec("FLO-1", "WEB-2")

TEXT = {"type": "string"}
WANTED = {
    "type": "object",
    "properties": {"to": TEXT, "note": TEXT, "key": {**TEXT, "format": "password"}},
    "required": ["to"],
}
ANSWER = {"type": "object", "properties": {"id": TEXT, "text": TEXT}}
TELL = {"name": "tell", "description": "Tell somebody.", "inputSchema": WANTED, "outputSchema": ANSWER}
CONFIGURATION = """
agents: {{ada: {{}}}}
upstreams:
  up: {{mcp: up.json, url: 'https://b.example', flow: {flow}}}
  shop: {{openapi: shop.json, url: 'https://a.example'}}
"""
FIELDS = {"role.to": "destination", "role.note": "content", "place.0": "", "label.0": "", "place.1": "/id",
          "label.1": "system id", "place.2": "/text", "label.2": "text", "secret.2": "on"}  # fmt: skip
DECLARED = {
    "/to": "destination",
    "/note": "content",
    "result": {"/id": {"system": "id"}, "/text": {"outside": "text", "readers": ["user"]}},
}


def configured(folder: Path, flow: str = "{tell: {/note: option}}", **changes: Any) -> None:
    response = {"200": {"description": "-", "content": {"application/json": {"schema": ANSWER}}}}
    send = {
        "operationId": "send",
        "responses": response,
        "parameters": [{"name": "to", "in": "query", "schema": TEXT}],
    }
    configure(folder, json.dumps({**DOCUMENT, "paths": {"/mail": {"post": send}}}), name=".agent/shop.json")
    configure(folder, json.dumps({"server": {}, "tools": [{**TELL, **changes}]}), name=".agent/up.json")
    configure(folder, CONFIGURATION.format(flow=flow))
    accept(folder)


def opened(folder: Path, **changes: Any) -> Keep:
    configured(folder, **changes)
    return open_keep(project=folder, built_in=False)


def hidden(answer: Response, name: str) -> str:
    (value,) = re.findall(rf'name="{name}" value="([^"]*)"', answer.body.decode())
    return html.unescape(value)


async def review(visitor: Visitor, tool: str, fields: dict[str, str]) -> Response:
    tag = hidden(await visitor.get(f"/ui/tools/{tool}"), "tag")
    return await visitor.post(f"/ui/tools/{tool}:declare", {**fields, "tag": tag})


async def declare(visitor: Visitor, tool: str, fields: dict[str, str], typed: str = "") -> Response:
    """Confirm what the page shows back."""
    seen = await review(visitor, tool, fields)
    sealed = {"tag": hidden(seen, "tag"), "accepted": hidden(seen, "accepted"), "typed_name": typed or tool}
    return await visitor.post(f"/ui/tools/{tool}:declare", {**fields, **sealed})


def test_what_a_person_accepts_counts_at_once_after_a_restart_and_until_taken_back(tmp_path: Path) -> None:
    told: list[Event] = []

    async def act(visitor: Visitor) -> list[Any]:
        seen = await review(visitor, "tell", FIELDS)
        before = keep.get("tell").definition.roles
        shop = await declare(visitor, "send", {"role.to": "target", "place.0": "", "label.0": "system text"})
        return [seen, before, await declare(visitor, "tell", FIELDS), shop]

    with opened(tmp_path) as keep:
        keep.subscribe(told.append)
        pinned = keep.get("tell").definition_hash
        seen, before, saved, shop = visit(keep, act)
        after = keep.get("tell")
    words = html.unescape(re.sub(r"<[^>]+>", " ", seen.body.decode()))
    assert "Argument note: content, only stored, sent or shown; nobody is asked about its value." in words
    assert "/id: id, made by the service." in words
    assert "/text: text, written by anybody; only the user may know it." in words
    assert before == {"note": Role.OPTION}  # of the configuration: nothing counts before it is accepted
    assert (saved.headers.get("hx-refresh"), shop.headers.get("hx-refresh")) == ("true", "true")
    assert (after.definition.roles, dict(after.definition.flow)) == (
        {"to": Role.DESTINATION, "note": Role.CONTENT}, DECLARED["result"])  # fmt: skip
    assert (after.state, after.arrived and after.arrived.hash) == (ToolState.ENABLED, pinned)
    declared = [event for event in told if isinstance(event, FlowDeclared)]
    assert [(one.tool_name, one.declared_by) for one in declared] == [
        ("send", "operator"),
        ("tell", "operator"),
    ]
    assert declared[1].definition_hash == after.definition_hash

    async def take_back(visitor: Visitor) -> Any:
        return await visitor.post("/ui/tools/tell:undeclare", {"typed_name": "tell"})

    with open_keep(project=tmp_path, built_in=False) as keep:
        assert keep.get("tell").definition_hash == after.definition_hash
        assert keep.get("send").definition.roles == {"to": Role.TARGET}
        visit(keep, take_back)
        assert (keep.get("tell").definition_hash, keep.declared_flow("tell")) == (pinned, None)
        assert keep.get("send").definition.roles == {"to": Role.TARGET}


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"role.key": "option"}, "cannot be option: it is secret"),
        ({"role.to": "boss"}, "'boss' is not one of"),
        ({"label.9": "system riddle", "place.9": "/id"}, "'riddle' is not one of"),
        ({"label.9": "system id", "place.9": "/other"}, "names no field of the output schema"),
        ({"label.9": "system id", "place.9": "id"}, "is not a JSON Pointer"),
        ({**FIELDS, "label.9": "text", "place.9": "/id"}, "/id is there twice"),
    ],
)
def test_what_does_not_fit_is_said_and_not_kept(tmp_path: Path, fields: dict[str, str], said: str) -> None:
    with opened(tmp_path) as keep:
        answer = visit(keep, lambda visitor: review(visitor, "tell", fields))
        text = html.unescape(answer.body.decode())
        assert said in text
        assert (hidden(answer, "accepted"), "Accept and save" in text) == ("", False)
        assert keep.declared_flow("tell") is None


def test_an_acceptance_is_of_what_was_shown_and_by_an_admin(tmp_path: Path) -> None:
    async def act(visitor: Visitor) -> list[Any]:
        seen = await review(visitor, "tell", FIELDS)
        sealed = {"tag": hidden(seen, "tag"), "accepted": hidden(seen, "accepted"), "typed_name": "tell"}
        other = {**FIELDS, "role.to": "content", **sealed}
        answers = [await visitor.post("/ui/tools/tell:declare", other)]  # other words than those shown
        keep.disable("tell")
        answers.append(await visitor.post("/ui/tools/tell:declare", {**FIELDS, **sealed}))  # another state
        keep.enable("tell")
        answers.append(await visitor.post("/ui/tools/price:declare", {**FIELDS, **sealed}))  # no import
        token = visitor.operator.tokens.make("a token", ("tools:read", "tools:write"), agent="ada").text
        await visitor.sign_in(token=token)
        await visitor.open_tab()
        page = (await visitor.get("/ui/tools/tell")).body.decode()
        answers.append(await visitor.post("/ui/tools/tell:declare", {**FIELDS, **sealed}))
        answers.append(await visitor.post("/ui/tools/tell:undeclare"))
        return [page, *answers]

    with opened(tmp_path) as keep:
        keep.register(price)
        page, other, changed, unknown, no_admin, no_admin_either = visit(keep, act)
        assert keep.declared_flow("tell") is None
    assert (other.status, "Accept and save" in other.body.decode()) == (200, True)
    assert "has changed since you read it" in changed.body.decode()
    assert (unknown.status, no_admin.status, no_admin_either.status) == (404, 403, 403)
    assert "Flow between calls" not in page


def test_a_declaration_needs_the_typed_name_and_a_fresh_sign_in_and_is_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stale = "toolkeep.server.api.admin_change.is_fresh"

    async def act(visitor: Visitor) -> list[Any]:
        wrong = await declare(visitor, "tell", FIELDS, typed="tall")
        again = {**FIELDS, "tag": hidden(wrong, "tag"), "accepted": hidden(wrong, "accepted")}
        with monkeypatch.context() as patch:
            patch.setattr(stale, lambda *_: False)
            late = await declare(visitor, "tell", FIELDS)
        assert (keep.declared_flow("tell"), changes(keep)) == (None, [])
        saved = await visitor.post("/ui/tools/tell:declare", {**again, "typed_name": "tell"})
        kept = await visitor.post("/ui/tools/tell:undeclare", {"typed_name": "tall"})
        with monkeypatch.context() as patch:
            patch.setattr(stale, lambda *_: False)
            kept_too = await visitor.post("/ui/tools/tell:undeclare", {"typed_name": "tell"})
        assert keep.declared_flow("tell") == DECLARED
        await visitor.post("/ui/tools/tell:undeclare", {"typed_name": "tell"})
        return [*(one.body.decode() for one in (wrong, late, kept, kept_too)), saved]

    with opened(tmp_path) as keep:
        wrong, late, kept, kept_too, saved = visit(keep, act)
        declared, undeclared = changes(keep)
    for name, old in ((wrong, late), (kept, kept_too)):
        assert "The typed name is not the one that is shown: type: tell." in name
        assert "Your sign-in is older than five minutes" in old
        assert 'name="typed_name"' in name
    assert saved.headers["hx-refresh"] == "true"
    for record in (declared, undeclared):
        assert [record[key] for key in ("what", "name", "person", "way")] == [
            "flow", "tell", "operator:page", "page"]  # fmt: skip
    before, *after = declared["difference"].split("\n")
    assert before == "-Argument note: option, how the call is carried out; nobody is asked about its value."
    assert after[2] == "+/id: id, made by the service."
    lines = undeclared["difference"].split("\n")
    assert lines[-1] == "+What the configuration says counts again."
    assert [f"-{line[1:]}" for line in after] == lines[:-1]


def test_a_tool_that_changes_after_the_confirmation_keeps_its_flow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path) as keep:
        append = keep.record.log.append_soon

        def change_meanwhile(*given: Any, **more: Any) -> Any:
            keep.disable("tell")
            return append(*given, **more)

        monkeypatch.setattr(keep.record.log, "append_soon", change_meanwhile)
        answer = visit(keep, lambda visitor: declare(visitor, "tell", FIELDS))
        assert "The tool has changed since the preview" in answer.body.decode()
        assert keep.declared_flow("tell") is None
        assert [one.get("codes") for one in changes(keep)] == [None, [Code.CHANGED_MEANWHILE.value]]


def test_they_count_for_no_other_definition(tmp_path: Path) -> None:
    with opened(tmp_path) as keep:
        visit(keep, lambda visitor: declare(visitor, "tell", FIELDS))
    with opened(tmp_path, description="Tell everybody.") as keep:
        changed = keep.get("tell")
        assert changed.state is ToolState.QUARANTINED
    said = run("accept", "tell", "--hash", changed.definition_hash, "--project", str(tmp_path)).output
    assert "declare its flow again: toolkeep flow declare tell" in said
    with open_keep(project=tmp_path, built_in=False) as keep:
        waiting = keep.get("tell")
        assert (waiting.state, "for another definition" in waiting.why) == (ToolState.QUARANTINED, True)
        assert waiting.definition.roles == {"note": Role.OPTION}
        answer = visit(keep, lambda visitor: visitor.get("/ui/tools/tell"))
        assert "<option selected>content</option>" in answer.body.decode()  # as it was declared before
        visit(keep, lambda visitor: declare(visitor, "tell", FIELDS))
        now = keep.get("tell")
        assert (now.state, now.definition.roles["note"]) == (ToolState.ENABLED, Role.CONTENT)


def test_a_person_declares_flow_in_a_browser(tmp_path: Path, browser: Browser) -> None:
    with open_world(tmp_path, prepare=configured) as world:
        reader = Reader(browser.new_context(reduced_motion="reduce"), world).sign_in()
        page = reader.go("/ui/tools/tell")
        page.locator("select[name='role.note']").select_option("content")
        page.locator("select[name='label.1']").select_option("system id")
        page.get_by_role("button", name="Review").click()
        promise = page.locator("#flow [role=alert]")
        expect(promise).to_contain_text("Argument note: content")
        page.get_by_label("Type tell to confirm").fill("tell")
        page.get_by_role("button", name="Accept and save").click()
        expect(page.get_by_role("button", name="Take back")).to_be_visible()
        assert world.keep.declared_flow("tell") == {"/note": "content", "result": {"/id": {"system": "id"}}}
        page.get_by_label("Type tell to confirm").fill("tell")
        page.get_by_role("button", name="Take back").click()
        expect(page.get_by_role("button", name="Take back")).to_have_count(0)
        assert world.keep.declared_flow("tell") is None
        assert not [said for said in reader.said if "autocomplete" not in said]
        reader.context.close()
