"""Custom definitions over HTTP: create, update with a tag, delete, check without storing."""

from typing import Any

import pytest

from tests.server.api.test_review_routes import changes as recorded
from tests.server.talk import Client
from tests.server.test_asgi_app import talk
from toolkeep import Keep
from toolkeep.definitions.vocabulary import Danger

GREET: dict[str, Any] = {
    "name": "greet",
    "description": "Greet somebody.",
    "version": "1.0.0",
    "client_executed": True,
    "parameters": {
        "type": "object",
        "properties": {"who": {"type": "string", "maxLength": 40, "description": "Whom."}},
        "required": ["who"],
    },
}


@pytest.mark.spec("STO-2")
def test_a_definition_is_created_changed_and_deleted_with_tags(keep: Keep) -> None:
    async def act(client: Client) -> Any:
        made = await client.post("/v1/tools", GREET)
        path = made.headers["location"]
        tag = made.headers["etag"]
        changes = {"version": "1.1.0", "description": "Greet somebody kindly."}
        bare = await client.send("PATCH", path, changes)
        stale = await client.send("PATCH", path, changes, headers={"if-match": '"stale"'})
        changed = await client.send("PATCH", path, changes, headers={"if-match": tag})
        late = await client.send("DELETE", path, headers={"if-match": tag})
        gone = await client.send("DELETE", path, headers={"if-match": changed.headers["etag"]})
        after = await client.get(path)
        return made, bare, stale, changed, late, gone, after

    made, bare, stale, changed, late, gone, after = talk(keep, act)
    assert (made.status, made.data["tool"]["is_custom"]) == (201, True)
    assert made.headers["location"] == "/v1/tools/greet"
    assert (bare.status, stale.status, late.status) == (428, 412, 412)
    assert (bare.data["code"], "If-Match" in bare.data["detail"]) == ("ACODE-TSR-062", True)
    assert "GET /v1/tools/greet" in bare.data["hint"]
    assert (changed.status, changed.data["tool"]["version"]) == (200, "1.1.0")
    assert (gone.status, gone.body, after.status) == (204, b"", 404)


@pytest.mark.parametrize(
    ("definition", "status", "code"),
    [
        ({**GREET, "name": "Bad Name"}, 422, "ACODE-TSR-009"),
        (
            {**GREET, "parameters": {"type": "object", "properties": {"a": {"type": "array"}}}},
            422,
            "ACODE-TSR-006",
        ),
        ({**GREET, "name": "add"}, 409, "ACODE-TSR-007"),
        ({**GREET, "name": "read_file"}, 403, "ACODE-TSR-020"),
        ([], 400, "ACODE-TSR-062"),
    ],
)
def test_a_definition_that_cannot_be_kept_says_everything_that_is_wrong(
    keep: Keep, definition: Any, status: int, code: str
) -> None:
    response = talk(keep, lambda client: client.post("/v1/tools", definition))
    assert (response.status, response.code) == (status, code), response.body
    if status == 422:
        assert response.data["problems"][0]["fix"]


def test_what_runs_a_tool_is_decided_by_admin_alone(keep: Keep) -> None:
    definition = {k: v for k, v in GREET.items() if k != "client_executed"}
    definition["run"] = {"command": ["/usr/bin/id"]}

    async def act(client: Client) -> Any:
        writer = client.as_agent("ada", "tools:write")
        refused = await writer.post("/v1/tools", definition)
        checked = await writer.post("/v1/tools:check", definition)
        made = await client.post("/v1/tools", definition)
        changes = {"version": "2.0.0", "description": "Another."}
        stolen = await writer.send(
            "PATCH", "/v1/tools/greet", changes, headers={"if-match": made.data["tag"]}
        )
        return refused.status, checked.data["success"], made.status, stolen.status

    refused, checked, made, stolen = talk(keep, act)
    assert (refused, checked, made, stolen) == (409, False, 201, 409)


