"""Prompts and resources of upstream servers: passed on by grant, each use a call of its own kind."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.config.projects import accept
from tests.mcp_client.library import HOSTILE, HOSTILE_TEMPLATES, PROMPT, RESOURCES, TEMPLATES
from tests.mcp_client.servers import add, listing, opened
from tests.mcp_server.environments import python_of
from tests.mcp_server.talk import Lines, lines, until
from toolkeep import ToolDefinition, open_keep
from toolkeep.approval.question import Answer, Question
from toolkeep.cli.main import cli
from toolkeep.definitions.vocabulary import Danger
from toolkeep.limits import CallLimits
from toolkeep.mcp_client.item_import import ITEMS, import_items
from toolkeep.mcp_client.item_results import completion_value, prompt_value, resource_value
from toolkeep.mcp_client.pinned_tools import PinnedTools
from toolkeep.mcp_client.tool_import import ImportOptions, import_listing
from toolkeep.mcp_client.transport import UpstreamFailed
from toolkeep.mcp_server import upstream_items
from toolkeep.mcp_server.dispatch import McpServer
from toolkeep.sandbox.launch import interpreter

HERE = Path(__file__).resolve().parent
GRANTED = ("mcp.prompts:docs", "mcp.resources:docs")

pytestmark = pytest.mark.spec("MCP-4")

Talk = Callable[[Lines], Coroutine[Any, Any, Any]]


def add_library(project: Path, *options: str) -> str:
    server = (interpreter(), "-I", "-S", str(HERE / "library.py"))
    return add(project, "docs", *(options or ("--prompts", "*", "--resources", "*")), "--", *server)


def served(project: Path, act: Talk, *held: str, shakes: bool = True, **more: Any) -> Any:
    """What a client with the agent's grant finds."""

    async def main() -> Any:
        async with opened(project, **more) as keep:
            keep.declare_agent("mcp-local", capabilities=held)
            async with lines(McpServer(keep)) as client:
                if shakes:
                    await client.handshake()
                return await act(client)

    return asyncio.run(main())


