"""Tools over HTTP: pages, filters, tags, versions, checks, switches and custom definitions."""

from typing import Any

import pytest

from tests.server.conftest import TOOLS
from tests.server.talk import Client
from tests.server.test_app import talk
from toolkeep import Keep, tool
from toolkeep.providers.vendors import PROVIDERS

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


def test_tools_come_in_pages_that_miss_none(keep: Keep) -> None:
    async def act(client: Client) -> Any:
        names, cursor = [], ""
        while True:
            page = (await client.get(f"/v1/tools?limit=3{cursor}")).data
            names += [one["name"] for one in page["items"]]
            if page["next"] is None:
                return names
            cursor = f"&cursor={page['next']}"

    names = talk(keep, act)
    assert names == [one.name for one in keep.tools()]
    assert len(names) == len(TOOLS) + 1


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("danger=critical", ["launch"]),
        ("state=disabled", []),
        ("category=database", []),
        ("search=launch+it&limit=1", ["launch"]),
    ],
)
def test_tools_are_filtered_and_searched(keep: Keep, query: str, names: list[str]) -> None:
    page = talk(keep, lambda client: client.get(f"/v1/tools?{query}")).data
    assert [one["name"] for one in page["items"]] == names


def test_a_search_finds_tools_that_are_switched_off_too(keep: Keep) -> None:
    keep.disable("launch")
    page = talk(keep, lambda client: client.get("/v1/tools?search=launch")).data
    assert [(one["name"], one["state"]) for one in page["items"]] == [("launch", "disabled")]


def test_a_search_goes_on_where_its_page_ended(keep: Keep) -> None:
    async def act(client: Client) -> Any:
        first = (await client.get("/v1/tools?search=text&limit=1")).data
        second = (await client.get(f"/v1/tools?search=text&limit=50&cursor={first['next']}")).data
        return [one["name"] for one in first["items"] + second["items"]]

    names = talk(keep, act)
    assert sorted(names) == ["send_note", "write_down"]


def test_a_client_that_has_an_answer_already_is_told_so(keep: Keep) -> None:
    async def act(client: Client) -> Any:
        statuses = []
        for path in ("/v1/tools", "/v1/tools/add", "/openapi.json"):
            tag = (await client.get(path)).headers["etag"]
            again = await client.get(path, headers={"if-none-match": f'"other", W/{tag}'})
            other = await client.get(path, headers={"if-none-match": '"other"'})
            statuses.append((again.status, again.body, other.status))
        return statuses

    assert talk(keep, act) == [(304, b"", 200)] * 3


def test_the_tag_of_a_tool_changes_with_its_state(keep: Keep) -> None:
    async def act(client: Client) -> Any:
        before = (await client.get("/v1/tools/add")).headers["etag"]
        off = await client.post("/v1/tools/add:disable")
        refused = await client.call("add", {"a": 1})
        on = await client.post("/v1/tools/add:enable")
        return before, off.data, refused, on.data

    before, off, refused, on = talk(keep, act)
    assert (off["tool"]["state"], on["tool"]["state"]) == ("disabled", "enabled")
    assert off["tag"] != before == on["tag"]
    assert (refused.status, refused.code) == (409, "ACODE-TSR-012")


def test_versions_come_newest_first_with_what_changed(keep: Keep) -> None:
    @tool(version="2.0.0", side_effects=[])
    async def add(a: int, b: int) -> int:
        """Add two numbers.

        Args:
            a: One.
            b: The other.
        """
        return a + b

    keep.register(add)
    versions = talk(keep, lambda client: client.get("/v1/tools/add/versions")).data
    assert [one["version"] for one in versions] == ["2.0.0", "1.0.0"]
    assert {"field": "parameters/properties/b", "what": "became required", "weight": "major"} in versions[0][
        "changes"
    ]
    assert versions[1]["changes"] == []


def test_what_is_secret_in_a_schema_is_shown_to_nobody(keep: Keep) -> None:
    definition = {
        **GREET,
        "name": "open_safe",
        "parameters": {
            "type": "object",
            "properties": {"pin": {"type": "string", "writeOnly": True, "pattern": "^9[0-9]{3}$"}},
            "required": ["pin"],
        },
    }

    async def act(client: Client) -> Any:
        made = await client.post("/v1/tools", definition)
        return made, await client.get("/v1/tools/open_safe")

    made, shown = talk(keep, act)
    assert made.status == 201, made.body
    assert "9[0-9]" not in made.body.decode() + shown.body.decode()


def test_arguments_are_checked_without_a_call(keep: Keep) -> None:
    async def act(client: Client) -> Any:
        reader = client.as_agent("ada", "tools:read")
        fits = await reader.post("/v1/tools/add:validate", {"arguments": {"a": 1}})
        fails = await reader.post("/v1/tools/add:validate", {"arguments": {"a": "1"}})
        return fits, fails

    fits, fails = talk(keep, act)
    assert fits.data == {"success": True, "tool": "add", "arguments": {"a": 1, "b": 1}}
    assert (fails.status, fails.code) == (422, "ACODE-TSR-004")
    assert fails.data["errors"][0]["path"] == "/a"


# --- custom definitions --------------------------------------------------------------------------


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
        assert response.data["problems"][0]["mend"]


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


def test_a_definition_is_checked_without_being_kept(keep: Keep) -> None:
    async def act(client: Client) -> Any:
        right = await client.post("/v1/tools:check", GREET)
        wrong = await client.post("/v1/tools:check", {**GREET, "name": "Bad", "description": ""})
        taken = await client.post("/v1/tools:check", {**GREET, "name": "add"})
        return right.data, wrong.data, taken.data, (await client.get("/v1/tools/greet")).status

    right, wrong, taken, after = talk(keep, act)
    assert right == {"success": True, "problems": []}
    assert sorted(one["field"] for one in wrong["problems"]) == ["description", "name"]
    assert taken["problems"][0]["code"] == "ACODE-TSR-007"
    assert after == 404


@pytest.mark.spec("PRV-1")
def test_a_tool_is_shown_in_the_form_of_every_provider(keep: Keep) -> None:
    forms = talk(keep, lambda client: client.get("/v1/tools/launch/forms")).data
    assert tuple(forms) == PROVIDERS
    definition = keep.get("launch").definition
    assert forms["anthropic"] == definition.to_claude_format()
