"""`toolkeep policy`: policies are checked before they are used, and every decision can be explained."""

import asyncio
import hashlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.cli.snapshots import Case, folder_with_files, outcome
from toolkeep import open_keep
from toolkeep.approval.coverage import Constraint
from toolkeep.approval.question import Answer, Question, Rule
from toolkeep.cli.init_files import EXAMPLES, POLICIES
from toolkeep.cli.main import cli
from toolkeep.cli.policy_put import in_shadow
from toolkeep.keep.open import open_state
from toolkeep.storage.sqlite.approvals_db import SqliteApprovals

pytestmark = pytest.mark.spec("POL-5")

CONFIG = """\
policies: [policies/main.cedar]
agents:
  writer:
    capabilities: ['fs.read:./docs', 'net.read:docs.example.org', 'net.read:evil.example']
tool_registry:
  custom_tools:
    - name: write_note
      version: '1.0.0'
      description: Writes a note to a file
      category: file_system
      danger: medium
      side_effects: [FsWrite]
      capabilities: ['fs.write:*']
      required_permissions: [tool.filesystem.write]
      client_executed: true
      parameters:
        type: object
        properties:
          path: {type: string, description: Where to write, maxLength: 200, x-touches: fs.write}
        required: [path]
    - name: fetch_page
      version: '1.0.0'
      description: Fetches a page from the web
      category: network
      side_effects: [NetRead]
      capabilities: ['net.read:*']
      client_executed: true
      parameters:
        type: object
        properties:
          url: {type: string, description: What to fetch, maxLength: 200, x-touches: net.read}
          depth: {type: integer, description: How far to go}
        required: [url]
"""
ALL = """\
@id("all")
permit (principal, action == Action::"call", resource);
"""
HOSTS = """
@id("known-hosts")
@reason("only hosts of ours may be talked to")
forbid (principal, action == Action::"call", resource)
unless { ["docs.example.org"].containsAll(context.hosts) };
"""
WELL = """\
- tool: agent_hello_world
  arguments: {name: Ada}
  allow: all
- agent: writer
  tool: fetch_page
  arguments: {url: 'https://evil.example/'}
  deny: known-hosts
"""


def files(policies: str, examples: str | None = None, *, config: str = CONFIG) -> dict[str, str]:
    """The configuration of a user, which counts at once."""
    made = {"~/.agent/config.yml": config, "~/.agent/policies/main.cedar": policies}
    return made if examples is None else {**made, "~/.agent/policies/main.examples.yml": examples}


def shown(*arguments: str, has: dict[str, str], before: tuple[tuple[str, ...], ...] = ()) -> str:
    """Everything that a run shows, without ids and times."""
    text = outcome(Case("", arguments, files=has, before=before))
    text = re.sub(r"\d{4}-\d\d-\d\dT[0-9:.+]+", "<time>", text)
    return re.sub(r"\b[0-9a-f]{32}\b", "<call>", text)


# --- check ---------------------------------------------------------------------------------------


def test_policies_that_are_right_are_counted() -> None:
    assert shown("policy", "check", has=files(ALL + HOSTS, WELL)) == (
        "exit 0\n✓ 2 policies, 2 examples: no problems\n"
    )


def test_without_policies_there_is_nothing_to_check() -> None:
    assert shown("policy", "check", has={}) == "exit 0\n✓ no policies: only grants decide\n"


def test_every_file_that_cannot_be_read_is_named_with_every_place() -> None:
    has = {
        "~/.agent/config.yml": "policies: [a.cedar, b.cedar, c.cedar, d.cedar]\n",
        "~/.agent/a.cedar": 'permit (principal, action, resource);\n\n  @id("x") permit (principal, action);\n',
        "~/.agent/c.cedar": ALL,
        "~/.agent/c.examples.yml": "- tool: agent_hello_world\n  alow: true\n",
        "~/.agent/d.cedar": ALL,
        "~/.agent/d.examples.yml": "- tool: [\n",
    }
    assert shown("policy", "check", has=has) == (
        "exit 1\n"
        '✗ <home>/.agent/a.cedar:1:1: has no id; write @id("…") before it: decisions are recorded by it\n'
        "✗ <home>/.agent/a.cedar:3:3: is not Cedar: this policy is missing the `resource` variable in the scope;"
        " fix the text; each policy ends with a semicolon\n"
        "✗ <home>/.agent/b.cedar: does not exist; write it, or name another\n"
        "✗ <home>/.agent/c.examples.yml:1:3: an example has agent, and session or tool, arguments, said, result, and allow, ask or deny; fix the file\n"
        "✗ <home>/.agent/d.examples.yml:2:1: did not find expected node content; write a value here, or put text"
        " that starts with a bracket or comma in quotes; fix the file\n"
        "\n5 problems\n"
    )


def test_the_same_id_in_two_files_is_a_problem() -> None:
    has = {"a.cedar": ALL, "b.cedar": ALL}
    assert shown("policy", "check", "a.cedar", "b.cedar", has=has) == (
        "exit 1\n"
        "✗ b.cedar:1:1: policy 'all' has the id of another policy, at a.cedar:1; give it an id of its own\n"
        "\n1 problem\n"
    )


