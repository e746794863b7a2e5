"""Tools over HTTP: pages, filters, tags, versions, checks and switches."""

from typing import Any

import pytest

from tests.server.api.test_definition_routes import GREET
from tests.server.conftest import TOOLS
from tests.server.talk import Client
from tests.server.test_asgi_app import talk
from toolkeep import Keep, tool
from toolkeep.providers.vendor_registry import PROVIDERS


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


@pytest.mark.spec("PRV-1")
def test_a_tool_is_shown_in_the_form_of_every_provider(keep: Keep) -> None:
    forms = talk(keep, lambda client: client.get("/v1/tools/launch/forms")).data
    assert tuple(forms) == PROVIDERS
    definition = keep.get("launch").definition
    assert forms["anthropic"] == definition.to_claude_format()
