"""Who may make which call: one table, asked through the face of a keep in a real folder.

Each row is decided twice, by a person who says yes to everything and by one who says no: so it shows whether a
call is allowed, asked about or denied, and by which policy, or for which reason.
"""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import pytest

from tests.definitions.examples import made, with_properties
from toolkeep import Code, Keep, ToolDefinition, ToolResult
from toolkeep.approval.question import Answer, Question
from toolkeep.definitions.capability import Capability
from toolkeep.policy.policy_settings import DEFAULT_GRANT, Grant, PolicySettings, PolicySource

pytestmark = pytest.mark.spec("POL-1", "POL-2", "POL-3", "POL-8")

Verdict = Literal["allow", "ask", "deny"]


class Row(NamedTuple):
    """One decision."""

    verdict: Verdict
    by: str
    """The policies that decide, or what the agent is told; ROOT stands for the project."""
    tool: str
    arguments: Mapping[str, Any] = MappingProxyType({})
    holds: str | None = None
    """The agent's capabilities, apart by spaces; None is the default grant."""
    permissions: str = ""
    policies: str = ""
    agent: str = "local"
    is_paranoid: bool = False


# --- the tools -----------------------------------------------------------------------------------


def touching(kind: Any, **more: Any) -> dict[str, Any]:
    return {"type": "string", "x-touches": kind, **more}


def client_tool(name: str, properties: dict[str, Any], **fields: Any) -> ToolDefinition:
    """A tool that the client executes: a call of it that is allowed waits for its result."""
    required = [key for key, schema in properties.items() if "default" not in schema]
    described = {key: {"description": f"The {key}.", **schema} for key, schema in properties.items()}
    parameters = with_properties(described, required=required)
    data = {"danger": "safe", "side_effects": ["None"], **fields}
    return made(name=name, parameters=parameters, client_executed=True, **data)


def reader(name: str, properties: dict[str, Any], capability: str) -> ToolDefinition:
    effect = {"fs": "FsRead", "net": "NetRead", "db": "DbRead", "process": "ProcessSpawn"}
    area = capability.partition(".")[0]
    return client_tool(name, properties, capabilities=[capability], side_effects=[effect[area]])


PAYMENT: dict[str, Any] = {
    "account": {"type": "string"},
    "amount": {"type": "integer"},
    "rate": {"type": "number", "default": 1.5},
    "urgent": {"type": "boolean", "default": False},
    "tags": {"type": "array", "items": {"type": "string"}, "default": []},
    "to": {
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "geo": {"type": "object", "properties": {"zone": {"type": "integer"}}},
        },
        "default": {},
    },
}

TOOLS = [
    reader("peek", {"path": touching("fs.read")}, "fs.read:*"),
    reader("peek_unscoped", {"path": touching("fs.read")}, "fs.read"),
    reader("peek_docs", {"path": touching("fs.read")}, "fs.read:./docs"),
    reader("peek_default", {"path": touching("fs.read", default="secret.txt")}, "fs.read:*"),
    reader("peek_many", {"paths": {"type": "array", "items": touching("fs.read")}}, "fs.read:*"),
    reader("index_docs", {}, "fs.read:./docs"),
    reader("index_root", {}, "fs.read:/"),
    reader("index_all", {}, "fs.read:*"),
    reader("index_unscoped", {}, "fs.read"),
    reader("fetch", {"url": touching("net.read")}, "net.read:*"),
    reader("fetch_example", {"url": touching("net.read")}, "net.read:*.example.org"),
    reader("mirror", {}, "net.read:*.example.org"),
    reader("ping", {"host": touching({"kind": "net.read", "form": "host"})}, "net.read:*"),
    reader(
        "start",
        {"argv": {"type": "array", "items": {"type": "string"}, "x-touches": "process.spawn"}},
        "process.spawn:*",
    ),
    reader("shell", {"command": touching("process.spawn")}, "process.spawn:*"),
    reader("tidy", {}, "process.spawn:true"),
    reader("query", {"database": touching("db.read")}, "db.read:*"),
    reader("report", {}, "db.read:sales"),
    client_tool(
        "write",
        {"path": touching("fs.write"), "content": {"type": "string", "default": ""}},
        capabilities=["fs.write:*"],
        side_effects=["FsWrite"],
        category="file_system",
    ),
    client_tool(
        "copy",
        {"source": touching("fs.read"), "target": touching("fs.write")},
        capabilities=["fs.read:*", "fs.write:./out"],
        side_effects=["FsRead", "FsWrite"],
    ),
    client_tool("pay", PAYMENT),
    client_tool("think", {}),
    client_tool("think_more", {}, category="knowledge"),
    client_tool("confirm", {}, requires_confirmation=True),
    client_tool("send", {}, required_permissions=["tool.communication.send"]),
    client_tool("recall", {}, required_permissions=["tool.knowledge.read"]),
    *(client_tool(danger, {}, danger=danger) for danger in ("low", "medium", "high", "critical")),
    client_tool("remote", {}, source={"kind": "mcp", "origin": "files"}),
]