WRONG = """\
@id("agent")
forbid (principal == Agent::"writr", action == Action::"call", resource);
@id("tool")
forbid (principal, action == Action::"call", resource == Tool::"fetch_pge");
@id("action")
forbid (principal, action == Action::"cal", resource);
@id("attribute")
forbid (principal, action == Action::"call", resource) when { resource.dangr > 2 };
@id("argument")
forbid (principal, action == Action::"call", resource == Tool::"fetch_page") when { context.arguments.ur == "x" };
@id("type")
forbid (principal, action == Action::"call", resource) when { resource.danger > "high" };
@id("optional")
forbid (principal, action == Action::"call", resource == Tool::"fetch_page") when { context.arguments.depth > 3 };
@id("dead")
permit (principal, action == Action::"call", resource) when { resource.danger > 2 && false };
"""


def test_names_types_and_dead_rules_are_found() -> None:
    here = "✗ <home>/.agent/policies/main.cedar"
    assert shown("policy", "check", has=files(WRONG)).split("\n") == [
        "exit 1",
        f"{here}:2:29: policy 'agent' names Agent::\"writr\", which does not exist; did you mean 'writer'?",
        f"{here}:4:64: policy 'tool' names Tool::\"fetch_pge\", which does not exist; did you mean 'fetch_page'?",
        f"{here}:6:38: policy 'action' names Action::\"cal\", which does not exist; did you mean 'call'?",
        f"{here}:8:72: policy 'attribute' reads resource.dangr, which does not exist; did you mean 'danger'?",
        (
            f"{here}:10:103: policy 'argument' reads the argument 'ur', which is not an argument of 'fetch_page';"
            " did you mean 'url'?"
        ),
        (
            f"{here}:11:1: policy 'type' is wrong: unexpected type: expected Long but saw String;"
            " make the types agree"
        ),
        (
            f"{here}:13:1: policy 'optional' is wrong for tool 'fetch_page': unable to guarantee safety of access"
            ' to optional attribute `arguments.depth` in context for Action::"call"; ask for it first: context.arguments has NAME && …'
        ),
        (
            f"{here}:15:1: policy 'dead' can never hold, whatever is called;"
            " compare its conditions with its head and with the types of what it reads"
        ),
        "",
        "8 problems",
        "",
    ]


def test_an_example_that_is_decided_otherwise_is_a_problem() -> None:
    examples = WELL.replace("deny: known-hosts", "allow: true").replace("allow: all", "allow: other")
    here = "✗ <home>/.agent/policies/main.examples.yml"
    assert shown("policy", "check", has=files(ALL + HOSTS, examples)) == (
        "exit 1\n"
        f"{here}:1:3: policy 'other' should decide it, not all; change the policies, or the example\n"
        f"{here}:4:3: the example should be allowed; Policy 'known-hosts' forbids it: only hosts of ours may be"
        " talked to; change the policies, or the example\n"
        "\n2 problems\n"
    )


@pytest.mark.parametrize(
    ("example", "said"),
    [
        ("{tool: nobody, allow: true}", "there is no tool 'nobody'"),
        (
            "{tool: agent_hello_world, allow: true}",
            "the arguments are not valid: Required property 'name' is missing",
        ),
        (
            "{tool: agent_hello_world, agent: nobody, arguments: {name: Ada}, allow: true}",
            "the example should be allowed; Agent 'nobody' is not declared",
        ),
    ],
)
def test_an_example_that_cannot_be_judged_is_a_problem(example: str, said: str) -> None:
    assert shown("policy", "check", has=files(ALL, f"- {example}\n")) == (
        f"exit 1\n✗ <home>/.agent/policies/main.examples.yml:1:3: {said}; change the policies, or the example\n"
        "\n1 problem\n"
    )


def test_what_may_surprise_is_noted_and_is_no_problem() -> None:
    policies = (
        '@id("later")\nforbid (principal, action == Action::"call", resource in Category::"database");\n'
    )
    here = "! <home>/.agent/policies/main.cedar"
    assert shown("policy", "check", has=files(policies)) == (
        "exit 0\n"
        f"{here}:1:1: policy 'later' matches no tool that exists now; keep it if the tool will be added\n"
        f"{here}: no policy permits any call; write one, such as"
        ' permit (principal, action == Action::"call", resource);\n'
        "✓ 1 policy, 0 examples: no problems\n"
    )


NEVER = """
@id("no-docs")
forbid (principal, action == Action::"call", resource == Tool::"read_file")
when { context.arguments.path == "docs/a.txt" };
@id("no-git")
forbid (principal, action == Action::"call", resource == Tool::"run_command")
when { context.arguments.command like "/usr/bin/git*" };
"""


def test_a_comparison_that_can_never_hold_is_noted() -> None:
    here = "<home>/.agent/policies/main.cedar"
    assert shown("policy", "check", has=files(ALL + NEVER)) == (
        "exit 0\n"
        f"! {here}:4:1: policy 'no-docs' compares context.arguments.path with 'docs/a.txt', which is not"
        " absolute; policies see the real, absolute path; write the real path\n"
        f"! {here}:7:1: policy 'no-git' compares context.arguments.command with '/usr/bin/git', the path of a"
        " program; policies see the whole command line as the caller wrote it; read context.programs, which"
        " holds the real path of the program\n"
        "✓ 3 policies, 0 examples: no problems\n"
    )


def test_files_are_checked_in_place_of_the_configured_ones() -> None:
    has = {**files(WRONG), "mine.cedar": ALL, "mine.examples.yml": "[{tool: fetch_page, deny: true}]\n"}
    assert (
        shown("policy", "check", "mine.cedar", has=has).split("\n")[1].startswith("✗ mine.examples.yml:1:2: ")
    )


def test_the_policies_of_a_project_are_checked_before_anybody_accepted_them() -> None:
    has = in_project(files(ALL + HOSTS, WELL))
    assert shown("policy", "check", has=has).split("\n")[:2] == [
        "exit 0",
        "✓ 2 policies, 2 examples: no problems",
    ]
    assert shown("call", "agent_hello_world", '{"name": "Ada"}', has=has).startswith("exit 1")


