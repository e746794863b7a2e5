"""Attacks on the decision whether a call may be made: things swapped behind it, approvals used again, names and
numbers that look like others, clones that bring policies, ways to the state, policies that break the engine, and
tools that should not even be known of.
"""

import asyncio
import contextlib
import os
import re
import subprocess
import sys
import threading
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import pytest
from msgspec.structs import replace

from tests.definitions.examples import made, with_properties
from tests.hostile.unguarded import outcome
from tests.sandbox.workers import until
from toolkeep import (
    ArgumentsRefused,
    Code,
    FunctionTool,
    Keep,
    Refusal,
    ToolDefinition,
    ToolResult,
    Touches,
    open_keep,
    tool,
)
from toolkeep.approval.approve import ApprovalGate, Asked
from toolkeep.approval.question import Answer, AnswerRefused, Question
from toolkeep.audit.record import Recorder
from toolkeep.definitions.capability import Capability
from toolkeep.errors import ConfigurationInvalid, FileUnreadable, StateUnusable, ToolkeepError
from toolkeep.keep.open import open_state, read_configuration
from toolkeep.policy import cedar_engine as engine_module
from toolkeep.policy.active_policies import ActivePolicies, read_all
from toolkeep.policy.authorize import Authorizer
from toolkeep.policy.cedar_engine import Engine
from toolkeep.policy.path_grants import ProtectedPaths
from toolkeep.policy.policy_set import PoliciesRefused
from toolkeep.policy.policy_settings import Grant, PolicySettings, PolicySource
from toolkeep.storage.sqlite.approvals_db import SqliteApprovals
from toolkeep.stores.records import MemoryRecord

pytestmark = pytest.mark.spec("POL-1", "POL-4", "POL-7")

CALL = 'principal, action == Action::"call", resource'
ALL = f'@id("all") permit ({CALL});'


# --- tools ---------------------------------------------------------------------------------------


def reading(**fields: Any) -> FunctionTool[..., Any]:
    """A tool that opens a path by its text, as any tool in this process does."""

    @tool(
        name="peek",
        description="Read a file.",
        side_effects=["FsRead"],
        capabilities=["fs.read:*"],
        determinism="NonDeterministic",
        **fields,
    )
    def peek(path: Annotated[str, Touches("fs.read")]) -> str:
        """Read a file.

        Args:
            path: The file.
        """
        return Path(path).read_text()

    return peek


@tool(
    side_effects=["FsWrite"],
    capabilities=["fs.write:*"],
    danger="safe",
)
def scribble(path: Annotated[str, Touches("fs.write")]) -> str:
    """Write a file.

    Args:
        path: The file.
    """
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text("scribbled")
    return "done"


@tool(side_effects=["None"], determinism="NonDeterministic")
def pay(amount: int = 0, rate: float = 0.0, note: str = "", other: float = 0.0) -> str:
    """Pay something.

    Args:
        amount: How much.
        rate: How fast.
        note: What for.
        other: What no policy reads.
    """
    return f"{amount!r} {rate!r} {note!r} {other!r}"


def client_tool(name: str, properties: dict[str, Any], **fields: Any) -> ToolDefinition:
    """A tool that is only decided about: a call of it that is allowed is pending."""
    parameters = with_properties({k: {"description": k, **v} for k, v in properties.items()})
    parameters.update(fields.pop("keywords", {}))
    data = {"danger": "safe", "side_effects": ["None"], **fields}
    return made(name=name, parameters=parameters, client_executed=True, **data)


def keep_with(*tools: Any, holds: str = "fs.read:.", policies: str = "", **options: Any) -> Keep:
    sources = (PolicySource(name="policies", text=policies),) if policies else ()
    grant = Grant(capabilities=tuple(map(Capability.read, holds.split())))
    settings = PolicySettings(agents={"local": grant}, sources=sources, **options.pop("settings", {}))
    keep = Keep(policy=settings, **options)
    keep.register(*tools)
    return keep


def called(keep: Keep, name: str, arguments: dict[str, Any], **options: Any) -> ToolResult:
    return asyncio.run(keep.call(name, arguments, **options))


def yes(_: Question) -> bool:
    return True


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with a file and a link to it, and a secret beside the project."""
    root = tmp_path.resolve() / "project"
    (root / "docs").mkdir(parents=True)
    (root / "docs" / "a").write_text("harmless")
    (root / "link").symlink_to("docs/a")
    (root.parent / "elsewhere").mkdir()
    (root.parent / "elsewhere" / "a").write_text("secret")
    monkeypatch.chdir(root)
    return root


# --- things swapped behind the decision ----------------------------------------------------------


def swap_link(root: Path) -> str:
    """The link itself."""
    (root / "link").unlink()
    (root / "link").symlink_to("../elsewhere/a")
    return "link"


def swap_folder(root: Path) -> str:
    """The folder above the file."""
    (root / "docs").rename(root / "old")
    (root / "docs").symlink_to("../elsewhere")
    return "docs/a"


def swap_file(root: Path) -> str:
    """The file, for a link to another."""
    (root / "docs" / "a").unlink()
    (root / "docs" / "a").symlink_to("../../elsewhere/a")
    return "docs/a"


def swap_hard_link(root: Path) -> str:
    """The file, for another name of the secret: its path stays the same."""
    (root / "docs" / "a").unlink()
    (root / "docs" / "a").hardlink_to(root.parent / "elsewhere" / "a")
    return "docs/a"


SWAPS = pytest.mark.parametrize(
    ("swap", "path"),
    [(swap_link, "link"), (swap_folder, "docs/a"), (swap_file, "docs/a"), (swap_hard_link, "docs/a")],
)
Swap = Callable[[Path], str]


def swap_before_execution(monkeypatch: pytest.MonkeyPatch, swap: Swap, root: Path) -> None:
    """The attacker is quick: everything was checked, and the intent is about to be written."""
    genuine = Recorder.intent

    async def late(self: Recorder, *args: Any, **options: Any) -> Any:
        written = await genuine(self, *args, **options)
        swap(root)
        return written

    monkeypatch.setattr(Recorder, "intent", late)


@SWAPS
def test_what_is_swapped_between_decision_and_execution_is_not_read(
    swap: Swap, path: str, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    swap_before_execution(monkeypatch, swap, project)
    result = called(keep_with(reading()), "peek", {"path": path})
    assert (result.code, result.value) == (Code.TOUCHED_CHANGED, None)


@SWAPS
def test_without_the_last_look_it_would_be_read(
    swap: Swap, path: str, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    swap_before_execution(monkeypatch, swap, project)
    monkeypatch.setattr(Authorizer, "unchanged", lambda *_: None)
    assert called(keep_with(reading()), "peek", {"path": path}).value == "secret"


@SWAPS
def test_what_the_approver_swaps_is_not_read(swap: Swap, path: str, project: Path) -> None:
    def approver(_: Question) -> bool:
        swap(project)
        return True

    result = called(keep_with(reading(danger="medium"), approver=approver), "peek", {"path": path})
    assert (result.code, result.value) == (Code.TOUCHED_CHANGED, None)


def test_a_swap_that_is_taken_back_in_time_harms_nobody(project: Path) -> None:
    def approver(_: Question) -> bool:
        swap_link(project)
        (project / "link").unlink()
        (project / "link").symlink_to("docs/a")
        return True

    result = called(keep_with(reading(danger="medium"), approver=approver), "peek", {"path": "link"})
    assert result.value == "harmless"


@pytest.mark.parametrize("danger", ["safe", "medium"])
def test_a_thread_that_swaps_all_the_time_gets_no_decision_for_outside(danger: str, project: Path) -> None:
    """The link leads out half of the time; a decision only ever names what was inside."""
    keep = keep_with(reading(danger=danger), approver=yes)
    is_over = threading.Event()

    def flip() -> None:
        for target in _alternating("../elsewhere/a", "docs/a", until=is_over):
            (project / "new").symlink_to(target)
            (project / "new").replace(project / "link")

    flipping = threading.Thread(target=flip)
    flipping.start()
    try:
        results = [keep.call_sync("peek", {"path": "link"}) for _ in range(150)]
    finally:
        is_over.set()
        flipping.join()
        keep.close()
    inside = (f"fs.read:{project}/docs/a",)
    for result in results:
        assert result.code in (None, Code.NOT_PERMITTED, Code.TOUCHED_CHANGED), result
        assert result.decision is not None
        assert result.decision.touches == (inside if result.decision.is_allowed else ())


def _alternating(*values: str, until: threading.Event) -> Iterator[str]:
    while not until.is_set():
        yield from values


# --- approvals used again ------------------------------------------------------------------------


class Taken:
    """An approver that says yes, and remembers what it was asked."""

    def __init__(self) -> None:
        self.questions: list[Question] = []

    def __call__(self, question: Question) -> Answer:
        self.questions.append(question)
        return Answer(verdict="approve", approver="anna", way="terminal", typed_name=question.tool)


def test_an_approval_is_not_used_twice(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same yes is brought to the door again, in the middle of its own call and after it."""
    genuine = ApprovalGate.approve
    outcomes: list[Any] = []

    async def again(self: ApprovalGate, call: Any, asked: Asked) -> Any:
        outcomes.extend([await genuine(self, call, asked) for _ in range(3)])
        return outcomes[-1]

    monkeypatch.setattr(ApprovalGate, "approve", again)
    ran: list[str] = []
    result = called(keep_with(counted(ran), approver=yes), "counted", {})
    assert [isinstance(one, Refusal) for one in outcomes] == [False, True, True]
    assert (result.code, ran) == (Code.APPROVAL_NEEDED, [])


