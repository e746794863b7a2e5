"""WASM modules run in instances of their own; each way in which one goes wrong is a clear answer (SBX-3)."""

import asyncio
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from wasmtime import wat2wasm

from tests.config.projects import accept, configure, configure_home, tool_text
from tests.execution import wat
from toolkeep import Code, Keep, ToolDefinition, ToolResult, WasmTool, open_keep
from toolkeep.execution import wasm_runner
from toolkeep.execution.wasm_preopens import Preopens
from toolkeep.wasm.run import Run

FREE = {"type": "object", "properties": {"text": {"type": "string"}, "path": {"type": "string"}}}


@pytest.fixture
def keep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Keep]:
    for name in ("docs", "out"):
        (tmp_path / name).mkdir()
    (tmp_path / "docs" / "a.md").write_text("hello")
    (tmp_path / "docs" / "b.md").write_text("beside")
    (tmp_path / "secret").write_text("loot")
    monkeypatch.chdir(tmp_path)
    keep = Keep()
    keep.declare_agent("ada", capabilities=["fs.read:./docs", "fs.write:./out", "net.read:example.org"])
    yield keep
    keep.close()


def define(**fields: Any) -> ToolDefinition:
    head = {"name": "tool", "description": "Does it.", "version": "1.0.0", "danger_level": "safe"}
    data = {**head, "parameters": FREE, **fields}
    return ToolDefinition.from_dict(data)


def touching(kind: str, **fields: Any) -> ToolDefinition:
    effects = {"fs.read": ["FsRead"], "fs.write": ["FsWrite"], "net.read": ["NetRead"]}[kind]
    path = {"type": "string", "x-touches": kind}
    properties = {"type": "object", "properties": {"path": path, "also": path}}
    return define(
        parameters=properties, capabilities=[kind], side_effects=effects, danger_level="low", **fields
    )


def run(keep: Keep, body: bytes, arguments: dict[str, Any] | None = None, **given: Any) -> ToolResult:
    """Register a module and call it once."""
    definition = given.pop("definition", None) or define()
    path = wat.write(Path.cwd(), body)
    keep.register(WasmTool(definition, str(path), **given))
    return keep.call_sync("tool", arguments or {}, agent="ada")


def message(result: ToolResult) -> str:
    assert result.error is not None
    return result.error.errors[0].message


# --- what a module gives ------------------------------------------------------------------------


@pytest.mark.parametrize("body", [wat.ECHO, wat.LIBRARY], ids=["command", "library"])
def test_a_module_gets_its_arguments_as_json_and_its_result_says_what_confined_it(
    body: bytes, keep: Keep
) -> None:
    result = run(keep, body, {"text": "Grüße\n" * 2000})
    assert (result.value, result.isolation) == ({"text": "Grüße\n" * 2000}, "wasm"), result.text


def test_plain_text_is_a_result_where_the_tool_says_so(keep: Keep) -> None:
    assert run(keep, wat.speaks("{ not JSON"), output="text").value == "{ not JSON"


def test_a_tool_of_bytes_gives_what_it_writes(keep: Keep) -> None:
    result = run(keep, wat.speaks("no JSON"), definition=define(result_type="binary", normalization="binary"))
    assert result.value == b"no JSON", result.text


def test_each_call_has_an_instance_of_its_own(keep: Keep) -> None:
    counts = wat.library(
        "(i32.store8 (i32.const 0) (i32.add (i32.load8_u (i32.const 0)) (i32.const 1)))"
        "(i32.store8 (i32.const 1) (i32.add (i32.load8_u (i32.const 0)) (i32.const 48)))"
        "(i64.const 0x100000001)"
    )
    assert [run(keep, counts).value, keep.call_sync("tool", {}, agent="ada").value] == [1, 1]