def test_tools_of_an_upstream_that_nobody_accepted_can_be_named() -> None:
    config = "policies: [policies/main.cedar]\nupstreams: {shop: {openapi: shop.json, url: https://api.example.org}}\n"
    operation = {
        "operationId": "list_books",
        "summary": "List books.",
        "responses": {"200": {"description": "OK"}},
    }
    document = {
        "openapi": "3.1.0",
        "info": {"title": "Shop", "version": "1"},
        "paths": {"/books": {"get": operation}},
    }
    forbidden = (
        '\n@id("no-books")\nforbid (principal, action == Action::"call", resource == Tool::"list_books");\n'
    )
    has = in_project(files(ALL + forbidden, "- tool: list_books\n  deny: true\n", config=config))
    has[".agent/shop.json"] = json.dumps(document)
    assert "✓ 2 policies, 1 example: no problems" in shown("policy", "check", has=has)


def test_a_tool_that_is_switched_off_still_exists() -> None:
    policies = ALL + '@id("x") forbid (principal, action, resource == Tool::"agent_hello_world");'
    before = (("disable", "agent_hello_world"),)
    assert shown("policy", "check", has=files(policies), before=before).startswith("exit 0")


def test_a_policy_about_a_tool_that_is_switched_off_keeps_no_other_call_from_being_permitted() -> None:
    policies = ALL + '@id("x") forbid (principal, action, resource == Tool::"fetch_page");'
    before = (("disable", "fetch_page"),)
    text = shown("call", "agent_hello_world", '{"name": "Ada"}', has=files(policies), before=before)
    assert text.startswith("exit 0")


READ = """\
policies: [policies/main.cedar]
tool_registry:
  custom_tools:
    - name: read_note
      version: '1.0.0'
      description: Reads a note from a file
      category: file_system
      side_effects: [FsRead]
      capabilities: ['fs.read:*']
      client_executed: true
      parameters:
        type: object
        properties:
          path: {type: string, description: What to read, maxLength: 200, x-touches: fs.read}
        required: [path]
"""


def in_project(has: dict[str, str]) -> dict[str, str]:
    """The configuration as a project's, which counts once it is accepted."""
    return {name.removeprefix("~/"): text for name, text in has.items()}


def test_an_example_is_judged_from_the_folder_of_the_project() -> None:
    examples = "- {tool: read_note, arguments: {path: docs/a.txt}, allow: true}\n"
    has = in_project(files(ALL, examples, config=READ))
    with folder_with_files({**has, "docs/a.txt": "a"}) as (here, _):
        for folder in (here, here / "docs"):
            os.chdir(folder)
            result = CliRunner().invoke(cli, ["policy", "check"])
            assert (result.exit_code, result.stdout) == (0, "✓ 1 policy, 1 example: no problems\n")


def test_the_hash_that_accepts_a_project_changes_with_its_policies() -> None:
    with folder_with_files(in_project(files(ALL))) as (here, _):
        seen = json.loads(CliRunner().invoke(cli, ["accept", "--json"]).stdout)["hash"]
        (here / ".agent" / "policies" / "main.cedar").write_text(ALL.replace('"all"', '"other"'))
        assert CliRunner().invoke(cli, ["accept", "--hash", seen]).exit_code == 1


def test_a_pipe_in_the_place_of_a_file_keeps_nobody_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.cedar")
    result = CliRunner().invoke(cli, ["policy", "check", str(tmp_path / "pipe.cedar")])
    assert (result.exit_code, "is not a regular file" in result.stdout) == (1, True)


def data(*arguments: str, has: dict[str, str], before: tuple[tuple[str, ...], ...] = ()) -> tuple[int, Any]:
    text = shown(*arguments, "--json", has=has, before=before)
    status, _, rest = text.partition("\n")
    return int(status.removeprefix("exit ")), json.loads(rest)


def test_a_check_as_json() -> None:
    assert data("policy", "check", has=files(ALL, "- {tool: nobody, allow: true}\n")) == (
        1,
        {
            "success": False,
            "files": ["<home>/.agent/policies/main.cedar"],
            "policies": 1,
            "examples": 1,
            "problems": [
                {
                    "source": "<home>/.agent/policies/main.examples.yml",
                    "policy": "",
                    "line": 1,
                    "column": 3,
                    "message": "there is no tool 'nobody'",
                    "fix": "change the policies, or the example",
                }
            ],
            "notes": [],
        },
    )


# --- explain -------------------------------------------------------------------------------------


def test_a_call_that_is_allowed_is_explained() -> None:
    url = '{"url": "https://docs.example.org/x"}'
    assert shown("policy", "explain", "fetch_page", url, "--agent", "writer", has=files(ALL + HOSTS)) == (
        "exit 0\n"
        "✓ writer may make this call of fetch_page\n"
        "  permitted by all\n"
        "\nIt would access:\n"
        "  net.read of docs.example.org (/url): held as net.read:docs.example.org, "
        "and may resolve to public addresses only\n"
        "\nPolicies, each on its own:\n"
        "  permit 'all' (<home>/.agent/policies/main.cedar:1:1) holds\n"
        "  forbid 'known-hosts' (<home>/.agent/policies/main.cedar:4:1) does not hold\n"
        "  forbid 'toolkeep.permissions' (toolkeep itself) does not hold\n"
        "\nNo approval required\n"
    )


