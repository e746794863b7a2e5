"""`toolkeep call` that is interrupted, or has no room: what became of the call is on record, and said."""

import asyncio
import errno
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.storage.test_full_disk import disk, small_disk
from toolkeep.audit.signed_note import Note
from toolkeep.cli.call import until_told
from toolkeep.cli.main import cli
from toolkeep.storage.log.audit_log import AuditLog
from toolkeep.storage.log.checkpoint_files import Checkpoints
from toolkeep.storage.log.verify_folder import verify

__all__ = ("disk", "small_disk")

CONFIG = """
tool_registry:
  custom_tools:
    - name: wait_long
      description: Wait for a minute, as something that writes.
      version: 1.0.0
      danger: safe
      side_effects: [DbWrite]
      capabilities: ["db.write:notes"]
      parameters: {type: object, properties: {}}
      run: {command: [sleep, "60"]}
agents:
  operator:
    capabilities: ["db.write:notes"]
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The home of a user with a tool that takes long."""
    (tmp_path / "home" / ".agent").mkdir(parents=True)
    (tmp_path / "home" / ".agent" / "config.yml").write_text(CONFIG)
    (tmp_path / "project").mkdir()
    return tmp_path / "home"


def environment(home: Path) -> dict[str, str]:
    return {**os.environ, "HOME": str(home), "TOOLKEEP_HOME": str(home / "state")}


def call(home: Path, *arguments: str, is_detached: bool = False) -> "subprocess.Popen[str]":
    def hear_all() -> None:
        for sig in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # a shell's background job ignores some
            signal.signal(sig, signal.SIG_DFL)
        if is_detached:  # as `nohup` does
            signal.signal(signal.SIGHUP, signal.SIG_IGN)

    return subprocess.Popen(
        [sys.executable, "-m", "toolkeep", "call", *arguments],
        cwd=home.parent / "project",
        env=environment(home),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=hear_all,  # noqa: PLW1509 -- sets two handlers, and takes no lock
    )


def records(home: Path) -> list[dict[str, Any]]:
    return [entry.record for entry in AuditLog(home / "state").read()]


def begun(home: Path, process: "subprocess.Popen[str]") -> Iterator[None]:
    """Until the call has its first record."""
    while not any(record["type"] == "ToolInvoked" for record in records(home)):
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
        yield


def is_running(program: str, below: int) -> bool:
    """Whether a process has a descendant that runs a program."""
    try:
        children = Path(f"/proc/{below}/task/{below}/children").read_text().split()
        named = Path(f"/proc/{below}/comm").read_text().strip()
    except FileNotFoundError:  # it ended meanwhile
        return False
    return named == program or any(is_running(program, int(child)) for child in children)


