"""`toolkeep call` and `toolkeep audit`: from a call to its proof, and what happens to a log that was touched."""

import json
import re
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from tests.cli.dialogue import Dialogue
from toolkeep import open_keep
from toolkeep.cli.audit import entries_of_call, list_calls, log_of
from toolkeep.cli.main import cli
from toolkeep.errors import NotRecorded
from toolkeep.server.api.recorded_calls import CallFilters
from toolkeep.server.api.statistics import PERIODS, StatisticsView
from toolkeep.storage.log.witness_folder import Witness

pytestmark = pytest.mark.spec("AUD-4")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TOOLKEEP_HOME", str(tmp_path / "state"))
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


def run(project: Path, *arguments: str) -> Result:
    return CliRunner().invoke(cli, [*arguments, "--project", str(project)], catch_exceptions=False)


def data(project: Path, *arguments: str) -> Any:
    return json.loads(run(project, *arguments, "--json").stdout)


def greeted(project: Path, name: str = "Ada") -> str:
    """Call the built-in tool; the id of the call."""
    result = data(project, "call", "agent_hello_world", json.dumps({"name": name}))
    assert result["status"] == "ok"
    return str(result["call_id"])


def test_a_call_prints_the_value_and_ends_with_zero(project: Path) -> None:
    result = run(project, "call", "agent_hello_world", '{"name": "Ada"}')
    assert result.exit_code == 0
    assert json.loads(result.stdout)["Message"] == "Hello, Ada! Nice to meet you."


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("agent_hello_world", '{"name": ""}'), "034"),
        (("agent_hello_world", "{}"), "003"),
        (("nobody", "{}"), "001"),
    ],
)
def test_a_call_that_does_not_work_ends_with_one(
    project: Path, arguments: tuple[str, ...], code: str
) -> None:
    result = run(project, "call", *arguments, "--json")
    assert (result.exit_code, json.loads(result.stdout)["error"]["errors"][0]["code"]) == (
        1,
        f"ACODE-TSR-{code}",
    )


def test_a_call_with_a_key_is_made_once(project: Path) -> None:
    first, second = (
        data(project, "call", "agent_hello_world", '{"name": "Ada"}', "--key", "k") for _ in range(2)
    )
    assert (second["call_id"], second["is_repeated"]) == (first["call_id"], True)


def test_the_records_of_a_call_are_listed_and_shown_with_their_bodies(project: Path) -> None:
    call = greeted(project)
    listed = data(project, "audit", "list")
    types = ["ToolInvoked", "CapabilityCheck", "PolicyDecision", "ToolCompleted"]
    assert [row["type"] for row in listed] == types
    shown = data(project, "audit", "show", call)
    assert (shown[0]["arguments"], shown[3]["result"]["Message"][:5]) == ({"name": "Ada"}, "Hello")
    assert shown[0]["sentence"].startswith(
        "operator called agent_hello_world: allowed by its grant, done in "
    )
    refused = run(project, "call", "agent_hello_world", '{"nme": "Ada"}')
    assert refused.exit_code != 0
    (told,) = data(project, "audit", "show", data(project, "audit", "list", "--limit", "1")[0]["call"])
    assert (told["received"], told["refusal"][0]) == (
        {"nme": "Ada"},
        "Call to 'agent_hello_world' refused: 2 problems.",
    )
    assert "arguments are not valid at /name: required property" in told["sentence"]
    assert data(project, "audit", "show", "3") == [shown[3]]
    assert data(project, "audit", "list", "--tool", "other") == []