def test_everything_that_would_have_to_change_is_said_at_once() -> None:
    policies = '@id("no") @reason("not today") forbid (principal, action == Action::"call", resource);'
    path = '{"path": "out/a.txt"}'
    assert shown("policy", "explain", "write_note", path, "--agent", "writer", has=files(policies)) == (
        "exit 1\n"
        "✗ writer may not make this call of write_note\n"
        "  The agent has no grant for fs.write of 'out/a.txt' (ACODE-TSR-027)\n"
        "\nIt would access:\n"
        "  fs.write of <here>/out/a.txt (/path): not granted to the agent\n"
        "\nPolicies, each on its own:\n"
        "  forbid 'no' (<home>/.agent/policies/main.cedar:1:1) holds: not today\n"
        "  forbid 'toolkeep.permissions' (toolkeep itself) holds: the agent lacks a permission that the tool"
        " requires\n"
        "\nTo allow it:\n"
        "  - grant writer fs.write:./out (in .agent/config.yml, agents: writer: capabilities)\n"
        "  - policy 'no' (<home>/.agent/policies/main.cedar:1:1) forbids it whatever its arguments: not today;"
        " change the policy\n"
        "  - give writer the permission tool.filesystem.write (in .agent/config.yml, agents: writer:"
        " permissions)\n"
        '  - no policy permits it: add one such as permit (principal == Agent::"writer", action =='
        ' Action::"call", resource == Tool::"write_note")\n'
    )


WRITES = """\
agents:
  writer:
    capabilities: ['fs.read:.', 'fs.write:.']
    permissions: [tool.filesystem.write]
"""
WRITER = re.sub(r"agents:\n.*\n.*\n", WRITES, CONFIG)


def test_what_is_protected_cannot_be_permitted() -> None:
    path = '{"path": ".agent/config.yml"}'
    has = files(ALL, config=WRITER)
    assert data("policy", "explain", "write_note", path, "--agent", "writer", has=has)[1]["changes"] == [
        "nothing can permit this: '.agent/config.yml' may not be written by any tool: it decides what runs"
    ]


def test_whether_a_person_would_be_asked_is_said_and_nobody_is() -> None:
    policies = ALL + '@id("careful") @ask permit (principal, action == Action::"call", resource);'
    call = ("policy", "explain", "write_note", '{"path": "a.txt"}', "--agent", "writer")
    text = shown(*call, has=files(policies, config=WRITER))
    assert text.split("\n\n")[-1] == (
        "Approval would be required: its danger is medium; policy 'careful' requires approval\n"
    )
    assert "permit 'careful' (<home>/.agent/policies/main.cedar:3:1) holds, and requires approval" in text
    with folder_with_files(files(policies, config=WRITER)) as (_, home):
        assert CliRunner().invoke(cli, list(call)).exit_code == 0
        assert [path.name for path in home.rglob("*") if path.name in ("audit", "approvals.db")] == []


def test_a_rule_that_a_person_made_is_found() -> None:
    with folder_with_files(files(ALL, config=WRITER)) as (here, _):
        keep = open_keep(project=here)
        rule = Rule(
            id="r",
            text="writer calls write_note",
            constraints=tuple(
                Constraint(name=name, kind="any") for name in keep.get("write_note").definition.properties
            ),
            agent="writer",
            tool="write_note",
            definition_hash=keep.get("write_note").definition_hash,
            approver="ada",
            made_at=0,
            ends_at=1e12,
        )
        state = open_state(here)
        assert state is not None
        approvals = SqliteApprovals(state.folder)
        approvals.add_rule(rule)
        approvals.close()
        call = ["policy", "explain", "write_note", '{"path": "a.txt"}', "--agent", "writer"]
        result = CliRunner().invoke(cli, call)
    assert result.stdout.split("\n")[-2] == "No approval required: ada agreed before, by rule r"


def test_an_explained_call_reads_a_budget_and_does_not_use_it_up() -> None:
    config = "flow: {budget: {calls: 2/hour}}\n"
    call = ["call", "agent_hello_world", "name=Ada"]
    explain = ["policy", "explain", "agent_hello_world", '{"name": "Ada"}']
    with folder_with_files({".agent/config.yml": config}):
        outcomes = [CliRunner().invoke(cli, line).exit_code for line in (call, explain, call, explain)]
    assert outcomes == [0, 0, 0, 1]


def test_a_yes_for_the_session_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(_: SqliteApprovals, question: Question) -> Answer | None:
        return Answer(verdict="approve", approver="ada", way="terminal") if question.session == "s" else None

    monkeypatch.setattr(SqliteApprovals, "session_answer", answer)
    call = ("policy", "explain", "write_note", '{"path": "a.txt"}', "--agent", "writer", "--session")
    has = files(ALL, config=WRITER)
    assert data(*call, "s", has=has)[1]["asks"] == {
        "why": [],
        "acts": 0,
        "earlier": "ada agreed before, by session",
        "spared_by": [],
    }
    assert data(*call, "t", has=has)[1]["asks"] == {
        "why": ["its danger is medium"],
        "acts": 1,
        "earlier": "",
        "spared_by": [],
    }


def test_a_paranoid_keep_asks_about_low_danger_too() -> None:
    config = WRITER.replace("danger: medium", "danger: low") + "approvals: {paranoid: true}\n"
    call = ("policy", "explain", "write_note", '{"path": "a.txt"}', "--agent", "writer")
    told = data(*call, has=files(ALL, config=config))[1]
    assert told["asks"]["why"] == ["its danger is low, and approvals.paranoid is set"]