def counted(ran: list[str], **fields: Any) -> FunctionTool[..., Any]:
    @tool(name="counted", description="Count.", **{"danger": "medium", "side_effects": ["None"], **fields})
    def count(amount: int = 0) -> str:
        """Count.

        Args:
            amount: How far.
        """
        ran.append(str(amount))
        return "counted"

    return count


def approved_question(record: MemoryRecord | None = None) -> tuple[Any, Question]:
    """A store in which one question was answered with yes, and the question."""
    held = record or MemoryRecord()
    taken = Taken()
    keep = keep_with(counted([]), approver=taken, record=held)
    store = held.approvals
    original = store.use
    store.use = lambda _: False  # type: ignore[method-assign, assignment]  # the call never comes to use it
    assert called(keep, "counted", {"amount": 1}).code is Code.APPROVAL_NEEDED
    store.use = original  # type: ignore[method-assign]
    return store, taken.questions[0]


OTHERS = {
    "other arguments": {"argument_hash": "0" * 64},
    "another definition": {"definition_hash": "0" * 64},
    "another agent": {"agent": "eve"},
    "another grant": {"grant_hash": "0" * 64},
    "another call": {"call_id": "0" * 32},
    "another question": {"id": "0" * 16},
}


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
@pytest.mark.parametrize("is_file", [False, True], ids=["in memory", "in a file"])
def test_an_approval_is_of_no_use_for_anything_else(
    other: dict[str, str], is_file: bool, tmp_path: Path
) -> None:
    store, question = approved_question()
    with contextlib.ExitStack() as closing:
        if is_file:
            store = closing.enter_context(contextlib.closing(SqliteApprovals(private(tmp_path))))
            store.ask(question)
            store.answer(question.id, Answer(verdict="approve", approver="anna", way="terminal"))
        assert not store.use(replace(question, **other))
        assert store.use(question)
        assert not store.use(question)


def private(folder: Path) -> Path:
    state = folder / "state"
    state.mkdir(mode=0o700)
    return state


USE = """
import sys
from pathlib import Path
import msgspec
from toolkeep.approval.question import Question
from toolkeep.storage.sqlite.approvals_db import SqliteApprovals
store = SqliteApprovals(Path(sys.argv[1]))
question = msgspec.json.decode(sys.argv[2], type=Question)
store.standing(question.id)
print("ready", flush=True)
sys.stdin.readline()
print(store.use(question), flush=True)
"""


