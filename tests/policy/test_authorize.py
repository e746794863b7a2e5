"""The door of policy: capabilities, protection and policies together make a permitted call, or none."""

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.definitions.examples import made, with_properties
from toolkeep import Code
from toolkeep.calls import CheckedCall, PermittedCall, Refusal, RegisteredTool, ToolCall
from toolkeep.definitions.capability import Capability
from toolkeep.limits import HELD_PLACES, TOUCHED
from toolkeep.policy import authorize as authorize_module
from toolkeep.policy.active_policies import ActivePolicies
from toolkeep.policy.authorize import Authorizer
from toolkeep.policy.cedar_engine import Engine
from toolkeep.policy.policy_settings import Example, Grant, PolicySource
from toolkeep.policy.resolved_path import ResolvedPath
from toolkeep.registry.admit import admit

pytestmark = pytest.mark.spec("POL-1", "POL-2")

PATH = {"type": "string", "description": "A path.", "x-touches": "fs.read"}


def registered(name: str, *capabilities: str, **properties: Any) -> RegisteredTool:
    return admit(made(name=name, parameters=with_properties(properties), capabilities=list(capabilities)))


PEEK = registered("peek", "fs.read:*", path=PATH)
SECRET = registered("secret", "fs.read:*", path={**PATH, "x-secret": True})
THINK = registered("think", amount={"type": "integer", "description": "How much."})
SCRIBBLE = registered("scribble", "fs.write:*", path={**PATH, "x-touches": "fs.write"})
INDEX = registered("index", "fs.read:./docs")
ROAM = registered("roam", "net.read:*")
MANY = registered("many", "fs.read:*", paths={"type": "array", "items": PATH, "description": "Paths."})
TOOLS = [PEEK, SECRET, THINK, SCRIBBLE, INDEX, ROAM, MANY]

ALL = '@id("all") permit (principal, action == Action::"call", resource);'
NO = """@id("no") @reason("too much") forbid (principal, action == Action::"call", resource == Tool::"think")
when { context.arguments has amount && context.arguments.amount > 5 };"""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    project = tmp_path.resolve() / "project"
    (project / "docs").mkdir(parents=True)
    (project / "docs" / "a").write_text("a")
    (project / "docs" / "b").write_text("b")
    (project.parent / "outside").write_text("outside")
    monkeypatch.chdir(project)
    return project


