"""Recorded calls judged by other policies."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from tests.definitions.examples import made, with_properties
from toolkeep.definitions.capability import Capability
from toolkeep.events import Bus
from toolkeep.flow.recorded_sessions import RecordedDecision, Step, recorded_decisions
from toolkeep.policy.active_policies import ActivePolicies
from toolkeep.policy.authorize import Authorizer
from toolkeep.policy.decision_explain import Holder
from toolkeep.policy.decision_replay import (
    NO_AGENT,
    NO_ARGUMENTS,
    NO_TOOL,
    OTHER_TOUCHES,
    Difference,
    Replayed,
    Replayer,
)
from toolkeep.policy.policy_settings import Grant, PolicySource
from toolkeep.registry.admit import admit
from toolkeep.validation.refusal_history import RefusalHistory
from toolkeep.validation.validate import validate

pytestmark = pytest.mark.spec("POL-5")

PARAMETERS = with_properties(
    {
        "path": {"type": "string", "description": "A path.", "maxLength": 999, "x-touches": "fs.read"},
        "amount": {"type": "integer", "description": "How much."},
    }
)
TOOL = admit(made(name="work", parameters=PARAMETERS, capabilities=[Capability("fs.read", "*")]))
GRANT = Grant(capabilities=(Capability("fs.read", "./docs"),))
GRANTS = {"ada": GRANT, "eve": Grant()}
SMALL = """
@id("small") permit (principal, action == Action::"call", resource)
when { context.arguments has amount && context.arguments.amount < 10 };
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.txt").write_text("a")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def call(
    project: Path, arguments: dict[str, Any], **fields: Any
) -> tuple[RecordedDecision, dict[str, dict[str, Any]]]:
    """A recorded call that was allowed, and the bodies that were kept."""
    path = arguments.get("path")
    made_of = {
        "call": "c1",
        "time": "now",
        "agent": "ada",
        "tool": "work",
        "version": TOOL.version,
        "definition_hash": TOOL.definition_hash,
        "is_allowed": True,
        "policies": ("old",),
        "touches": (f"fs.read:{project / path}",) if path else ("fs.read:whole",),
        "argument_hash": "h",
        **fields,
    }
    return RecordedDecision(**made_of), {"h": arguments}


def replayed(
    project: Path, recorded: tuple[RecordedDecision, dict[str, dict[str, Any]]], policies: str = SMALL
) -> Replayed:
    authorizer = Authorizer(
        ActivePolicies([PolicySource(name="p.cedar", text=policies)]),
        agents=GRANTS,
        project=str(project),
        state_folder=None,
        tools=lambda: [TOOL],
    )
    replayer = Replayer(
        authorizer,
        check=lambda tool, arguments: validate(tool, dict(arguments), RefusalHistory(bus=Bus()), "x"),
        holder=lambda name: Holder(name=name, grant=GRANTS.get(name), project=str(project)),
    )
    call, bodies = recorded
    is_known = (call.version, call.definition_hash) == (TOOL.version, TOOL.definition_hash)
    kept = {digest: msgspec.json.encode(body) for digest, body in bodies.items()}
    return replayer.replay([Step(call, TOOL if is_known else None, None, kept.get)])


SAME = Replayed(same=1, differences=(), unjudged={})


def test_a_call_that_is_decided_as_before_is_the_same(project: Path) -> None:
    assert replayed(project, call(project, {"path": "docs/a.txt", "amount": 1})) == SAME


def test_a_call_that_would_be_denied_says_why(project: Path) -> None:
    recorded = call(project, {"path": "docs/a.txt", "amount": 11})
    why = "No policy permits agent 'ada' to make this call to 'work'"
    difference = Difference(recorded=recorded[0], decision="deny", policies=(), why=why)
    assert replayed(project, recorded) == Replayed(same=0, differences=(difference,), unjudged={})


def test_a_call_that_would_be_allowed_names_the_policies_that_do(project: Path) -> None:
    recorded = call(project, {"path": "docs/a.txt", "amount": 1}, is_allowed=False, policies=("no",))
    difference = Difference(recorded=recorded[0], decision="allow", policies=("small",), why="")
    assert replayed(project, recorded) == Replayed(same=0, differences=(difference,), unjudged={})
    assert difference.to_dict() == {
        "call": "c1",
        "time": "now",
        "agent": "ada",
        "tool": "work",
        "was": {"decision": "deny", "policies": ["no"]},
        "would_be": {"decision": "allow", "policies": ["small"], "why": ""},
    }


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"definition_hash": "other"}, NO_TOOL),
        ({"version": "9.9.9"}, NO_TOOL),
        ({"agent": "bob"}, NO_AGENT),
        ({"argument_hash": ""}, NO_ARGUMENTS),
        ({"argument_hash": "erased"}, NO_ARGUMENTS),
        ({"touches": ("fs.read:/elsewhere",)}, OTHER_TOUCHES),
    ],
)
def test_a_call_that_cannot_be_judged_is_counted_by_its_reason(
    project: Path, fields: dict[str, Any], reason: str
) -> None:
    recorded = call(project, {"path": "docs/a.txt", "amount": 11}, **fields)
    assert replayed(project, recorded) == Replayed(same=0, differences=(), unjudged={reason: 1})


def test_a_file_that_is_gone_is_no_difference_of_policy(project: Path) -> None:
    recorded = call(project, {"path": "docs/gone.txt", "amount": 1})
    assert replayed(project, recorded).unjudged == {OTHER_TOUCHES: 1}


def test_a_grant_that_was_taken_back_is_no_difference_of_policy(project: Path) -> None:
    recorded = call(project, {"amount": 1}, agent="eve", touches=())
    assert replayed(project, recorded).unjudged == {OTHER_TOUCHES: 1}


def test_what_the_agent_did_not_hold_stays_denied(project: Path) -> None:
    """A denial by capability: no policy was asked then, and none is now."""
    recorded = call(project, {"path": ".", "amount": 1}, is_allowed=False, policies=(), touches=())
    assert replayed(project, recorded) == SAME


def test_a_call_that_no_policy_permitted_can_be_allowed_now(project: Path) -> None:
    recorded = call(project, {"path": "docs/a.txt", "amount": 1}, is_allowed=False, policies=())
    assert [one.decision for one in replayed(project, recorded).differences] == ["allow"]


def test_decisions_are_read_from_the_records_of_a_log() -> None:
    who = {"call": "c1", "agent": "ada", "conversation": "", "session": "s", "correlation_id": "x"}
    invoked = {
        "type": "ToolInvoked", "time": "now", **who, "tool": "work", "version": "1.0.0",
        "definition_hash": "d", "argument_hash": "h", "has_arguments": True,
    }  # fmt: skip
    decided = {
        "type": "PolicyDecision",
        "call": "c1",
        "decision": "deny",
        "policies": ["no"],
        "touches": ["t"],
    }
    never_decided = {**invoked, "call": "c2"}
    other = {"type": "KeyRotated"}
    expected = RecordedDecision(
        call="c1",
        time="now",
        agent="ada",
        tool="work",
        version="1.0.0",
        definition_hash="d",
        session="s",
        is_allowed=False,
        policies=("no",),
        touches=("t",),
        argument_hash="h",
    )
    assert list(recorded_decisions([other, invoked, never_decided, decided])) == [expected]
    unkept = {**invoked, "has_arguments": False}
    assert list(recorded_decisions([unkept, decided])) == [replace(expected, argument_hash="")]