def test_arguments_that_do_not_fit_come_before_policy() -> None:
    assert shown("policy", "explain", "fetch_page", "{}", has=files(ALL)) == (
        "exit 1\n"
        "✗ operator may not make this call of fetch_page\n"
        "  Required property 'url' is missing (ACODE-TSR-003)\n"
        "\nTo allow it:\n"
        "  - Required property 'url' is missing: Add 'url': string (at most 200 characters).\n"
    )


def test_arguments_come_from_standard_input_too() -> None:
    case = Case("", ("policy", "explain", "agent_hello_world", "-"), text='{"name": "Ada"}')
    assert outcome(case).startswith("exit 0\n✓ operator may make this call of agent_hello_world\n")


@pytest.mark.parametrize(
    ("arguments", "change"),
    [
        (
            ("fetch_page", '{"url": "http://a#@b"}'),
            "name something else in /url: a / must stand between the host and #",
        ),
        (
            ("agent_hello_world", '{"name": "Ada"}', "--agent", "nobody"),
            "declare the agent: write 'nobody' under agents: in .agent/config.yml",
        ),
        (
            ("fetch_page", '{"url": "https://docs.example.org"}'),
            (
                "Add to .agent/config.yml, then run `toolkeep accept`: agents: "
                '{"operator": {inherit: defaults, capabilities: ["net.read:docs.example.org"]}}'
            ),
        ),
    ],
)
def test_one_thing_stands_in_the_way(arguments: tuple[str, ...], change: str) -> None:
    status, told = data("policy", "explain", *arguments, has=files(ALL))
    assert (status, told["allowed"], told["changes"]) == (1, False, [change])


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (
            ("write_file", '{"path": "a.txt", "content": "x"}'),
            (
                'agents: {"operator": {inherit: defaults, capabilities: ["fs.write:."], '
                'permissions: ["tool.filesystem.write"]}}'
            ),
        ),
        (
            ("fetch_page", '{"url": "http://127.0.0.1/"}'),
            'agents: {"operator": {inherit: defaults, capabilities: ["net.read:127.0.0.1:80"]}}',
        ),
        (
            ("fetch_page", '{"url": "http://10.1.2.3:8443/"}', "--agent", "writer"),
            'agents: "writer": add to capabilities: ["net.read:10.1.2.3:8443"]',
        ),
        (("fetch_page", '{"url": "http://169.254.169.254/"}'), ""),
        (("fetch_page", '{"url": "http://[::ffff:100.100.100.200]/"}'), ""),
    ],
)
def test_the_line_that_grants_what_is_lacking_is_said(arguments: tuple[str, ...], line: str) -> None:
    told = data("policy", "explain", *arguments, has=files(ALL))[1]
    assert told["line"] == line


@pytest.mark.spec("SBX-4")
def test_an_address_that_no_grant_allows_is_told_as_such() -> None:
    told = data("policy", "explain", "fetch_page", '{"url": "http://2852039166/"}', has=files(ALL))[1]
    assert told["changes"] == ["nothing can permit this: the address is link-local"]


def test_where_a_name_may_lead_is_told() -> None:
    config = CONFIG.replace("net.read:docs.example.org", "net.read:docs.example.org=10.0.0.0/8")
    call = ("policy", "explain", "fetch_page", '{"url": "https://docs.example.org/"}', "--agent", "writer")
    assert (
        "held as net.read:docs.example.org=10.0.0.0/8, and may resolve to 10.0.0.0/8 addresses only"
        in shown(*call, has=files(ALL, config=config))
    )


def test_a_hidden_tool_is_explained_to_the_operator_alone() -> None:
    hides = '@id("hides") forbid (principal == Agent::"writer", action == Action::"see", resource == Tool::"fetch_page");'
    call = ("policy", "explain", "fetch_page", '{"url": "https://docs.example.org"}', "--agent", "writer")
    status, told = data(*call, has=files(ALL + hides))
    assert (status, told["refusal"]["code"], told["changes"]) == (
        1,
        "ACODE-TSR-001",
        ["policy 'hides' (<home>/.agent/policies/main.cedar:3:1) hides the tool from the agent; change it"],
    )


def test_policies_that_nobody_accepted_permit_nothing() -> None:
    has = in_project(files(ALL))
    text = shown("policy", "explain", "agent_hello_world", '{"name": "Ada"}', has=has)
    assert text.partition("--- stderr")[0] == (
        "exit 1\n"
        "✗ operator may not make this call of agent_hello_world\n"
        "  No call is permitted: <here>/.agent/config.yml names policies that are not accepted yet; run `toolkeep"
        " accept` (ACODE-TSR-044)\n"
        "\nTo allow it:\n"
        "  - no call at all is permitted: <here>/.agent/config.yml names policies that are not accepted yet; run"
        " `toolkeep accept`\n"
    )


def test_policies_that_cannot_be_used_permit_nothing() -> None:
    call = ("policy", "explain", "agent_hello_world", '{"name": "Ada"}')
    told = data(*call, has=files(ALL, "- {tool: fetch_page, agent: stranger, deny: all}\n"))[1]
    (change,) = told["changes"]
    assert change.startswith("no call at all is permitted: <home>/.agent/policies/main.examples.yml:1:3: ")
    assert change.endswith("; see `toolkeep policy check`")


