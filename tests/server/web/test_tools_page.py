"""The list of tools with the calls of each, and the page of one."""

import itertools
import re

import pytest

from tests.server.web.test_app import Visitor, visit
from toolkeep import Keep, ToolDefinition

pytestmark = pytest.mark.spec("WEB-2")


@pytest.fixture
def busy(keep: Keep, monkeypatch: pytest.MonkeyPatch) -> Keep:
    """A keep in which two tools were called, shown three tools at a time."""
    monkeypatch.setattr("toolkeep.server.web.tools_page._SHOWN", 3)
    for name in ("count_up", "add", "count_up"):
        keep.call_sync(name, {"no": "such"}, agent="operator")
    return keep


async def names(visitor: Visitor, path: str) -> list[str]:
    """The tools in order, page after page."""
    page = (await visitor.get(path, **{"hx-request": "true"})).body.decode()
    found = re.findall(r'class="tool-name" href="/ui/tools/(\w+)"', page)
    more = re.findall(r'class="tr more" role="row" hx-get="([^"]*)"', page)
    return found + (await names(visitor, more[0].replace("&amp;", "&")) if more else [])


@pytest.mark.parametrize("filters", ["", "&search=u", "&category=general"])
def test_the_most_called_tools_come_first_where_that_is_chosen(busy: Keep, filters: str) -> None:
    async def act(visitor: Visitor) -> list[list[str]]:
        return [await names(visitor, f"/ui/tools?sort={sort}{filters}") for sort in ("", "calls")]

    usual, most = visit(busy, act)
    called = [name for name in ("count_up", "add") if name in usual]
    assert most == called + [name for name in usual if name not in called]
    assert len(usual) > 4


@pytest.mark.parametrize("filters", ["", "&category=general", "&state=quarantined"])
def test_what_waits_for_review_comes_first_and_no_page_misses_a_tool(busy: Keep, filters: str) -> None:
    waiting = [f"weather_{number}" for number in range(4)]
    for name, description in itertools.product((*waiting, "kept_out"), ("Tell the weather.", "Tell it.")):
        data = {"name": name, "description": description, "inputSchema": {"type": "object"}}
        busy.register(ToolDefinition.from_elsewhere(data, origin="met"))
    review = busy.review("kept_out")
    assert review is not None
    busy.reject("kept_out", definition_hash=review.hash)

    async def act(visitor: Visitor) -> tuple[list[str], list[str], str]:
        listed = (await visitor.operator.get(f"/v1/tools?limit=100{filters}")).data["items"]
        page = (await visitor.get(f"/ui/tools?sort={filters}")).body.decode()
        return [one["name"] for one in listed], await names(visitor, f"/ui/tools?sort={filters}"), page

    listed, shown, page = visit(busy, act)
    assert "kept_out" in listed
    assert shown == waiting + [name for name in listed if name not in waiting]
    assert page.count("waits for review") == 3


def test_who_may_not_read_the_log_is_told_no_numbers(busy: Keep) -> None:
    async def act(visitor: Visitor) -> list[str]:
        pages = [(await visitor.get("/ui/tools")).body.decode()]
        token = visitor.operator.tokens.make("reader", ["tools:read", "call"], agent="operator").text
        await visitor.sign_in(token=token)
        paths = ("/ui/tools?sort=calls", "/ui/tools/count_up")
        return pages + [(await visitor.get(path)).body.decode() for path in paths]

    told, *untold = visit(busy, act)
    assert ("/ui/audit?" in told, "Calls, 7 days" in told) == (True, True)
    assert not any(word in page for page in untold for word in ("/ui/audit?", "7 days", "/ui/calls/"))