def test_a_library_is_initialized_first(keep: Keep) -> None:
    body = wat.library(
        "(i64.or (i64.const 0x0000000000000001) (i64.shl (i64.extend_i32_u (global.get $where)) (i64.const 32)))",
        more='(global $where (mut i32) (i32.const 0)) (func (export "_initialize") (global.set $where (i32.const 8)))',
        data="7",
    )
    assert run(keep, body).value == 7


def test_a_failed_command_says_why_with_its_last_line(keep: Keep) -> None:
    text = "reading the list\nno such shelf: \u202eB"
    result = run(keep, wat.command(wat.says(text, fd=2) + "(call $proc_exit (i32.const 3))", data=text))
    assert (result.code, message(result)) == (Code.TOOL_FAILED, "no such shelf: \\u202eB")


def test_a_failed_command_that_says_nothing_is_told_by_its_status(keep: Keep) -> None:
    result = run(keep, wat.command("(call $proc_exit (i32.const 3))"))
    assert (result.code, message(result)) == (Code.TOOL_FAILED, "it ended with the exit status 3")


def test_leaving_with_status_zero_is_an_answer_of_a_command(keep: Keep) -> None:
    assert run(keep, wat.command(wat.says("5") + "(call $proc_exit (i32.const 0))", data="5")).value == 5


# --- what goes wrong ----------------------------------------------------------------------------

OVERFLOW = wat.command("(call $deep)", more="(func $deep (call $deep) (call $deep))")
MEMORY_BOMB = wat.command(
    "(loop $more (br_if $more (i32.ne (memory.grow (i32.const 16)) (i32.const -1)))) (unreachable)"
)
ALL = f"(i64.const {(8 << 32) | 70_000})"
FAR = "(i64.const 0x7fffffff00000010)"
GIVES_OTHERS = wat.library("(i64.const 0x0000000800000002)", data="{]")


@pytest.mark.parametrize(
    ("body", "code", "words"),
    [
        pytest.param(wat.command("(unreachable)"), Code.TOOL_FAILED, "trapped (unreachable)", id="trap"),
        pytest.param(
            wat.command("(drop (i32.load (i32.const 0xfffffff0)))"), Code.TOOL_FAILED,
            "trapped (memory out of bounds)", id="bad_address",
        ),
        pytest.param(OVERFLOW, Code.TOOL_FAILED, "overflowed its stack", id="stack_overflow"),
        pytest.param(MEMORY_BOMB, Code.TOOL_FAILED, "trapped (unreachable)", id="memory_bomb"),
        pytest.param(wat.command("", pages=10_000), Code.TOOL_FAILED, "needs more memory", id="memory_at_once"),
        pytest.param(wat.speaks("{]"), Code.OUTPUT_INVALID, "it is not JSON", id="bad_output"),
        pytest.param(wat.speaks("NaN"), Code.OUTPUT_INVALID, "it is not JSON", id="not_a_number"),
        pytest.param(wat.command(""), Code.OUTPUT_INVALID, "gave no output", id="no_output"),
        pytest.param(GIVES_OTHERS, Code.OUTPUT_INVALID, "it is not JSON", id="library_bad_output"),
        pytest.param(wat.library("(i64.const 0)"), Code.OUTPUT_INVALID, "gave no output", id="library_no_output"),
        pytest.param(wat.library(ALL), Code.OUTPUT_INVALID, "outside of its memory", id="result_too_long"),
        pytest.param(wat.library(FAR), Code.OUTPUT_INVALID, "outside of its memory", id="result_elsewhere"),
        pytest.param(
            wat.library(wat.PACKED, alloc="(i32.const -1)"), Code.OUTPUT_INVALID, "by alloc", id="room_elsewhere"
        ),
        pytest.param(wat.library("(unreachable)"), Code.TOOL_FAILED, "trapped", id="library_trap"),
    ],
)  # fmt: skip
def test_a_module_that_goes_wrong_is_answered_for(body: bytes, code: Code, words: str, keep: Keep) -> None:
    result = run(keep, body)
    assert result.code is code, result.text
    assert "'tool'" in result.text
    assert words in result.text