def test_an_explanation_as_json() -> None:
    url = '{"url": "https://docs.example.org/x"}'
    assert data("policy", "explain", "fetch_page", url, "--agent", "writer", has=files(ALL)) == (
        0,
        {
            "allowed": True,
            "agent": "writer",
            "tool": "fetch_page",
            "refusal": None,
            "decided_by": ["all"],
            "touches": [
                {
                    "capability": "net.read",
                    "thing": "docs.example.org",
                    "argument": "/url",
                    "grant": "docs.example.org",
                    "objections": [],
                    "held_down": [],
                    "leads_to": ["public"],
                }
            ],
            "policies": [
                {
                    "policy": "all",
                    "effect": "permit",
                    "holds": True,
                    "error": "",
                    "place": "<home>/.agent/policies/main.cedar:1:1",
                    "reason": "",
                    "asks": False,
                    "is_silent": False,
                    "conditions": [],
                    "says": "",
                    "change": "",
                },
                {
                    "policy": "toolkeep.permissions",
                    "effect": "forbid",
                    "holds": False,
                    "error": "",
                    "place": "toolkeep itself",
                    "reason": "the agent lacks a permission that the tool requires",
                    "asks": False,
                    "is_silent": False,
                    "conditions": [],
                    "says": "",
                    "change": "",
                },
            ],
            "asks": {"why": [], "acts": 0, "earlier": "", "spared_by": []},
            "changes": [],
            "line": "",
            "flow": None,
        },
    )


WATCHED = """\
flow: {policy: standard}
agents: {clerk: {}}
tool_registry:
  custom_tools:
    - name: team
      version: '1.0.0'
      description: Lists the team
      category: communication
      side_effects: []
      client_executed: true
      flow: {'/*': {system: email}}
      parameters: {type: object, properties: {}}
    - name: send
      version: '1.0.0'
      description: Sends a mail
      category: communication
      danger: medium
      side_effects: [Writes]
      client_executed: true
      parameters:
        type: object
        properties: {to: {type: string, description: Whom, maxLength: 200, x-flow: destination}}
        required: [to]
"""


@pytest.mark.spec("FLO-7")
def test_a_call_is_explained_in_a_recorded_session() -> None:
    explain = ["policy", "explain", "send", '{"to": "kim@corp.example"}', "--agent", "clerk", "--json"]

    def explained(*more: str) -> tuple[list[str], Any, str]:
        result = CliRunner().invoke(cli, [*explain, *more])
        told = json.loads(result.stdout)
        return told["asks"]["why"], told["flow"]["origins"], result.stderr

    with folder_with_files({"~/.agent/config.yml": WATCHED}):
        with open_keep() as keep:
            session = keep.session("chat-1", agent="clerk")
            listed = keep.call_sync("team", {}, agent="clerk", session=session)
            asyncio.run(keep.submit(listed.call_id, ["kim@corp.example"], agent="clerk"))
            session.pasted("a mail")
        unnamed = "neither the user nor a service named everything that the call acts on"
        outside = "the session has read text from outside, which may have chosen this call"
        assert explained("--session", "chat-1") == ([outside, "its danger is medium"], {"to": ["system"]}, "")
        assert explained() == ([unnamed, "its danger is medium"], {"to": ["unknown"]}, "")
        why, _, told = explained("--session", "chat-2")
        assert (why[0], told) == (unnamed, "! no call of clerk in session chat-2 is recorded\n")
        plain = CliRunner().invoke(cli, [*explain[:-1], "--session", "chat-1"]).stdout
        assert "\nFlow: session opened; to from system\n" in plain


SILENT = """\
@id("ask")
@ask
permit (principal, action == Action::"call", resource);
@id("known")
@silent
permit (principal, action == Action::"call", resource == Tool::"agent_hello_world")
when { context.arguments.name == "Ada" };
"""


@pytest.mark.spec("POL-4")
def test_a_question_that_is_spared_is_explained() -> None:
    call = ("policy", "explain", "agent_hello_world", '{"name": "Ada"}')
    here = "<home>/.agent/policies/main.cedar"
    assert shown(*call, has=files(SILENT)) == (
        "exit 0\n"
        "✓ operator may make this call of agent_hello_world\n"
        "  permitted by ask, known\n"
        "\nPolicies, each on its own:\n"
        f"  permit 'ask' ({here}:1:1) holds, and requires approval\n"
        f"  permit 'known' ({here}:4:1) holds, and waives approval that policies require\n"
        "  forbid 'toolkeep.permissions' (toolkeep itself) does not hold\n"
        "\nApproval that policies require is waived by known\n"
        "\nNo approval required\n"
    )
    told = data(*call, has=files(SILENT))[1]
    assert told["asks"] == {"why": [], "acts": 0, "earlier": "", "spared_by": ["known"]}
    asked = data(*call[:3], '{"name": "Bob"}', has=files(SILENT))[1]["asks"]
    assert (asked["why"], asked["spared_by"]) == (["policy 'ask' requires approval"], [])


def test_a_silent_policy_that_spares_nothing_is_noted() -> None:
    here = "<home>/.agent/policies/main.cedar"
    assert shown("policy", "check", has=files(SILENT.replace("@ask\n", ""))) == (
        "exit 0\n"
        f"! {here}:3:1: policy 'known' is @silent, but no policy asks, so it has no effect; remove @silent,"
        " or annotate the policy that should ask with @ask\n"
        "✓ 2 policies, 0 examples: no problems\n"
    )
    assert "✓ 2 policies" in shown("policy", "check", has=files(SILENT))
    assert "!" not in shown("policy", "check", has=files(SILENT))


# --- replay --------------------------------------------------------------------------------------

