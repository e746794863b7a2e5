"""Tools that ask for isolation run in fresh, confined processes; the result says so."""

import asyncio
import importlib
import os
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from tests.execution import broken, isolated
from tests.sandbox.workers import descendants, until
from toolkeep import Code, Keep, ToolResult, open_keep
from toolkeep.execution import isolation_check, sandbox_runner
from toolkeep.limits import OUTPUT_PIECES
from toolkeep.sandbox.errors import SandboxBroken, SandboxExhausted
from toolkeep.sandbox.isolation_levels import Isolation, Mechanism, needed
from toolkeep.sandbox.kernel_probe import Finding, Findings, probe
from toolkeep.sandbox.plan import NotThere
from toolkeep.sandbox.worker_pool import WorkerSlots
from toolkeep.stores.records import MemoryLog

SPAWN = "process.spawn:sh"
TOOLS = (
    isolated.where_standard, isolated.where_strict, isolated.where_restricted, isolated.read, isolated.write,
    isolated.fetch, isolated.length, isolated.look_around, isolated.misbehave, isolated.take_memory,
    isolated.hoard, isolated.Tally, isolated.count_lines, isolated.count_rows, isolated.give_bytes,
    isolated.break_off, isolated.peek, isolated.mumble,
)  # fmt: skip


@pytest.fixture(scope="module")
def findings() -> Findings:
    found = probe()
    lacking = [finding for level in Isolation for finding in chain(*found.missing(level).values())]
    if lacking:
        pytest.skip(f"this machine does not give {lacking[0].mechanism}: {lacking[0].reason}")
    return found


@pytest.fixture
def keep(findings: Findings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Keep]:
    monkeypatch.setattr(isolation_check, "probe", lambda **_: findings)
    for name in ("docs", "out"):
        (tmp_path / name).mkdir()
    (tmp_path / "docs" / "a.md").write_text("hello")
    (tmp_path / "secret").write_text("loot")
    monkeypatch.chdir(tmp_path)
    secrets = {"key": "not-a-real-key"}
    keep = Keep(tool_secrets={"look_around": secrets, "hoard": secrets, "where_strict": {"other": "x"}})
    keep.register(*TOOLS)
    keep.declare_agent(
        "ada", capabilities=["fs.read:./docs", "fs.write:./out", "net.read:example.org", SPAWN]
    )
    yield keep
    keep.close()


def call(keep: Keep, name: str, arguments: dict[str, Any] | None = None, **options: Any) -> ToolResult:
    return keep.call_sync(name, arguments or {}, agent="ada", **options)


def children() -> list[str]:
    """The processes that this one started and that still run."""
    found = (path.read_text().split() for path in Path("/proc/self/task").glob("*/children"))
    return sorted(child for mine in found for child in mine)


@pytest.mark.parametrize("level", ["standard", "strict", "restricted"])
def test_a_tool_runs_in_a_process_of_its_own_and_the_result_says_at_which_level(
    level: str, keep: Keep
) -> None:
    result = call(keep, f"where_{level}")
    assert (result.ok, result.isolation) == (True, level), result.text
    assert result.value == 1  # the first and only process that it can see