@pytest.mark.spec("WEB-2")
@pytest.mark.parametrize(
    ("before", "changes", "difference"),
    [
        ({"danger": "high"}, {"danger": "low"}, "-danger: high\n+danger: low"),
        ({"danger": "high"}, {"danger": None, "side_effects": ["None"]}, "-danger: high\n+danger: safe"),
        (
            {"requires_confirmation": True},
            {"requires_confirmation": None},
            "-requires_confirmation: True\n+requires_confirmation: False",
        ),
        (
            {},
            {"danger": "medium"},
            "-danger: undeclared\n+danger: medium",
        ),  # an undeclared one asks each time
    ],
)
def test_what_needs_fewer_approvals_is_put_in_force_by_admin_with_the_typed_name(
    keep: Keep, before: dict[str, Any], changes: dict[str, Any], difference: str
) -> None:
    async def act(client: Client) -> Any:
        made = await client.post("/v1/tools", {**GREET, **before})
        held = {"if-match": made.data["tag"]}
        writer = client.as_agent("ada", "tools:write", "tools:read")

        async def patch(by: Client, **more: Any) -> Any:
            body = {"version": "2.0.0", **changes, **more}
            return await by.send("PATCH", "/v1/tools/greet", body, headers=held)

        refused = [
            await patch(writer, typed_name="greet"),
            await patch(client),
            await patch(client, typed_name="great"),
        ]
        assert [one.code for one in refused] == ["ACODE-TSR-061", "ACODE-TSR-092", "ACODE-TSR-092"]
        assert (keep.get("greet").version, recorded(keep)) == ("1.0.0", [])
        return await patch(client, typed_name="greet")

    done = talk(keep, act)
    assert (done.status, done.data["tool"]["version"]) == (200, "2.0.0")
    (record,) = recorded(keep)
    assert [record[key] for key in ("what", "name", "way", "difference")] == [
        "danger", "greet", "http", difference]  # fmt: skip


def test_more_approvals_need_no_confirmation(keep: Keep) -> None:
    async def act(client: Client) -> Any:
        writer = client.as_agent("ada", "tools:write", "tools:read")
        made = await writer.post("/v1/tools", {**GREET, "danger": "low"})
        changes = {"version": "2.0.0", "danger": "high", "requires_confirmation": True}
        held = {"if-match": made.data["tag"]}
        return await writer.send("PATCH", "/v1/tools/greet", changes, headers=held)

    assert (talk(keep, act).status, recorded(keep)) == (200, [])


@pytest.mark.spec("WEB-2")
def test_a_set_danger_holds_for_another_definition_of_that_name(keep: Keep) -> None:
    keep.create_definition({**GREET, "danger": "low"})
    keep.set_danger("greet", Danger.HIGH)
    keep.delete_definition("greet")
    keep.create_definition({**GREET, "danger": "safe"})
    assert keep.get("greet").danger is Danger.HIGH


def test_a_definition_is_checked_without_being_kept(keep: Keep) -> None:
    keep.create_definition({**GREET, "name": "salute", "aliases": ["hail"]})

    async def act(client: Client) -> Any:
        right = await client.post("/v1/tools:check", GREET)
        wrong = await client.post("/v1/tools:check", {**GREET, "name": "Bad", "description": ""})
        taken = [await client.post("/v1/tools:check", {**GREET, "name": name}) for name in ("add", "hail")]
        return right.data, wrong.data, taken, (await client.get("/v1/tools/greet")).status

    right, wrong, taken, after = talk(keep, act)
    assert right == {"success": True, "problems": [], "replaces": "", "changes": [], "asks_less": False}
    assert sorted(one["field"] for one in wrong["problems"]) == ["description", "name"]
    assert [one.data["problems"][0]["code"] for one in taken] == ["ACODE-TSR-007"] * 2
    assert after == 404


def test_a_check_says_what_would_change_of_the_stored_definition(keep: Keep) -> None:
    keep.create_definition({**GREET, "danger": "high"})

    async def act(client: Client) -> Any:
        changed = {**GREET, "danger": "low", "description": "Greet a person."}
        low = await client.post("/v1/tools:check", changed)
        raised = await client.post("/v1/tools:check", {**changed, "version": "1.0.1"})
        same = await client.post("/v1/tools:check", {**GREET, "danger": "high"})
        switched = await client.post("/v1/tools:check", {**GREET, "danger": "high", "enabled": False})
        return low.data, raised.data, same.data, switched.data

    low, raised, same, switched = talk(keep, act)
    (problem,) = low["problems"]
    assert (problem["field"], "1.0.0 is not higher" in problem["message"]) == ("version", True)
    assert problem["fix"].startswith("raise `version`, say to 2.0.0;")
    assert (raised["success"], raised["replaces"], raised["asks_less"]) == (True, "1.0.0", True)
    assert {one["field"]: one["weight"] for one in raised["changes"]} == {
        "description": "patch", "danger": "major"}  # fmt: skip
    assert (same["success"], same["replaces"], same["changes"]) == (True, "1.0.0", [])
    assert (switched["success"], [one["field"] for one in switched["changes"]]) == (True, ["enabled"])


