"""Roles and labels of imported tools over `/v1`: previewed, confirmed, and never for what nobody saw."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.server.api.test_review_routes import changes
from tests.server.talk import Client
from tests.server.test_asgi_app import talk
from tests.server.web.conftest import price
from tests.server.web.test_flow_page import DECLARED, opened
from toolkeep import Code, Keep
from toolkeep.definitions.vocabulary import Role
from toolkeep.errors import DefinitionInvalid

pytestmark = pytest.mark.spec("FLO-1", "WEB-2")

SHOW, DECLARE = "/v1/tools/tell/flow", "/v1/tools/tell:declare"


@pytest.fixture
def keep(tmp_path: Path) -> Iterator[Keep]:
    with opened(tmp_path) as made:
        yield made


async def declare(client: Client, declared: Any, *, typed: str = "tell", **more: Any) -> Any:
    shown = (await client.post(DECLARE, {"declared": declared})).data
    body = {"declared": declared, "seen": shown["seen"], "typed_name": typed, **more}
    return await client.post(DECLARE, body)


def test_a_declaration_is_shown_in_words_put_in_force_and_taken_back(keep: Keep) -> None:
    async def act(client: Client) -> Any:
        before = (await client.get(SHOW)).data
        shown = (await client.post(DECLARE, {"declared": DECLARED})).data
        assert keep.declared_flow("tell") is None
        done = (await declare(client, DECLARED)).data
        assert keep.declared_flow("tell") == DECLARED
        after = (await client.get(SHOW)).data
        return before, shown, done, after, await declare(client, None)

    before, shown, done, after, back = talk(keep, act)
    note = "Argument note: option, how the call is carried out; nobody is asked about its value."
    assert before == {
        "tool": "tell",
        "declared": {"/note": "option"},
        "lines": [note],
        "is_stored": False,
        "by_default": {"/to": "record", "/key": "credential"},
        "unlabelled": ["/id", "/text"],
    }
    assert shown["lines"] == [
        "Argument to: destination, asked about unless the user or a service named it.",
        "Argument note: content, only stored, sent or shown; nobody is asked about its value.",
        "/id: id, made by the service.",
        "/text: text, written by anybody; only the user may know it.",
    ]
    assert shown["difference"] == [f"-{note}", *(f"+{one}" for one in shown["lines"])]
    assert (shown["typed_name"], shown["is_done"], done) == ("tell", False, {**shown, "is_done": True})
    assert (after["declared"], after["lines"], after["is_stored"]) == (DECLARED, shown["lines"], True)
    assert after["unlabelled"] == []
    assert back.data["lines"] == ["What the configuration says counts again."]
    assert (keep.declared_flow("tell"), keep.get("tell").definition.roles) == (None, {"note": Role.OPTION})
    declared, undeclared = changes(keep)
    for record in (declared, undeclared):
        assert [record[key] for key in ("what", "name", "person", "way")] == [
            "flow", "tell", "operator", "http"]  # fmt: skip
    assert declared["difference"].split("\n") == shown["difference"]


def test_it_needs_an_admin_the_typed_name_and_the_preview_of_what_is_declared(keep: Keep) -> None:
    async def act(client: Client) -> None:
        less = client.as_agent("ada", "tools:read", "tools:write", "policies:read", "audit:read", "approve")
        assert (await less.get(SHOW)).code == Code.SCOPE_MISSING.value
        seen = (await client.post(DECLARE, {"declared": DECLARED})).data["seen"]
        body = {"declared": DECLARED, "seen": seen, "typed_name": "tell"}
        assert (await less.post(DECLARE, body)).code == Code.SCOPE_MISSING.value
        assert (await declare(client, DECLARED, typed="tall")).code == Code.NOT_CONFIRMED.value
        assert (await declare(client, DECLARED, seen="0" * 64)).status == 412
        assert (await declare(client, {}, seen=seen)).status == 412  # other words than were shown
        assert (await client.post("/v1/tools/send:declare", {**body, "declared": {}})).status == 412
        keep.disable("tell")
        assert (await client.post(DECLARE, body)).status == 412  # another state
        assert (await client.post(DECLARE, {"declared": None})).status == 409  # nothing to take back
        assert (await client.post(DECLARE, {})).status == 400

    talk(keep, act)
    assert (keep.declared_flow("tell"), changes(keep)) == (None, [])


def test_a_declaration_of_somebody_else_ends_a_preview(keep: Keep) -> None:
    async def act(client: Client) -> Any:
        seen = (await client.post(DECLARE, {"declared": DECLARED})).data["seen"]
        await declare(client, {"/to": "content"})
        return await client.post(DECLARE, {"declared": DECLARED, "seen": seen, "typed_name": "tell"})

    assert talk(keep, act).code == Code.CHANGED_MEANWHILE.value
    assert keep.declared_flow("tell") == {"/to": "content"}


def test_a_tool_that_changes_while_the_change_is_recorded_keeps_its_flow(
    keep: Keep, monkeypatch: pytest.MonkeyPatch
) -> None:
    append = keep.record.log.append_soon

    def change_meanwhile(*given: Any, **more: Any) -> Any:
        keep.disable("tell")
        return append(*given, **more)

    monkeypatch.setattr(keep.record.log, "append_soon", change_meanwhile)
    answer = talk(keep, lambda client: declare(client, DECLARED))
    assert (answer.status, keep.declared_flow("tell")) == (412, None)
    assert [one.get("codes") for one in changes(keep)] == [None, [Code.CHANGED_MEANWHILE.value]]


@pytest.mark.parametrize("name", ["price", "nobody"])
def test_only_imported_tools_are_declared_here(keep: Keep, name: str) -> None:
    keep.register(price)

    async def act(client: Client) -> list[int]:
        body: dict[str, Any] = {"declared": {}}
        return [
            (await client.get(f"/v1/tools/{name}/flow")).status,
            (await client.post(f"/v1/tools/{name}:declare", body)).status,
        ]

    assert talk(keep, act) == [404, 404]


@pytest.mark.parametrize(
    "declared",
    [
        {"/key": "option"},
        {"/to": "boss"},
        {"/to": 5},
        {"/from": "content"},
        {"to": "content"},
        {"result": "text"},
        {"result": {"/other": "text"}},
        {"result": {"/id": {"system": "riddle"}}},
        {"result": {"/id": {"system": "id", "readers": 5}}},
    ],
)
def test_what_does_not_fit_is_refused_and_not_previewed(keep: Keep, declared: Any) -> None:
    answer = talk(keep, lambda client: client.post(DECLARE, {"declared": declared}))
    assert (answer.status, answer.code) == (422, Code.DEFINITION_INVALID.value)
    with pytest.raises(DefinitionInvalid):
        keep.declare_flow("tell", declared)
    assert keep.declared_flow("tell") is None


def test_nothing_declared_counts_as_the_worst_and_is_said(keep: Keep) -> None:
    shown = talk(keep, lambda client: client.post(DECLARE, {"declared": {}})).data
    assert shown["lines"] == ["Nothing: every argument and every text counts as the worst."]
