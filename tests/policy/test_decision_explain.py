"""Why a call is permitted or not: the same verdict as the authorizer's, and everything that stands against it."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.definitions.examples import made, with_properties
from toolkeep.calls import CheckedCall, PermittedCall, RegisteredTool, ToolCall
from toolkeep.definitions.capability import Capability
from toolkeep.events import Bus
from toolkeep.policy.active_policies import ActivePolicies
from toolkeep.policy.authorize import Authorizer
from toolkeep.policy.decision_explain import Explanation, Holder, Objection, Touch, explain
from toolkeep.policy.grant_advice import GrantLine, advice
from toolkeep.policy.policy_settings import Grant, PolicySource
from toolkeep.registry.admit import admit
from toolkeep.sandbox.trusted_paths import THIS_PROCESS, TrustedPath, TrustedPaths
from toolkeep.validation.refusal_history import RefusalHistory
from toolkeep.validation.validate import validate

pytestmark = pytest.mark.spec("POL-5")

ALL = '@id("all") permit (principal, action == Action::"call", resource);'
READS = {"path": {"type": "string", "description": "A path.", "maxLength": 999, "x-touches": "fs.read"}}


def tool(properties: Mapping[str, Any], *capabilities: str, **fields: Any) -> RegisteredTool:
    held = [Capability.read(text) for text in capabilities]
    return admit(made(name="work", parameters=with_properties(dict(properties)), capabilities=held, **fields))


def explained(
    project: Path,
    registered: RegisteredTool,
    arguments: dict[str, Any],
    *holds: str,
    permissions: tuple[str, ...] = (),
    policies: str = ALL,
    agent: str = "ada",
    state: Path | None = None,
    trusted: TrustedPaths = THIS_PROCESS,
) -> Explanation:
    """The explanation of a call by `ada`, who holds this."""
    grant = Grant(capabilities=tuple(map(Capability.read, holds)), permissions=permissions)
    authorizer = Authorizer(
        ActivePolicies([PolicySource(name="p.cedar", text=policies)]),
        agents={"ada": grant},
        project=str(project),
        state_folder=str(state) if state else None,
        tools=lambda: [registered],
        trusted=trusted,
    )
    checked = validate(registered, arguments, RefusalHistory(bus=Bus()), agent)
    assert isinstance(checked, CheckedCall)
    holder = Holder(
        name=agent,
        grant=grant if agent == "ada" else None,
        project=str(project),
        state_folder=str(state) if state else None,
        trusted=trusted,
    )
    request = ToolCall(id="1", tool="work", arguments=None, agent=agent)
    found = explain(authorizer, holder, request, checked)
    if isinstance(found.outcome, PermittedCall):
        for one in found.outcome.touched:
            one.close()
    assert found.is_allowed == (not found.changes)
    assert found.is_allowed <= (not any(touch.objections for touch in found.touches))
    return found


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "project"
    (folder / "docs").mkdir(parents=True)
    (folder / "docs" / "a.txt").write_text("a")
    monkeypatch.chdir(folder)
    return folder


def test_what_is_touched_is_shown_with_the_grant_that_holds_it(project: Path) -> None:
    found = explained(project, tool(READS, "fs.read:*"), {"path": "docs/../docs/a.txt"}, "fs.read:./docs")
    thing = str(project / "docs" / "a.txt")
    assert found.touches == (Touch(capability="fs.read", thing=thing, argument="/path", grant="./docs"),)


@pytest.mark.spec("SBX-6")
def test_what_is_held_down_inside_a_folder_that_may_be_written_is_named(project: Path) -> None:
    code = TrustedPath(str(project / "docs"), "the code of the tool 'x'")
    trusted = TrustedPaths(code=lambda: [code])
    named = explained(project, tool(READS, "fs.write:."), {"path": "x"}, "fs.write:.", trusted=trusted)
    assert named.touches[-1].held_down == ("./docs (the code of the tool 'x')",)
    whole = explained(project, tool({}, "fs.write:*"), {}, "fs.write:.", trusted=trusted)
    assert whole.touches[0].held_down == ("./docs (the code of the tool 'x')",)
    inside = explained(project, tool({}, "fs.write:./docs"), {}, "fs.write:.", trusted=trusted)
    assert inside.changes == (
        "nothing can permit this: './docs' may not be written by any tool: it belongs to the code of the tool 'x'",
    )


def test_the_grant_that_is_missing_is_named_as_it_would_be_written(project: Path) -> None:
    for path, scope in {"docs/a.txt": "./docs/a.txt", "/usr": "/usr", ".": "."}.items():
        found = explained(project, tool(READS, "fs.read:*"), {"path": path}, "fs.read:./out")
        line = GrantLine(f'capabilities: ["fs.read:{scope}"]', 'agents: "ada"')
        assert (found.line, found.changes) == (line, (advice(line),))


def test_what_is_granted_as_told_is_allowed(project: Path) -> None:
    refused = explained(project, tool(READS, "fs.read:*"), {"path": "docs/a.txt"})
    (grant,) = re.findall(r'\["(.*)"\]', str(refused.line))
    assert explained(project, tool(READS, "fs.read:*"), {"path": "docs/a.txt"}, grant).is_allowed


def test_a_requirement_that_no_argument_narrows_is_touched_whole(project: Path) -> None:
    registered = tool({}, "fs.read:./docs")
    assert explained(project, registered, {}, "fs.read:.").touches == (
        Touch(capability="fs.read", thing=str(project / "docs"), argument="", grant="."),
    )
    assert explained(project, registered, {}, "fs.read:./docs/a.txt").changes == (
        advice(GrantLine('capabilities: ["fs.read:./docs"]', 'agents: "ada"')),
    )


def test_a_requirement_without_a_scope_needs_anything_of_its_kind(project: Path) -> None:
    registered = tool({}, "fs.read:*")
    assert explained(project, registered, {}, "fs.read:./docs").is_allowed
    assert explained(project, registered, {}, "net.read:example.org").changes == (
        advice(GrantLine('capabilities: ["fs.read:."]', 'agents: "ada"')),
    )


def test_a_thing_outside_what_the_tool_needs_is_said(project: Path) -> None:
    found = explained(project, tool(READS, "fs.read:./docs"), {"path": "."}, "fs.read:.")
    assert found.changes == (
        "name something inside fs.read:./docs, or let the tool's definition require more",
    )


def test_a_thing_that_does_not_exist_is_said(project: Path) -> None:
    found = explained(project, tool(READS, "fs.read:*"), {"path": "docs/b.txt"}, "fs.read:.")
    assert found.changes == ("name something else: 'docs/b.txt' does not exist",)


def test_the_state_is_protected_whatever_is_held(project: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    found = explained(project, tool(READS, "fs.read:*"), {"path": str(state)}, "fs.read:/", state=state)
    why = f"'{state}' belongs to the state of toolkeep, which no tool may touch"
    assert found.touches[0].objections == (Objection(what=why, change=f"nothing can permit this: {why}"),)
    whole = explained(project, tool({}, f"fs.read:{tmp_path}"), {}, "fs.read:/", state=state)
    assert [change.partition(":")[0] for change in whole.changes] == ["nothing can permit this"]


def test_a_secret_is_not_shown(project: Path) -> None:
    secret = {"path": {**READS["path"], "x-secret": True}}
    found = explained(project, tool(secret, "fs.read:*"), {"path": "docs/a.txt"})
    assert "a.txt" not in repr((found.touches, found.changes))


def test_permissions_that_are_missing_are_named(project: Path) -> None:
    registered = tool({}, required_permissions=["tool.vcs.read", "tool.vcs.write"])
    assert explained(project, registered, {}, permissions=("tool.vcs.read",)).changes == (
        advice(GrantLine('permissions: ["tool.vcs.write"]', 'agents: "ada"')),
    )


def test_a_grant_beside_another_objection_is_a_change_of_its_own(project: Path) -> None:
    forbid = '@id("no") forbid (principal, action == Action::"call", resource);'
    found = explained(
        project, tool({}, "fs.read:*", required_permissions=["tool.vcs.write"]), {}, policies=ALL + forbid
    )
    assert (found.line, found.changes) == (
        None,
        (
            "grant ada fs.read:. (in .agent/config.yml, agents: ada: capabilities)",
            "policy 'no' (p.cedar:1:67) forbids it whatever its arguments; change the policy",
            "give ada the permission tool.vcs.write (in .agent/config.yml, agents: ada: permissions)",
        ),
    )


def test_permits_that_do_not_hold_are_named_beside_a_new_one(project: Path) -> None:
    policies = (
        '\n@id("safe") permit (principal, action == Action::"call", resource) when { resource.danger > 3 };'
    )
    assert explained(project, tool({}), {}, policies=policies).changes == (
        (
            'no policy permits it: add one such as permit (principal == Agent::"ada", action == Action::"call",'
            " resource == Tool::\"work\"), or widen 'safe' (p.cedar:2:1)"
        ),
    )


def test_a_policy_that_cannot_be_evaluated_is_named(project: Path) -> None:
    amount = {"amount": {"type": "integer", "description": "How much."}}
    policies = ALL + (
        '\n@id("sum") forbid (principal, action == Action::"call", resource)'
        " when { context.arguments has amount && context.arguments.amount * 2 > 9 };"
    )
    found = explained(project, tool(amount), {"amount": 2**62}, policies=policies)
    assert [change.partition(": ")[0] for change in found.changes] == ["fix policy 'sum' (p.cedar:2:1)"]


def test_a_policy_that_reads_what_cedar_cannot_hold_is_named(project: Path) -> None:
    amount = {"amount": {"type": "integer", "description": "How much."}}
    policies = ALL + (
        '\n@id("sum") forbid (principal, action == Action::"call", resource)'
        " when { context.arguments has amount && context.arguments.amount > 9 };"
    )
    assert explained(project, tool(amount), {"amount": 2**70}, policies=policies).changes == (
        "fix policy 'sum' (p.cedar:2:1): policies read /amount, which Cedar cannot hold",
    )


def test_an_agent_that_nobody_declared_is_named(project: Path) -> None:
    assert explained(project, tool({}), {}, agent="bob").changes == (
        "declare the agent: write 'bob' under agents: in .agent/config.yml",
    )


def test_a_policy_is_asked_about_a_whole_scope_as_the_decision_asks_it(project: Path) -> None:
    policies = ALL + (
        '@id("docs") forbid (principal, action == Action::"call", resource)'
        ' when { context.roots.contains("./docs") };'
    )
    found = explained(project, tool({}, "fs.read:./docs"), {}, "fs.read:./docs", policies=policies)
    assert found.changes == ("policy 'docs' (p.cedar:1:67) forbids it; change the call, or the policy",)


def test_a_forbid_says_which_of_its_conditions_hold_and_for_which_values(project: Path) -> None:
    properties = {
        "cents": {"type": "integer", "description": "How much."},
        "to": {"type": "string", "description": "To whom."},
    }
    forbid = 'forbid (principal, action == Action::"call", resource)'
    policies = ALL + (
        f'@id("sum") {forbid} when {{ context.arguments has cents && context.arguments.cents > 2000 }};'
        f'@id("names") {forbid} when {{ context.arguments has to && context.arguments.to like "*(x)*" }}'
        ' unless { principal != Agent::"ada" && context.arguments has cents };'
        f'@id("other") {forbid} when {{ context.arguments has cents && context.arguments.cents < 5 }};'
    )
    found = explained(project, tool(properties), {"cents": 2400, "to": "(x)"}, policies=policies)
    held = {
        say.finding.policy: [(one.kind, one.text, one.holds, one.reads) for one in say.conditions]
        for say in found.policies
        if say.conditions
    }
    assert held == {
        "sum": [
            ("when", "context.arguments has cents", True, {}),
            ("when", "context.arguments.cents > 2000", True, {"cents": 2400}),
        ],
        "names": [
            ("when", "context.arguments has to", True, {}),
            ("when", '((context.arguments).to) like "*(x)*"', True, {"to": "(x)"}),
            ("unless", 'principal != Agent::"ada"', False, {}),
        ],
    }
    assert [say.says for say in found.policies if say.change] == [
        "",
        "forbids `cents` above 2000; this call has 2400",
    ]
    assert found.changes[1].endswith(
        " forbids `cents` above 2000; this call has 2400; change the call, or the policy"
    )