@pytest.mark.parametrize("told", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.spec("AUD-1")
def test_a_call_whose_process_is_told_to_end_has_its_end_on_record(home: Path, told: signal.Signals) -> None:
    process = call(home, "wait_long", "{}", "--key", "once")
    for _ in begun(home, process):
        pass
    while not is_running("sleep", below=process.pid):
        assert process.poll() is None
        time.sleep(0.01)
    assert verify(home / "state").open_calls == 1
    assert "1 call without an outcome" in str(verify(home / "state"))
    process.send_signal(told)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 128 + told
    assert f"ended by {told.name}" in errors
    last = records(home)[-1]
    assert (last["type"], last["status"], last["codes"]) == ("ToolCompleted", "error", ["ACODE-TSR-040"])
    report = verify(home / "state")
    assert (report.is_intact, report.uncovered, report.open_calls) == (True, 0, 0)
    again = call(home, "wait_long", "{}", "--key", "once", "--json")
    output, _ = again.communicate(timeout=60)
    (said,) = json.loads(output)["error"]["errors"]
    assert said["code"] == "ACODE-TSR-040"
    assert "Find out what it did" in output
    assert "Call it again" not in output


def test_a_call_that_outlives_its_terminal_is_not_ended_by_it(home: Path) -> None:
    process = call(home, "wait_long", "{}", is_detached=True)
    for _ in begun(home, process):
        pass
    for told in (signal.SIGHUP, signal.SIGTERM):
        process.send_signal(told)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM
    assert "ended by SIGTERM" in errors


def test_whoever_handled_a_signal_before_a_call_handles_it_afterwards() -> None:
    async def soon() -> Any:
        return "done"

    keep: Any = None  # asked for nothing where nobody is told to end
    before = {told: signal.getsignal(told) for told in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    result: Any = asyncio.run(until_told(soon(), keep))
    assert result == "done"
    assert {told: signal.getsignal(told) for told in before} == before


def test_a_killed_call_is_counted_as_open_and_is_no_finding(home: Path) -> None:
    process = call(home, "wait_long", "{}")
    for _ in begun(home, process):
        pass
    process.kill()
    process.communicate(timeout=60)
    report = verify(home / "state")
    assert (report.is_intact, report.open_calls) == (True, 1)
    assert report.to_dict()["open_calls"] == 1


# --- a full disk ---------------------------------------------------------------------------------

FULL = """
import asyncio, json, os, sys
from pathlib import Path
from toolkeep import open_keep, tool

disk = Path(sys.argv[1])


def fill():
    with (disk / "filler").open("wb", buffering=0) as filler:
        for size in (65536, 4096, 1):
            try:
                while True:
                    filler.write(b"x" * size)
            except OSError:
                pass


@tool(danger="safe", side_effects=["DbWrite"], capabilities=["db.write:notes"])
async def act() -> str:
    \"\"\"Act, and leave no room on the disk.\"\"\"
    fill()
    return "done"


async def main():
    keep = open_keep(built_in=False)
    keep.declare_agent("local", capabilities=["db.write:notes"])
    keep.register(act)
    ended = {}
    for _ in range(200):  # the last page of the log has room for some records
        if len(ended) == 2:
            break
        result = await keep.call("act", {})
        if result.code is not None:
            ended.setdefault(result.code.value, (result.value, result.text))
    print(json.dumps(ended), flush=True)
    os._exit(0)  # what cannot be closed on a full disk is not what this is about


asyncio.run(main())
"""


@pytest.mark.spec("AUD-3")
def test_a_call_that_ran_into_a_full_disk_says_that_it_ran_and_one_before_it_that_it_did_not(
    small_disk: Path, tmp_path: Path
) -> None:
    (tmp_path / "home").mkdir()
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(small_disk)],
        cwd=tmp_path / "home",
        env={**os.environ, "HOME": str(tmp_path / "home"), "TOOLKEEP_HOME": str(small_disk / "state")},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    ran = (
        "Call to 'act' failed.\n- The tool ran, and its outcome could not be recorded (LogUnwritable); "
        "the result is withheld. Do not call it again: it would run twice. Tell the operator."
    )
    refused = (
        "Call to 'act' refused: 1 problem.\n- The call could not be recorded (LogUnwritable); "
        "nothing was run. Tell the operator."
    )
    assert json.loads(done.stdout) == {"ACODE-TSR-088": [None, ran], "ACODE-TSR-041": [None, refused]}


def test_the_command_prints_a_result_that_is_recorded_though_the_log_cannot_be_closed(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("TOOLKEEP_HOME", str(home / "state"))

    def no_room(self: Checkpoints, size: int, root: bytes, *, is_kept: bool) -> Note:
        if size and is_kept:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return sign(self, size, root, is_kept=is_kept)

    sign = Checkpoints.sign
    monkeypatch.setattr(Checkpoints, "sign", no_room)
    with pytest.raises(SystemExit) as ended:
        cli(["call", "agent_hello_world", '{"name": "Ada"}', "--project", str(home.parent / "project")])
    shown = capsys.readouterr()
    assert ended.value.code == 1
    assert "Ada" in shown.out
    assert "No space left on device" in shown.err


INSIDE = """
tool_registry:
  custom_tools:
    - name: find_book
      description: Find a book.
      version: 1.0.0
      side_effects: [NetRead]
      capabilities: ["net.read:localhost"]
      parameters: {type: object, properties: {}}
      run: {http: {url: "http://localhost/", method: GET}}
agents:
  operator:
    capabilities: ["net.read:localhost"]
"""


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_what_was_denied_is_printed_for_the_operator_alone(options: tuple[str, ...], home: Path) -> None:
    """An agent that runs the command is given its standard output."""
    (home / ".agent" / "config.yml").write_text(INSIDE)
    called = call(home, "find_book", "{}", *options)
    output, errors = called.communicate(timeout=60)
    assert called.returncode == 1
    told = str(json.loads(output)["error"]) if options else output
    assert ("find_book" in told, "localhost" in told, "Denied" in output) == (True, False, False), output
    assert "Denied: host localhost\n" in errors