def test_the_page_of_a_tool_leads_to_its_newest_calls(busy: Keep) -> None:
    made = [busy.call_sync("add", {"a": number, "b": 1}, agent="operator") for number in range(4)]
    refused = busy.call_sync("add", {"a": "much"}, agent="operator")

    async def act(visitor: Visitor) -> list[str]:
        return [(await visitor.get(f"/ui/tools/{name}")).body.decode() for name in ("add", "give_up")]

    page, uncalled = visit(busy, act)
    card = page.partition('id="calls-title"')[2].partition("</section>")[0]
    assert re.findall(r'href="/ui/calls/(\w+)"', card) == [one.call_id for one in (refused, *reversed(made))]
    links = re.findall(r'href="(/ui/audit[^"]*)">([^<]*)', card)
    assert links == [
        ("/ui/audit?tool=add", "All its calls"),
        ("/ui/audit?tool=add&amp;hours=168", "6 calls"),
        ("/ui/audit?tool=add&amp;status=refused&amp;hours=168", "2 refused"),
    ]
    assert card.count("refused</span>") == 1
    assert "must be an integer" in card
    assert "No call yet." in uncalled


POST = {
    "type": "object",
    "required": ["to"],
    "properties": {
        "to": {"type": "string", "description": "The address."},
        "key": {"type": "string", "format": "password", "description": "The key."},
        "copies": {"type": ["array", "null"], "items": {"type": "string"}, "default": None},
        "tries": {"type": "integer", "minimum": 1, "default": 3, "description": "How often."},
    },
}


@pytest.mark.parametrize("scopes", [["tools:read", "call"], ["tools:read"]], ids=["with a form", "without"])
def test_each_parameter_is_told_once_and_whole(keep: Keep, scopes: list[str]) -> None:
    keep.register({"name": "post", "description": "Post it.", "parameters": POST})

    async def act(visitor: Visitor) -> str:
        token = visitor.operator.tokens.make("reader", scopes, agent="operator").text
        await visitor.sign_in(token=token)
        return (await visitor.get("/ui/tools/post")).body.decode()

    told = visit(keep, act, signed_in=False).partition('id="forms-title"')[0]
    assert ('id="try"' in told, 'id="parameters-title"' in told) == ("call" in scopes, "call" not in scopes)
    plain = re.sub(r"<[^>]+>", "|", told)
    for word in ("to", "required", "The address.", "key", "secret", "The key.", "default null", "default 3"):
        assert len(re.findall(rf"\|{word}\|", plain)) == 1, word


def test_the_page_of_a_tool_says_who_may_call_it_and_why(keep: Keep) -> None:
    for number in range(8):
        keep.declare_agent(f"zoe_{number}")
    keep.use_policies(
        '@id("all") permit (principal, action, resource);'
        '@id("not-ada") forbid (principal == Agent::"ada", action == Action::"call", resource == Tool::"add");'
    )
    agents = [one for one in sorted(keep.agents) if one != "ada"][:7]

    async def act(visitor: Visitor) -> list[str]:
        reader = Visitor(visitor.operator, visitor.codes)
        made = visitor.operator.tokens.make("a token", ("tools:read", "policies:read"), agent="ada")
        other = Visitor(visitor.operator, visitor.codes)
        less = visitor.operator.tokens.make("a token", ("tools:read",), agent="ada")
        await reader.sign_in(token=made.text)
        await reader.open_tab()
        await other.sign_in(token=less.text)
        await other.open_tab()
        return [(await who.get("/ui/tools/add")).body.decode() for who in (visitor, reader, other)]

    whole, own, none = visit(keep, act)
    chip = re.compile(r'data-why="(\w+)" title="([^"]*)" data-agent="([\w-]+)" data-tool="add"')
    assert sorted(agent for _, _, agent in chip.findall(whole)) == ["ada", *agents]
    assert {agent: word for word, _, agent in chip.findall(whole)} == {
        "ada": "denied", **dict.fromkeys(agents, "allowed")}  # fmt: skip
    assert f"All {len(keep.agents)} agents" in whole
    ((word, why, agent),) = chip.findall(own)
    assert (word, agent, "not-ada" in why) == ("denied", "ada", True)
    assert "Who may call it" not in none
