"""What a policy compares with something that it can never be is told before it is used."""

from pathlib import Path
from typing import Any

import pytest

from tests.definitions.examples import made, with_properties
from toolkeep.calls import RegisteredTool
from toolkeep.policy.cedar_parser import read_policies
from toolkeep.policy.impossible_comparisons import comparison_notes
from toolkeep.policy.policy_settings import PolicySource
from toolkeep.registry.admit import admit

pytestmark = pytest.mark.spec("POL-5")


def registered(name: str, **properties: Any) -> RegisteredTool:
    described = {key: {"description": key, **schema} for key, schema in properties.items()}
    return admit(made(name=name, parameters=with_properties(described)))


TEXT = {"type": "string"}
TOOL = registered(
    "tool",
    note=TEXT,
    path={**TEXT, "x-touches": "fs.read"},
    paths={"type": "array", "items": {**TEXT, "x-touches": "fs.read"}},
    url={**TEXT, "x-touches": "net.read"},
    host={**TEXT, "x-touches": {"kind": "net.read", "form": "host"}},
    database={**TEXT, "x-touches": "db.read"},
    command={**TEXT, "x-touches": "process.spawn"},
    argv={"type": "array", "items": TEXT, "x-touches": "process.spawn"},
    deep={"type": "object", "properties": {"path": {**TEXT, "x-touches": "fs.write"}}},
)
PLAIN = registered("plain", path=TEXT)


def notes(condition: str, *tools: RegisteredTool) -> list[str]:
    text = f'@id("a") forbid (principal, action, resource) when {{ {condition} }};'
    (policy,) = read_policies([PolicySource(name="file", text=text)]).policies
    return [note.message for note in comparison_notes(policy, tools or [TOOL])]


NEVER = [
    ('context.arguments.path == "docs/a.txt"', "not absolute"),
    ('context.arguments.path != "./docs"', "not absolute"),
    ('context.arguments.path like "docs/*"', "not absolute"),
    ('context.arguments.path == "/srv/../srv/a"', "leads to '/srv/a'"),
    ('context.arguments.path == "/srv/"', "leads to '/srv'"),
    ('context.arguments.path like "/srv/./*"', "leads to '/srv'"),
    ('context.arguments["path"] == "~/notes"', "not absolute"),
    ('context.arguments.paths.contains("a")', "not absolute"),
    ('["/srv/a", "b"].containsAll(context.arguments.paths)', "not absolute"),
    ('context.arguments.deep.path == "a"', "not absolute"),
    ('context.arguments.url == "https://example.org/a"', "no host is"),
    ('context.arguments.url like "https://*"', "no host is"),
    ('context.arguments.url == "Example.org"', "no host is"),
    ('context.arguments.host == "example.org."', "no host is"),
    ('context.arguments.host == "bücher.example"', "no host is"),
    ('context.arguments.command == "/usr/bin/git"', "whole command line"),
    ('context.arguments.command like "/usr/bin/git*"', "whole command line"),
    ('context.arguments.argv == "/usr/bin/git"', "whole command line"),
    ('context.programs.contains("git")', "real paths of programs"),
    ('["/usr/bin/git", "ls"].containsAll(context.programs)', "real paths of programs"),
    ('context.hosts.containsAny(["https://example.org"])', "no host is"),
]


@pytest.mark.parametrize(("condition", "told"), NEVER)
def test_what_can_never_be_equal_is_told(condition: str, told: str) -> None:
    (message,) = notes(condition)
    assert told in message
    assert message.startswith("compares context.")


MAY_BE = [
    'context.arguments.note == "docs/a.txt"',
    'context.arguments.path == "/srv/a"',
    'context.arguments.path like "*/docs/*"',
    'context.arguments.path like "/srv/*"',
    'context.arguments.path like "/*"',
    'context.arguments.url == "example.org:8443"',
    'context.arguments.url like "*.example.org"',
    'context.arguments.host == "[2001:db8::7]:8443"',
    'context.arguments.database == "Sales DB"',
    'context.arguments.command like "*rm -rf*"',
    'context.arguments.command == "git log"',
    'context.programs.contains("/srv/git")',
    '["*", "/srv/git"].containsAll(context.programs)',
    '["*", "example.org"].containsAll(context.hosts)',
    'context.roots.contains("./docs")',
    'context.session == "A b"',
    "context.arguments == context.arguments",
    'principal == Agent::"a" && resource.danger == 3 && resource.effects.contains("FsRead")',
]


@pytest.mark.parametrize("condition", MAY_BE)
def test_what_may_be_equal_is_not_told(condition: str) -> None:
    assert notes(condition) == []


def test_a_program_that_is_a_link_is_told(tmp_path: Path) -> None:
    (tmp_path / "real").touch()
    (tmp_path / "link").symlink_to("real")
    root = tmp_path.resolve()
    (message,) = notes(f'context.programs.contains("{root}/link")')
    assert f"leads to '{root}/real'" in message
    assert notes(f'context.programs.contains("{root}/real")') == []


def test_nothing_is_told_where_it_may_be_equal_for_another_tool() -> None:
    condition = 'context.arguments.path == "docs/a.txt"'
    assert notes(condition, TOOL, PLAIN) == []
    assert len(notes(condition, TOOL)) == 1


def test_a_comparison_is_told_once() -> None:
    condition = 'context.arguments.path == "a" || context.arguments.path == "a"'
    assert len(notes(condition)) == 1