CALLS = tuple(("call", "agent_hello_world", json.dumps({"name": name})) for name in ("Ada", "Bob", "Cyd"))
NEW = {
    "new.cedar": ALL
    + """\
@id("no-bob")
@reason("not Bob")
forbid (principal, action == Action::"call", resource == Tool::"agent_hello_world")
when { context.arguments.name == "Bob" };
"""
}


def test_calls_that_would_be_decided_differently_are_shown() -> None:
    assert shown("policy", "replay", "new.cedar", has=NEW, before=CALLS) == (
        "exit 1\n"
        "allow → deny  <time>  <call>  operator  agent_hello_world\n"
        "    decided by toolkeep.call, now by no-bob; Policy 'no-bob' forbids it: not Bob\n"
        "\n1 of 3 calls would be decided differently\n"
        "  in 1 session: 1 allow → deny\n"
    )


def test_a_call_that_was_denied_may_be_allowed_now() -> None:
    denies = (
        ALL + '@id("no") forbid (principal, action == Action::"call", resource == Tool::"agent_hello_world");'
    )
    has = {**files(denies), "new.cedar": ALL}
    assert shown("policy", "replay", "new.cedar", has=has, before=CALLS[:1]) == (
        "exit 1\n"
        "deny → allow  <time>  <call>  operator  agent_hello_world\n"
        "    decided by no, now by all\n"
        "\n1 of 1 calls would be decided differently\n"
        "  in 1 session: 1 deny → allow\n"
    )


def test_policies_that_change_nothing_end_with_zero() -> None:
    has = {"same.cedar": ALL}
    before = (*CALLS, ("call", "agent_hello_world", "{}"))
    assert shown("policy", "replay", "same.cedar", has=has, before=before) == (
        "exit 0\n✓ all 3 calls that can be evaluated would be decided as before\n"
    )


def test_only_the_newest_calls_are_judged() -> None:
    assert shown("policy", "replay", "new.cedar", "--limit", "1", has=NEW, before=CALLS) == (
        "exit 0\n"
        "✓ all 1 calls that can be evaluated would be decided as before\n"
        "  2 older calls not evaluated; raise --limit\n"
    )


def test_calls_that_cannot_be_judged_are_counted() -> None:
    before = (*CALLS, ("audit", "erase", "--older-than", "0"))
    text = shown("policy", "replay", "new.cedar", has=NEW, before=before)
    assert text == (
        "exit 0\n"
        "✓ all 0 calls that can be evaluated would be decided as before\n"
        "  3 not evaluated: its arguments were not stored\n"
    )


def test_a_replay_runs_and_records_nothing() -> None:
    with folder_with_files(NEW):
        for call in CALLS:
            CliRunner().invoke(cli, list(call))
        listed = ["audit", "list", "--json"]
        before = CliRunner().invoke(cli, listed).stdout
        CliRunner().invoke(cli, ["policy", "replay", "new.cedar"])
        assert (CliRunner().invoke(cli, listed).stdout, before.count("ToolInvoked")) == (before, 3)


def test_policies_are_put_in_force_only_by_a_person_or_by_their_hash() -> None:
    digest = hashlib.sha256(ALL.encode()).hexdigest()
    with folder_with_files({"all.cedar": ALL}):
        put = ["policy", "put", "all.cedar"]
        unasked = CliRunner().invoke(cli, put)
        assert (unasked.exit_code, f"--hash {digest}" in unasked.output) == (1, True)
        assert CliRunner().invoke(cli, [*put, "--hash", "0" * 64]).exit_code == 1
        assert CliRunner().invoke(cli, [*put, "--hash", digest]).exit_code == 0
        explained = CliRunner().invoke(cli, ["policy", "explain", "agent_hello_world", "name=Ada", "--json"])
        assert json.loads(explained.stdout)["decided_by"] == ["all"]
        assert CliRunner().invoke(cli, ["policy", "drop", "other"]).exit_code == 1
        assert CliRunner().invoke(cli, ["policy", "drop", "all", "--hash", digest]).exit_code == 0


@pytest.mark.spec("FLO-8")
def test_policies_put_in_shadow_are_counted_and_change_nothing() -> None:
    with folder_with_files(NEW):
        digest = hashlib.sha256(in_shadow(NEW["new.cedar"]).encode()).hexdigest()
        put = ["policy", "put", "new.cedar", "--shadow", "--hash", digest]
        assert CliRunner().invoke(cli, put).exit_code == 0
        assert [CliRunner().invoke(cli, list(call)).exit_code for call in CALLS] == [0, 0, 0]
        listed = json.loads(CliRunner().invoke(cli, ["policy", "list", "--json"]).stdout)
        assert {one["id"]: (one["is_shadow"], one["hits"]) for one in listed if one["source"]} == {
            "all": (True, 0),
            "no-bob": (True, 1),
        }
        assert "forbid, in shadow" in CliRunner().invoke(cli, ["policy", "list"]).stdout


def test_policies_that_are_wrong_are_not_replayed() -> None:
    has = {"wrong.cedar": '@id("x") permit (principal, action, resource == Tool::"nobody");'}
    assert shown("policy", "replay", "wrong.cedar", has=has, before=CALLS[:1]) == (
        "exit 1\n✗ wrong.cedar:1:55: policy 'x' names Tool::\"nobody\", which does not exist; name one that exists\n"
    )


def test_policies_that_cannot_be_read_are_not_replayed() -> None:
    has = {"wrong.cedar": "permit;"}
    status, told = data("policy", "replay", "wrong.cedar", has=has, before=CALLS[:1])
    assert (status, told["success"], told["problems"][0]["line"]) == (1, False, 1)