def test_text_that_is_not_utf_8_is_no_text(keep: Keep) -> None:
    body = wat.command(
        "(i32.store8 (i32.const 64) (i32.const 0xff)) (call $write (i32.const 1) (i32.const 64) (i32.const 1))"
    )
    assert run(keep, body, output="text").code is Code.OUTPUT_INVALID


@pytest.mark.parametrize("output", ["command", "library"])
def test_a_module_that_gives_too_much_is_stopped(
    output: str, keep: Keep, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wasm_runner, "OUTPUT_CAP_BYTES", 10_000)
    floods = wat.command("(loop $on (call $write (i32.const 1) (i32.const 0) (i32.const 4096)) (br $on))")
    result = run(keep, floods if output == "command" else wat.library(f"(i64.const {20_000})"))
    assert result.code is Code.OUTPUT_TOO_BIG, result.text


MODULE_OF_NOTHING = bytes(wat2wasm("(module)"))
STRANGE = bytes(
    wat2wasm('(module (import "env" "fetch" (func)) (memory (export "memory") 1) (func (export "_start")))')
)
OLD = bytes(
    wat2wasm(
        '(module (import "wasi_unstable" "poll_oneoff" (func (param i32 i32 i32 i32) (result i32)))'
        ' (memory (export "memory") 1) (func (export "_start")))'
    )
)
TOO_NEW = bytes(
    wat2wasm(
        '(module (import "wasi_snapshot_preview1" "shine" (func)) (memory (export "memory") 1) (func (export "_start")))'
    )
)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        pytest.param(b"#!/bin/sh\n", "is not a WASM module", id="not_wasm"),
        pytest.param(b"", "is not a WASM module", id="empty"),
        pytest.param(b"\0asm\x0d\0\x01\0", "is a WASM component", id="component"),
        pytest.param(b"\0asm\x02\0\0\0", "unknown version", id="version"),
        pytest.param(wat.ECHO[:-3], "that is broken", id="cut"),
        pytest.param(MODULE_OF_NOTHING, "neither _start nor", id="no_exports"),
        pytest.param(bytes(wat2wasm('(module (func (export "_start")))')), "not a WASI command", id="no_memory"),
        pytest.param(STRANGE, "imports env.fetch, which is not there", id="imports"),
        pytest.param(OLD, "imports wasi_unstable.poll_oneoff", id="older_wasi"),
        pytest.param(TOO_NEW, "unknown to wasi_snapshot_preview1", id="unknown_wasi"),
        pytest.param(
            bytes(wat2wasm('(module (memory i64 1))')), "that is broken", id="memory64"
        ),
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_run_is_refused_with_what_to_do(body: bytes, words: str, keep: Keep) -> None:
    result = run(keep, body)
    assert result.code is Code.NOT_RUNNABLE, result.text
    assert words in result.text
    assert str(Path.cwd()) not in result.text  # where files lie is no business of a model


def test_a_missing_file_and_a_folder_are_refused(keep: Keep) -> None:
    for number, path in enumerate(("nowhere.wasm", "docs")):
        keep.register(WasmTool(define(name=f"tool_{number}"), path))
    assert "does not exist" in keep.call_sync("tool_0", {}, agent="ada").text
    assert keep.call_sync("tool_1", {}, agent="ada").code is Code.NOT_RUNNABLE


@pytest.mark.parametrize("level", ["none", "strict", "restricted"])
def test_a_level_that_wasm_does_not_give_is_refused(level: str, keep: Keep) -> None:
    result = run(keep, wat.ECHO, definition=define(constraints={"required_isolation": level}))
    assert result.code is Code.ISOLATION_UNAVAILABLE, result.text
    assert level in result.text


def test_standard_is_less_than_what_wasm_gives(keep: Keep) -> None:
    assert run(keep, wat.ECHO, definition=define(constraints={"required_isolation": "standard"})).ok