# --- policies ------------------------------------------------------------------------------------

CALL = 'principal, action == Action::"call", resource'
ALL = f'@id("all") permit ({CALL});'
PAYS = 'principal, action == Action::"call", resource == Tool::"pay"'
ASKS = f'@id("a") @ask permit ({CALL});'
SILENT = f'@id("s") @silent permit ({CALL});'
SHELL = PAYS.replace("pay", "shell")
START = PAYS.replace("pay", "start")


def no(condition: str, head: str = PAYS) -> str:
    return f'{ALL} @id("no") @reason("it is said") forbid ({head}) when {{ {condition} }};'


def only(condition: str) -> str:
    return f'@id("only") permit ({PAYS}) when {{ {condition} }};'


def pay(**more: Any) -> dict[str, Any]:
    return {"account": "DE1", "amount": 5, **more}


NOBODY = "No policy permits agent 'local' to make this call to '{}'"
DEFAULT = "toolkeep.call"
NO_URL = "The URL must start with one of http://, https://, ws://, wss://"

LIMIT = "context.arguments has amount && context.arguments.amount < 6"
RATE = 'context.arguments has rate && context.arguments.rate.greaterThan(decimal("2.4"))'
URGENT = "context.arguments has urgent && context.arguments.urgent"
TAGS = 'context.arguments has tags && context.arguments.tags.contains("y")'
CITY = 'context.arguments has to && context.arguments.to has city && context.arguments.to.city == "Rome"'
ZONE = (
    "context.arguments has to && context.arguments.to has geo && context.arguments.to.geo has zone"
    " && context.arguments.to.geo.zone == 7"
)

