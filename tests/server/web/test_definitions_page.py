"""Definitions made, changed and deleted on the page, by the functions of the API."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace
from playwright.sync_api import expect

from tests.server.api.test_review_routes import changes as recorded
from tests.server.api.test_review_routes import versions
from tests.server.talk import Response
from tests.server.web.conftest import Reader, World
from tests.server.web.test_app import Visitor, visit
from toolkeep import Keep
from toolkeep.definitions.vocabulary import Danger

FIELDS = [
    ("name", "send_parcel"),
    ("description", "Send a parcel."),
    ("version", "1.0.0"),
    ("category", "custom"),
    ("p.k0.name", "weight"),
    ("p.k0.type", "integer"),
    ("p.k0.description", "In grams."),
    ("p.k0.required", "on"),
]


def changed(**fields: str) -> list[tuple[str, str]]:
    return [*((name, value) for name, value in FIELDS if name not in fields), *fields.items()]


def errors(answer: Response) -> dict[str, str]:
    """What the form shows, by slot."""
    found = re.findall(r'<p class="field-error" id="error-([\w-]+)"[^>]*>(.*?)</p>', answer.body.decode())
    return {slot: re.sub(r"<[^>]+>", "", text) for slot, text in found if text}


def said(answer: Response) -> str:
    """The sentence at the end of the form."""
    verdict = answer.body.decode().partition('<p class="field-error')[0]
    return " ".join(re.sub(r"<[^>]+>", "", verdict).split())


async def tag_of(visitor: Visitor) -> str:
    page = (await visitor.get("/ui/definitions/send_parcel")).body.decode()
    (tag,) = re.findall(r'name="tag" value="([^"]*)"', page)
    return str(tag).replace("&#34;", '"')


@pytest.mark.spec("WEB-2")
def test_a_definition_is_made_changed_and_deleted(keep: Keep) -> None:
    async def act(visitor: Visitor) -> list[Any]:
        made = await visitor.post("/ui/definitions", FIELDS)
        tag = await tag_of(visitor)
        same = await visitor.post("/ui/definitions", changed(tag=tag, description="Send it."))
        higher = await visitor.post(
            "/ui/definitions", changed(tag=tag, description="Send it.", version="1.1.0")
        )
        late = await visitor.post("/ui/definitions", changed(tag=tag, version="1.2.0"))
        page = (await visitor.get("/ui/tools/send_parcel")).body.decode()
        assert (versions(page), "<code>send_parcel@1.0.0" in page) == ({"Agents get": "1.1.0"}, True)
        view = (await visitor.operator.get("/v1/tools/send_parcel")).data
        gone = await visitor.post("/ui/definitions/send_parcel:delete", {"tag": await tag_of(visitor)})
        after = (await visitor.operator.get("/v1/tools/send_parcel")).status
        return [made, same, higher, late, view, gone, after]

    made, same, higher, late, view, gone, after = visit(keep, act)
    assert made.headers["hx-redirect"] == "/ui/tools/send_parcel"
    assert "is not higher" in errors(same)["version"]
    assert higher.headers["hx-redirect"] == "/ui/tools/send_parcel"
    assert "changed since you read it" in errors(late)["name"]
    assert (view["tool"]["version"], view["tool"]["description"]) == ("1.1.0", "Send it.")
    assert [one["version"] for one in view["versions"]] == ["1.1.0", "1.0.0"]
    assert (gone.headers["hx-redirect"], after) == ("/ui/tools", 404)


@pytest.mark.parametrize(
    ("fields", "slot"),
    [
        ({"name": "Send Parcel"}, "name"),
        ({"name": "add"}, "name"),
        ({"description": ""}, "description"),
        ({"version": "one"}, "version"),
        ({"p.k0.description": ""}, "p-k0"),
        ({"p.k0.default": "light"}, "p-k0"),
        ({"output_schema": '{"type": "strin"}'}, "output_schema"),
        ({"output_schema": "{"}, "output_schema"),
        ({"timeout_s": "9999"}, "timeout_s"),
        ({"output_kb": "0.1"}, "output_kb"),
        ({"side_effects": "FsWrite"}, "capabilities"),
    ],
)
@pytest.mark.spec("WEB-2")
def test_what_is_wrong_is_said_at_its_field_while_it_is_typed(
    keep: Keep, fields: dict[str, str], slot: str
) -> None:
    answer = visit(keep, lambda visitor: visitor.post("/ui/definitions:check", changed(**fields)))
    assert slot in errors(answer)


def test_two_parameters_of_one_name_are_said_once_and_plainly(keep: Keep) -> None:
    twice = [*FIELDS, ("p.k1.name", "weight"), ("p.k1.type", "integer"), ("p.k1.description", "Again.")]
    answer = visit(keep, lambda visitor: visitor.post("/ui/definitions:check", twice))
    said = "parameter &#39;weight&#39; is defined twice: give each its own name"
    assert errors(answer) == {"parameters": said}


def test_what_is_right_has_no_error(keep: Keep) -> None:
    answer = visit(keep, lambda visitor: visitor.post("/ui/definitions:check", FIELDS))
    assert (errors(answer), said(answer)) == ({}, "Valid. Nothing is kept before you create it.")


def test_the_check_of_an_edited_definition_says_what_saving_it_does(keep: Keep) -> None:
    async def act(visitor: Visitor) -> list[str]:
        await visitor.post("/ui/definitions", changed(danger="high"))
        tag = await tag_of(visitor)
        forms = (
            changed(danger="high", tag=tag),
            changed(danger="high", tag=tag, description="Send it."),
            changed(danger="low", tag=tag, version="1.1.0"),
            changed(danger="low", version="1.1.0"),
        )
        return [said(await visitor.post("/ui/definitions:check", form)) for form in forms]

    same, low, raised, as_new = visit(keep, act)
    assert same == "Nothing has changed."
    assert "1.0.0 is not higher: raise `version`, say to 1.0.1" in low
    assert raised == (
        "Valid. Once saved, agents get 1.1.0 in place of 1.0.0; danger changed. "
        "Fewer calls would need approval, so you type its name to save it."
    )
    assert as_new == "tool &#39;send_parcel&#39; is stored already: edit it on its page"


@pytest.mark.spec("VAL-6")
@pytest.mark.parametrize(
    "secret",
    [
        {"run": {"command": ["/usr/bin/hunter2"]}},
        {"parameters": {"type": "object", "properties": {"pin": {"writeOnly": True, "const": "hunter2"}}}},
    ],
    ids=["what runs it", "a secret part"],
)
def test_only_admin_gets_the_form_of_a_definition_with_what_others_may_not_see(
    keep: Keep, secret: dict[str, Any]
) -> None:
    stored = {"name": "stored", "description": "Is stored.", "version": "1.0.0"}
    keep.create_definition({**stored, **secret}, may_run=True)

    async def act(visitor: Visitor) -> list[Response]:
        writer = Visitor(visitor.operator, visitor.codes)
        made = visitor.operator.tokens.make("a token", ("tools:write", "tools:read"), agent="ada")
        await writer.sign_in(token=made.text)
        await writer.open_tab()
        pages = "/ui/definitions/stored", "/ui/tools/stored"
        return [await who.get(page) for who in (visitor, writer) for page in pages]

    form, tool, no_form, as_writer = visit(keep, act)
    assert (form.status, no_form.status) == (200, 403)
    assert "hunter2" in form.body.decode()
    assert "hunter2" not in no_form.body.decode() + as_writer.body.decode()
    assert ['href="/ui/definitions/stored"' in one.body.decode() for one in (tool, as_writer)] == [
        True,
        False,
    ]


@pytest.mark.spec("VAL-6")
def test_the_form_of_a_version_that_another_server_just_stored_is_judged_by_that_version(keep: Keep) -> None:
    secret = {"type": "object", "properties": {"pin": {"writeOnly": True, "const": "hunter2"}}}
    stored = keep.create_definition({"name": "stored", "description": "Is stored.", "version": "1.0.0"})
    newer = stored.definition.replace(version="1.1.0", parameters=secret)
    keep.editor.store.replace(replace(stored, definition=newer), revision=stored.revision)
    assert keep.get("stored").version == "1.0.0"

    async def act(visitor: Visitor) -> Response:
        made = visitor.operator.tokens.make("a token", ("tools:write", "tools:read"), agent="ada")
        await visitor.sign_in(token=made.text)
        await visitor.open_tab()
        return await visitor.get("/ui/definitions/stored")

    form = visit(keep, act, signed_in=False)
    assert (form.status, b"hunter2" in form.body) == (403, False)


def test_a_tool_that_is_not_stored_has_no_form(keep: Keep) -> None:
    assert visit(keep, lambda visitor: visitor.get("/ui/definitions/add")).status == 404


@pytest.mark.spec("WEB-2")
def test_a_lower_danger_asks_for_the_typed_name_and_a_fresh_sign_in(
    keep: Keep, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def act(visitor: Visitor) -> list[Any]:
        await visitor.post("/ui/definitions", changed(danger="high", requires_confirmation="on"))
        lower = changed(tag=await tag_of(visitor), danger="low", version="1.1.0")
        asked = await visitor.post("/ui/definitions", lower)
        typed = [*lower, ("typed_name", "send_parcel")]
        with monkeypatch.context() as patch:
            patch.setattr("toolkeep.server.api.admin_change.is_fresh", lambda *_: False)
            late = await visitor.post("/ui/definitions", typed)
        assert (keep.get("send_parcel").version, recorded(keep)) == ("1.0.0", [])
        return [asked, late, await visitor.post("/ui/definitions", typed)]

    asked, late, done = visit(keep, act)
    assert errors(asked)["typed-name"].endswith("type: send_parcel")
    assert 'name="typed_name"' in asked.body.decode()
    assert "older than five minutes" in errors(late)["typed-name"]
    assert done.headers["hx-redirect"] == "/ui/tools/send_parcel"
    (record,) = recorded(keep)
    assert [record[key] for key in ("what", "name", "person", "way")] == [
        "danger", "send_parcel", "operator:page", "page"]  # fmt: skip


def test_a_person_lowers_the_danger_in_a_browser(read: Callable[..., Reader], world: World) -> None:
    stored = {"name": "stored", "description": "Is stored.", "version": "1.0.0", "danger": "high"}
    world.keep.create_definition(stored)
    reader = read()
    page = reader.go("/ui/definitions/stored")
    page.get_by_label("Danger", exact=True).select_option("low")
    page.get_by_label("Version").fill("1.1.0")
    page.get_by_role("button", name="Save").click()
    with page.expect_response("**/ui/definitions:check"):  # it is checked while typed, and the field stays
        page.get_by_label("Type stored to confirm").press_sequentially("stored")
    page.get_by_role("button", name="Save").click()
    page.wait_for_url("**/ui/tools/stored")
    assert world.keep.get("stored").danger is Danger.LOW
    assert [said for said in reader.said if "AbortError" not in said] == []  # checks that typing overtook


@pytest.mark.spec("WEB-2")
def test_a_problem_is_shown_once_its_field_was_left_or_the_form_sent(read: Callable[..., Reader]) -> None:
    page = read().go("/ui/definitions/new")
    name, version = page.get_by_label("Tool name"), page.get_by_label("Version")
    problem = page.locator("#error-name")
    name.fill("Send Parcel")
    expect(problem).to_contain_text("lower-case")
    expect(problem).to_be_hidden()
    expect(name).to_have_attribute("aria-invalid", "false")
    version.focus()
    expect(problem).to_be_visible()
    expect(name).to_have_attribute("aria-invalid", "true")
    version.fill("1.1.0")
    parameter = page.locator("#error-p-k0")
    expect(parameter).to_contain_text("needs a name")
    expect(parameter).to_be_hidden()
    page.get_by_role("button", name="Create").click()
    expect(parameter).to_be_visible()