@pytest.mark.parametrize("broken", ["launch.EarlyStart", "zygote_process.LaunchedZygote"])
def test_a_first_call_takes_the_zygote_that_was_started_early_or_starts_its_own(
    broken: str, keep: Keep, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise SandboxExhausted("no process is left")

    monkeypatch.setattr(f"toolkeep.sandbox.{broken}", fail)
    assert call(keep, "where_strict").value == 1


def test_what_was_started_early_for_a_refused_call_waits_and_ends_with_the_keep(keep: Keep) -> None:
    before = children()
    assert not call(keep, "where_strict", {"unknown": 1}).ok
    assert len(children()) == len(before) + 2  # a trial, and a zygote without a plan
    keep.close()
    assert children() == before


def test_a_call_reaches_what_it_says_it_touches_also_by_a_relative_path(keep: Keep, tmp_path: Path) -> None:
    assert call(keep, "read", {"path": "docs/a.md"}).value == "hello"
    assert call(keep, "read", {"path": str(tmp_path / "docs" / "a.md")}).value == "hello"
    assert call(keep, "write", {"path": "out/new"}).ok
    assert (tmp_path / "out" / "new").read_text() == "written"


@pytest.mark.parametrize(
    ("name", "path", "really"), [("read", "docs/a.md", "secret"), ("write", "out/new", "secret")]
)
def test_a_tool_that_lies_about_what_it_touches_gains_nothing(
    name: str, path: str, really: str, keep: Keep, tmp_path: Path
) -> None:
    result = call(keep, name, {"path": path, "really": str(tmp_path / really)})
    assert result.code is Code.TOOL_FAILED
    assert (tmp_path / "secret").read_text() == "loot"
    assert "loot" not in result.text


def test_another_file_of_the_same_grant_is_not_reached_either(keep: Keep, tmp_path: Path) -> None:
    (tmp_path / "docs" / "b.md").write_text("other")
    result = call(keep, "read", {"path": "docs/a.md", "really": str(tmp_path / "docs" / "b.md")})
    assert result.code is Code.TOOL_FAILED


@pytest.mark.parametrize("named", ["secret", ""])
def test_a_script_shows_nothing_by_naming_it_as_its_interpreter(
    named: str, keep: Keep, tmp_path: Path
) -> None:
    """A tool that may write the script would read whatever it likes."""
    (tmp_path / "script").write_text(f"#!{tmp_path / named}\n")
    for opened in (tmp_path, tmp_path / "script"):
        opened.chmod(0o755)
    keep.declare_agent("bob", capabilities=["process.spawn:./script"])
    result = keep.call_sync("peek", {"really": str(tmp_path / "secret")}, agent="bob")
    assert result.code is Code.TOOL_FAILED
    assert keep.call_sync("peek", {"really": str(tmp_path / "script")}, agent="bob").ok


HOLDER = """
import os
from toolkeep import tool

@tool(constraints={"required_isolation": "restricted"}, side_effects=["None"])
def peep(path: str) -> list[str]:
    \"\"\"Names.\"\"\"
    return os.listdir(path)
"""


def test_code_that_holds_the_state_is_not_shown(
    findings: Findings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(isolation_check, "probe", lambda **_: findings)
    for name, home in (("holder_of_state", "holder_of_state"), ("holder_of_code", "elsewhere")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(HOLDER)
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.setenv("TOOLKEEP_HOME", str(tmp_path / home / "state"))
        with open_keep() as keep:
            keep.register(importlib.import_module(name).peep)
            result = keep.call_sync("peep", {"path": str(tmp_path / name)})
            assert result.ok is (name == "holder_of_code"), result.text
            assert ("holds the state" in result.text) is (name == "holder_of_state")


def test_a_folder_that_is_granted_and_not_there_is_not_granted_from_above(keep: Keep, tmp_path: Path) -> None:
    """Nothing but the folder around it could be: it holds what nobody granted."""
    keep.declare_agent("bob", capabilities=["fs.write:./new", "fs.write:./absent.txt"])
    for path in ("new/a.txt", "absent.txt"):
        arguments = {"path": path, "really": str(tmp_path / "secret")}
        result = keep.call_sync("write", arguments, agent="bob")
        assert "the folder that is granted does not exist" in result.text
    assert (tmp_path / "secret").read_text() == "loot"


def test_a_file_that_was_replaced_is_reached_by_the_next_call(keep: Keep, tmp_path: Path) -> None:
    """Rules hold the file, not its name; an editor that saves makes another one."""
    assert call(keep, "read", {"path": "docs/a.md"}).value == "hello"
    (tmp_path / "docs" / "new").write_text("hello again")
    (tmp_path / "docs" / "new").replace(tmp_path / "docs" / "a.md")
    assert call(keep, "read", {"path": "docs/a.md"}).value == "hello again"


def test_a_granted_folder_that_was_replaced_is_not_reached_where_it_lies_now(
    keep: Keep, tmp_path: Path
) -> None:
    """A mount holds the folder and not its name: workers of before would go on in what was moved away."""
    for name in ("docs", "out"):
        (tmp_path / name / "a.md").write_text("before")
    assert call(keep, "read", {"path": "docs/a.md"}).value == "before"
    assert call(keep, "write", {"path": "out/a.md"}).ok
    (tmp_path / "private").mkdir()
    for name in ("docs", "out"):
        (tmp_path / name).rename(tmp_path / "private" / name)
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.md").write_text("after")
    (tmp_path / "private" / "out" / "a.md").write_text("kept")
    assert call(keep, "read", {"path": "docs/a.md"}).value == "after"
    assert call(keep, "write", {"path": "out/a.md"}).ok
    assert (tmp_path / "out" / "a.md").read_text() == "written"
    assert (tmp_path / "private" / "out" / "a.md").read_text() == "kept"


def test_what_a_module_says_when_it_is_imported_is_not_told_to_a_model(keep: Keep) -> None:
    keep.register(broken.unloadable)
    result = call(keep, "unloadable")
    assert result.code is Code.NOT_RUNNABLE
    assert "could not be imported" in result.text
    assert "hunter2" not in result.text and "/srv" not in result.text  # noqa: PT018 -- one thing


def test_a_worker_that_cannot_be_confined_names_no_place_of_the_machine(
    keep: Keep, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(*_: Any) -> Any:
        raise SandboxBroken("open_tree(/srv/private): no such thing")

    monkeypatch.setattr(keep._pipeline.sandbox._pool, "run", fails)
    result = call(keep, "where_strict")
    assert (result.code, "/srv" in result.text) == (Code.ISOLATION_UNAVAILABLE, False)


def test_where_no_worker_of_a_level_comes_up_the_refusal_says_so(
    keep: Keep, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(*_: Any) -> Any:
        raise SandboxBroken("the zygote ended while it started")

    async def found(level: Isolation) -> Findings:
        working = tuple(Finding(one, works=True) for one in needed(level))
        return Findings(working, unstarted={level: "mount: not permitted in /srv/private"})

    sandbox = keep._pipeline.sandbox
    monkeypatch.setattr(sandbox._pool, "run", fails)
    monkeypatch.setattr(sandbox._machine, "findings", found)
    result = call(keep, "where_strict")
    assert result.code is Code.ISOLATION_UNAVAILABLE
    assert "no worker could be started" in result.text
    assert "/srv" not in result.text


def test_a_function_knows_who_calls_and_the_secrets_of_its_own(keep: Keep) -> None:
    ids = {"correlation_id": "c1", "conversation": "c2", "session": "s3"}
    result = call(keep, "look_around", {"steps": 0}, **ids)
    assert result.value == ["ada", "c1", "c2", "s3", "not-a-real-key", "key"]


def test_progress_reaches_the_caller_in_order(keep: Keep) -> None:
    told: list[Any] = []
    assert call(keep, "look_around", {"steps": 3}, on_progress=lambda *said: told.append(said)).ok
    assert told == [(1, 3, "step 1"), (2, 3, "step 2"), (3, 3, "step 3")]


def test_a_listener_that_fails_does_not_fail_the_tool(keep: Keep) -> None:
    def fails(*_: Any) -> None:
        raise KeyError("listener")

    assert call(keep, "look_around", {"steps": 3}, on_progress=fails).ok


@pytest.mark.spec("EXE-8")
@pytest.mark.parametrize(
    ("name", "arguments", "value", "pieces"),
    [
        ("count_lines", {"to": 3}, "0\n1\n2\n", ["0\n", "1\n", "2\n"]),
        ("count_lines", {"to": 0}, "", []),
        ("count_rows", {"to": 2}, [{"n": 0}, {"n": 1}], [{"n": 0}, {"n": 1}]),
        ("give_bytes", {}, b"a\xff", []),
        ("break_off", {}, None, ["fine"]),
    ],
)
def test_what_a_tool_yields_is_heard_as_it_comes(
    keep: Keep, name: str, arguments: dict[str, Any], value: object, pieces: list[Any]
) -> None:
    told: list[Any] = []
    result = call(keep, name, arguments, on_output=told.append)
    assert (result.value, told) == (value, pieces)
    assert result.ok is (value is not None)


@pytest.mark.spec("EXE-8")
def test_of_a_long_output_no_more_is_heard_than_the_caller_gets(keep: Keep) -> None:
    told: list[Any] = []
    result = call(keep, "count_lines", {"to": 12_000}, on_output=told.append, max_output_bytes=1024)
    assert result.truncation is not None
    assert 0 < len("".join(told)) <= 1024
    told.clear()
    assert call(keep, "count_lines", {"to": 12_000}, on_output=told.append).value.endswith("11999\n")
    assert len(told) == OUTPUT_PIECES


@pytest.mark.parametrize("piece", ["1e400", '"\\ud800"', f"{'[' * 400}{']' * 400}"])
def test_a_piece_that_is_no_data_ends_the_call_and_disturbs_nobody(
    piece: str, keep: Keep, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[Any] = []
    result = call(keep, "mumble", {"piece": piece}, on_output=told.append)
    assert (result.code, told) == (Code.OUTPUT_INVALID, [])
    assert [record.name for record in caplog.records if record.name == "asyncio"] == []


def test_a_secret_is_not_sent_to_a_function_that_cannot_ask_for_it(keep: Keep) -> None:
    assert call(keep, "look_around", {"steps": 0}).ok
    assert call(keep, "hoard").value == 0


def test_a_class_runs_in_a_process_of_its_own(keep: Keep) -> None:
    told: list[Any] = []
    result = call(keep, "tally", {"to": 3}, on_progress=lambda *said: told.append(said))
    assert result.value == {"pid": 1, "agent": "ada", "logger": "toolkeep.tools.Tally", "step": 1}
    assert (result.isolation, told) == ("strict", [(3, 3, "")])


@pytest.mark.parametrize(("to", "text"), [(-1, "cannot count down"), (101, "failed unexpectedly")])
def test_a_class_fails_as_it_does_in_this_process(to: int, text: str, keep: Keep) -> None:
    result = call(keep, "tally", {"to": to})
    assert (result.code, text in result.text) == (Code.TOOL_FAILED, True)
    assert "secret value" not in result.text


def test_models_are_made_and_async_functions_awaited(keep: Keep) -> None:
    assert call(keep, "length", {"point": {"x": 3, "y": 4}}).value == 5.0


@pytest.mark.parametrize(
    ("how", "code", "text"),
    [
        ("say why", Code.TOOL_FAILED, "told to"),
        ("raise", Code.TOOL_FAILED, "failed unexpectedly"),
        ("leave", Code.TOOL_FAILED, "ended without an answer"),
        ("talk", Code.OUTPUT_TOO_BIG, "returned more than"),
    ],
)
def test_what_a_tool_does_wrong_is_told_and_nothing_more(how: str, code: Code, text: str, keep: Keep) -> None:
    result = call(keep, "misbehave", {"how": how})
    assert (result.code, text in result.text, "secret value" in result.text) == (code, True, False)


STANDARD = ["clean-start", "memory-limit", "pid-namespace", "user-namespace"]
CONFINED = [
    "clean-start", "ipc-namespace", "landlock", "memory-limit", "mount-namespace", "network-namespace",
    "pid-namespace", "seccomp", "user-namespace",
]  # fmt: skip


@pytest.mark.spec("SBX-1")
@pytest.mark.parametrize(
    ("name", "mechanisms", "has_processes"),
    [
        ("where_standard", STANDARD, True),
        ("where_strict", CONFINED, False),
        ("where_restricted", CONFINED, False),
        ("take_memory", CONFINED, True),
    ],
)
def test_a_result_says_by_what_a_tool_was_confined(
    name: str, mechanisms: list[str], has_processes: bool, keep: Keep, findings: Findings
) -> None:
    result = call(keep, name)
    best = [findings.tree_bound.value] if has_processes and findings.tree_bound else []
    assert (result.ok, result.enforced) == (True, (*sorted(mechanisms + best), "template")), result.text


@pytest.mark.spec("SBX-1")
@pytest.mark.parametrize(
    ("how", "code"),
    [
        ("say why", Code.TOOL_FAILED),
        ("raise", Code.TOOL_FAILED),
        ("leave", Code.TOOL_FAILED),
        ("talk", Code.OUTPUT_TOO_BIG),
        ("sleep", Code.TIMED_OUT),
    ],
)
def test_a_call_that_failed_says_so_too_and_so_does_its_record(how: str, code: Code, keep: Keep) -> None:
    worked = call(keep, "misbehave", {"how": "well"})
    result = call(keep, "misbehave", {"how": how}, timeout_s=1.0 if how == "sleep" else None)
    assert (result.code, result.isolation, result.enforced) == (code, "standard", worked.enforced)
    log = keep._pipeline.record.log
    assert isinstance(log, MemoryLog)
    completed = log.entries[-1].record
    assert (completed["isolation"], completed["enforced"]) == ("standard", list(worked.enforced))


def test_a_call_that_was_not_run_was_not_confined(keep: Keep) -> None:
    keep.declare_agent("ada", capabilities=["fs.write:./absent"])
    result = call(keep, "write", {"path": "absent/a"})
    assert (result.code, result.isolation, result.enforced) == (Code.ISOLATION_UNAVAILABLE, "", ())


@pytest.mark.spec("SBX-1")
def test_children_that_take_too_much_memory_together_are_told_to_the_model(keep: Keep) -> None:
    result = call(keep, "take_memory", {"children": 4})
    assert (result.code, result.isolation) == (Code.TOOL_FAILED, "strict")
    assert "Tool 'take_memory' took more memory than 256 MiB" in result.text


def test_a_tool_is_stopped_at_its_deadline_and_the_answer_does_not_say_that_it_runs(keep: Keep) -> None:
    result = call(keep, "misbehave", {"how": "sleep"}, timeout_s=0.2)
    assert result.code is Code.TIMED_OUT
    assert "still runs" not in result.text
    assert keep._pipeline.admission.running == 0


def test_places_to_run_in_are_counted_by_agent(keep: Keep, monkeypatch: pytest.MonkeyPatch) -> None:
    owners: list[str] = []
    take = WorkerSlots.take

    async def noted(places: WorkerSlots, owner: str) -> None:
        owners.append(owner)
        await take(places, owner)

    monkeypatch.setattr(WorkerSlots, "take", noted)
    assert call(keep, "where_strict").ok
    assert owners == ["ada"]


def test_a_cancelled_call_leaves_nobody(keep: Keep) -> None:
    async def scenario() -> None:
        running = asyncio.create_task(keep.call("misbehave", {"how": "sleep"}, agent="ada"))
        assert await until(lambda: len(descendants(os.getpid())) > len(before) + 1, 60)  # zygote and worker
        running.cancel()
        await asyncio.wait({running})
        assert running.cancelled()
        await keep._pipeline.sandbox.close()

    before = children()
    asyncio.run(scenario())
    assert children() == before


def test_closing_the_keep_ends_every_process(keep: Keep) -> None:
    before = children()
    call(keep, "where_restricted")
    assert len(children()) > len(before)
    keep.close()
    assert children() == before


@pytest.mark.parametrize("level", ["standard", "strict", "restricted"])
def test_a_level_that_this_machine_cannot_give_is_refused_by_name(
    level: str, keep: Keep, monkeypatch: pytest.MonkeyPatch
) -> None:
    poor = Findings(tuple(Finding(one, works=False, reason="not here") for one in Mechanism))
    monkeypatch.setattr(isolation_check, "probe", lambda **_: poor)
    result = call(keep, f"where_{level}")
    assert result.code is Code.ISOLATION_UNAVAILABLE
    assert f"isolation '{level}' is not available here" in result.text


@pytest.mark.parametrize(
    "error", [NotThere("'/srv/x' is not a canonical path"), OSError(2, "gone", "/srv/x")]
)
def test_places_that_changed_while_a_worker_was_prepared_are_not_named(
    keep: Keep, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def changed(*_: object) -> None:
        raise error

    monkeypatch.setattr(sandbox_runner, "grant_for_call", changed)
    result = call(keep, "read", {"path": "docs/a.md"})
    assert (result.code, "/srv" in result.text) == (Code.TOUCHED_CHANGED, False), result.text


@pytest.mark.spec("EXE-2")
@pytest.mark.parametrize("level", ["standard", "strict", "restricted"])
def test_a_result_says_what_its_worker_took(level: str, keep: Keep) -> None:
    results = [call(keep, f"where_{level}") for _ in range(3)]
    assert results[-1].ok, results[-1].text
    for use in (result.resource_use for result in results):
        assert use is not None
        assert (use.cpu_ms or 0) > 0
        assert (use.peak_memory_bytes or 0) > 1 << 20