TABLE: dict[str, Row] = {
    # --- reading files with the default grant: the working folder
    "a file in the project": Row("allow", DEFAULT, "peek", {"path": "docs/a.txt"}),
    "the project itself": Row("allow", DEFAULT, "peek", {"path": "."}),
    "an absolute path in the project": Row("allow", DEFAULT, "peek", {"path": "ROOT/docs/a.txt"}),
    "up and down again": Row("allow", DEFAULT, "peek", {"path": "docs/../docs/a.txt"}),
    "a link inside": Row("allow", DEFAULT, "peek", {"path": "inner"}),
    "above the project": Row("deny", "The agent has no grant for fs.read of '..'", "peek", {"path": ".."}),
    "the root": Row("deny", "The agent has no grant for fs.read of '/'", "peek", {"path": "/"}),
    "a link that leads out": Row(
        "deny", "The agent has no grant for fs.read of 'outer'", "peek", {"path": "outer"}
    ),
    "a folder link that leads out": Row(
        "deny", "The agent has no grant for fs.read of 'up/outside.txt'", "peek", {"path": "up/outside.txt"}
    ),
    "a file that is not there": Row("deny", "'nothing' does not exist", "peek", {"path": "nothing"}),
    "a file that is not there, outside": Row(
        "deny", "The agent has no grant for fs.read of '../nothing'", "peek", {"path": "../nothing"}
    ),
    "an empty path": Row("deny", "An empty path names nothing", "peek", {"path": ""}),
    "a file of the kernel": Row(
        "deny", "The kernel's own files may not be touched", "peek", {"path": "/proc/self/environ"}
    ),
    "a sibling with the same beginning": Row(
        "deny",
        "The agent has no grant for fs.read of 'docs-secret/b.txt'",
        "peek",
        {"path": "docs-secret/b.txt"},
        "fs.read:./docs",
    ),
    "a default outside of the grant": Row(
        "deny", "The agent has no grant for fs.read of 'secret.txt'", "peek_default", {}, "fs.read:./docs"
    ),
    "a default inside of the grant": Row("allow", DEFAULT, "peek_default"),
    "several files": Row("allow", DEFAULT, "peek_many", {"paths": ["docs/a.txt", "secret.txt"]}),
    "several files, one outside": Row(
        "deny",
        "The agent has no grant for fs.read of '../outside.txt'",
        "peek_many",
        {"paths": ["docs/a.txt", "../outside.txt"]},
    ),
    "two grants, the second one fits": Row(
        "allow", DEFAULT, "peek", {"path": "secret.txt"}, "fs.read:./docs fs.read:./secret.txt"
    ),
    "a grant to write is none to read": Row(
        "deny",
        "The agent has no grant for fs.read of 'docs/a.txt'",
        "peek",
        {"path": "docs/a.txt"},
        "fs.write:.",
    ),
    # --- scopes of requirement and grant
    "no scope required": Row("allow", DEFAULT, "peek_unscoped", {"path": "docs/a.txt"}),
    "no scope required, outside of the grant": Row(
        "deny", "The agent has no grant for fs.read of '/'", "peek_unscoped", {"path": "/"}
    ),
    "inside the requirement": Row("allow", DEFAULT, "peek_docs", {"path": "docs/a.txt"}),
    "outside of the requirement, though granted": Row(
        "deny",
        "'secret.txt' is outside what the tool may touch: the capabilities of its definition do not include it",
        "peek_docs",
        {"path": "secret.txt"},
    ),
    "nothing touched: the whole scope, granted": Row("allow", DEFAULT, "index_docs"),
    "nothing touched: the whole scope, of which a part is granted": Row(
        "deny", "The agent has no grant for fs.read of './docs'", "index_docs", {}, "fs.read:./docs/deep"
    ),
    "nothing touched: everything there is": Row(
        "deny", "The agent has no grant for fs.read of '/'", "index_root"
    ),
    "nothing touched: what policy grants": Row("allow", DEFAULT, "index_all"),
    "nothing touched: no scope": Row("allow", DEFAULT, "index_unscoped"),
    "nothing touched: what policy grants is nothing": Row(
        "deny", "The agent has no grant for fs.read", "index_all", {}, "net.read:example.org"
    ),
    "nothing touched: nothing granted for a star": Row(
        "deny", "The agent has no grant for fs.read", "index_all", {}, "fs.write:./out"
    ),
    "nothing touched: nothing granted for nothing said": Row(
        "deny", "The agent has no grant for fs.read", "index_unscoped", {}, "fs.write:./out"
    ),
    # --- writing
    "writing is not in the default grant": Row(
        "deny", "The agent has no grant for fs.write of 'out/new'", "write", {"path": "out/new"}
    ),
    "a new file": Row("allow", DEFAULT, "write", {"path": "out/new"}, "fs.write:./out"),
    "a new file in new folders": Row("allow", DEFAULT, "write", {"path": "out/x/y"}, "fs.write:./out"),
    "over a link that leads out": Row(
        "deny",
        "The agent has no grant for fs.write of 'outer'",
        "write",
        {"path": "outer"},
        "fs.write:.",
    ),
    "the configuration": Row(
        "deny",
        "'.agent/config.yml' may not be written by any tool: it decides what runs",
        "write",
        {"path": ".agent/config.yml"},
        "fs.write:.",
    ),
    "from here to there": Row(
        "allow", DEFAULT, "copy", {"source": "docs/a.txt", "target": "out/a"}, "fs.read:./docs fs.write:./out"
    ),
    "from there to here": Row(
        "deny",
        "The agent has no grant for fs.read of 'out'",
        "copy",
        {"source": "out", "target": "docs/a.txt"},
        "fs.read:./docs fs.write:./out",
    ),
    "to where the tool does not write": Row(
        "deny",
        "'docs/b' is outside what the tool may touch: the capabilities of its definition do not include it",
        "copy",
        {"source": "docs/a.txt", "target": "docs/b"},
        "fs.read:. fs.write:.",
    ),
    # --- the network
    "no network by default": Row(
        "deny",
        "The agent has no grant for net.read of 'example.org'",
        "fetch",
        {"url": "https://example.org/"},
    ),
    "a host": Row("allow", DEFAULT, "fetch", {"url": "https://example.org/a?b#c"}, "net.read:example.org"),
    "a host in capitals": Row(
        "allow", DEFAULT, "fetch", {"url": "HTTP://EXAMPLE.ORG./"}, "net.read:example.org"
    ),
    "a host below": Row(
        "deny",
        "The agent has no grant for net.read of 'a.example.org'",
        "fetch",
        {"url": "https://a.example.org/"},
        "net.read:example.org",
    ),
    "a host below, granted": Row(
        "allow", DEFAULT, "fetch", {"url": "https://a.example.org/"}, "net.read:*.example.org"
    ),
    "another port": Row(
        "deny",
        "The agent has no grant for net.read of 'example.org:8443'",
        "fetch",
        {"url": "https://example.org:8443/"},
        "net.read:example.org",
    ),
    "a user name": Row(
        "deny",
        "It holds an @ before the path; a user name or password is not taken there",
        "fetch",
        {"url": "https://example.org@evil.test/"},
        "net.read:example.org",
    ),
    "a file as a URL": Row("deny", NO_URL, "fetch", {"url": "file:///etc/passwd"}, "net.read:example.org"),
    "a host that the tool does not need": Row(
        "deny",
        "'evil.test' is outside what the tool may touch: the capabilities of its definition do not include it",
        "fetch_example",
        {"url": "https://evil.test/"},
        "net.read:evil.test net.read:*.example.org",
    ),
    "all hosts below, of which one is granted": Row(
        "deny",
        "The agent has no grant for net.read of '*.example.org'",
        "mirror",
        {},
        "net.read:a.example.org",
    ),
    "any name": Row("allow", DEFAULT, "fetch", {"url": "https://a.test/"}, "net.read:*.*"),
    "no name of a network inside by any name": Row(
        "deny",
        "The agent has no grant for net.read of 'metadata.google.internal'",
        "fetch",
        {"url": "http://metadata.google.internal/"},
        "net.read:*.*",
    ),
    "no address by any name": Row(
        "deny",
        "The agent has no grant for net.read of '169.254.169.254'",
        "fetch",
        {"url": "http://169.254.169.254/"},
        "net.read:*.*",
    ),
    "all hosts below, by any name": Row("allow", DEFAULT, "mirror", {}, "net.read:*.*"),
    "all hosts below, granted": Row("allow", DEFAULT, "mirror", {}, "net.read:*.example.org"),
    "a host without a URL": Row(
        "allow", DEFAULT, "ping", {"host": "example.org:443"}, "net.read:example.org"
    ),
    "a URL where a host belongs": Row(
        "deny",
        "A host is wanted, such as example.org or example.org:8443, without scheme or path",
        "ping",
        {"host": "https://example.org"},
        "net.read:example.org",
    ),
    "an address in another spelling": Row(
        "allow", DEFAULT, "ping", {"host": "127.1:80"}, "net.read:127.0.0.1:80"
    ),
    # --- programs and databases
    "a program": Row("allow", DEFAULT, "start", {"argv": ["true", "-x"]}, "process.spawn:true"),
    "another program": Row(
        "deny",
        "The agent has no grant for process.spawn of 'sh'",
        "start",
        {"argv": ["sh"]},
        "process.spawn:true",
    ),
    "a program of the project under the same name": Row(
        "deny",
        "The agent has no grant for process.spawn of './true'",
        "start",
        {"argv": ["./true"]},
        "process.spawn:true",
    ),
    "no program": Row("deny", "A command without a program", "start", {"argv": []}, "process.spawn:true"),
    "a program that is not there": Row(
        "deny",
        "The program 'nothing' was not found",
        "start",
        {"argv": ["nothing"]},
        "process.spawn:true",
    ),
    "the program that the tool needs": Row("allow", DEFAULT, "tidy", {}, "process.spawn:true"),
    "the program that the tool needs, not granted": Row(
        "deny", "The agent has no grant for process.spawn of 'true'", "tidy", {}, "process.spawn:sh"
    ),
    "a database": Row("allow", DEFAULT, "query", {"database": "sales"}, "db.read:sales"),
    "another database": Row(
        "deny",
        "The agent has no grant for db.read of 'Sales'",
        "query",
        {"database": "Sales"},
        "db.read:sales",
    ),
    "the database that the tool needs": Row("allow", DEFAULT, "report", {}, "db.read:sales"),
    "the database that the tool needs, not granted": Row(
        "deny", "The agent has no grant for db.read of 'sales'", "report", {}, "db.read:staff"
    ),
    # --- agents and permissions
    "an agent that nobody declared": Row("deny", "Agent 'eve' is not declared", "think", agent="eve"),
    "an agent whose name looks the same": Row(
        "deny", "Agent 'Local' is not declared", "think", agent="Local"
    ),
    "the person at the command line": Row("allow", DEFAULT, "peek", {"path": "secret.txt"}, agent="operator"),
    "an agent that holds nothing": Row("allow", DEFAULT, "think", {}, ""),
    "a permission by default": Row("allow", DEFAULT, "recall"),
    "a permission that is missing": Row("deny", "toolkeep.permissions", "send"),
    "a permission": Row("allow", DEFAULT, "send", {}, "", "tool.communication.send"),
    "a permission no longer, with own ones": Row(
        "deny", "toolkeep.permissions", "recall", {}, "", "tool.api.call"
    ),
    "no policy makes up for a permission": Row("deny", "toolkeep.permissions", "send", policies=ALL),
    # --- asking
    "safe": Row("allow", DEFAULT, "think"),
    "safe, paranoid": Row("allow", DEFAULT, "think", is_paranoid=True),
    "low": Row("allow", DEFAULT, "low"),
    "low, paranoid": Row("ask", DEFAULT, "low", is_paranoid=True),
    "medium": Row("ask", DEFAULT, "medium"),
    "high": Row("ask", DEFAULT, "high"),
    "critical": Row("ask", DEFAULT, "critical"),
    "confirmation": Row("ask", DEFAULT, "confirm"),
    "a policy that asks": Row("ask", "a", "think", policies=f'@id("a") @ask permit ({CALL});'),
    "a policy that asks, beside one that does not": Row(
        "ask", "a, all", "think", policies=f'{ALL} @id("a") @ask permit ({CALL});'
    ),
    "a policy that asks about others": Row(
        "allow",
        "all",
        "think",
        policies=f'{ALL} @id("a") @ask permit ({CALL}) when {{ resource.danger > 0 }};',
    ),
    "a silent policy spares the question of one that asks": Row(
        "allow", "a, s", "think", policies=f"{ASKS} {SILENT}"
    ),
    "a silent policy that does not hold spares nothing": Row(
        "ask", "a", "think", policies=f"{ASKS} {SILENT.removesuffix(';')} when {{ resource.danger > 0 }};"
    ),
    "a silent policy permits by itself": Row("allow", "s", "think", policies=SILENT),
    "a silent policy spares no question of low danger": Row(
        "ask", "a, s", "low", policies=f"{ASKS} {SILENT}", is_paranoid=True
    ),
    "a silent policy spares no question of medium danger": Row(
        "ask", "a, s", "medium", policies=f"{ASKS} {SILENT}"
    ),
    "a silent policy spares no question of high danger": Row("ask", "s", "high", policies=SILENT),
    "a silent policy spares no question of critical danger": Row("ask", "s", "critical", policies=SILENT),
    "a silent policy spares no confirmation": Row("ask", "a, s", "confirm", policies=f"{ASKS} {SILENT}"),
    "a silent policy permits nothing that is forbidden": Row(
        "deny", "no", "think", policies=f'{SILENT} @id("no") @reason("it is said") forbid ({CALL});'
    ),
    "nobody is asked about what is forbidden": Row(
        "deny", "no", "critical", policies=no("resource.danger == 4", CALL)
    ),
    # --- policies of one's own
    "nothing is permitted": Row(
        "deny", NOBODY.format("think"), "think", policies=f'@id("a") permit ({PAYS});'
    ),
    "a policy makes up for no capability": Row(
        "deny", "The agent has no grant for fs.read of '/'", "peek", {"path": "/"}, policies=ALL
    ),
    "forbid wins": Row("deny", "no", "think", policies=no("true", CALL)),
    "another agent is meant": Row(
        "deny",
        NOBODY.format("think"),
        "think",
        policies='@id("a") permit (principal == Agent::"operator", action, resource);',
    ),
    "text": Row("deny", "no", "pay", pay(), policies=no('context.arguments.account == "DE1"')),
    "another text": Row(
        "allow", "all", "pay", pay(account="de1"), policies=no('context.arguments.account == "DE1"')
    ),
    "an integer": Row("allow", "only", "pay", pay(), policies=only(LIMIT)),
    "a larger integer": Row("deny", NOBODY.format("pay"), "pay", pay(amount=6), policies=only(LIMIT)),
    "an integer written as a number": Row("allow", "only", "pay", pay(amount=5.0), policies=only(LIMIT)),
    "a decimal": Row("deny", "no", "pay", pay(rate=2.5), policies=no(RATE)),
    "a smaller decimal": Row("allow", "all", "pay", pay(rate=2.4), policies=no(RATE)),
    "a whole number where decimals are": Row("deny", "no", "pay", pay(rate=3), policies=no(RATE)),
    "the default of a decimal": Row("allow", "all", "pay", pay(), policies=no(RATE)),
    "a boolean": Row("deny", "no", "pay", pay(urgent=True), policies=no(URGENT)),
    "the default of a boolean": Row("allow", "all", "pay", pay(), policies=no(URGENT)),
    "a set": Row("deny", "no", "pay", pay(tags=["x", "y"]), policies=no(TAGS)),
    "another set": Row("allow", "all", "pay", pay(tags=["x"]), policies=no(TAGS)),
    "a record": Row("deny", "no", "pay", pay(to={"city": "Rome"}), policies=no(CITY)),
    "a record without it": Row("allow", "all", "pay", pay(to={"geo": {}}), policies=no(CITY)),
    "a record in a record": Row("deny", "no", "pay", pay(to={"geo": {"zone": 7}}), policies=no(ZONE)),
    "another record in a record": Row("allow", "all", "pay", pay(to={"geo": {"zone": 8}}), policies=no(ZONE)),
    "a policy sees where a path leads": Row(
        "deny",
        "no",
        "peek",
        {"path": "inner"},
        policies=no(
            'context.arguments.path like "*/docs/a.txt"', CALL.replace("resource", 'resource == Tool::"peek"')
        ),
    ),
    "a policy sees the grant that reaches there": Row(
        "deny", "no", "peek", {"path": "docs/a.txt"}, policies=no('context.roots.contains(".")', CALL)
    ),
    "a policy sees the host": Row(
        "deny",
        "no",
        "fetch",
        {"url": "HTTPS://EXAMPLE.org/"},
        "net.read:example.org",
        policies=no('context.hosts.contains("example.org")', CALL),
    ),
    "a policy sees the program": Row(
        "deny",
        "no",
        "start",
        {"argv": ["true"]},
        "process.spawn:true",
        policies=no("!context.programs.isEmpty()", CALL),
    ),
    "a policy sees a command as it was written": Row(
        "deny",
        "no",
        "shell",
        {"command": "true  -x 'a b'"},
        "process.spawn:true",
        policies=no("""context.arguments.command == "true  -x 'a b'" """, SHELL),
    ),
    "a policy finds words in a command": Row(
        "deny",
        "no",
        "shell",
        {"command": "true rm -rf /"},
        "process.spawn:true",
        policies=no('context.arguments.command like "*rm -rf*"', SHELL),
    ),
    "another command": Row(
        "allow",
        "all",
        "shell",
        {"command": "true -rf"},
        "process.spawn:true",
        policies=no('context.arguments.command like "*rm -rf*"', SHELL),
    ),
    "a policy finds words in a list of words": Row(
        "deny",
        "no",
        "start",
        {"argv": ["true", "rm -rf /", "$x"]},
        "process.spawn:true",
        policies=no("""context.arguments.argv == "true 'rm -rf /' '$x'" """, START),
    ),
    "a policy sees the database": Row(
        "deny",
        "no",
        "query",
        {"database": "sales"},
        "db.read:sales",
        policies=no('context.databases == ["sales"]', CALL),
    ),
    "by category": Row(
        "allow",
        "kind",
        "think_more",
        policies='@id("kind") permit (principal, action, resource in Category::"knowledge");',
    ),
    "by another category": Row(
        "deny",
        NOBODY.format("think"),
        "think",
        policies='@id("kind") permit (principal, action, resource in Category::"knowledge");',
    ),
    "by source": Row(
        "deny",
        "no",
        "remote",
        policies=f'{ALL} @id("no") forbid (principal, action, resource in Source::"mcp:files")'
        ' when { action == Action::"call" };',
    ),
    "by another source": Row("allow", "all", "think", policies=no('resource in Source::"mcp"', CALL)),
    "by effect": Row(
        "deny",
        "no",
        "write",
        {"path": "out/new"},
        "fs.write:.",
        policies=no('resource.effects.contains("FsWrite")', CALL),
    ),
    "a tool that may not be seen": Row(
        "deny",
        "Unknown tool 'think'",
        "think",
        policies=f'{ALL} @id("hide") forbid (principal, action == Action::"see", resource == Tool::"think");',
    ),
}