def test_a_check_tells_nothing_of_a_stored_tool_that_policies_hide(keep: Keep) -> None:
    keep.create_definition({**GREET, "version": "1.4.2"})
    keep.use_policies('@id("hide") forbid (principal, action == Action::"see", resource == Tool::"greet");')

    async def act(client: Client) -> Any:
        writer = client.as_agent("ada", "tools:write")
        forms = [
            {**GREET, **changes, "version": version}
            for version in ("1.4.1", "1.4.2", "1.4.3", "2.0.0")
            for changes in ({}, {"description": "Another."})
        ]
        return [(await writer.post("/v1/tools:check", form)).data for form in forms]

    first, *others = talk(keep, act)
    assert others == [first] * len(others)
    assert [(one["field"], one["code"]) for one in first["problems"]] == [("name", "ACODE-TSR-007")]


def test_a_check_refuses_a_name_that_is_stored_and_not_registered(keep: Keep) -> None:
    keep.create_definition(GREET)
    keep.unregister("greet")
    answer = talk(keep, lambda client: client.post("/v1/tools:check", {**GREET, "version": "2.0.0"}))
    assert [one["code"] for one in answer.data["problems"]] == ["ACODE-TSR-007"]


def test_a_check_is_refused_like_the_update_of_what_runs_something(keep: Keep) -> None:
    run = {"command": ["/usr/bin/id"]}
    definition = {key: value for key, value in GREET.items() if key != "client_executed"}
    keep.create_definition({**definition, "run": run}, may_run=True)

    async def act(client: Client) -> Any:
        form = {**definition, "version": "2.0.0"}
        as_writer = await client.as_agent("ada", "tools:write").post("/v1/tools:check", form)
        low = await client.post(
            "/v1/tools:check", {**form, "version": "1.0.0", "run": {"command": ["/bin/ls"]}}
        )
        return as_writer.data, (await client.post("/v1/tools:check", form)).data, low.data

    as_writer, as_admin, low = talk(keep, act)
    assert [one["code"] for one in as_writer["problems"]] == ["ACODE-TSR-024"]
    assert as_admin["changes"] == [{"field": "run", "what": "removed", "weight": "major"}]
    assert "say to 2.0.0" in low["problems"][0]["fix"]


@pytest.mark.spec("VAL-6")
@pytest.mark.parametrize(
    "fields",
    [
        ({"enum": ["hunter2", "swordfish"], "default": "hunter2"}, {"sensitive": True}),
        ({"pattern": "^hunter2$", "writeOnly": True}, {}),
    ],
    ids=["a sensitive tool", "a secret parameter"],
)
def test_secret_parts_are_in_no_check_and_no_list_of_changes(
    keep: Keep, fields: tuple[dict[str, Any], dict[str, Any]]
) -> None:
    secret, more = fields
    pin = {"type": "string", "description": "The PIN."}
    parameters = {"type": "object", "properties": {"pin": {**pin, **secret}}}
    other = {"type": "object", "properties": {"pin": {**pin, "description": "Its PIN."}}}
    keep.create_definition({**GREET, **more, "parameters": parameters})

    async def act(client: Client) -> Any:
        writer = client.as_agent("ada", "tools:write", "tools:read")
        changed = {**GREET, "version": "9.0.0", "parameters": other}
        checked = await writer.post("/v1/tools:check", changed)
        tag = (await writer.get("/v1/tools/greet")).headers["etag"]
        changes = {"version": "9.0.0", "parameters": other, "sensitive": None}
        made = await writer.send("PATCH", "/v1/tools/greet", changes, headers={"if-match": tag})
        return checked, made, await writer.get("/v1/tools/greet/versions")

    checked, made, listed = talk(keep, act)
    assert made.status == 200, made.body
    for answer, changes in ((checked, checked.data["changes"]), (listed, listed.data[0]["changes"])):
        assert b"hunter2" not in answer.body
        said = {(one["field"], one["what"]) for one in changes}
        assert ("parameters", "secret parts changed") in said
        assert len(said) > 1, said