@pytest.mark.parametrize("digits", ["78137099", "7813709e"])
def test_a_list_shows_as_much_of_the_id_of_a_call_as_names_it(
    project: Path, digits: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolkeep.keep.pipeline.random_digits", lambda: digits * 8)  # some look like an index
    call = greeted(project)
    heading, first, *_, last = run(project, "audit", "list").stdout.splitlines()[:5]
    assert heading.split() == ["INDEX", "TIME", "CALL", "OUTCOME", "EVENT", "TOOL", "AGENT"]
    assert first.split()[2:] == [call[:8], "ToolInvoked", "agent_hello_world", "operator"]
    assert last.split()[2:] == [call[:8], "ok", "ToolCompleted", "agent_hello_world", "operator"]
    assert heading.index("TOOL") == first.index("agent_hello") == last.index("agent_hello")
    shown = data(project, "audit", "show", call)
    assert [data(project, "audit", "show", call[:end]) for end in (8, 16)] == [shown, shown]
    assert data(project, "audit", "receipt", call[:16])["record"]["call"] == call


@pytest.mark.spec("CLI-1")
def test_every_record_of_a_call_has_its_tool_and_agent_and_is_found_by_them(project: Path) -> None:
    greeted(project)
    run(project, "call", "write_file", '{"path": "a", "content": "b"}')
    listed = data(project, "audit", "list", "--tool", "agent_hello_world", "--agent", "operator")
    assert [row["type"] for row in listed] == [
        "ToolInvoked", "CapabilityCheck", "PolicyDecision", "ToolCompleted",
    ]  # fmt: skip
    assert {(row["tool"], row["agent"]) for row in listed} == {("agent_hello_world", "operator")}


@pytest.mark.spec("CLI-1")
def test_a_row_of_the_log_fits_80_columns_with_outcome_event_tool_and_agent(project: Path) -> None:
    run(project, "call", "agent_hello_world", "{}")
    greeted(project)
    with Dialogue(["audit", "list"], cwd=project, columns=80) as dialogue:
        _, shown = dialogue.end()
    heading, *rows, _, _ = click.unstyle(shown).splitlines()
    assert heading.split() == ["TIME", "CALL", "OUTCOME", "EVENT", "TOOL", "AGENT"]
    assert max(map(len, rows)) <= 80
    assert rows[0].split()[2:5] == ["refused", "TSR-003", "ToolInvoked"]
    assert rows[-1].split()[2:4] == ["ok", "ToolCompleted"]
    assert all("agent_hello" in row and row.endswith("operator") for row in rows)


@pytest.mark.spec("CLI-1")
def test_the_log_is_followed_until_ctrl_c(project: Path) -> None:
    greeted(project)
    tail = ["audit", "tail", "--limit", "1", "--tool", "agent_hello_world"]
    with Dialogue(tail, cwd=project, columns=80) as dialogue:
        assert dialogue.until("ToolCompleted").count("agent_hello_world") == 1
        run(project, "call", "list_directory", '{"path": "."}')
        greeted(project)
        shown = dialogue.until("ToolCompleted    agent_hello_world   operator")
        dialogue.enter("\x03")
        status, _ = dialogue.end()
    assert ("ToolInvoked" in shown, "list_d" in dialogue.shown, status) == (True, False, 0)
    assert "Traceback" not in dialogue.shown


def test_a_list_says_what_the_log_itself_recorded(project: Path) -> None:
    greeted(project)
    run(project, "audit", "rotate-key")
    *_, called, rotated = data(project, "audit", "list")
    assert (rotated["type"], len(rotated["time"])) == ("KeyRotated", len(called["time"]))
    assert "KeyRotated" in run(project, "audit", "list").stdout


def test_part_of_an_id_names_no_call_where_it_could_be_another() -> None:
    ids = ["abcdefgh01", "abcdefgh02", "abcdefgi03"]
    entries = [SimpleNamespace(record={"call": call}) for call in [*ids, *ids]] + [SimpleNamespace(record={})]
    log: Any = SimpleNamespace(read=lambda: entries)
    assert entries_of_call(log, "abcdefgi") == [entries[2], entries[5]]
    # Whoever calls chooses a correlation id, also that of another call.
    asked = SimpleNamespace(record={"call": "call-0004", "correlation_id": "abcdefgi03"})
    answered = SimpleNamespace(record={"call": "call-0004", "id": "approval-1"})
    entries += [asked, answered]
    assert entries_of_call(log, "abcdefgi") == [entries[2], entries[5]]
    assert entries_of_call(log, "approval") == [asked, answered]
    asked.record["correlation_id"] = "correlation"
    assert entries_of_call(log, "correlat") == [asked, answered]
    for part, reason in (
        ("abcdefgh", "'abcdefgh' matches 2 calls"),
        ("abcdefg", "the log has no call 'abcdefg'"),
    ):
        with pytest.raises(NotRecorded, match=reason):
            entries_of_call(log, part)


def test_nothing_to_show_is_said(project: Path) -> None:
    assert "this project has no audit log yet" in run(project, "audit", "list").stderr
    greeted(project)
    assert (
        "the log has no record 99\nhint: list the newest records"
        in run(project, "audit", "show", "99").stderr
    )
    for unknown in ("no-such-call", "9" * 5000):
        shown = run(project, "audit", "show", unknown)
        assert (shown.exit_code, f"the log has no call '{unknown[:64]}'\nhint: " in shown.stderr) == (
            1,
            True,
        )


def test_a_log_that_was_removed_is_not_one_that_never_was(project: Path, tmp_path: Path) -> None:
    greeted(project)
    (state,) = (path.parent for path in (tmp_path / "state").rglob("audit"))
    shutil.rmtree(state / "audit")
    verified = run(project, "audit", "verify")
    assert verified.exit_code == 1
    assert "the newest is gone" in verified.output


def test_who_may_not_is_told_how_to_find_out_why(project: Path) -> None:
    arguments = '{"path": "a.txt", "content": "x"}'
    refused = run(project, "call", "write_file", arguments)
    told = "Find out why, and what would allow it: toolkeep policy explain write_file ARGUMENTS"
    assert (refused.exit_code, told in refused.stdout) == (1, True)
    assert told not in run(project, "call", "write_file", "{}").stdout
    other = run(project, "call", "write_file", arguments, "--agent", "mcp-local")
    assert f"{told} --agent mcp-local\n" in other.stdout
    missing = run(project, "call", "read_file", f"path={project}/absent.txt").stdout
    assert ("does not exist. Name something else." in missing, "policy explain" in missing) == (True, False)


def test_a_receipt_is_checked_offline_with_the_public_key_alone(project: Path, tmp_path: Path) -> None:
    call = greeted(project)
    receipt = tmp_path / "receipt.json"
    receipt.write_text(run(project, "audit", "receipt", call).stdout)
    key = run(project, "audit", "key").stdout.strip()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    verified = json.loads(run(elsewhere, "audit", "verify", str(receipt), "--key", key, "--json").stdout)
    assert (verified["index"], verified["record"]["tool"]) == (3, "agent_hello_world")
    assert run(elsewhere, "audit", "verify", str(receipt)).exit_code == 2
    receipt.write_text(receipt.read_text().replace('"status": "ok"', '"status": "error"'))
    assert run(elsewhere, "audit", "verify", str(receipt), "--key", key).exit_code == 1


def cosigned(project: Path, tmp_path: Path) -> tuple[Path, str]:
    """A checkpoint over the whole log that a witness cosigned, in a file, and the key of the witness."""
    with log_of(project) as log:
        proof, checkpoint = log.prove_growth(0)
        witness = Witness(tmp_path / "witness", name="library")
        witness.trust(log.public_key())
    cosignature = witness.submit(0, proof, checkpoint)
    (tmp_path / "cosigned.txt").write_text(f"{checkpoint}{cosignature}")
    return tmp_path / "cosigned.txt", str(witness.public_key)


def test_a_receipt_carries_the_signatures_of_witnesses(project: Path, tmp_path: Path) -> None:
    call = greeted(project)
    checkpoint, witness = cosigned(project, tmp_path)
    greeted(project)
    key = run(project, "audit", "key").stdout.strip()
    receipt, bare = tmp_path / "receipt.json", tmp_path / "bare.json"
    receipt.write_text(run(project, "audit", "receipt", call, "--checkpoint", str(checkpoint)).stdout)
    bare.write_text(run(project, "audit", "receipt", call).stdout)
    verify = ("audit", "verify", str(receipt), "--key", key)
    assert data(project, *verify, "--witness", witness)["witnesses"] == ["library"]
    assert "cosigned by: library" in run(project, *verify, "--witness", witness).stdout
    for unproven in (
        run(project, "audit", "verify", str(bare), "--key", key, "--witness", witness),
        run(project, *verify, "--witness", witness, "--witness", key),
    ):
        assert (unproven.exit_code, "it is not cosigned by" in unproven.stderr) == (1, True)
    log = run(project, "audit", "verify", "--witness", witness)
    assert (log.exit_code, "library cosigned no checkpoint that is stored here" in log.stdout) == (1, True)


def test_a_receipt_is_proven_under_no_checkpoint_that_does_not_cover_it(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    greeted(project)
    earlier, _ = cosigned(project, tmp_path)
    call = greeted(project)
    refused = run(project, "audit", "receipt", call, "--checkpoint", str(earlier))
    assert (refused.exit_code, "over 4 records, and this is record 7" in refused.stderr) == (1, True)
    monkeypatch.setenv("TOOLKEEP_HOME", str(tmp_path / "other"))
    refused = run(project, "audit", "receipt", greeted(project), "--checkpoint", str(earlier))
    assert (refused.exit_code, "of another log" in refused.stderr) == (1, True)


@pytest.mark.spec("AUD-2")
def test_a_changed_record_and_a_cut_tail_are_found(project: Path, tmp_path: Path) -> None:
    greeted(project)
    outside = tmp_path / "outside.txt"
    outside.write_text(run(project, "audit", "checkpoint").stdout)
    intact = run(project, "audit", "verify", "--checkpoint", str(outside))
    assert (intact.exit_code, "intact" in intact.stdout) == (0, True)
    (segment,) = (tmp_path / "state" / "audit" / "segments").iterdir()
    whole = segment.read_bytes()
    segment.write_bytes(whole.replace(b"agent_hello_world", b"agent_hello_w0rld", 1))
    touched = run(project, "audit", "verify")
    assert (touched.exit_code, "record 0" in touched.stdout) == (1, True)
    segment.write_bytes(b"".join(whole.splitlines(keepends=True)[:-1]))
    cut = run(project, "audit", "verify", "--checkpoint", str(outside))
    assert (cut.exit_code, "cut off" in cut.stdout) == (1, True)


@pytest.mark.parametrize("words", ["", "a\nb\n", "toolkeep/x\nmany\nroot\n\n— x y\n"])
def test_a_file_that_is_no_checkpoint_says_nothing_about_the_log(
    project: Path, tmp_path: Path, words: str
) -> None:
    greeted(project)
    other = tmp_path / "other.txt"
    other.write_text(words, encoding="utf-8")
    refused = run(project, "audit", "verify", "--checkpoint", str(other))
    assert refused.exit_code == 1
    assert f"{other}: is not a checkpoint" in refused.stderr
    assert "INTACT" not in refused.output


@pytest.mark.spec("AUD-6")
def test_several_logs_are_verified_at_once(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    greeted(project)
    monkeypatch.setenv("TOOLKEEP_HOME", str(tmp_path / "other"))
    greeted(project)
    folders = [str(tmp_path / "state"), str(tmp_path / "other")]
    reports = data(project, "audit", "verify", "--state", folders[0], "--state", folders[1])
    assert [report["log"] for report in reports] == folders
    assert len({report["origin"] for report in reports}) == 2


def test_erasing_and_a_new_key_leave_the_log_whole(project: Path) -> None:
    call = greeted(project)
    old = run(project, "audit", "key").stdout
    assert len(data(project, "audit", "erase", call)["erased"]) == 2
    assert "erased" in data(project, "audit", "show", call)[0]["arguments"]
    assert data(project, "audit", "rotate-key")["key"] != old.strip()
    assert run(project, "audit", "verify").exit_code == 0
    assert run(project, "audit", "erase").exit_code == 2


def test_why_a_call_failed_is_kept_and_erased(project: Path) -> None:
    said = run(project, "call", "agent_hello_world", '{"name": ""}').stdout
    call = said.strip().rpartition(" ")[2]
    *_, last = data(project, "audit", "show", call)
    assert last["diagnosis"][0] in said
    assert len(data(project, "audit", "erase", call)["erased"]) == 2
    assert "is erased" in data(project, "audit", "show", call)[-1]["diagnosis"][0]


def test_an_export_holds_every_record_and_what_checks_it(project: Path) -> None:
    greeted(project)
    head, *lines = run(project, "audit", "export").stdout.splitlines()
    assert json.loads(head).keys() == {"key", "checkpoint"}
    assert [json.loads(line)["index"] for line in lines] == [0, 1, 2, 3]


def test_a_witness_trusts_keys_and_answers_requests(project: Path, tmp_path: Path) -> None:
    greeted(project)
    key = run(project, "audit", "key").stdout.strip()
    folder = tmp_path / "witness"
    result = CliRunner().invoke(cli, ["audit", "witness", str(folder), "--trust", key, "--json"])
    assert json.loads(result.stdout) == {
        "key": json.loads(result.stdout)["key"],
        "trusted": [key],
        "answered": 0,
        "refused": 0,
    }


def test_a_witness_says_what_is_to_be_done_next(tmp_path: Path) -> None:
    (tmp_path / "exchange").mkdir()
    (tmp_path / "exchange" / "a.request").write_text("nonsense")
    words = ["audit", "witness", str(tmp_path / "witness"), "--requests", str(tmp_path / "exchange")]
    result = CliRunner().invoke(cli, words)
    assert result.stdout.endswith("\n1 request answered, 1 refused: see the .refused files\n")
    assert (
        result.stderr
        == "  It cosigns no log yet. Add one: --trust KEY, as printed by `toolkeep audit key`.\n"
    )


def test_the_own_witness_of_a_project_has_one_key_and_is_told_where_to_listen(project: Path) -> None:
    greeted(project)
    keys = [run(project, "audit", "witness").stdout.removeprefix("witness key: ") for _ in range(2)]
    origin = run(project, "audit", "key").stdout.partition("+")[0]
    assert keys[0] == keys[1]
    assert keys[0].startswith(f"{origin}/witness+")
    for where in ("8766", "127.0.0.1:", "127.0.0.1:99999"):
        assert run(project, "audit", "witness", "--serve", where).exit_code == 2


def test_what_promises_no_determinism_is_not_replayed(project: Path) -> None:
    result = run(project, "audit", "replay", greeted(project))
    assert (result.exit_code, "is not declared deterministic" in result.stderr) == (1, True)


def test_statistics_are_those_of_the_page_for_each_of_its_periods(project: Path) -> None:
    with open_keep(project=project) as keep:
        for name in ("Ada", 1):
            keep.call_sync("agent_hello_world", {"name": name}, agent="operator")
    for hours in map(str, PERIODS):
        found = data(project, "audit", "statistics", "--hours", hours)
        assert found.keys() == set(StatisticsView.__struct_fields__)
        assert (found["hours"], found["calls"], found["refusals"]) == (int(hours), 2, 1)
    assert run(project, "audit", "statistics", "--hours", "2").exit_code == 2
    said = run(project, "audit", "statistics").stdout
    assert said.startswith("2 calls over the last 24 hours, 0 failed, 1 refused\nrun time: median ")
    assert re.search(r"^wrong type +ACODE-TSR-004 +1$", said, re.MULTILINE)
    assert re.search(r"^agent_hello_world +2$", said, re.MULTILINE)
    assert re.search(r"^operator +2$", said, re.MULTILINE)
    assert re.search(r" +1 +1 +0 +\S+ ms +\S+ ms$", said, re.MULTILINE)


def test_calls_are_listed_by_the_filters_of_the_page(project: Path) -> None:
    with open_keep(project=project, agents={"ada": {}}) as keep:
        for name in ("Ada", 1):
            keep.call_sync("agent_hello_world", {"name": name}, agent="ada", session="chat")
        keep.call_sync("agent_hello_wurld", {}, agent="operator")

    def listed(*options: str) -> list[tuple[str, str]]:
        found = data(project, "audit", "calls", *options)
        return [(one["tool"], one["outcome"]) for one in found]

    every = [("agent_hello_wurld", "refused"), ("agent_hello_world", "refused"), ("agent_hello_world", "ok")]
    assert listed() == every
    assert listed("--limit", "1") == every[:1]
    assert listed("--outcome", "ok") == every[2:]
    assert listed("--session", "chat", "--outcome", "refused") == every[1:2]
    assert listed("--agent", "operator") == every[:1]
    assert listed("--text", "unknown tool") == every[:1]
    assert listed("--code", "ACODE-TSR-004") == every[1:2]
    assert listed("--until", "2020-01-01") == listed("--slower-ms", "3600000") == []
    assert listed("--ran-ms", "0.001") == listed("--policy", "toolkeep.call") == every[2:]
    assert listed("--since", "2020-01-01T00:00:00Z", "--hours", "1") == every
    assert listed("--type", "PolicyDecision") == every[2:]
    options = {option.name for option in list_calls.params}
    assert set(CallFilters.__struct_fields__) <= options
    assert "is no time such as" in run(project, "audit", "calls", "--since", "monday").output
    assert "is no number of milliseconds" in run(project, "audit", "calls", "--ran-ms", "nan").output
    said = "'name' must be a string, got integer"
    assert listed("--text", said.upper()) == every[1:2]
    assert said in run(project, "audit", "calls").output