# --- deciding ------------------------------------------------------------------------------------


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with files, and links that stay inside or lead out."""
    root = tmp_path.resolve() / "project"
    for folder in ("docs/deep", "docs-secret", "out", ".agent"):
        (root / folder).mkdir(parents=True)
    for file in ("docs/a.txt", "docs-secret/b.txt", "secret.txt", "../outside.txt", ".agent/config.yml"):
        (root / file).write_text("something")
    (root / "inner").symlink_to("docs/a.txt")
    (root / "outer").symlink_to("../outside.txt")
    (root / "up").symlink_to("..")
    programs = tmp_path / "bin"
    programs.mkdir()
    for program in (programs / "true", programs / "sh", root / "true"):
        program.write_text("#!/nowhere\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", str(programs.resolve()))
    monkeypatch.chdir(root)
    return root


def words(project: Path) -> dict[str, str]:
    """What stands for what in the table, the longest path first."""
    programs = project.parent / "bin"
    return {
        "ROOT": str(project),
        "TRUE": f"{programs}/true",
        "SH": f"{programs}/sh",
        "ABOVE": str(project.parent),
    }


def decide(row: Row, project: Path, *, agrees: bool) -> tuple[ToolResult, list[Question]]:
    """What becomes of the call, and what the person was asked."""
    asked: list[Question] = []

    def person(question: Question) -> Answer:
        asked.append(question)
        verdict: Literal["approve", "deny"] = "approve" if agrees else "deny"
        return Answer(verdict=verdict, approver="anna", way="terminal", typed_name=question.tool)

    grant = DEFAULT_GRANT
    if row.holds is not None:
        capabilities = tuple(map(Capability.read, row.holds.split()))
        grant = Grant(capabilities=capabilities, permissions=tuple(row.permissions.split()))
    sources = (PolicySource(name="table", text=row.policies),) if row.policies else ()
    settings = PolicySettings(agents={"local": grant}, sources=sources, is_paranoid=row.is_paranoid)
    arguments = {
        name: value.replace("ROOT", str(project)) if isinstance(value, str) else value
        for name, value in row.arguments.items()
    }
    with Keep(policy=settings, approver=person) as keep:
        keep.register(*TOOLS)
        return asyncio.run(keep.call(row.tool, arguments, agent=row.agent)), asked


def told(result: ToolResult, project: Path) -> str:
    """The policies that decided, or else what the agent was told."""
    if result.decision is not None and result.decision.policies:
        return ", ".join(result.decision.policies)
    message = result.error.errors[0].message if result.error else ""
    for word, path in words(project).items():
        message = message.replace(f"'{path}", f"'{word}")
    return message


@pytest.mark.parametrize("row", TABLE.values(), ids=TABLE)
def test_the_table_of_decisions(row: Row, project: Path) -> None:
    result, asked = decide(row, project, agrees=True)
    verdict = "deny" if result.error else "ask" if asked else "allow"
    assert (verdict, told(result, project)) == (row.verdict, row.by)
    assert result.status == ("error" if row.verdict == "deny" else "pending")
    refused, asked_too = decide(row, project, agrees=False)
    if row.verdict == "ask":
        assert refused.code is Code.APPROVAL_DENIED
        assert len(asked) == (2 if row.tool == "critical" else 1)
    else:
        assert (refused.code, asked_too) == (result.code, [])


@pytest.mark.parametrize("row", TABLE.values(), ids=TABLE)
def test_every_decision_leaves_its_proof(row: Row, project: Path) -> None:
    result, _ = decide(row, project, agrees=True)
    if result.code in (Code.UNKNOWN_TOOL, Code.AGENT_UNKNOWN):
        assert result.decision is None
        return
    assert result.decision is not None
    assert result.decision.is_allowed == (row.verdict != "deny")
    assert len(result.decision.policy_set_hash) == 64


def test_the_table_is_long_enough_to_be_called_one() -> None:
    assert len(TABLE) >= 60
    assert {row.verdict for row in TABLE.values()} == {"allow", "ask", "deny"}
    assert {row.tool for row in TABLE.values()} == {tool.name for tool in TOOLS}