def test_without_wasmtime_the_extra_is_named(keep: Keep, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wasmtime", None)
    result = run(keep, wat.ECHO)
    assert result.code is Code.NOT_RUNNABLE
    assert "pip install 'toolkeep[wasm]'" in result.text


def test_another_wasmtime_is_refused(keep: Keep, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.metadata.version", lambda _: "49.0.0")
    assert "wasmtime 50 is needed, not 49.0.0" in run(keep, wat.ECHO).text


AFTER_ANOTHER_HANDLER = """
import faulthandler, sys
from toolkeep import Keep, ToolDefinition, WasmTool

keep = Keep()
for name, path in zip(("good", "bad"), sys.argv[1:]):
    keep.register(WasmTool(ToolDefinition.from_dict({"name": name, "description": "Does it."}), path))
keep.call_sync("good", {})
faulthandler.enable()
print(keep.call_sync("bad", {}).code)
"""


def test_a_bad_address_does_not_end_a_host_that_handles_signals_itself(tmp_path: Path) -> None:
    bad = wat.command("(drop (i32.load (i32.const 0xfffffff0)))")
    paths = [wat.write(tmp_path, wat.ECHO, "good.wasm"), wat.write(tmp_path, bad, "bad.wasm")]
    done = subprocess.run(
        [sys.executable, "-c", AFTER_ANOTHER_HANDLER, *map(str, paths)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, f"{Code.TOOL_FAILED}\n"), done.stderr


# --- limits -------------------------------------------------------------------------------------


def running(patience_s: float = 10) -> list[threading.Thread]:
    """The threads of tools that do not end by themselves; one that has answered takes a moment to."""
    found = [thread for thread in threading.enumerate() if thread.name == "toolkeep-tool"]
    for thread in found:
        thread.join(patience_s)
    return [thread for thread in found if thread.is_alive()]


@pytest.mark.spec("EXE-4")
@pytest.mark.parametrize("body", [wat.LOOP, wat.SLEEP], ids=["loop", "sleep"])
def test_a_module_ends_at_its_deadline_also_inside_of_a_host_function(body: bytes, keep: Keep) -> None:
    keep.register(WasmTool(define(), str(wat.write(Path.cwd(), body))))
    result = keep.call_sync("tool", {}, agent="ada", timeout_s=0.1)
    assert result.code is Code.TIMED_OUT
    assert "still runs" not in result.text
    assert running() == []


@pytest.mark.spec("EXE-4")
@pytest.mark.parametrize("body", [wat.LOOP, wat.SLEEP], ids=["loop", "sleep"])
def test_a_cancelled_call_ends_its_module(body: bytes, keep: Keep, monkeypatch: pytest.MonkeyPatch) -> None:
    keep.register(WasmTool(define(), str(wat.write(Path.cwd(), body))))
    started = threading.Event()
    plain = Run.answer

    def answer(*given: Any) -> Any:
        started.set()
        return plain(*given)

    monkeypatch.setattr(Run, "answer", answer)

    async def cancelled() -> None:
        call = asyncio.create_task(keep.call("tool", {}, agent="ada"))
        await asyncio.to_thread(started.wait)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call

    asyncio.run(cancelled())
    assert running() == []
    assert keep._pipeline.admission.running == 0


def test_a_module_ends_when_its_fuel_is_used_up(keep: Keep) -> None:
    result = run(keep, wat.LOOP, fuel=1_000_000)
    assert result.code is Code.TOOL_FAILED
    assert "used up its fuel" in result.text


def test_fuel_follows_from_the_deadline_and_the_share_of_a_core(
    keep: Keep, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wasm_runner, "FUEL_PER_SECOND", 1_000_000)
    bounds = {"resource_bounds": {"max_cpu": 0.5}, "constraints": {"max_execution_time": 2}}
    assert "used up its fuel" in run(keep, wat.LOOP, definition=define(**bounds)).text


def test_memory_is_what_the_definition_grants(keep: Keep) -> None:
    grows = wat.command(
        "(local.set $n (memory.grow (i32.const 63))) (call $say (i32.and (local.get $n) (i32.const 31)))"
    )
    assert run(keep, grows).value == "01"  # one page before
    keep.register(WasmTool(define(name="small", resource_bounds={"max_memory": 1 << 20}), "tool.wasm"))
    assert keep.call_sync("small", {}, agent="ada").value == "31"  # -1


def test_other_calls_go_on_while_a_module_runs(keep: Keep) -> None:
    keep.register(WasmTool(define(), str(wat.write(Path.cwd(), wat.LOOP, "loop.wasm"))))
    keep.register(WasmTool(define(name="echo"), str(wat.write(Path.cwd(), wat.ECHO, "echo.wasm"))))

    async def both() -> list[ToolResult]:
        loops = asyncio.create_task(keep.call("tool", {}, agent="ada", timeout_s=0.5))
        echoes = [await keep.call("echo", {"text": str(n)}, agent="ada") for n in range(5)]
        return [*echoes, await loops]

    *echoes, looped = asyncio.run(both())
    assert [one.value for one in echoes] == [{"text": str(n)} for n in range(5)]
    assert looped.code is Code.TIMED_OUT


def test_results_of_calls_at_once_are_not_mixed_up(keep: Keep) -> None:
    keep.register(WasmTool(define(), str(wat.write(Path.cwd(), wat.ECHO))))

    async def many() -> list[ToolResult]:
        return await asyncio.gather(
            *(keep.call("tool", {"text": f"{n}" * 5000}, agent="ada") for n in range(40))
        )

    assert [one.value for one in asyncio.run(many())] == [{"text": f"{n}" * 5000} for n in range(40)]


# --- what a module reaches ----------------------------------------------------------------------

ACCESS, BAD_DESCRIPTOR, MISSING, NOT_PERMITTED = "02", "08", "44", "63"
WRITES = 64


def test_a_module_has_no_environment_no_folder_and_no_socket(keep: Keep) -> None:
    body = wat.command(
        """(drop (call $environ_sizes_get (i32.const 2048) (i32.const 2052)))
           (if (i32.load (i32.const 2048)) (then (unreachable)))
           (if (i32.eqz (call $sock_accept (i32.const 0) (i32.const 0) (i32.const 2048))) (then (unreachable)))
           (call $say (call $fd_prestat_get (i32.const 3) (i32.const 2048)))"""
    )
    assert run(keep, body).value == BAD_DESCRIPTOR


@pytest.mark.spec("POL-1")
@pytest.mark.parametrize(
    ("name", "found"),
    [("a.md", "hello"), ("../secret", NOT_PERMITTED), ("link", NOT_PERMITTED), ("none", MISSING)],
)
def test_a_module_reads_in_the_folder_of_its_call_and_not_beyond(name: str, found: str, keep: Keep) -> None:
    Path("docs/link").symlink_to("../secret")
    assert run(keep, wat.opens(name), {"path": "docs"}, definition=touching("fs.read")).value == found


@pytest.mark.spec("POL-7")
@pytest.mark.usefixtures("keep")
def test_a_folder_that_holds_the_state_is_not_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    docs = Path("docs").absolute()
    monkeypatch.setenv("TOOLKEEP_HOME", str(docs / "state"))
    monkeypatch.chdir("out")
    with open_keep() as other:
        other.declare_agent("ada", capabilities=[f"fs.read:{docs}"])
        result = run(other, wat.opens("a.md"), {"path": str(docs)}, definition=touching("fs.read"))
    assert (result.code, "contains the state" in result.text) == (Code.ISOLATION_UNAVAILABLE, True), (
        result.text
    )


@pytest.mark.spec("POL-1")
@pytest.mark.parametrize(("name", "create"), [("a.md", False), ("new", True)])
def test_a_folder_that_is_read_is_not_written(name: str, create: bool, keep: Keep) -> None:
    body = wat.opens(name, rights=WRITES, create=create)
    assert run(keep, body, {"path": "docs"}, definition=touching("fs.read")).value == NOT_PERMITTED
    assert sorted(path.name for path in Path("docs").iterdir()) == ["a.md", "b.md"]
    assert Path("docs/a.md").read_text() == "hello"


def test_a_folder_that_is_written_is_written(keep: Keep) -> None:
    assert run(
        keep, wat.opens("new", rights=WRITES, create=True), {"path": "out"}, definition=touching("fs.write")
    ).ok
    assert Path("out/new").read_text() == "new"


@pytest.mark.spec("POL-1")
def test_a_module_that_reads_one_file_does_not_see_the_one_beside_it(keep: Keep) -> None:
    assert (
        run(keep, wat.opens("a.md"), {"path": "docs/a.md"}, definition=touching("fs.read")).value == "hello"
    )
    beside = WasmTool(
        touching("fs.read", name="beside"), str(wat.write(Path.cwd(), wat.opens("b.md"), "b.wasm"))
    )
    writes = wat.write(Path.cwd(), wat.opens("a.md", rights=WRITES), "c.wasm")
    keep.register(beside, WasmTool(touching("fs.read", name="writes"), str(writes)))
    assert keep.call_sync("beside", {"path": "docs/a.md"}, agent="ada").value == MISSING
    assert keep.call_sync("writes", {"path": "docs/a.md"}, agent="ada").value == NOT_PERMITTED
    both = keep.call_sync("beside", {"path": "docs/a.md", "also": "docs/b.md"}, agent="ada")
    assert both.value == "beside"


def test_the_copy_of_a_file_is_gone_after_the_call(
    keep: Keep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "copies").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "copies"))
    assert run(keep, wat.opens("a.md"), {"path": "docs/a.md"}, definition=touching("fs.read")).ok
    assert list((tmp_path / "copies").iterdir()) == []


def test_a_file_that_is_too_long_to_copy_is_refused(keep: Keep, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolkeep.execution.wasm_preopens.COPIED_BYTES", 4)
    result = run(keep, wat.opens("a.md"), {"path": "docs/a.md"}, definition=touching("fs.read"))
    assert result.code is Code.ISOLATION_UNAVAILABLE
    assert "name its folder" in result.text


@pytest.mark.parametrize("path", ["out/old", "out/new"])
def test_a_single_file_is_not_granted_for_writing(path: str, keep: Keep) -> None:
    Path("out/old").write_text("old")
    result = run(keep, wat.opens("old", rights=WRITES), {"path": path}, definition=touching("fs.write"))
    assert result.code is Code.ISOLATION_UNAVAILABLE
    assert "let its parameter name a folder" in result.text


@pytest.mark.spec("POL-7")
def test_a_folder_that_holds_what_nobody_may_write_is_not_granted_for_writing(keep: Keep) -> None:
    Path("out/deep/.git").mkdir(parents=True)
    result = run(
        keep, wat.opens("new", rights=WRITES, create=True), {"path": "out"}, definition=touching("fs.write")
    )
    assert result.code is Code.ISOLATION_UNAVAILABLE
    assert ".git" in result.text


def test_a_call_that_needs_the_network_is_refused(keep: Keep) -> None:
    result = run(keep, wat.ECHO, {"path": "https://example.org"}, definition=touching("net.read"))
    assert result.code is Code.ISOLATION_UNAVAILABLE
    assert "net.read" in result.text


@pytest.mark.spec("POL-1")
def test_the_folder_that_was_checked_is_opened_whatever_lies_at_its_name_by_then(
    keep: Keep, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("elsewhere").mkdir()
    Path("elsewhere/a.md").write_text("loot")
    plain = Preopens.opened

    def swapped(places: Preopens) -> Any:
        Path("docs").rename("moved")
        Path("elsewhere").rename("docs")
        return plain(places)

    monkeypatch.setattr(Preopens, "opened", swapped)
    assert run(keep, wat.opens("a.md"), {"path": "docs"}, definition=touching("fs.read")).value == "hello"


OPENS_MANY = """(loop $more
         (if (call $path_open (i32.const 3) (i32.const 1) (i32.const 1024) (i32.const 4) (i32.const 0) (i64.const 2)
               (i64.const 0) (i32.const 0) (i32.const 2048)) (then (call $say (i32.const 33)) (return)))
         CLOSE
         (br_if $more (i32.lt_u (local.tee $n (i32.add (local.get $n) (i32.const 1))) (i32.const 1000))))
       (call $say (i32.const 0))"""


@pytest.mark.parametrize(
    ("close", "errno"), [("", "33"), ("(drop (call $fd_close (i32.load (i32.const 2048))))", "00")]
)
def test_a_module_holds_so_many_files_open_and_no_more(close: str, errno: str, keep: Keep) -> None:
    body = wat.command(OPENS_MANY.replace("CLOSE", close), data="a.md")
    assert run(keep, body, {"path": "docs"}, definition=touching("fs.read")).value == errno


def test_a_module_that_waits_for_a_file_is_answered_for_and_holds_its_slot(keep: Keep) -> None:
    assert run(keep, wat.opens("pipe"), {"path": "docs"}, definition=touching("fs.read")).value == MISSING
    os.mkfifo("docs/pipe")
    result = keep.call_sync("tool", {"path": "docs"}, agent="ada", timeout_s=0.5)
    assert (result.code, "still runs" in result.text) == (Code.TIMED_OUT, True)
    (waiting,) = running(1)
    assert keep._pipeline.admission.running == 1
    os.close(os.open("docs/pipe", os.O_WRONLY))
    keep.close()
    waiting.join()


# --- the log ------------------------------------------------------------------------------------


KEYS = {"type": "array", "items": {"type": "string", "x-secret": True}}


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({}, "psst"),
        ({"sensitive": True}, ""),
        ({"parameters": {"type": "object", "properties": {"keys": KEYS}}}, ""),
    ],
    ids=["plain", "sensitive", "a secret inside a parameter"],
)
def test_the_log_has_the_hash_of_the_module_and_its_standard_error(
    fields: dict[str, Any], said: str, keep: Keep, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "toolkeep.execution")
    body = wat.command(wat.says("psst", fd=2) + wat.says("psst"), data="psst")
    assert run(keep, body, output="text", definition=define(**fields)).ok
    (record,) = (vars(one) for one in caplog.records if one.getMessage() == "a WASM module ran")
    assert (len(record["sha256"]), record["stderr"]) == (64, said)


# --- configuration ------------------------------------------------------------------------------


def test_a_configured_module_runs_and_its_compiled_form_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    wat.write(tmp_path, wat.ECHO, "greet.wasm")
    configure(tmp_path, tool_text("run: {wasm: greet.wasm}"))
    accept(tmp_path)
    with open_keep(project=tmp_path) as keep:
        assert keep.call_sync("greet", {}).value == {}
    assert len(list((tmp_path / "cache" / "toolkeep" / "wasm").iterdir())) == 1


def test_a_module_of_the_user_is_named_from_the_root_or_the_home(tmp_path: Path) -> None:
    wat.write(Path.home(), wat.ECHO, "greet.wasm")
    configure_home(tool_text("run: {wasm: greet.wasm}"))
    with open_keep(project=tmp_path) as keep:
        result = keep.call_sync("greet", {})
    assert (result.code, "write it from / or ~" in result.text) == (Code.NOT_RUNNABLE, True)
    configure_home(tool_text("run: {wasm: ~/greet.wasm}"))
    with open_keep(project=tmp_path) as keep:
        assert keep.call_sync("greet", {}).ok


@pytest.mark.parametrize("wrong", [{"output": "xml"}, {"fuel": 0}, {"fuel": -5}])
def test_a_tool_of_code_that_is_said_wrong_is_refused_where_it_is_made(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="is"):
        WasmTool(define(), "tool.wasm", **wrong)