@pytest.fixture(autouse=True)
def _nothing_stays_open(root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Whatever a test does, every place is let go by somebody, and not because it is forgotten."""
    monkeypatch.delattr(ResolvedPath, "__del__")
    before = descriptors()
    yield
    assert descriptors() == before


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def authorizer(root: Path, *policies: str, holds: str = "fs.read:.", **options: Any) -> Authorizer:
    sources = [PolicySource(name="file", text=text) for text in policies]
    return Authorizer(
        ActivePolicies(sources),
        **{
            "agents": {"local": Grant(capabilities=tuple(map(Capability.read, holds.split())))},
            "project": str(root),
            "state_folder": None,
            "tools": lambda: TOOLS,
            "now": lambda: "now",
            **options,
        },
    )


def asked(agent: str = "local", **more: Any) -> ToolCall:
    return ToolCall(id="1", tool="as_asked", arguments=None, agent=agent, **more)


def judged(judge: Authorizer, tool: RegisteredTool, agent: str = "local", **arguments: Any) -> Any:
    return judge.authorize(asked(agent), CheckedCall(registered=tool, arguments=arguments))


def permitted(judge: Authorizer, tool: RegisteredTool, **arguments: Any) -> PermittedCall:
    outcome = judged(judge, tool, **arguments)
    assert isinstance(outcome, PermittedCall), outcome
    return outcome


def let_go(call: PermittedCall) -> None:
    for one in call.touched:
        one.close()


def reason(outcome: Any) -> tuple[Code, str, str]:
    assert isinstance(outcome, Refusal), outcome
    (error,) = outcome.errors
    return error.code, error.path, error.message


# --- permitted -----------------------------------------------------------------------------------


def test_a_permitted_call_has_its_whole_proof(root: Path) -> None:
    judge = authorizer(root)
    call = permitted(judge, PEEK, path="docs/a")
    decision = call.decision
    assert decision.to_dict() == {
        "decision": "allow",
        "policies": ["toolkeep.call"],
        "policy_set_hash": judge.active_policies.engine.policies.hash,
        "request_hash": decision.request_hash,
        "capabilities": ["fs.read:*"],
        "touches": [f"fs.read:{root}/docs/a"],
        "decided_at": "now",
    }
    assert len(decision.request_hash) == 64
    assert [(one.kind, one.pointer, one.shown) for one in call.touched] == [
        ("fs.read", "/path", f"{root}/docs/a")
    ]
    let_go(call)


def test_what_is_touched_is_held_until_it_is_let_go(root: Path) -> None:
    before = descriptors()
    call = permitted(authorizer(root), MANY, paths=["docs/a", "docs/b"])
    assert descriptors() == before + 2
    let_go(call)
    assert descriptors() == before


def test_grants_start_from_the_project_and_arguments_from_the_working_folder(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge = authorizer(root, holds="fs.read:./docs")
    monkeypatch.chdir(root / "docs")
    let_go(permitted(judge, PEEK, path="a"))
    assert reason(judged(judge, PEEK, path=".."))[0] is Code.NOT_PERMITTED
    let_go(permitted(judge, INDEX))


def test_a_list_of_allowed_hosts_is_not_met_by_a_tool_that_does_not_say_which(root: Path) -> None:
    """An empty set lies inside every other one."""
    listed = '@id("listed") permit (principal, action == Action::"call", resource) when { L.containsAll(H) };'
    text = listed.replace("L", '["good.test", "*"]', 1).replace("H", "context.hosts", 1)
    without = text.replace(', "*"', "")
    assert isinstance(judged(authorizer(root, text, holds="net.read:evil.test"), ROAM), PermittedCall)
    judge = authorizer(root, without, holds="net.read:evil.test")
    assert reason(judged(judge, ROAM))[0] is Code.NOT_PERMITTED


def test_a_file_that_is_also_a_command_is_seen_as_the_file_that_is_read(root: Path) -> None:
    """Found through PATH, its first word is another file."""
    (root / "true").touch()
    marks = [{"x-touches": "fs.read"}, {"x-touches": "process.spawn"}]
    tool = registered(
        "both", "fs.read:*", "process.spawn:*", it={"type": "string", "description": "It.", "allOf": marks}
    )
    about = 'permit (principal, action == Action::"call", resource == Tool::"both")'
    text = f'@id("a") {about} when {{ context.arguments has it && context.arguments.it == "{root}/true" }};'
    judge = authorizer(root, text, holds="fs.read:. process.spawn:true", tools=lambda: [tool])
    let_go(permitted(judge, tool, it="true"))


def test_a_policy_that_asks_is_told_on(root: Path) -> None:
    judge = authorizer(root, ALL.replace("permit", "@ask permit"))
    assert permitted(judge, THINK).asks
    assert not permitted(authorizer(root, ALL), THINK).asks


def test_a_question_that_a_silent_policy_spared_is_part_of_the_proof(root: Path) -> None:
    silent = ALL.replace('"all"', '"known"').replace("permit", "@silent permit")
    call = permitted(authorizer(root, ALL.replace("permit", "@ask permit"), silent), THINK)
    assert not call.asks
    assert call.decision.to_dict()["spared_by"] == ["known"]
    assert "spared_by" not in permitted(authorizer(root, silent), THINK).decision.to_dict()


# --- refused, with its reason --------------------------------------------------------------------


def test_reasons(root: Path) -> None:
    judge = authorizer(root, ALL, NO)
    outside = "The agent has no grant for fs.read of '../outside'"
    assert reason(judged(judge, PEEK, path="../outside")) == (Code.NOT_PERMITTED, "/path", outside)
    assert reason(judged(judge, MANY, paths=["docs/a", "../outside"]))[1] == "/paths/1"
    assert reason(judged(judge, THINK, agent="eve")) == (
        Code.AGENT_UNKNOWN,
        "",
        "Agent 'eve' is not declared",
    )
    assert reason(judged(judge, THINK, amount=6)) == (
        Code.NOT_PERMITTED,
        "",
        "Policy 'no' forbids it: too much",
    )
    unheld = "The policies could not be applied: policies read /amount, which Cedar cannot hold"
    assert reason(judged(judge, THINK, amount=2**63)) == (Code.NOT_PERMITTED, "", unheld)
    nobody = "No policy permits agent 'local' to make this call to 'as_asked'"
    assert reason(judged(authorizer(root, NO), THINK)) == (Code.NOT_PERMITTED, "", nobody)


def test_a_refusal_has_a_proof_too(root: Path) -> None:
    judge = authorizer(root, ALL, NO)
    by_policy = judged(judge, THINK, amount=6).decision
    assert (by_policy.is_allowed, by_policy.policies) == (False, ("no",))
    assert by_policy.request_hash
    by_capability = judged(judge, PEEK, path="/").decision
    assert (by_capability.is_allowed, by_capability.policies, by_capability.request_hash) == (False, (), "")


def test_a_mark_of_a_kind_that_the_tool_does_not_require_counts_all_the_same(root: Path) -> None:
    unrequired = registered("unrequired", path=PATH)
    judge = authorizer(root)
    let_go(permitted(judge, unrequired, path="docs/a"))
    assert "has no grant for fs.read" in reason(judged(judge, unrequired, path="../outside"))[2]


def test_the_proof_of_a_call_with_secrets_does_not_say_what_it_touches(root: Path) -> None:
    call = permitted(authorizer(root), SECRET, path="docs/a")
    (told,) = call.decision.touches
    assert told.startswith("fs.read:")
    assert "docs" not in told
    let_go(call)


def test_no_more_plans_are_kept_than_there_is_room_for(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authorize_module, "_PLANS", 2)
    judge = authorizer(root, holds="fs.read:. fs.write:.")
    for _ in range(2):
        for tool in (THINK, INDEX, PEEK):
            let_go(permitted(judge, tool, **({"path": "docs/a"} if tool is PEEK else {})))
            assert len(judge._plans) <= 2


def test_a_reason_quotes_no_argument_of_a_tool_with_secrets(root: Path) -> None:
    judge = authorizer(root)
    code, _, message = reason(judged(judge, SECRET, path="/hunter2"))
    assert (code, message) == (Code.NOT_PERMITTED, "An argument names something that may not be touched")


def test_neither_proof_nor_refusal_shows_a_secret_path(root: Path) -> None:
    """A parameter can be secret and name a file."""
    (root / "hunter2").write_text("x")
    judge = authorizer(root)
    call = permitted(judge, SECRET, path="hunter2")
    assert "hunter2" not in str(call.decision.to_dict())
    (root / "hunter2").unlink()
    messages = [reason(judge.unchanged(call))[2], reason(judge.authorize_again(call))[2]]
    let_go(call)
    assert "hunter2" not in "".join(messages)


def test_nothing_is_permitted_while_the_policies_cannot_be_used(
    root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    judge = authorizer(root, ALL.replace("resource)", 'resource == Tool::"nothing")'))
    code, _, message = reason(judged(judge, THINK))
    assert code is Code.POLICIES_INVALID
    assert message.startswith("No call is permitted: file:1:75: policy 'all' names Tool::\"nothing\"")
    judged(judge, THINK)
    (told,) = caplog.records  # the operator reads it once, not for each call
    assert (told.levelname, told.getMessage()) == ("ERROR", f"n{message[1:]}")
    held_back = Authorizer(
        ActivePolicies(held_back="nobody accepted them"),
        agents={"local": Grant()},
        project=str(root),
        state_folder=None,
        tools=lambda: TOOLS,
    )
    outcome = judged(held_back, THINK)
    assert reason(outcome) == (
        Code.POLICIES_INVALID,
        "",
        "No call is permitted: nobody accepted them",
    )
    assert not outcome.decision.is_allowed


def test_policies_without_a_permit_are_warned_of_once(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    judge = authorizer(root, '@id("lone") forbid (principal, action, resource == Tool::"index");')
    for _ in range(2):
        assert judged(judge, THINK).code is Code.NOT_PERMITTED
    [told] = caplog.records
    assert (told.levelname, told.getMessage()) == ("WARNING", authorize_module._NO_PERMIT)
    judge.use([PolicySource(name="file", text=ALL)])
    let_go(permitted(judge, THINK))
    judge.use([PolicySource(name="file", text="")])  # permits nothing, and says so
    assert judged(judge, THINK).code is Code.NOT_PERMITTED
    assert caplog.records == [told]


def test_every_place_is_let_go_when_a_policy_or_a_grant_refuses(root: Path) -> None:
    kept = [
        judged(authorizer(root, NO), MANY, paths=["docs/a", "docs/b"]),
        judged(authorizer(root), MANY, paths=["docs/a", "docs/b", "../outside"]),
        judged(authorizer(root, holds="fs.read:./docs/a"), INDEX),
    ]
    assert [outcome.code for outcome in kept] == [Code.NOT_PERMITTED] * 3


def test_a_call_that_names_very_many_things_is_refused(root: Path) -> None:
    """Each is looked at, on the event loop, and each place is a descriptor of the host."""
    judge = authorizer(root)
    code, path, said = reason(judged(judge, MANY, paths=["docs/a"] * (TOUCHED + 1)))
    assert (code, path) == (Code.NOT_PERMITTED, f"/paths/{TOUCHED}")
    assert f"more than {TOUCHED}" in said
    let_go(permitted(judge, MANY, paths=["docs/a"] * TOUCHED))


def test_what_the_calls_of_one_agent_hold_together_is_bounded(root: Path) -> None:
    """Those that wait for a person hold what they name for as long."""
    grant = Grant(capabilities=(Capability.read("fs.read:."),))
    judge = authorizer(root, agents={"local": grant, "other": grant})
    many = ["docs/a"] * TOUCHED
    held = [permitted(judge, MANY, paths=many) for _ in range(HELD_PLACES // TOUCHED)]
    for tool, arguments in ((PEEK, {"path": "docs/a"}), (INDEX, {})):
        assert reason(judged(judge, tool, **arguments))[0] is Code.QUEUE_FULL
    let_go(judged(judge, PEEK, agent="other", path="docs/a"))
    for _ in range(2):  # once more makes no more room
        let_go(held[0])
    held[0] = permitted(judge, MANY, paths=many)
    assert reason(judged(judge, PEEK, path="docs/a"))[0] is Code.QUEUE_FULL
    for call in held:
        let_go(call)


def test_calls_that_are_refused_hold_nothing(root: Path) -> None:
    judge = authorizer(root, NO)
    for _ in range(HELD_PLACES // 2 + 1):
        assert reason(judged(judge, MANY, paths=["docs/a", "../outside"]))[0] is Code.NOT_PERMITTED
        assert reason(judged(judge, MANY, paths=["docs/a", "docs/b"]))[0] is Code.NOT_PERMITTED


def test_every_place_is_let_go_when_policy_breaks(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    judge = authorizer(root)
    monkeypatch.setattr(judge, "_facts", _break)
    kept = []
    for _ in range(3):
        with pytest.raises(RuntimeError) as caught:
            judged(judge, PEEK, path="docs/a")
        kept.append(caught.value)


def _break(*_: object) -> Any:
    raise RuntimeError("broken")


# --- what no grant covers ------------------------------------------------------------------------


def test_the_state_is_out_of_reach_whatever_is_held(root: Path) -> None:
    (root / "state").mkdir()
    (root / "state" / "key").write_text("key")
    judge = authorizer(root, holds="fs.read:/ fs.write:/", state_folder=str(root / "state"))
    for tool, path in ((PEEK, "state/key"), (PEEK, "state"), (SCRIBBLE, "state/new"), (SCRIBBLE, ".")):
        assert "the state of toolkeep" in reason(judged(judge, tool, path=path))[2]
    let_go(permitted(judge, PEEK, path="docs/a"))


def test_a_whole_folder_that_holds_the_state_is_out_of_reach(root: Path) -> None:
    """Naming the folder is looking at it; requiring it is going through all of it."""
    judge = authorizer(root, holds="fs.read:/", state_folder=str(root / "docs" / "state"))
    assert "holds the state" in reason(judged(judge, INDEX))[2]
    let_go(permitted(judge, PEEK, path="docs"))


@pytest.mark.parametrize("path", [".agent/x", ".git/config", ".git/hooks/x", "toolkeep.lock"])
def test_what_decides_what_runs_is_never_written(path: str, root: Path) -> None:
    judge = authorizer(root, holds="fs.read:. fs.write:.")
    assert "decides what runs" in reason(judged(judge, SCRIBBLE, path=path))[2]


def test_who_names_what_is_not_there_is_told_to_name_something_else(root: Path) -> None:
    judge = authorizer(root)
    fixes = [
        judged(judge, PEEK, path=path).errors[0].suggestion for path in ("nothing", "a\0b", "../nothing")
    ]
    assert fixes == ["Name something else.", "Name something else.", "Do without it, or ask the operator."]


def test_what_is_wrong_with_a_place_is_told_only_inside_of_the_grant(root: Path) -> None:
    judge = authorizer(root)
    assert reason(judged(judge, PEEK, path="nothing"))[2] == "'nothing' does not exist"
    assert "has no grant" in reason(judged(judge, PEEK, path="../nothing"))[2]


def test_what_lies_outside_of_the_grant_tells_nothing_of_itself(root: Path) -> None:
    """A file, no file, a link to nowhere, a circle: asked about from outside they are all the same."""
    outside = root.parent
    (outside / "circle").symlink_to("circle")
    (outside / "nowhere").symlink_to("nothing")
    judge = authorizer(root)
    told = set()
    for path in ("outside/x", "nothing/x", "circle", "nowhere", "outside", "nothing", "nothing/../x"):
        code, _, message = reason(judged(judge, PEEK, path=f"../{path}"))
        assert code is Code.NOT_PERMITTED
        told.add(message.replace(f"{outside}/{path}", "IT").replace(f"../{path}", "IT"))
    assert told == {"The agent has no grant for fs.read of 'IT'"}


# --- agents --------------------------------------------------------------------------------------


def test_an_agent_is_declared_again_with_something_else(root: Path) -> None:
    judge = authorizer(root, holds="fs.read:.")
    first = permitted(judge, PEEK, path="docs/a")
    judge.declare("local", Grant(capabilities=(Capability("fs.read", "./docs"),)))
    second = permitted(judge, PEEK, path="docs/a")
    assert first.grant_hash != second.grant_hash
    judge.declare("local", Grant())
    assert reason(judged(judge, PEEK, path="docs/a"))[0] is Code.NOT_PERMITTED
    with pytest.raises(ValueError, match="scope"):
        judge.declare("other", Grant(capabilities=(Capability("net.read", "http://x/"),)))
    assert reason(judged(judge, THINK, agent="other"))[0] is Code.AGENT_UNKNOWN
    let_go(first)
    let_go(second)


def test_what_an_approval_is_bound_to_changes_with_the_policies(root: Path) -> None:
    judge = authorizer(root, ALL)
    first = permitted(judge, THINK).grant_hash
    assert permitted(judge, THINK, amount=1).grant_hash == first
    judge.active_policies.swap([PolicySource(name="new", text=ALL + NO)], TOOLS, ["local"])
    assert permitted(judge, THINK).grant_hash != first


def test_who_sees_what(root: Path) -> None:
    hide = (
        '@id("hide") forbid (principal == Agent::"local", action == Action::"see", resource == Tool::"peek");'
    )
    judge = authorizer(root, ALL + hide, agents={"local": Grant(), "other": Grant()})
    assert judge.hides_tools
    assert [judge.sees("local", tool) for tool in (PEEK, THINK)] == [False, True]
    assert judge.sees("other", PEEK)
    assert not judge.sees("eve", THINK)
    assert authorizer(root, ALL).sees("eve", PEEK)


# --- after time has passed -----------------------------------------------------------------------


def test_the_same_call_is_permitted_again_and_keeps_what_it_holds(root: Path) -> None:
    judge = authorizer(root, now=iter(["first", "second"]).__next__)
    call = permitted(judge, PEEK, path="docs/a")
    before = descriptors()
    again = judge.authorize_again(call)
    assert isinstance(again, PermittedCall)
    assert again.touched is call.touched
    assert (call.decision.decided_at, again.decision.decided_at) == ("first", "second")
    assert descriptors() == before
    let_go(call)


def replaced(root: Path) -> None:
    (root / "docs" / "b").replace(root / "docs" / "a")


def removed(root: Path) -> None:
    (root / "docs" / "a").unlink()


def linked(root: Path) -> None:
    (root / "docs" / "a").unlink()
    (root / "docs" / "a").symlink_to("b")


def moved_above(root: Path) -> None:
    (root / "docs").rename(root / "old")
    (root / "docs").symlink_to("old")


CHANGES = [replaced, removed, linked, moved_above]


@pytest.mark.parametrize("change", CHANGES)
def test_a_call_whose_file_was_replaced_is_refused_as_changed(
    change: Callable[[Path], None], root: Path
) -> None:
    judge = authorizer(root)
    call = permitted(judge, PEEK, path="docs/a")
    assert judge.unchanged(call) is None
    change(root)
    told = (Code.TOUCHED_CHANGED, "/path", "'docs/a' has changed since it was checked")
    assert reason(judge.unchanged(call)) == told
    assert reason(judge.authorize_again(call)) == told
    let_go(call)


def test_a_call_that_was_let_go_is_never_unchanged(root: Path) -> None:
    judge = authorizer(root)
    call = permitted(judge, PEEK, path="docs/a")
    let_go(call)
    assert reason(judge.unchanged(call))[0] is Code.TOUCHED_CHANGED


def test_a_change_between_the_two_looks_is_found_by_the_second(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was unchanged when that was asked, and leads elsewhere when it is resolved anew."""
    (root / "link").symlink_to("docs/a")
    judge = authorizer(root)
    call = permitted(judge, PEEK, path="link")
    genuine = judge.authorize

    def swap_first(request: ToolCall, checked: CheckedCall, _: Any) -> PermittedCall | Refusal:
        (root / "link").unlink()
        (root / "link").symlink_to("docs/b")
        return genuine(request, checked)

    monkeypatch.setattr(judge, "authorize", swap_first)
    told = (Code.TOUCHED_CHANGED, "", "A resource that the call accesses has changed")
    assert reason(judge.authorize_again(call)) == told
    let_go(call)


def test_other_policies_or_another_grant_refuse_what_waits(root: Path) -> None:
    judge = authorizer(root)
    call = permitted(judge, PEEK, path="docs/a")
    judge.declare("local", Grant())
    assert reason(judge.authorize_again(call))[0] is Code.NOT_PERMITTED
    judge.declare("local", Grant(capabilities=(Capability("fs.read", "."),)))
    judge.active_policies.swap([PolicySource(name="new", text=NO)], TOOLS, ["local"])
    assert reason(judge.authorize_again(call))[0] is Code.NOT_PERMITTED
    let_go(call)


# --- examples ------------------------------------------------------------------------------------


def check(tool: RegisteredTool, arguments: Mapping[str, Any]) -> CheckedCall | Refusal:
    from toolkeep.validation.refusal_history import RefusalHistory
    from toolkeep.validation.validate import validate

    return validate(tool, dict(arguments), RefusalHistory(), "example")


def example(tool: str = "think", *, is_allowed: bool, policy: str = "", **arguments: Any) -> Example:
    return Example(
        place="here:1", agent="local", tool=tool, arguments=arguments, is_allowed=is_allowed, policy=policy
    )


HOLD = [
    example(is_allowed=True),
    example(is_allowed=True, policy="all"),
    example(is_allowed=False, policy="no", amount=6),
    example("peek", is_allowed=False, path="/"),
    example("peek", is_allowed=True, path="docs/a"),
]

FAIL = {
    "should be denied": (example(is_allowed=False), "the example should be denied; it is allowed"),
    "should be allowed": (
        example(is_allowed=True, amount=6),
        "the example should be allowed; Policy 'no' forbids it: too much",
    ),
    "by another policy": (
        example(is_allowed=True, policy="no"),
        "policy 'no' should decide it, not all",
    ),
    "by no policy": (
        example("peek", is_allowed=False, policy="no", path="/"),
        "policy 'no' should decide it, not none: The agent has no grant for fs.read of '/'",
    ),
    "by no policy, of an agent that is not there": (
        msgspec.structs.replace(example(is_allowed=False, policy="no"), agent="wirter"),
        "policy 'no' should decide it, not none: Agent 'wirter' is not declared",
    ),
    "arguments": (example(is_allowed=True, amount="6"), "the arguments are not valid: "),
}


def test_an_example_of_a_tool_that_is_not_here_holds_nothing_up_and_is_told_when_asked(root: Path) -> None:
    absent = example("nothing", is_allowed=True)
    judge = authorizer(root, ALL, NO, examples=[absent], check=check)
    permitted(judge, THINK)
    assert judge.example_problem(absent).endswith("there is no tool 'nothing'")


def test_calls_are_permitted_once_all_examples_hold(root: Path) -> None:
    judge = authorizer(root, ALL, NO, examples=HOLD, check=check)
    assert judge.problem() == ""
    permitted(judge, THINK)


@pytest.mark.parametrize(("failing", "told"), FAIL.values(), ids=FAIL)
def test_nothing_is_permitted_while_an_example_fails(failing: Example, told: str, root: Path) -> None:
    judge = authorizer(root, ALL, NO, examples=[*HOLD, failing], check=check)
    for _ in range(2):
        code, _, message = reason(judged(judge, THINK))
        assert code is Code.POLICIES_INVALID
        assert message.startswith(f"No call is permitted: here:1: {told}")


def test_examples_that_nobody_can_check_fail(root: Path) -> None:
    judge = authorizer(root, ALL, examples=[example(is_allowed=True)])
    assert reason(judged(judge, THINK))[0] is Code.POLICIES_INVALID


def test_an_example_for_an_agent_that_nobody_declared_is_denied_by_none(root: Path) -> None:
    judge = authorizer(root, ALL, check=check)
    unknown = Example(place="here", agent="eve", tool="think", is_allowed=False)
    assert judge.example_problem(unknown) == ""


# --- what each policy says -----------------------------------------------------------------------


def test_findings_say_what_each_policy_says_alone(root: Path) -> None:
    judge = authorizer(root, ALL, NO)
    checked = CheckedCall(registered=THINK, arguments={"amount": 6})
    said = {one.policy: (one.effect, one.is_satisfied) for one in judge.findings(asked(), checked)}
    assert said == {
        "all": ("permit", True),
        "no": ("forbid", True),
        "toolkeep.permissions": ("forbid", False),
    }
    assert judge.findings(asked("eve"), checked) == []


def test_findings_are_there_also_where_nothing_may_be_touched(root: Path) -> None:
    """And nothing stays open."""
    judge = authorizer(root, ALL)
    for path in ("docs/a", "../outside", ""):
        checked = CheckedCall(registered=PEEK, arguments={"path": path})
        assert "all" in {one.policy for one in judge.findings(asked(), checked)}


# --- policies swapped meanwhile --------------------------------------------------------------------


def swap_within(judge: Authorizer, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread swaps the policies as soon as the ones before have decided."""
    genuine = Engine.decide

    def then_swapped(self: Engine, *args: Any) -> Any:
        verdict = genuine(self, *args)
        monkeypatch.setattr(Engine, "decide", genuine)
        judge.active_policies.swap([PolicySource(name="new", text=text)], TOOLS, ["local"])
        return verdict

    monkeypatch.setattr(Engine, "decide", then_swapped)


def test_a_proof_names_the_policies_that_decided_and_not_those_swapped_in_meanwhile(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge = authorizer(root, ALL)
    before = judge.active_policies.engine.policies.hash
    bound = permitted(judge, THINK).grant_hash
    swap_within(judge, NO, monkeypatch)
    call = permitted(judge, THINK)
    assert (call.decision.policies, call.decision.policy_set_hash) == (("all",), before)
    assert call.grant_hash == bound


def test_a_forbid_that_is_swapped_out_meanwhile_is_still_named(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge = authorizer(root, ALL, NO)
    swap_within(judge, ALL, monkeypatch)
    told = (Code.NOT_PERMITTED, "", "Policy 'no' forbids it: too much")
    assert reason(judged(judge, THINK, amount=6)) == told


# --- many at once --------------------------------------------------------------------------------


def test_threads_that_declare_agents_at_once_lose_none(root: Path) -> None:
    judge = authorizer(root)
    threads = [threading.Thread(target=judge.declare, args=(f"agent-{n}", Grant())) for n in range(32)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(isinstance(judged(judge, THINK, agent=f"agent-{n}"), PermittedCall) for n in range(32))


def test_a_working_folder_that_is_gone_permits_nothing(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    judge = authorizer(root)
    gone = root / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(FileNotFoundError):
        judged(judge, PEEK, path="a")
    os.chdir(root)
