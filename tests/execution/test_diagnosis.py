"""The operator reads what a tool was denied, the limit and the traceback; the model a sentence of ours."""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.execution import denied
from tests.execution.denied import TEXT
from toolkeep import Code, Keep, ToolResult
from toolkeep.calls import Denied, Diagnosis
from toolkeep.execution import isolation_check
from toolkeep.sandbox.isolation_levels import Isolation
from toolkeep.sandbox.kernel_probe import Findings, probe

SECRET = "not-a-real-key"


@pytest.fixture(scope="module")
def findings() -> Findings:
    found = probe()
    if found.missing(Isolation.STRICT):
        pytest.skip("this machine does not give strict")
    return found


@pytest.fixture
def keep(findings: Findings, monkeypatch: pytest.MonkeyPatch) -> Iterator[Keep]:
    monkeypatch.setattr(isolation_check, "probe", lambda **_: findings)
    with Keep(tool_secrets={"tell": {"key": SECRET}}) as keep:
        keep.register(denied.exceed, denied.exceed_restricted, denied.tell, denied.sign_in)
        yield keep


def failed(keep: Keep, name: str, arguments: dict[str, Any]) -> tuple[ToolResult, Diagnosis]:
    result = keep.call_sync(name, arguments)
    assert result.code is Code.TOOL_FAILED, result.text
    assert result.error is not None
    assert result.error.diagnosis is not None
    assert keep.diagnosis(result.call_id) == result.error.diagnosis
    return result, result.error.diagnosis


OFFERS = {
    Denied.FILE: "fs.read or fs.write",
    Denied.HOST: "net.read or net.write",
    Denied.PROGRAM: "process.spawn",
    Denied.PROCESSES: "process.spawn",
    Denied.SYSTEM_CALL: "no grant",
}


@pytest.mark.spec("SBX-1")
@pytest.mark.parametrize(
    ("how", "thing", "kind", "subject"),
    [
        ("read", "/home/victim/notes", Denied.FILE, "/home/victim/notes"),
        ("read", "docs/notes", Denied.FILE, "docs/notes"),
        ("write", "/usr/notes", Denied.FILE, "/usr/notes"),
        ("run", "/usr/bin/git", Denied.PROGRAM, "/usr/bin/git"),
        ("fork", "", Denied.PROCESSES, ""),
        ("connect", "inside.example", Denied.HOST, "inside.example:443"),
        ("fetch", "inside.example", Denied.HOST, "inside.example:80"),
        ("call", "", Denied.SYSTEM_CALL, ""),
    ],
)
def test_what_was_denied_is_named_to_the_operator_and_to_a_model_as_its_argument_at_most(
    how: str, thing: str, kind: Denied, subject: str, keep: Keep
) -> None:
    for arguments, path in (({"thing": thing}, "/thing" if thing else ""), ({"mirrored": thing[::-1]}, "")):
        result, diagnosis = failed(keep, "exceed", {"how": how, **arguments})
        assert (diagnosis.denied, diagnosis.subject, diagnosis.limit) == (kind, subject, "")
        assert OFFERS[kind] in diagnosis.remedy
        assert "denied.py" in diagnosis.detail
        assert "function_tool.py" not in diagnosis.detail
        assert result.error is not None
        assert result.error.errors[0].path == path
        for told in (result.text, str(result.to_dict()), repr(result)):
            assert not any(word in told for word in ("Errno", "denied.py", thing or "Errno"))


def test_a_granted_file_whose_parent_folder_is_missing_is_not_called_ungranted(
    keep: Keep, tmp_path: Path
) -> None:
    keep.register(denied.save)
    keep.declare_agent("local", capabilities=[f"fs.write:{tmp_path}"])
    result, diagnosis = failed(keep, "save", {"path": f"{tmp_path}/new/a.txt"})
    assert result.error is not None
    assert result.error.errors[0].path == "/path"
    assert "the parent folder of this file does not exist" in result.text
    assert diagnosis.remedy.startswith("it is granted")
    (tmp_path / "new").mkdir()
    assert keep.call_sync("save", {"path": f"{tmp_path}/new/a.txt"}).value == "saved"


@pytest.mark.parametrize(
    ("how", "thing"),
    [
        ("read", "/home/victim/notes"),
        ("write", "notes"),
        ("run", "/usr/bin/git"),
        ("connect", "inside.example"),
    ],
)
def test_nobody_is_told_to_grant_at_restricted_where_no_grant_counts(
    how: str, thing: str, keep: Keep
) -> None:
    result, diagnosis = failed(keep, "exceed_restricted", {"how": how, "thing": thing})
    assert "require strict" in diagnosis.remedy
    assert result.text.endswith("Try another way, or tell the operator.")


def test_a_worker_that_exits_may_lack_memory(keep: Keep) -> None:
    _, diagnosis = failed(keep, "exceed_restricted", {"how": "exit"})
    assert diagnosis.remedy == "64 MiB of memory may be too little: raise resource_bounds.max_memory"


@pytest.mark.parametrize(
    ("how", "kind", "limit"),
    [
        ("memory", Denied.MEMORY, "512 MiB"),
        ("threads", Denied.PROCESSES, "64"),
        ("files", Denied.OPEN_FILES, "256"),
        ("file", Denied.FILE_SIZE, "64 MiB"),
        ("disk", Denied.DISK_SPACE, "64 MiB"),
        ("processor", Denied.PROCESSOR_TIME, "2 s"),
    ],
)
def test_a_limit_is_named_with_its_number_and_what_raises_it(
    how: str, kind: Denied, limit: str, keep: Keep
) -> None:
    result, diagnosis = failed(keep, "exceed", {"how": how})
    assert (diagnosis.denied, diagnosis.limit) == (kind, limit)
    assert limit in result.text
    assert diagnosis.remedy
    assert ("max_memory" in diagnosis.remedy) is (kind is Denied.MEMORY)
    assert ("max_cpu" in diagnosis.remedy) is (kind is Denied.PROCESSOR_TIME)


@pytest.mark.parametrize("how", ["raise", "read"])
def test_no_word_of_a_tool_reaches_the_model_and_none_rewrites_a_terminal(
    how: str, keep: Keep, caplog: pytest.LogCaptureFixture
) -> None:
    arguments = {"how": how, "mirrored": f"/{TEXT}\x1b[2J"[::-1]}
    result, diagnosis = failed(keep, "exceed", arguments)
    assert TEXT not in result.text
    assert TEXT in diagnosis.text
    (logged,) = [record for record in caplog.records if record.message == "a tool failed"]
    assert logged.levelno == logging.ERROR
    assert vars(logged)["detail"] == diagnosis.detail
    assert "\x1b" not in diagnosis.text


@pytest.mark.spec("VAL-6")
@pytest.mark.parametrize(
    ("name", "arguments", "shown"),
    [("tell", {}, "cannot sign in with (hidden)"), ("sign_in", {"password": SECRET}, "/home/(hidden)")],
)
def test_a_secret_is_hidden_from_the_operator_too(
    name: str, arguments: dict[str, str], shown: str, keep: Keep, caplog: pytest.LogCaptureFixture
) -> None:
    result, diagnosis = failed(keep, name, arguments)
    assert shown in diagnosis.text
    for told in (result.text, diagnosis.text, *(str(vars(record)) for record in caplog.records)):
        assert not any(form in told for form in (SECRET, SECRET[::-1]))