def test_of_several_processes_exactly_one_uses_an_approval(tmp_path: Path) -> None:
    import msgspec

    _, question = approved_question()
    state = private(tmp_path)
    store = SqliteApprovals(state)
    store.ask(question)
    store.answer(question.id, Answer(verdict="approve", approver="anna", way="terminal"))
    call = [sys.executable, "-c", USE, str(state), msgspec.json.encode(question).decode()]
    processes = [
        subprocess.Popen(call, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(4)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    said = [process.communicate(timeout=30)[0].strip() for process in processes]
    assert sorted(said) == ["False", "False", "False", "True"]
    store.close()


def test_an_agent_does_not_approve_its_own_call(project: Path) -> None:
    ran: list[str] = []

    def itself(question: Question) -> Answer:
        return Answer(verdict="approve", approver=question.agent, way="terminal")

    result = called(keep_with(counted(ran), approver=itself), "counted", {})
    assert (result.code, ran) == (Code.APPROVAL_NEEDED, [])


def test_an_agent_does_not_approve_another_waiting_call_of_its_own(project: Path) -> None:
    """From inside a tool, by way of the store."""
    record = MemoryRecord()
    tries: list[str] = []

    def approver(question: Question) -> None:
        with pytest.raises(AnswerRefused) as caught:
            record.approvals.answer(question.id, Answer(verdict="approve", approver="local", way="program"))
        tries.append(caught.value.reason)

    ran: list[str] = []
    result = called(keep_with(counted(ran), approver=approver, record=record), "counted", {})
    assert (result.code, ran) == (Code.APPROVAL_NEEDED, [])
    assert tries == ["an agent cannot approve its own call"]


def test_a_definition_that_changes_while_a_person_thinks_is_another_tool(project: Path) -> None:
    ran: list[str] = []
    keeps: list[Keep] = []

    def approver(_: Question) -> bool:
        keeps[0].register(counted(ran, version="1.0.1", danger="safe"))
        return True

    keeps.append(keep_with(counted(ran), approver=approver))
    result = called(keeps[0], "counted", {})
    assert (result.code, ran) == (Code.TOUCHED_CHANGED, [])


@pytest.mark.parametrize("change", ["disable", "unregister"])
def test_a_tool_that_goes_while_a_person_thinks_is_gone(change: str, project: Path) -> None:
    ran: list[str] = []
    keeps: list[Keep] = []

    def approver(_: Question) -> bool:
        getattr(keeps[0], change)("counted")
        return True

    keeps.append(keep_with(counted(ran), approver=approver))
    assert called(keeps[0], "counted", {}).code in (Code.TOOL_DISABLED, Code.UNKNOWN_TOOL)
    assert ran == []


def test_a_critical_call_needs_the_name_the_second_time(project: Path) -> None:
    ran: list[str] = []
    for approver in (yes, lambda q: replace(Taken()(q), typed_name="count" if q.acts_done else "")):
        result = called(keep_with(counted(ran, danger="critical"), approver=approver), "counted", {})
        assert (result.code, ran) == (Code.APPROVAL_NEEDED, [])
    assert called(keep_with(counted(ran, danger="critical"), approver=Taken()), "counted", {}).ok


@pytest.mark.parametrize("danger", ["high", "critical"])
@pytest.mark.parametrize("reach", ["session", "rule"])
def test_a_dangerous_call_is_asked_about_every_time(danger: str, reach: Any, project: Path) -> None:
    def always(question: Question) -> Answer:
        return replace(Taken()(question), reach=reach)

    ran: list[str] = []
    keep = keep_with(counted(ran, danger=danger), approver=always)
    assert called(keep, "counted", {}, session="s").code is Code.APPROVAL_NEEDED
    assert ran == []


# --- policies swapped during a call --------------------------------------------------------------

NONE = '@id("none") permit (principal == Agent::"operator", action, resource);'
OTHER = f'@id("other") permit ({CALL});'


def test_policies_swapped_while_a_person_thinks_decide(project: Path) -> None:
    """By another thread, as the host would."""
    keeps: list[Keep] = []
    ran: list[str] = []

    def approver_with(policies: str) -> Callable[[Question], bool]:
        def approver(_: Question) -> bool:
            swapping = threading.Thread(target=keeps[-1].use_policies, args=(policies,))
            swapping.start()
            swapping.join()
            return True

        return approver

    for policies, code in ((NONE, Code.NOT_PERMITTED), (OTHER, Code.APPROVAL_NEEDED), (ALL, None)):
        keeps.append(keep_with(counted(ran), policies=ALL, approver=approver_with(policies)))
        assert called(keeps[-1], "counted", {}).code is code
    assert ran == ["0"]  # only where the policies are the ones that the person knew of


def test_policies_swapped_while_a_call_is_decided_permit_nothing_new(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The call is decided by the set before or the one after, whole: here by the one before."""
    keep = keep_with(counted([], danger="safe"), policies=NONE)
    genuine = Engine.decide

    def swapped(self: Engine, *args: Any) -> Any:
        monkeypatch.setattr(Engine, "decide", genuine)
        keep.use_policies(ALL)
        return genuine(self, *args)

    monkeypatch.setattr(Engine, "decide", swapped)
    assert called(keep, "counted", {}).code is Code.NOT_PERMITTED
    assert called(keep, "counted", {}).ok


def test_policies_put_in_force_while_a_first_call_makes_the_keep_ready_are_not_lost(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two threads, each of which finds that nothing was made yet."""
    both = threading.Barrier(2)
    genuine = ActivePolicies.__init__

    def together(self: ActivePolicies, *args: Any, **options: Any) -> None:
        genuine(self, *args, **options)
        with contextlib.suppress(threading.BrokenBarrierError):
            both.wait(timeout=1)

    monkeypatch.setattr(ActivePolicies, "__init__", together)
    keep = keep_with(pay)
    threads = [
        threading.Thread(target=keep.use_policies, args=(NONE,)),
        threading.Thread(target=called, args=(keep, "pay", {})),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert called(keep, "pay", {}).code is Code.NOT_PERMITTED


def test_threads_never_get_an_allow_that_neither_set_gives(project: Path) -> None:
    tools = [client_tool(name, {}) for name in ("one", "two", "three")]
    sets = {
        name: f'@id("only-{name}") permit (principal, action == Action::"call", resource == Tool::"{name}");'
        for name in ("one", "two")
    }
    keep = keep_with(*tools, policies=sets["one"])
    is_over = threading.Event()
    results: list[ToolResult] = []

    def swap() -> None:
        for name in _alternating("two", "one", until=is_over):
            keep.use_policies(sets[name])

    def work() -> None:
        for name in ("one", "two", "three") * 8:
            results.append(called(keep, name, {}))

    called(keep, "one", {})
    swapping = threading.Thread(target=swap)
    workers = [threading.Thread(target=work) for _ in range(16)]
    for thread in (swapping, *workers):
        thread.start()
    for thread in workers:
        thread.join()
    is_over.set()
    swapping.join()
    assert len(results) == 16 * 24
    for result in results:
        if result.status == "pending":
            assert result.decision is not None
            assert result.decision.policies == (f"only-{result.tool}",)
            assert result.tool in sets
        else:
            assert result.code is Code.NOT_PERMITTED


# --- what looks the same -------------------------------------------------------------------------


def test_numbers_that_python_calls_equal_are_decided_apart(project: Path) -> None:
    """In whatever order they come: a remembered decision is for exactly its values."""
    policies = f"""{ALL} @id("no") forbid (principal, action == Action::"call", resource == Tool::"any")
    when {{ (context.arguments has whole && context.arguments.whole == 1)
        || (context.arguments has truth && context.arguments.truth)
        || (context.arguments has decimal && context.arguments.decimal == decimal("1.0"))
        || (context.arguments has text && context.arguments.text == "1") }};"""
    properties = {"whole": "integer", "truth": "boolean", "decimal": "number", "text": "string"}
    keep = keep_with(
        client_tool("any", {name: {"type": kind} for name, kind in properties.items()}), policies=policies
    )
    equal = {"whole": 1, "truth": True, "decimal": 1.0, "text": "1"}
    unequal = {"whole": 0, "truth": False, "decimal": 0, "text": "true"}
    for _ in range(2):
        for name in properties:
            assert called(keep, "any", {name: unequal[name]}).status == "pending"
            assert called(keep, "any", {name: equal[name]}).code is Code.NOT_PERMITTED
        for name, other in (("whole", True), ("truth", 1), ("text", 1), ("decimal", "1.0")):
            assert called(keep, "any", {name: other}).code is Code.WRONG_TYPE
        assert called(keep, "any", {"whole": 1.0}).code is Code.NOT_PERMITTED
        assert called(keep, "any", {"decimal": 1}).code is Code.NOT_PERMITTED


AGENTS = {
    "capitals": "Local",
    "Cyrillic": "l\u043ecal",
    "a mark that does not show": "local\u200b",
    "a space": "local ",
    "full width": "\uff4cocal",
    "a NUL": "local\0",
    "nothing": "",
}


@pytest.mark.parametrize("agent", AGENTS.values(), ids=AGENTS)
def test_an_agent_that_looks_like_another_is_not_it(agent: str, project: Path) -> None:
    keep = keep_with(pay)
    assert called(keep, "pay", {}).ok
    assert called(keep, "pay", {}, agent=agent).code is Code.AGENT_UNKNOWN


def test_composed_and_decomposed_agents_and_arguments_are_apart(project: Path) -> None:
    composed, decomposed = (unicodedata.normalize(form, "café") for form in ("NFC", "NFD"))
    head = 'principal, action == Action::"call", resource == Tool::"pay"'
    condition = f'context.arguments has note && context.arguments.note == "{composed}"'
    policies = f'{ALL} @id("no") forbid ({head}) when {{ {condition} }};'
    keep = keep_with(pay, policies=policies)
    keep.declare_agent(composed)
    assert called(keep, "pay", {}, agent=composed).ok
    assert called(keep, "pay", {}, agent=decomposed).code is Code.AGENT_UNKNOWN
    assert called(keep, "pay", {"note": composed}).code is Code.NOT_PERMITTED
    assert called(keep, "pay", {"note": decomposed}).ok


@pytest.mark.parametrize("name", ["PAY", "Pay", "pay@1.0.0", "p\u0430y", "pay\u200b", "ｐａｙ", "pay "])
def test_no_spelling_of_a_tool_passes_by_its_policy(name: str, project: Path) -> None:
    policies = f'{ALL} @id("no") forbid (principal, action == Action::"call", resource == Tool::"pay");'
    result = called(keep_with(pay, policies=policies), name, {})
    assert result.code in (Code.NOT_PERMITTED, Code.UNKNOWN_TOOL)


# --- what Cedar skips or cannot hold -------------------------------------------------------------

BARE = f'{ALL} @id("no") forbid ({CALL}) when {{ context.arguments.note == "bad" }};'


def test_a_forbid_on_a_missing_attribute_is_refused_when_it_is_read(project: Path) -> None:
    keep = keep_with(pay)
    with pytest.raises(PoliciesRefused):
        keep.use_policies(BARE)
    refused = called(keep_with(pay, policies=BARE), "pay", {"amount": 1})
    assert refused.code is Code.POLICIES_INVALID


def test_a_forbid_on_an_attribute_that_a_later_tool_lacks_denies_that_tool(project: Path) -> None:
    """The policies fitted the tools that there were; Cedar alone would skip the forbid."""
    needs_note = client_tool("noted", {"note": {"type": "string"}}, keywords={"required": ["note"]})
    keep = keep_with(needs_note, policies=BARE)
    assert called(keep, "noted", {"note": "good"}).status == "pending"
    assert called(keep, "noted", {"note": "bad"}).code is Code.NOT_PERMITTED
    keep.register(client_tool("optional", {"note": {"type": "string"}}), client_tool("bare", {}))
    for late in ("bare", "optional"):
        result = called(keep, late, {})
        assert result.code is Code.NOT_PERMITTED
        assert "could not be applied" in result.text


def test_cedar_alone_would_allow_it() -> None:
    import cedarpy

    request = {"principal": 'Agent::"a"', "action": 'Action::"call"', "resource": 'Tool::"t"'}
    alone = cedarpy.is_authorized({**request, "context": {"arguments": {}}}, BARE, [])
    assert alone.allowed


READS_RATE = (
    f'{ALL} @id("no") forbid (principal, action == Action::"call", resource == Tool::"pay") when '
    "{{ context.arguments has {name} && context.arguments.{name} {test} }};"
)
UNHELD = [
    ("amount", 2**63, "> 5"),
    ("amount", -(2**63) - 1, "> 5"),
    ("amount", 10**400, "> 5"),
    ("rate", 1e300, '.greaterThan(decimal("5.0"))'),
    ("rate", 0.1 + 0.2, '.greaterThan(decimal("5.0"))'),
    ("rate", 5e-324, '.greaterThan(decimal("5.0"))'),
    ("rate", 0.00001, '.greaterThan(decimal("5.0"))'),
]


@pytest.mark.parametrize(("name", "value", "test"), UNHELD)
def test_a_number_that_cedar_cannot_hold_is_denied_where_a_policy_reads_it(
    name: str, value: Any, test: str, project: Path
) -> None:
    policies = READS_RATE.format(name=name, test=test).replace(" .", ".")
    keep = keep_with(pay, policies=policies)
    result = called(keep, "pay", {name: value})
    assert result.code is Code.NOT_PERMITTED
    assert f"/{name}" in result.text
    assert called(keep, "pay", {"other": value if isinstance(value, float) else 0.3}).ok
    assert called(keep_with(pay, policies=ALL), "pay", {name: value}).ok


@pytest.mark.parametrize("text", ['{"rate": 1e400}', '{"rate": NaN}', '{"rate": -Infinity}'])
def test_a_number_that_is_none_never_comes_to_policy(text: str, project: Path) -> None:
    result = asyncio.run(keep_with(pay, policies=ALL).call("pay", text))
    assert result.code in (Code.NOT_JSON, Code.WRONG_TYPE, Code.CONSTRAINT)
    assert result.decision is None


# --- policies that replace or break what decides -------------------------------------------------


@pytest.mark.parametrize("name", ["toolkeep.see", "toolkeep.permissions", "toolkeep.call", "toolkeep.x"])
def test_no_policy_takes_the_name_of_one_of_ours(name: str, project: Path) -> None:
    keep = keep_with(pay)
    with pytest.raises(PoliciesRefused):
        keep.use_policies(f'@id("{name}") permit (principal, action, resource);')
    assert called(keep, "pay", {}).ok


@pytest.mark.parametrize(
    "name", ["Toolkeep.see", "toolkeep_see", "t\u043eolkeep.see", "toolkeep.see ", " toolkeep.see"]
)
def test_a_name_that_looks_like_ours_replaces_nothing(name: str) -> None:
    try:
        policies = read_all(
            [PolicySource(name="x", text=f'@id("{name}") forbid (principal, action, resource);')]
        )
    except PoliciesRefused:
        return
    assert {"toolkeep.see", "toolkeep.permissions", name} == set(policies.by_id)


def nested(depth: int) -> str:
    return f'@id("a") permit (principal, action, resource) when {{ {"(" * depth}true{")" * depth} }};'


BREAKING = {
    "nested deep": nested(100_000),
    "nested in sets": f'@id("a") permit (principal, action, resource) when {{ {"[" * 5000}{"]" * 5000} == [] }};',
    "never closed": '@id("a") permit (principal, action, resource) when { ' + "(" * 50_000,
    "many operators": f'@id("a") permit (principal, action, resource) when {{ {"!" * 20_000}true }};',
    "many ands": f'@id("a") permit (principal, action, resource) when {{ {"true && " * 9_000}true }};',
    "many ifs": '@id("a") permit (principal, action, resource) when { '
    + "if true then true else " * 2_000
    + "true };",
    "huge": f'@id("a") permit (principal, action, resource) when {{ "{"x" * 5_000_000}" == "" }};',
    "a NUL": '@id("a") permit (principal, action, resource)\0;',
    "a lone surrogate": '@id("a\ud800") permit (principal, action, resource);',
    "text that does not end": '@id("a) permit (principal, action, resource);',
    "a template": '@id("a") permit (principal == ?principal, action, resource);',
    "two in one": '@id("a") permit (principal, action, resource) permit (principal, action, resource);',
}


@pytest.mark.parametrize("text", BREAKING.values(), ids=BREAKING)
def test_a_policy_that_would_break_cedar_is_refused_and_the_last_good_set_stays(
    text: str, project: Path
) -> None:
    keep = keep_with(pay, policies=ALL)
    before = called(keep, "pay", {}).decision
    with pytest.raises(PoliciesRefused):
        keep.use_policies(text)
    after = called(keep, "pay", {}).decision
    assert before is not None
    assert after is not None
    assert (after.is_allowed, after.policy_set_hash) == (True, before.policy_set_hash)


HANGING = {
    "a ruler, and a policy that does not end": "/" * 200 + "\npermit (principal, action, resource)",
    "comments in a comment": "//" + " //" * 100 + "\npermit",
    "nothing but ends": "\n;" * 1_000_000,
    "text that does not end": '"' + '\\"' * 500_000,
}


@pytest.mark.parametrize("text", HANGING.values(), ids=HANGING)
def test_a_policy_that_cannot_be_read_takes_no_time(text: str, tmp_path: Path) -> None:
    """In a process of its own, for what hangs is a match of a pattern that nothing interrupts."""
    (tmp_path / "text").write_text(text)
    code = f"""
from pathlib import Path
from toolkeep.policy.policy_set import PoliciesRefused
from toolkeep.policy.cedar_parser import read_policies
from toolkeep.policy.policy_settings import PolicySource
try:
    read_policies([PolicySource(name="x", text=Path({str(tmp_path / "text")!r}).read_text())])
except PoliciesRefused:
    pass
else:
    raise SystemExit(1)
"""
    assert outcome(code, seconds=20.0) == "ended"


def test_cedar_alone_would_crash() -> None:
    code = """
import cedarpy
depth = 100_000
cedarpy.policies_to_json_str("permit (principal, action, resource) when { " + "(" * depth + "true" + ")" * depth + " };")
"""
    assert outcome(code) == "crashed"


# --- clones --------------------------------------------------------------------------------------

PERMISSIVE = '@id("mine") permit (principal, action, resource);'


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository that brings policies which permit everything."""
    root = tmp_path.resolve() / "clone"
    (root / ".agent" / "policies").mkdir(parents=True)
    (root / ".agent" / "config.yml").write_text("policies: [policies/main.cedar]\n")
    (root / ".agent" / "policies" / "main.cedar").write_text(PERMISSIVE)
    monkeypatch.chdir(root)
    return root


def opened(clone: Path) -> Keep:
    keep = open_keep(project=clone, built_in=False)
    keep.register(client_tool("think", {}))
    return keep


def decided(clone: Path) -> tuple[str, Code | None]:
    with opened(clone) as keep:
        result = called(keep, "think", {})
        return result.status, result.code


def accept(clone: Path) -> None:
    """What `toolkeep accept` remembers."""
    state = open_state(clone)
    assert state is not None
    (file,) = read_configuration(clone, state).files
    state.accept(file.path, file.seal)


REFUSED = ("error", Code.POLICIES_INVALID)
ALLOWED = ("pending", None)


def test_every_call_in_a_clone_is_refused_until_its_policies_are_accepted(clone: Path) -> None:
    assert decided(clone) == REFUSED
    accept(clone)
    assert decided(clone) == ALLOWED


@pytest.mark.parametrize("change", [" ", "// more\n", '@id("more") permit (principal, action, resource);'])
def test_a_policy_file_that_changed_after_it_was_accepted_counts_no_more(change: str, clone: Path) -> None:
    accept(clone)
    file = clone / ".agent" / "policies" / "main.cedar"
    file.write_text(PERMISSIVE + change)
    assert decided(clone) == REFUSED
    file.write_text(PERMISSIVE)
    assert decided(clone) == ALLOWED


def test_policies_swapped_for_a_link_are_refused(clone: Path) -> None:
    accept(clone)
    outside = clone.parent / "outside.cedar"
    outside.write_text(PERMISSIVE)
    file = clone / ".agent" / "policies" / "main.cedar"
    file.unlink()
    file.symlink_to(outside)
    with pytest.raises(FileUnreadable):
        opened(clone)


def test_examples_swapped_for_a_link_are_refused(clone: Path) -> None:
    """What lies outside would be read, and quoted where it is no example."""
    outside = clone.parent / "outside.yml"
    outside.write_text("- {tool: think, allow: true}")
    (clone / ".agent" / "policies" / "main.examples.yml").symlink_to(outside)
    with pytest.raises(FileUnreadable):
        opened(clone)


def test_a_folder_of_policies_swapped_for_a_link_is_refused(clone: Path) -> None:
    accept(clone)
    (clone / ".agent" / "policies").rename(clone.parent / "policies")
    (clone / ".agent" / "policies").symlink_to(clone.parent / "policies")
    with pytest.raises(FileUnreadable):
        opened(clone)


WAYS_OUT = ["../main.cedar", "policies/../../main.cedar", "/etc/hostname", "..", "policies/..", ".", ""]


@pytest.mark.parametrize("name", WAYS_OUT)
def test_policies_lie_in_the_folder_of_the_configuration(name: str, clone: Path) -> None:
    (clone / "main.cedar").write_text(PERMISSIVE)
    (clone / ".agent" / "config.yml").write_text(f"policies: ['{name}']\n")
    with pytest.raises((ConfigurationInvalid, FileUnreadable)):
        opened(clone)


UNREADABLE = {
    "no UTF-8": b'@id("a") permit (principal, action, resource); // \xff',
    "a NUL": b'@id("a") permit (principal, action, resource);\0',
    "deep": nested(100_000).encode(),
    "no id": b"permit (principal, action, resource);",
    "ours": b'@id("toolkeep.see") permit (principal, action, resource);',
}


@pytest.mark.parametrize("raw", UNREADABLE.values(), ids=UNREADABLE)
def test_policies_that_cannot_be_read_stop_the_start(raw: bytes, clone: Path) -> None:
    (clone / ".agent" / "policies" / "main.cedar").write_bytes(raw)
    with pytest.raises(ToolkeepError):
        opened(clone)


def test_a_clone_with_a_pipe_for_its_policies_does_not_hang(clone: Path) -> None:
    file = clone / ".agent" / "policies" / "main.cedar"
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(FileUnreadable):
        opened(clone)


def test_a_clone_that_brings_its_own_acceptances_is_not_believed(
    clone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The state of somebody who accepted it, packed into the repository."""
    accept(clone)
    state = open_state(clone)
    assert state is not None
    inside = clone / ".agent" / "state"
    state.folder.rename(inside)
    assert decided(clone) == REFUSED
    monkeypatch.setenv("TOOLKEEP_HOME", str(inside))
    with pytest.raises(StateUnusable):
        opened(clone)
    (clone.parent / "seemingly-outside").symlink_to(inside)
    monkeypatch.setenv("TOOLKEEP_HOME", str(clone.parent / "seemingly-outside"))
    with pytest.raises(StateUnusable):
        opened(clone)


def test_what_is_accepted_in_one_place_is_not_in_another(clone: Path) -> None:
    accept(clone)
    moved = clone.rename(clone.parent / "moved")
    os.chdir(moved)
    assert decided(moved) == REFUSED


# --- ways to the state ---------------------------------------------------------------------------


@pytest.fixture
def state(project: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = project.parent / "home" / "state"
    folder.parent.mkdir()
    monkeypatch.setenv("TOOLKEEP_HOME", str(folder))
    return folder


@pytest.fixture
def greedy(project: Path, state: Path) -> Iterator[Keep]:
    """A keep whose agent holds everything, after a call that made the state."""
    with open_keep(project=project, built_in=False) as keep:
        keep.declare_agent("local", capabilities=["fs.read:/", "fs.write:/", f"fs.read:{state}"])
        for name, scope in (("walk_root", "/"), ("walk_home", str(state.parent)), ("walk_state", str(state))):
            keep.register(client_tool(name, {}, capabilities=[f"fs.read:{scope}"]))
        keep.register(reading(), scribble)
        assert called(keep, "peek", {"path": "docs/a"}).ok
        assert state.is_dir()
        yield keep


def test_the_state_is_neither_read_nor_written_by_any_spelling(
    greedy: Keep, state: Path, project: Path
) -> None:
    kept = state / "kept"
    kept.write_text("of the state")
    (project / "to-state").symlink_to(state)
    (project / "to-file").symlink_to(kept)
    (project / "to-home").symlink_to(state.parent)
    (project / "hard").hardlink_to(kept)
    spellings = [
        str(state), str(kept), f"{state}/", f"{state}/new", f"/{kept}", f"{state}/./{kept.name}",
        f"../home/state/{kept.name}", f"docs/../../home/state/{kept.name}", "to-state", "to-file",
        f"to-state/{kept.name}", f"to-home/state/{kept.name}", f"to-state/../state/{kept.name}", "hard",
        f"/proc/self/root{kept}", "/proc/self/cwd/to-file", f"/proc/{os.getpid()}/root{kept}",
    ]  # fmt: skip
    for tool_name in ("peek", "scribble"):
        for spelling in spellings:
            result = called(greedy, tool_name, {"path": spelling})
            assert result.code is Code.NOT_PERMITTED, (tool_name, spelling, result.value)


def test_no_folder_that_holds_the_state_is_written_or_gone_through(
    greedy: Keep, state: Path, project: Path
) -> None:
    for path in ("/", "..", "../home", str(state.parent)):
        assert called(greedy, "scribble", {"path": path}).code is Code.NOT_PERMITTED
    for name in ("walk_root", "walk_home", "walk_state"):
        assert called(greedy, name, {}).code is Code.NOT_PERMITTED


def test_without_the_protection_the_state_would_be_read(
    greedy: Keep, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (state / "note").write_text("of the state")
    assert called(greedy, "peek", {"path": str(state / "note")}).code is Code.NOT_PERMITTED
    monkeypatch.setattr(ProtectedPaths, "objection", lambda *_, **__: None)
    assert called(greedy, "peek", {"path": str(state / "note")}).value == "of the state"
    assert called(greedy, "walk_root", {}).status == "pending"


def test_a_person_who_agrees_changes_nothing_about_it(project: Path, state: Path) -> None:
    taken = Taken()
    with open_keep(project=project, built_in=False, approver=taken) as keep:
        keep.declare_agent("local", capabilities=["fs.read:/"])
        keep.register(reading(danger="medium"))
        keep.use_policies(ALL)
        assert called(keep, "peek", {"path": str(state)}).code is Code.NOT_PERMITTED
        assert taken.questions == []
        assert called(keep, "peek", {"path": "docs/a"}).ok


KEPT = [
    ".agent", ".agent/", ".agent/config.yml", "./.agent/new", ".//.agent//x", "docs/../.agent/x", ".AGENT/x",
    ".Agent/policies/x", "docs/.agent/x", "docs/deep/.agent/x", "to-agent", "to-agent/x", "to-config",
    "toolkeep.lock", "ToolKeep.Lock", "docs/toolkeep.lock", "toolkeep.lock/x", "toolkeep.lock.", "to-lock",
    ".git", ".git/hooks/pre-commit", ".git/hooks", ".git/config", ".GIT/Config", ".git/./config",
    "docs/.git/config", "to-git/config", "to-hooks/pre-push", ".git/config.worktree", ".git./config",
    ".git /hooks/x", ".git/modules/a/config", ".git/worktrees/a/config", ".gi\u200dt/config",
    ".\uff47it/config", ".agen\u200bt/x", ".ageNt\u0301/x", ".git/HOOKS/x", ".git/hooks./x",
]  # fmt: skip


@pytest.mark.parametrize("path", KEPT)
def test_what_decides_what_runs_is_written_by_no_spelling(path: str, project: Path) -> None:
    for folder in (".agent", ".git/hooks", ".git/modules/a", ".git/worktrees/a", ".git/refs"):
        (project / folder).mkdir(parents=True)
    for file in (".agent/config.yml", ".git/config", "toolkeep.lock"):
        (project / file).write_text("kept")
    links = {
        "to-agent": ".agent", "to-config": ".agent/config.yml", "to-lock": "toolkeep.lock", "to-git": ".git",
        "to-hooks": ".git/hooks",
    }  # fmt: skip
    for link, target in links.items():
        (project / link).symlink_to(target)
    before = sorted(map(str, project.rglob("*")))
    keep = keep_with(scribble, holds="fs.read:/ fs.write:/", approver=yes, policies=ALL)
    for spelling in (path, f"{project}/{path}"):
        assert called(keep, "scribble", {"path": spelling}).code is Code.NOT_PERMITTED
    assert sorted(map(str, project.rglob("*"))) == before
    assert (project / ".agent" / "config.yml").read_text() == "kept"
    assert called(keep, "scribble", {"path": ".github/x"}).ok


# --- arguments that hide what they touch ---------------------------------------------------------

READS = {"type": "string", "x-touches": "fs.read"}
HIDES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "in definitions": ({"properties": {"it": {"$ref": "#/$defs/p"}}, "$defs": {"p": READS}}, {"it": "OUT"}),
    "in definitions of definitions": (
        {"properties": {"it": {"$ref": "#/$defs/q"}}, "$defs": {"q": {"$ref": "#/$defs/p"}, "p": READS}},
        {"it": "OUT"},
    ),
    "in anyOf": ({"properties": {"it": {"anyOf": [READS, {"type": "null"}]}}}, {"it": "OUT"}),
    "in oneOf": ({"properties": {"it": {"oneOf": [{"type": "integer"}, READS]}}}, {"it": "OUT"}),
    "in allOf": ({"properties": {"it": {"type": "string", "allOf": [READS]}}}, {"it": "OUT"}),
    "in allOf of the root": (
        {"properties": {"it": {"type": "string"}}, "allOf": [{"properties": {"it": READS}}]},
        {"it": "OUT"},
    ),
    "in an array": (
        {"properties": {"it": {"type": "array", "items": READS}}},
        {"it": ["docs/a", "OUT", "docs/a"]},
    ),
    "in objects in an array": (
        {
            "properties": {
                "it": {"type": "array", "items": {"type": "object", "properties": {"p": READS}}},
            }
        },
        {"it": [{"p": "docs/a"}, {}, {"p": "OUT"}]},
    ),
    "in a default": ({"properties": {"it": {**READS, "default": "../elsewhere/a"}}}, {}),
    "in the default of an array": (
        {"properties": {"it": {"type": "array", "items": READS, "default": ["docs/a", "../elsewhere/a"]}}},
        {},
    ),
}


@pytest.mark.parametrize("way_out", ["../elsewhere/a", "/", "docs/../../elsewhere", "out"])
@pytest.mark.parametrize(("schema", "arguments"), HIDES.values(), ids=HIDES)
def test_a_path_is_found_wherever_its_mark_hides(
    schema: dict[str, Any], arguments: dict[str, Any], way_out: str, project: Path
) -> None:
    (project / "out").symlink_to("../elsewhere/a")
    definition = made(
        name="hidden",
        parameters={"type": "object", **schema},
        capabilities=["fs.read:*"],
        side_effects=["FsRead"],
        client_executed=True,
        source={"kind": "mcp", "origin": "files"},
        danger="safe",
    )
    keep = keep_with(definition, approver=yes)
    result = called(keep, "hidden", _replaced(arguments, way_out))
    assert result.code is Code.NOT_PERMITTED, result
    assert "has no grant for fs.read" in result.text
    inside = called(keep, "hidden", _replaced(arguments, "docs/a"))
    assert (inside.status == "pending") is bool(arguments)  # a default names the way out by itself


def _replaced(value: Any, way_out: str) -> Any:
    if isinstance(value, dict):
        return {name: _replaced(inside, way_out) for name, inside in value.items()}
    if isinstance(value, list):
        return [_replaced(inside, way_out) for inside in value]
    return way_out if value == "OUT" else value


@pytest.mark.parametrize("keyword", ["additionalProperties", "patternProperties"])
def test_a_mark_that_no_call_can_be_read_by_takes_the_whole_requirement(keyword: str, project: Path) -> None:
    schema = {"additionalProperties": READS, "patternProperties": {"^x": READS}}[keyword]
    parameters = {"type": "object", "properties": {}, keyword: schema}
    tool_for = {
        scope: client_tool(f"t_{n}", {}, capabilities=[f"fs.read:{scope}"])
        for n, scope in enumerate((".", ".."))
    }
    for scope, definition in tool_for.items():
        hidden = definition.replace(parameters=parameters)
        result = called(keep_with(hidden), hidden.name, {"x": "docs/a"})
        assert result.status == ("pending" if scope == "." else "error")


@pytest.mark.parametrize("scope", ["", ":*"])
@pytest.mark.parametrize("keyword", ["additionalProperties", "patternProperties"])
@pytest.mark.parametrize("schema", [READS, {"$ref": "#/$defs/p"}], ids=["marked", "referred to"])
def test_a_mark_that_no_call_can_be_read_by_is_not_what_policy_grants(
    keyword: str, schema: dict[str, Any], scope: str, project: Path
) -> None:
    """A tool that needs what policy grants, and says in the dark what of it: nobody knows what it touches."""
    parameters = {
        "type": "object",
        "properties": {"it": {"$ref": "#/$defs/p"}},
        "$defs": {"p": READS},
        keyword: schema if keyword == "additionalProperties" else {"^x": schema},
    }
    hidden = made(
        name="hidden",
        parameters=parameters,
        capabilities=[f"fs.read{scope}"],
        side_effects=["FsRead"],
        client_executed=True,
        danger="safe",
    )
    keep = keep_with(hidden)
    assert called(keep, "hidden", {"it": "docs/a", "x": "/etc/passwd"}).code is Code.NOT_PERMITTED
    assert called(keep, "hidden", {"x": "/etc/passwd"}).code is Code.NOT_PERMITTED


URLS = [
    "http://allowed.test@evil.test/", "http://allowed.test:80@evil.test/", "http://evil.test#@allowed.test/",
    "http://evil.test?@allowed.test/", "http://evil.test\\@allowed.test/", "http://allowed.test\\.evil.test/",
    "http:\\\\evil.test/", "//evil.test/", "http:/evil.test", "http:evil.test", "file:///etc/passwd",
    "gopher://allowed.test/", "javascript://allowed.test/%0aalert(1)", "data:text/plain,x",
    "http://allowed.test.evil.test/", "http://evil.test/allowed.test", "http://allowed.test\t.evil.test/",
    "http://allowed.test\n.evil.test/", " http://allowed.test/", "http://allowed.test /", "http://[::1]/",
    "http://127.0.0.1/", "http://0x7f.1/", "http://2130706433/", "http://017700000001/", "http://localhost/",
    "http://169.254.169.254/latest/meta-data/", "http://[::ffff:169.254.169.254]/", "http://allowed%2etest/",
    "http://allowed.test:22/", "http://allowed.test:065616/", "http://allowed.test:+80/", "http://allowed.test:/",
    "http://аllowed.test/", "http://allowed。evil.test/", "http://allowed.test\0.evil.test/", "http:///evil.test/",
    "http://allowed.test,evil.test/", "http://allowed.test;evil.test/", "http://[allowed.test]/", "http://*.test/",
]  # fmt: skip


@pytest.mark.parametrize("url", URLS)
def test_no_trick_with_a_url_reaches_another_host(url: str, project: Path) -> None:
    fetch = client_tool(
        "fetch",
        {"url": {"type": "string", "x-touches": "net.read"}},
        capabilities=["net.read:*"],
        side_effects=["NetRead"],
    )
    keep = keep_with(fetch, holds="net.read:allowed.test", approver=yes)
    assert called(keep, "fetch", {"url": url}).code is Code.NOT_PERMITTED
    assert called(keep, "fetch", {"url": "https://allowed.test/?q=http://evil.test#@x"}).status == "pending"


# --- commands and addresses in arguments ----------------------------------------------------------


def test_a_policy_on_the_words_of_a_command_holds(project: Path) -> None:
    """Before, policies saw the program's path in the place of the command, and no condition on words held."""
    tool = client_tool(
        "shell", {"command": {"type": "string", "x-touches": "process.spawn"}}, capabilities=["process.spawn:*"],
        side_effects=["ProcessSpawn"], keywords={"required": ["command"]},
    )  # fmt: skip
    about = CALL.replace("resource", 'resource == Tool::"shell"')
    policies = f'{ALL} @id("no") forbid ({about}) when {{ context.arguments.command like "*rm -rf*" }};'
    keep = keep_with(tool, holds="process.spawn:env process.spawn:true", policies=policies)
    denied = called(keep, "shell", {"command": "env rm -rf /"}).decision
    assert denied is not None
    assert denied.policies == ("no",)
    assert called(keep, "shell", {"command": "true"}).error is None


MAIL = client_tool(
    "mail",
    {
        "to": {"type": "array", "items": {"type": "string"}},
        "body": {"type": "string"},
        "options": {"type": "object", "additionalProperties": {"type": "string"}},
        "key": {"type": "string", "x-secret": True},
    },
)
INSIDE = (
    f"""{ALL} @id("inside") forbid ({CALL}) unless {{ ["example.com"].containsAll(context.mail_domains) }};"""
)
RECIPIENTS: list[dict[str, Any]] = [
    {"to": ["bob@evil.test"]},
    {"to": ["ann@example.com", "bob@evil.test"]},
    {"to": ["ann@example.com,bob@evil.test"]},
    {"to": ["ann@example.com .evil.test"]},
    {"to": ["ann@example.com(x).evil.test"]},
    {"to": ["ann@example.com munity"]},
    {"to": ["ann@example.com\r\nBcc: bob@evil.test"]},
    {"to": ['"ann@example.com" <bob@evil.test>']},
    {"to": ['"ann@example.com"@evil.test']},
    {"to": ["bob@evil.test(ann@example.com)"]},
    {"to": ["ann@example.com%2eevil.test"]},
    {"to": ["bob%40evil.test"]},
    {"to": ["bob\uff20evil.test"]},
    {"to": ["ann@example.com\u3002evil.test"]},
    {"to": ["ann@\u0435xample.com"]},
    {"to": ["ann@[192.0.2.1]"]},
    {"to": ["=?utf-8?q?bob=40evil.test=2c?= <ann@example.com>"]},
    {"options": {"cc": "bob@evil.test"}},
    {"options": {"bob@evil.test": "cc"}},
    {"key": "bob@evil.test"},
    {"to": ["ann@example.com"] * 6000},
]


@pytest.mark.parametrize("arguments", RECIPIENTS, ids=lambda one: ascii(one)[:60])
def test_no_spelling_of_a_recipient_passes_by_a_list_of_domains(
    arguments: dict[str, Any], project: Path
) -> None:
    assert called(keep_with(MAIL, policies=INSIDE), "mail", arguments).code is Code.NOT_PERMITTED


@pytest.mark.parametrize(
    "to", ["ann@example.com", "Ann <ANN@Example.COM.>, bob@example.com", '"Ann" <a@example.com>']
)
def test_recipients_inside_are_permitted(to: str, project: Path) -> None:
    result = called(
        keep_with(MAIL, policies=INSIDE), "mail", {"to": [to], "body": "Hello (ann@example.com)."}
    )
    assert result.error is None


def test_what_finds_addresses_by_a_pattern_alone_would_be_passed_by(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def by_pattern(arguments: Any) -> frozenset[str]:
        return frozenset(re.findall(r"@([a-z.-]+)", str(arguments)))

    monkeypatch.setitem(engine_module._DERIVED, "mail_domains", by_pattern)
    keep = keep_with(MAIL, policies=INSIDE)
    passed = [one for one in RECIPIENTS if called(keep, "mail", one).error is None]
    assert {"to": ["ann@example.com .evil.test"]} in passed
    assert {"to": ["bob%40evil.test"]} in passed


# --- tools that should not be known of -----------------------------------------------------------

HIDE = f'{ALL} @id("hide") forbid (principal == Agent::"local", action == Action::"see", resource) when {{ resource.danger == 3 }};'
HIDDEN = client_tool(
    "launch_missile",
    {"target": {"type": "string", "maxLength": 5}},
    danger="high",
    aliases=["fire_missile"],
    required_permissions=["tool.system.run"],
    keywords={"required": ["target"]},
)
SEEN = [client_tool("launch_balloon", {}), client_tool("lunch", {}), pay]

NAMES = ["launch_missile", "LAUNCH_MISSILE", "fire_missile", "launch_missile@1.0.0", "launch_missile@9.9.9"]
ARGUMENTS: list[Any] = [
    {},
    {"target": "x"},
    {"target": "far too long"},
    {"nothing": 1},
    "no json",
    '{"a":1,"a":2}',
]


@pytest.fixture(params=["enabled", "disabled"])
def worlds(request: pytest.FixtureRequest, project: Path) -> tuple[Keep, Keep]:
    """A keep that hides a tool, and one that has no such tool."""
    hiding = keep_with(HIDDEN, *SEEN, policies=HIDE)
    without = keep_with(*SEEN, policies=HIDE)
    if request.param == "disabled":
        hiding.disable("launch_missile")
    return hiding, without


def heard(keep: Keep) -> list[Any]:
    """Events without what differs from call to call."""
    events: list[Any] = []

    def note(event: Any) -> None:
        events.append(replace(event, total_ms=0.0) if hasattr(event, "total_ms") else event)

    keep.subscribe(note, timed=True)
    return events


def plain(result: ToolResult) -> dict[str, Any]:
    data = result.to_dict()
    varying = ("call_id", "total_ms", "execute_ms", "resource_use")
    return {key: value for key, value in data.items() if key not in varying}


def recorded(keep: Keep, result: ToolResult) -> list[dict[str, Any]]:
    records = keep._pipeline.record.records_of(result.call_id)
    untimed = [
        {k: v for k, v in record.items() if k not in ("call", "time", "total_us")} for record in records
    ]
    return [record | {"stage_us": len(record.get("stage_us", ()))} for record in untimed]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("arguments", ARGUMENTS, ids=str)
def test_a_hidden_tool_is_answered_like_an_unknown_one_to_the_byte(
    name: str, arguments: Any, worlds: tuple[Keep, Keep]
) -> None:
    events = [heard(keep) for keep in worlds]
    answers = []
    for keep in worlds:
        options: dict[str, Any] = {"correlation_id": "same", "session": "s", "conversation": "c"}
        result = asyncio.run(keep.call(name, arguments, idempotency_key="key", **options))
        synchronous = keep.call_sync(name, arguments, **options)
        (together,) = asyncio.run(keep.call_all([{"name": name, "arguments": arguments, **options}]))
        tried = keep.try_validate_arguments(name, arguments, correlation_id="same")
        with pytest.raises(ArgumentsRefused) as caught:
            keep.validate_arguments(name, arguments, correlation_id="same")
        assert isinstance(tried, Refusal)
        results = [result, synchronous, together]
        answers.append(
            (
                [(plain(one), one.text, recorded(keep, one)) for one in results],
                (tried.to_dict(), tried.text),
                (str(caught.value), caught.value.refusal.to_dict()),
            )
        )
        keep.close()
    assert answers[0] == answers[1]
    assert events[0] == events[1]
    first = answers[0][0][0][0]
    assert first["error"]["errors"][0]["code"] == Code.UNKNOWN_TOOL.value
    assert "missile" not in str(first).replace(name, "").lower()


def test_a_hidden_tool_is_in_no_list_and_no_search(worlds: tuple[Keep, Keep]) -> None:
    hiding, without = worlds
    for keep in worlds:
        names = [one.name for one in keep.tools(agent="local")]
        assert names == [one.name for one in without.tools()]
    for words in ("launch missile", "target", "launch", "read a file"):
        found = [[one.name for one in keep.search(words, limit=9, agent="local")] for keep in worlds]
        assert set(found[0]) == set(found[1])
        assert "launch_missile" not in found[0]
    assert "launch_missile" in [one.name for one in hiding.tools(agent="operator")]


def test_whoever_may_see_it_gets_another_answer(worlds: tuple[Keep, Keep]) -> None:
    hiding, _ = worlds
    seen = called(hiding, "launch_missile", {"target": "x"}, agent="operator")
    assert seen.code in (Code.NOT_PERMITTED, Code.TOOL_DISABLED)


def test_the_name_of_a_hidden_tool_is_nobodys_suggestion(worlds: tuple[Keep, Keep]) -> None:
    for name in ("launch_missle", "launch_missiles", "missile", "nothing_like_it"):
        texts = [called(keep, name, {}, correlation_id="same").text for keep in worlds]
        assert texts[0] == texts[1]
        assert "launch_missile" not in texts[0].replace(name, "")


# --- nothing stays open --------------------------------------------------------------------------


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_no_descriptor_stays_open_after_many_calls_of_all_kinds(project: Path) -> None:
    """Allowed, denied, asked, failed, cancelled, invalid; and places that are refused halfway."""
    answers = iter([True, False, None] * 200)
    keep = keep_with(
        reading(danger="medium"),
        scribble,
        client_tool("many", {"paths": {"type": "array", "items": READS}}, capabilities=["fs.read:*"]),
        holds="fs.read:. fs.write:./docs",
        approver=lambda _: next(answers),
    )
    mixed: list[tuple[str, Any]] = [
        ("peek", {"path": "docs/a"}),
        ("peek", {"path": "docs"}),
        ("peek", {"path": "../elsewhere/a"}),
        ("peek", {"path": "nothing"}),
        ("peek", {"path": 7}),
        ("scribble", {"path": "docs/new"}),
        ("scribble", {"path": "docs"}),
        ("scribble", {"path": "docs/.agent/x"}),
        ("many", {"paths": ["docs/a", "link", "docs"]}),
        ("many", {"paths": ["docs/a", "link", "../elsewhere/a"]}),
        ("many", {"paths": ["docs/a", "link", ""]}),
        ("nothing", {}),
    ]

    async def calls() -> bool:
        for name, arguments in mixed:
            await keep.call(name, arguments)
        before = open_descriptors()
        for turn in range(500):
            name, arguments = mixed[turn % len(mixed)]
            calling = asyncio.ensure_future(keep.call(name, arguments))
            if turn % 7 == 0:
                await asyncio.sleep(0)
                calling.cancel()
            await asyncio.wait({calling})
        # A function of a call that was cancelled may still run in its thread, with its file.
        return await until(lambda: open_descriptors() <= before)

    assert asyncio.run(calls())
    keep.close()