def test_without_a_log_there_is_nothing_to_replay() -> None:
    assert shown("policy", "replay", "new.cedar", has=NEW) == (
        "exit 1\n--- stderr\n✗ ACODE-TSR-041: this project has no audit log yet\n"
        "hint: make a call with `toolkeep call`, or name another project with --project DIR\n"
    )


AFTER = {
    "after.cedar": ALL
    + """\
@id("once")
forbid (principal, action == Action::"call", resource == Tool::"agent_hello_world")
when { context.state.after.contains("agent_hello_world") };
"""
}


@pytest.mark.spec("FLO-7")
def test_a_replay_folds_the_sessions_of_the_log() -> None:
    assert shown("policy", "replay", "after.cedar", "--limit", "1", has=AFTER, before=CALLS) == (
        "exit 1\n"
        "allow → deny  <time>  <call>  operator  agent_hello_world\n"
        "    decided by toolkeep.call, now by once; Policy 'once' forbids it\n"
        "    session clean\n"
        "\n1 of 1 calls would be decided differently\n"
        "  in 1 session: 1 allow → deny\n"
        "  2 older calls not evaluated; raise --limit\n"
        "  1 session was recorded without flow: nothing there counts as named by the user\n"
    )
    status, told = data("policy", "replay", "after.cedar", has=AFTER, before=CALLS)
    assert (status, told["same"], len(told["differences"]), told["unwatched_sessions"]) == (1, 1, 2, 1)
    assert told["differences"][0]["flow"]["opened"] is False


def test_a_replay_as_json() -> None:
    assert data("policy", "replay", "new.cedar", has=NEW, before=CALLS) == (
        1,
        {
            "success": False,
            "calls": 3,
            "judged": 3,
            "same": 2,
            "sessions": 1,
            "differences": [
                {
                    "call": "<call>",
                    "time": "<time>",
                    "agent": "operator",
                    "tool": "agent_hello_world",
                    "was": {"decision": "allow", "policies": ["toolkeep.call"]},
                    "would_be": {
                        "decision": "deny",
                        "policies": ["no-bob"],
                        "why": "Policy 'no-bob' forbids it: not Bob",
                    },
                }
            ],
            "unjudged": {},
            "unwatched_sessions": 0,
        },
    )


def test_without_policies_no_other_command_loads_the_policy_engine() -> None:
    code = (
        "import sys; from click.testing import CliRunner; from toolkeep.cli.main import cli; "
        "calls = (['--help'], ['policy', '--help'], ['list'], ['validate', 'agent_hello_world', '{\"name\": \"A\"}']); "
        "assert [CliRunner().invoke(cli, call).exit_code for call in calls] == [0] * 4; print('cedarpy' in sys.modules)"
    )
    with folder_with_files({}):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert done.stdout == "False\n"


# --- what init writes ----------------------------------------------------------------------------


def accept() -> None:
    wanted = json.loads(CliRunner().invoke(cli, ["accept", "--json"]).stdout)["hash"]
    assert CliRunner().invoke(cli, ["accept", "--hash", wanted]).exit_code == 0


def test_a_fresh_project_passes_the_check_and_its_calls_work_once_accepted() -> None:
    call = ["call", "agent_hello_world", '{"name": "Ada"}', "--json"]
    with folder_with_files({}) as (here, _):
        assert CliRunner().invoke(cli, ["init"]).exit_code == 0
        assert CliRunner().invoke(cli, ["policy", "check"]).stdout == "✓ 1 policy, 1 example: no problems\n"
        refused = json.loads(CliRunner().invoke(cli, call).stdout)
        assert refused["error"]["errors"][0]["code"] == "ACODE-TSR-044"
        accept()
        assert CliRunner().invoke(cli, ["policy", "check"]).exit_code == 0
        allowed = json.loads(CliRunner().invoke(cli, call).stdout)
        assert (allowed["status"], allowed["decision"]["policies"]) == ("ok", ["everyone-calls"])
        with open_keep(project=here) as keep:
            assert keep.call_sync("agent_hello_world", {"name": "Ada"}).ok


def test_init_writes_nothing_where_one_of_its_files_exists() -> None:
    with folder_with_files({".agent/policies/main.examples.yml": "[]"}) as (here, _):
        result = CliRunner().invoke(cli, ["init"])
        path = here / ".agent" / "policies" / "main.examples.yml"
        assert (result.exit_code, result.stderr) == (
            1,
            f"✗ ACODE-TSR-016: {path}: exists already; edit it, or move it away\n",
        )
        assert [file for file in (here / ".agent").rglob("*") if file.is_file()] == [path]


def uncommented(text: str, mark: str) -> str:
    """The text with its examples in force: the lines of a block from an @id or a dash on."""
    lines, is_example = [], False
    for line in text.split("\n"):
        bare = line.removeprefix(f"{mark} ")
        is_example = line.startswith(mark) and (is_example or bare.startswith(("@id", "- ")))
        lines.append(bare if is_example else line)
    return "\n".join(lines)


def test_every_example_in_the_comments_of_the_policies_is_right() -> None:
    config = CONFIG.replace("'fs.read:./docs'", "'fs.read:.', 'fs.write:./docs', 'process.spawn:ls'")
    has = files(uncommented(POLICIES, "//"), uncommented(EXAMPLES, "#"), config=config)
    text = shown("policy", "check", has=has)
    assert text == (
        "exit 0\n"
        "! <home>/.agent/policies/main.cedar:43:1: policy 'hidden-from-writer' matches no tool that exists now;"
        " keep it if the tool will be added\n"
        "✓ 5 policies, 2 examples: no problems\n"
    )