def audit(project: Path, *words: str) -> Any:
    done = CliRunner().invoke(cli, ["audit", *words, "--project", str(project), "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


async def read(client: Lines, uri: str) -> Any:
    answer = await client.ask("resources/read", {"uri": f"toolkeep:docs/{uri}"})
    return answer["result"]["contents"][0] if "result" in answer else answer["error"]["code"]


async def get(client: Lines, arguments: Mapping[str, Any], name: str = "review") -> Any:
    answer = await client.ask("prompts/get", {"name": name, "arguments": dict(arguments)})
    return answer["result"]["messages"] if "result" in answer else answer["error"]["code"]


def test_prompts_and_resources_are_listed_read_and_recorded(tmp_path: Path) -> None:
    said = add_library(tmp_path)
    assert "added 'docs' with 2 tools, 1 prompt, 6 resources" in said
    assert "+ resource:file_etc_passwd (file:///etc/passwd)" in said
    assert "needs mcp.prompts:docs and mcp.resources:docs" in said

    async def act(client: Lines) -> None:
        (prompt,) = (await client.ask("prompts/list"))["result"]["prompts"]
        assert prompt == {
            "name": "review",
            "title": "Review",
            "description": "Review a text.",
            "arguments": [
                {"name": "text", "description": "What to review.", "required": True},
                {"name": "tone", "title": "Tone", "required": False},
            ],
        }
        resources = (await client.ask("resources/list"))["result"]["resources"]
        assert {
            "uri": "toolkeep:docs/docs://readme",
            "name": "readme",
            "title": "Read me",
            "mimeType": "text/plain",
        } in resources
        (template,) = (await client.ask("resources/templates/list"))["result"]["resourceTemplates"]
        assert template == {"uriTemplate": "toolkeep:docs/docs://pages/{name}{?lang}", "name": "pages"}
        assert await get(client, {"text": "a"}) == [
            {"role": "user", "content": {"type": "text", "text": "Review a, kindly."}},
            {
                "role": "assistant",
                "content": {"type": "resource_link", "uri": "toolkeep:docs/docs://readme", "name": "readme"},
            },
        ]
        assert await get(client, {"tone": "a"}) == await get(client, {"text": 1}) == -32602
        assert await get(client, {}, "other") == -32602
        # Only a name at that server: no file of this machine is opened.
        assert (await read(client, "file:///etc/passwd"))["text"] == "the text of file:///etc/passwd"
        assert await read(client, "docs://logo") == {
            "uri": "toolkeep:docs/docs://logo",
            "mimeType": "image/png",
            "blob": "iVBORw0K",
        }
        page = "docs://pages/a%20b?lang=de"
        assert (await read(client, page))["text"] == f"the text of {page}"
        missing = ("docs://pages/a/b", "docs://new", "file:///etc/shadow")
        assert [await read(client, uri) for uri in missing] == [-32002] * 3
        assert [await read(client, f"docs://pages/{dots}") for dots in ("..", "%2E%2e")] == [-32602] * 2
        gone = (await client.ask("resources/read", {"uri": "toolkeep:docs/docs://gone"}))["error"]
        assert (gone["code"], "Not there" in gone["message"]) == (-32002, True)
        long = await client.ask("resources/read", {"uri": "toolkeep:docs/docs://long"})
        assert "bytes, which is too much" in long["error"]["message"]
        # A tool by another name: nobody is offered one.
        names = [tool["name"] for tool in (await client.ask("tools/list"))["result"]["tools"]]
        assert not any(":" in name for name in names)
        assert (await client.call("prompt:review", {"text": "a"}))["error"]["code"] == -32602
        assert (await client.ask("resources/subscribe", {"uri": "x:y"}))["error"]["code"] == -32601

    served(tmp_path, act, *GRANTED)
    call, *_ = audit(tmp_path, "list", "--tool", "resource:file_etc_passwd")
    records = str(audit(tmp_path, "show", call["call"]))
    for word in ("resource:file_etc_passwd", "mcp.resources:docs", "file:///etc/passwd"):
        assert word in records


async def offered(client: Lines) -> tuple[Any, ...]:
    """Declared capabilities, the lengths of lists, a prompt and a resource."""
    declared = (await client.handshake())["result"]["capabilities"]
    lists = [await client.ask(method) for method in ("prompts/list", "resources/list")]
    counts = [len(*answer["result"].values()) if "result" in answer else -1 for answer in lists]
    used = await get(client, {"text": "a"}), await read(client, "docs://logo")
    return ({"prompts", "resources"} & set(declared), *counts, *used)


def test_nothing_is_passed_on_without_the_grants_of_upstream_and_agent(tmp_path: Path) -> None:
    """Neither listed nor read, nor is an agent told that there is any."""
    nothing: tuple[Any, ...] = (set(), -1, -1, -32601, -32601)
    add_library(tmp_path, "--code", str(HERE))
    assert "prompts" not in listing(tmp_path, "docs")
    assert served(tmp_path, offered, *GRANTED, shakes=False) == nothing
    held = tmp_path / "held"
    held.mkdir()
    add_library(held)
    assert served(held, offered, shakes=False) == nothing
    assert served(held, offered, "mcp.prompts:other", "mcp.resources:other", shakes=False) == nothing
    *found, resource = served(held, offered, "mcp.resources:docs", shakes=False)
    assert (found, resource["blob"]) == ([{"resources"}, -1, 5, -32601], "iVBORw0K")


PERMIT = '@id("all") permit(principal, action, resource);'
FORBID = '@id("some") forbid(principal, action == Action::"call", resource) when {{ {} }};'
PAGES = 'context.arguments has uri && context.arguments.uri like "docs://pages/*"'


def test_policies_approvals_and_rate_limits_apply(tmp_path: Path) -> None:
    add_library(tmp_path)

    async def act(client: Lines) -> list[Any]:
        used = [await get(client, {"text": "a"}), await read(client, "docs://logo")]
        used.append(await read(client, "docs://pages/a"))
        return [one if isinstance(one, int) else "y" for one in used]

    def refuse(question: Question) -> Answer:
        asked.append(question.tool)
        return Answer(verdict="deny", approver="eve", way="program")

    no_prompts, no_pages = (
        [PERMIT, FORBID.format(when)]
        for when in ('resource.kind == "prompt"', f'resource.kind == "resource" && {PAGES}')
    )
    assert served(tmp_path, act, *GRANTED, policies=no_prompts) == [-32601, "y", "y"]
    assert served(tmp_path, act, *GRANTED, policies=no_pages) == ["y", "y", -32600]
    slow = CallLimits(calls_per_second=0.001, burst=1)
    assert served(tmp_path, act, *GRANTED, call_limits=slow) == ["y", -32000, -32000]
    asked: list[str] = []
    assert served(tmp_path, act, *GRANTED, approver=refuse) == [-32600] * 3
    assert asked == ["prompt:review", "resource:docs_logo", "resource:docs_pages_name_lang"]


def test_what_changed_at_the_server_or_in_the_list_waits_for_acceptance(tmp_path: Path) -> None:
    add_library(tmp_path)

    async def act(client: Lines) -> Any:
        before = await get(client, {"text": "a"}), await read(client, "docs://readme")
        await client.call("change")
        after = await get(client, {"text": "a"}), await read(client, "docs://readme")
        return before, after, await read(client, "docs://new"), (await read(client, "docs://logo"))["blob"]

    before, after, new, same = served(tmp_path, act, *GRANTED)
    assert -32002 not in before
    assert (after, new, same) == ((-32602, -32002), -32002, "iVBORw0K")
    data = listing(tmp_path, "docs")
    data["prompts"][0]["description"] = "Review a text, and send it elsewhere."
    data["resources"].append({"uri": "docs://new", "name": "new"})
    (tmp_path / ".agent" / "docs.mcp.json").write_text(json.dumps(data))
    accept(tmp_path)
    with opened(tmp_path) as keep:
        waiting = {
            one.name for kind in ("prompt", "resource") for one in keep.tools(kind=kind, enabled=False)
        }
        assert waiting == {"prompt:review", "resource:docs_new"}
        keep.accept("resource:docs_new", definition_hash=keep.get("resource:docs_new").definition_hash)
        assert keep.get("resource:docs_new").is_enabled


def imported(*, taken: tuple[str, ...] = (), pattern: str = "*", **lists: Any) -> dict[str, str]:
    """Names, and why one waits or is refused."""
    wishes = ImportOptions(name="docs", prompts=(pattern,), resources=(pattern,))
    found = import_items(PinnedTools(server={}, tools=(), **lists), wishes, taken)
    return {
        one.name: one.suspicion if isinstance(one.tool, ToolDefinition) else f"refused: {one.tool}"
        for one in found
    }


def test_hostile_names_uris_and_texts_are_refused_or_wait() -> None:
    found = imported(resources=tuple(HOSTILE), templates=tuple(HOSTILE_TEMPLATES))
    waiting = {name for name, why in found.items() if why and not why.startswith("refused")}
    assert waiting == {"resource:docs_order", "resource:docs_title", "resource:docs_escape"}
    assert [name for name, why in found.items() if not why] == []
    prompts = [
        {"name": "a", "arguments": [{"name": "x"}, {"name": "x"}]},
        {"name": "b", "arguments": [7]},
        {"name": ""},
    ]
    hidden = {"name": "c", "arguments": [{"name": "to\u200bken"}]}
    found = imported(prompts=(*prompts, hidden))
    assert [why.startswith("refused") for why in found.values()] == [True, True, True, False]
    assert all(found.values())


def test_the_danger_of_prompts_is_that_of_a_persons_pattern_and_of_no_tool() -> None:
    dangers = {"prompt:*": Danger.SAFE, "resource:docs://r*": Danger.LOW}
    wishes = ImportOptions(name="docs", prompts=("*",), resources=("*",), dangers=dangers)
    tool = {"name": "prompt:*", "inputSchema": {"type": "object"}}
    listed = PinnedTools(server={}, tools=(tool,), prompts=(PROMPT,), resources=tuple(RESOURCES[:2]))
    offers = [*import_listing(listed, wishes), *import_items(listed, wishes)]
    found = [one.tool.danger for one in offers if isinstance(one.tool, ToolDefinition)]
    assert found == [Danger.MEDIUM, Danger.SAFE, Danger.LOW, Danger.MEDIUM]


@pytest.mark.parametrize(
    "said",
    [
        {"contents": {}},
        {"contents": ["x"]},
        {"contents": [{"uri": "docs://a"}]},
        {"contents": [{"uri": "docs://a", "blob": "not base64"}]},
        {"contents": [{"uri": "docs://a b", "text": "x"}]},
        {"contents": [], "resultType": "input_required"},
        {"completion": ["a"]},
        {"completion": {"values": [7]}},
        {"completion": {"values": ["x"] * 101}},
        {"completion": {"values": ["x" * 2_000]}},
        {"messages": {}},
        {"messages": [{"role": "system", "content": {"type": "text", "text": "x"}}]},
        {"messages": [{"role": "user", "content": {"type": "text", "text": 7}}]},
        {"messages": [{"role": "user", "content": {"type": "tool_use"}}]},
        {"messages": [{"role": "user", "content": {"type": "resource", "resource": {"text": "x"}}}]},
        {"messages": [{"role": "user", "content": {"type": "image", "data": "?", "mimeType": "image/png"}}]},
    ],
)
def test_an_answer_that_is_not_of_the_protocol_is_refused(said: dict[str, Any]) -> None:
    readers: dict[str, Callable[[], Any]] = {
        "completion": lambda: completion_value(said),
        "contents": lambda: resource_value(said, "docs://a", "docs"),
        "messages": lambda: prompt_value(said, "docs"),
    }
    with pytest.raises(UpstreamFailed):
        readers[next(iter(said))]()


class Library:
    """A provider of what a server lists."""

    name, priority, origin, lists_whole_set = "upstream:docs", 200, "mcp:docs", True

    def get_tool_definitions(self) -> Any:
        wishes = ImportOptions(name="docs", prompts=("*",), resources=("*",))
        listed = PinnedTools(
            server={},
            tools=(),
            prompts=(PROMPT,),
            resources=tuple(RESOURCES),
            templates=tuple(TEMPLATES),
        )
        return import_items(listed, wishes)


def test_lists_have_pages_and_only_agents_that_may_use_one_are_told_of_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(upstream_items, "MCP_PAGE", 2)

    async def main() -> tuple[Any, ...]:
        with open_keep() as keep:
            keep.load(Library())
            keep.declare_agent("ada", capabilities=GRANTED)
            keep.declare_agent("eve")
            async with lines(McpServer(keep, agent="ada")) as ada, lines(McpServer(keep, agent="eve")) as eve:
                await ada.handshake()
                await eve.handshake()
                await ada.ask("prompts/list")
                pages: list[list[str]] = []
                cursor = None
                while cursor is not None or not pages:
                    page = await ada.ask("resources/list", {"cursor": cursor} if cursor else {})
                    pages.append([one["name"] for one in page["result"]["resources"]])
                    cursor = page["result"].get("nextCursor")
                keep.disable("prompt:review")
                keep.disable("resource:docs_readme")
                keep.disable("agent_hello_world")
                await until(lambda: len(eve.heard) >= 1 and len(ada.heard) >= 3)
                return *(sorted(one["method"] for one in client.heard) for client in (ada, eve)), pages

    ada, eve, pages = asyncio.run(main())
    changed = "notifications/{}/list_changed".format
    assert ada == [changed("prompts"), changed("resources"), changed("tools")]
    assert eve == [changed("tools")]
    assert pages == [["gone", "logo"], ["long", "readme"], ["users"]]


def test_the_number_of_imports_is_bounded_and_names_stay_apart() -> None:
    many = tuple({"uri": f"docs://{number}", "name": "same"} for number in range(10_000))
    found = imported(resources=many)
    refused = [why for why in found.values() if why]
    assert (len(found), len(refused)) == (ITEMS + 1, 1)
    assert "10000 match, at most 1000 are passed on" in refused[0]
    some = imported(prompts=(PROMPT,), resources=tuple(RESOURCES), pattern="docs://lo*")
    assert list(some) == ["resource:docs_logo", "resource:docs_long"]
    both = imported(
        prompts=(PROMPT,), resources=tuple(RESOURCES[:1]), taken=("review", "prompt:Review", "docs_readme")
    )
    assert list(both) == ["prompt:docs_review", "resource:docs_readme"]


def test_the_official_client_reads_through_toolkeep_from_the_official_server(tmp_path: Path) -> None:
    python = str(python_of("mcp"))
    options = (
        "--prompts",
        "*",
        "--resources",
        "*",
        "--danger",
        "prompt:*=safe",
        "--danger",
        "resource:*=safe",
        "--completions",
        "prompt:*",
        "--danger",
        "completion:*=safe",
        "--subscriptions",
        "*",
        "--danger",
        "subscription:*=safe",
    )
    add(tmp_path, "docs", *options, "--", python, str(HERE / "official_library.py"))
    config = tmp_path / ".agent" / "config.yml"
    kinds = ("prompts", "resources", "completions", "subscriptions")
    held = ", ".join(f"mcp.{kind}:docs" for kind in kinds)
    agent = f"{{inherit: defaults, capabilities: [{held}]}}"
    config.write_text(f"{config.read_text()}agents:\n  mcp-local: {agent}\n")
    accept(tmp_path)
    command = [sys.executable, "-m", "toolkeep", "mcp", "--project", str(tmp_path)]
    script = HERE.parent / "mcp_server" / "clients" / "official_items.py"
    done = subprocess.run(
        [python, "-W", "ignore", str(script), *command],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    expected = {
        "completed": ["kindby", "kindly"],
        "subscribed": ["toolkeep:docs/docs://readme"],
        "changed": "toolkeep:docs/docs://readme",
        "prompts": ["review"],
        "resources": ["toolkeep:docs/docs://readme"],
        "templates": ["toolkeep:docs/docs://pages/{name}"],
        "prompt": "Review this, kindly.",
        "text": "Read me.",
        "page": "Page a b",
    }
    assert json.loads(done.stdout) == expected
