"""`toolkeep approve`, `deny` and `approvals`: calls that wait in one process are answered from another."""

import contextlib
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result
from msgspec.structs import replace

from tests.approval.test_question_text import QUESTION as SHOWN
from tests.cli.dialogue import Dialogue
from tests.cli.shop import Shop
from tests.cli.test_approval_prompt import plain
from toolkeep import open_keep
from toolkeep.approval.coverage import Argument, Constraint
from toolkeep.approval.question import Answer, FlowLine, Question, Rule
from toolkeep.cli.approval_prompt import person
from toolkeep.cli.approvals import NotAnswered, waiting_questions
from toolkeep.cli.main import cli
from toolkeep.cli.mcp import _page_url as page_url
from toolkeep.keep.open import open_tokens
from toolkeep.storage.sqlite.approvals_db import SqliteApprovals

pytestmark = pytest.mark.spec("POL-4")

YES = Answer(verdict="approve", approver="web:ada", way="web")
RULE = Rule(
    id="rule-0123456789abcdef",
    text='writer calls save_note 1.2.0 with\n  path equal to "a"',
    constraints=(Constraint(name="path", kind="equal", bound="d", shown='"a"'),),
    agent="writer",
    tool="save_note",
    definition_hash="d",
    approver="terminal:ada",
    made_at=0.0,
    ends_at=4_102_444_800.0,
)


CHOICES = (
    Argument(name="path", digest="p", shown='"notes/a.txt"'),
    Argument(name="content", digest="c", shown='"one\\ntwo"'),
    Argument(name="key", digest="k", shown='"(secret, 12 characters)"', fixed="a credential"),
)


def question(**changes: Any) -> Question:
    now = time.time()
    return replace(SHOWN, choices=CHOICES, **{"asked_at": now - 61.4, "expires_at": now + 238.4, **changes})


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TOOLKEEP_HOME", str(tmp_path / "state"))
    (tmp_path / "project").mkdir()
    return tmp_path / "project"


@pytest.fixture
def approvals(project: Path) -> Iterator[SqliteApprovals]:
    held = SqliteApprovals(project.parent / "state")
    yield held
    held.close()


def run(project: Path, *arguments: str, text: str | None = None) -> Result:
    words = ["approvals"] if arguments[0] in ("list", "show", "answers", "rules", "revoke") else []
    command = [*words, *arguments, "--project", str(project)]
    return CliRunner().invoke(cli, command, input=text, catch_exceptions=False)


def outcome(project: Path, *arguments: str) -> tuple[int, str, str]:
    result = run(project, *arguments)
    return result.exit_code, result.stdout, result.stderr


def refusal(message: str, hint: str) -> tuple[int, str, str]:
    return 1, "", f"✗ ACODE-TSR-047: {message}\nhint: {hint}\n"


def on_a_terminal(project: Path, arguments: list[str], *answers: tuple[str, str]) -> tuple[int, str]:
    with Dialogue(arguments, cwd=project) as dialogue:
        for words, answer in answers:
            dialogue.until(words)
            dialogue.enter(answer)
        status, _ = dialogue.end()
        return status, click.unstyle(dialogue.shown)


@pytest.mark.spec("FLO-7")
def test_the_calls_of_one_response_are_shown_and_answered_at_once(
    project: Path, approvals: SqliteApprovals
) -> None:
    flow = FlowLine(argument="/to", role="destination", value='"m@evil.test"', origin="outside")
    told = replace(flow, source="read_mail /0/body", excerpt="mail m@evil.test")
    changes: list[dict[str, Any]] = [{"flow": (told,)}, {}, {"danger": "critical", "acts": 2}, {}]
    for number, more in enumerate(changes, 1):
        asked = question(id=f"{number}" * 16, call_id=f"{number}", response="abcd" * 4, **more)
        assert approvals.ask(asked)
    assert "toolkeep approve abcdabcd, or toolkeep deny" in outcome(project, "list")[1]
    shown = outcome(project, "show", "abcd")[1]
    assert [line for line in shown.splitlines() if "Call " in line or "calls" in line or "says" in line] == [
        "4 calls of one response need approval",
        "1. Call 1111111111111111",
        '  | /to "m@evil.test": from outside; the user did not name it; read_mail /0/body says: mail m@evil.test',
        "2. Call 2222222222222222",
        "3. Call 3333333333333333",
        "4. Call 4444444444444444",
    ]
    assert len(json.loads(run(project, "show", "abcd", "--json").stdout)) == 4
    assert outcome(project, "approve", "abcd", "--always")[0] == 1  # there is no terminal
    numbers, name = "[n]o [reason]: ", "anything else denies it: "
    status, shown = on_a_terminal(project, ["approve", "abcd"], (numbers, "0 1\n"), (numbers, "2\n"))
    assert (status, shown.count("✓"), "3 calls of the response still wait" in shown) == (0, 1, True)
    answers = [(numbers, "1,2\n"), (name, "save_note\n")]
    assert on_a_terminal(project, ["approve"], *answers)[0] == 0  # all that wait are of one response
    assert on_a_terminal(project, ["approve", "4444"], ("[n]o: ", "n\n"))[0] == 1
    assert outcome(project, "deny", "abcd", "no") == (0, "✓ denied save_note, called by writer\n", "")
    stood = [approvals.standing(f"{number}" * 16) for number in range(1, 5)]
    assert [one.state for one in stood if one] == ["approved", "approved", "approved", "denied"]


# --- looking -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "shown"),
    [("list", "No call waits for approval.\n"), ("rules", "There are no approval rules.\n")],
)
def test_where_nothing_was_ever_asked_nothing_is_made(project: Path, command: str, shown: str) -> None:
    assert outcome(project, command) == (0, shown, "")
    assert outcome(project, command, "--json") == (0, "[]\n", "")
    assert not (project.parent / "state").exists()


def test_what_waits_is_listed_in_one_line_each(project: Path, approvals: SqliteApprovals) -> None:
    approvals.ask(question(arguments='{"path": "a\\u202e"}'))
    hostile = {"tool": "x\n0000  safe", "agent": "\x1b[2J", "arguments": json.dumps({"a": "b" * 500})}
    approvals.ask(question(id="f" * 16, danger="critical", **hostile))
    status, shown, _ = outcome(project, "list")
    assert status == 0
    assert re.sub(r"3 min \d+ s", "<left>", shown).splitlines() == [
        "ID        EXPIRES IN  DANGER    TOOL             AGENT        ARGUMENTS",
        '01234567  <left>  medium    save_note        writer       {"path": "a\\u202e"}',
        'ffffffff  <left>  critical  "x\\n0000  safe"  "\\u001b[2J"  {"a": "' + "b" * 39 + "…}",
        "",
        "Answer one: toolkeep approve 01234567, or toolkeep deny",
    ]


def test_a_list_keeps_agent_and_arguments_on_a_screen_of_80_columns(
    project: Path, approvals: SqliteApprovals
) -> None:
    approvals.ask(question(agent="an-agent-with-a-long-name", arguments='{"path": "a/long/path/to/it"}'))
    with Dialogue(["approvals", "list", "--project", str(project)], cwd=project, columns=80) as dialogue:
        _, shown = dialogue.end()
    heading, row, *_ = click.unstyle(shown).splitlines()
    assert heading.split() == ["ID", "EXPIRES", "IN", "DANGER", "TOOL", "AGENT", "ARGUMENTS"]
    assert re.search(r'medium  save_note  an-agent-with-a-…\s+{"path": "a/long/…', row)
    assert len(row) <= 80


def test_a_list_in_json_has_the_whole_arguments(project: Path, approvals: SqliteApprovals) -> None:
    asked = question()
    approvals.ask(asked)
    (listed,) = json.loads(run(project, "list", "--json").stdout)
    assert listed == {
        "id": asked.id,
        "response": "",
        "asked_at": listed["asked_at"],
        "expires_at": listed["expires_at"],
        "agent": "writer",
        "session": "s1",
        "tool": "save_note",
        "danger": "medium",
        "why": list(asked.why),
        "arguments": asked.argument_data,
        "flow": [],
    }


def test_a_question_is_shown_as_it_is_asked(project: Path, approvals: SqliteApprovals) -> None:
    asked = question()
    approvals.ask(asked)
    status, shown, _ = outcome(project, "show", "0123")
    assert (status, shown.split("\n")[:3]) == (
        0,
        ["Call 0123456789abcdef needs approval", "Arguments:", "  | {"],
    )
    data = json.loads(run(project, "show", "0123", "--json").stdout)
    assert (data["arguments"], data["difference"]) == (asked.argument_data, asked.difference)
    assert data["expires_at"].endswith("+00:00")


def test_a_question_is_shown_with_what_helps_to_judge_it(project: Path, approvals: SqliteApprovals) -> None:
    with open_keep(project=project) as keep:
        for arguments in ({"name": "Ada"}, {"nme": "Ada"}):
            keep.call_sync("agent_hello_world", arguments, agent="operator", session="s1")
        tool = keep.get("agent_hello_world")
    of = {"tool": tool.name, "version": tool.version, "definition_hash": tool.definition_hash}
    approvals.ask(question(**of, agent="operator", session="s1", asked_at=time.time()))
    shown = run(project, "show", "0123", "--context").stdout
    lines = re.sub(r"^  \w{8}  ", "  <id>  ", shown, flags=re.MULTILINE).split("\n\n")[-1].splitlines()
    assert lines == [
        "The tool agent_hello_world says of itself:",
        f"  | {tool.definition.description}",
        "Its earlier calls of agent_hello_world: 1 succeeded, 0 failed, 1 refused",
        "Its last calls in the session:",
        "  <id>  agent_hello_world  ok",
        "  <id>  agent_hello_world  refused ACODE-TSR-003",
    ]
    context = json.loads(run(project, "show", "0123", "--context", "--json").stdout)["context"]
    assert (context["past"]["ok"], len(context["session"])) == (1, 2)
    assert "context" not in json.loads(run(project, "show", "0123", "--json").stdout)


def test_a_tool_that_changed_since_the_question_is_not_described(
    project: Path, approvals: SqliteApprovals
) -> None:
    approvals.ask(question(tool="agent_hello_world", version="1.0.0"))
    shown = run(project, "show", "0123", "--context").stdout
    changed = "The tool agent_hello_world changed since the call was made.\n"
    assert f"{changed}Its earlier calls of agent_hello_world: none\n" in shown


def test_json_shows_what_the_view_left_out(project: Path, approvals: SqliteApprovals) -> None:
    text = "x" * 50_000 + "\u202e"
    approvals.ask(question(arguments=json.dumps({"text": text})))
    shown = run(project, "show", "0123456789abcdef").stdout
    assert "  Long values are cut here; see all of them:" in shown
    assert "46,001 more characters" in "".join(line[4:] for line in shown.split("\n"))
    whole = run(project, "show", "0123456789abcdef", "--json").stdout
    assert json.loads(whole)["arguments"] == {"text": text}
    assert "\u202e" not in whole


# --- errors --------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["show", "deny"])
def test_an_id_that_names_nothing_is_said_with_what_waits(
    project: Path, approvals: SqliteApprovals, command: str
) -> None:
    none = f"no waiting call of {project} has the id "
    other = "; for another project add --project DIR"
    assert outcome(project, command, "77") == refusal(
        f"{none}'77'", f"no call waits for approval; list them with: toolkeep approvals{other}"
    )
    approvals.ask(question())
    these = "waiting calls: 0123456789abcdef (save_note)"
    assert outcome(project, command, "77") == refusal(f"{none}'77'", f"{these}{other}")
    assert outcome(project, command, "") == refusal(f"{none}''", f"{these}{other}")
    approvals.ask(question(id="0123ffffffffffff", tool="other"))
    several = "'0123' matches several waiting calls"
    assert outcome(project, command, "0123") == refusal(several, f"{these}, 0123ffffffffffff (other)")


def test_a_call_of_another_project_of_the_user_is_named_with_that_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "states"))
    monkeypatch.delenv("TOOLKEEP_HOME", raising=False)
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
    with open_keep(project=tmp_path / "there") as keep:
        assert isinstance(keep.record.approvals, SqliteApprovals)
        keep.record.approvals.ask(question())
        said = outcome(tmp_path / "here", "deny", "0123")
        assert said == refusal(
            f"no waiting call of {tmp_path / 'here'} has the id '0123'",
            f"such a call waits in another project; add --project {tmp_path / 'there'}",
        )
        assert f"--project {tmp_path / 'there'}" in outcome(tmp_path / "here", "deny")[2]
        assert "for another project add --project DIR" in outcome(tmp_path / "here", "deny", "77")[2]


def test_serve_says_on_its_terminal_that_a_call_waits_and_mcp_finds_its_page(
    project: Path, approvals: SqliteApprovals
) -> None:
    assert page_url(project) == ""
    with Dialogue(["serve", "--port", "0", "--project", str(project)], cwd=project, columns=200) as person:
        address = re.search(r"serving at (\S+)", person.until("--agent operator"))
        assert address is not None
        assert page_url(project) == address[1]
        approvals.ask(question())
        said = person.until("/ui/approvals")
        assert "save_note (danger: medium), called by writer, waits for approval: toolkeep approve 01234567" in said  # fmt: skip
        assert f"or {address[1]}/ui/approvals" in said
        person.enter("\x03")
        person.end()


def test_approvals_alone_lists_and_deny_alone_denies_the_only_call(
    project: Path, approvals: SqliteApprovals
) -> None:
    approvals.ask(question())
    alone = CliRunner().invoke(cli, ["approvals", "--project", str(project)])
    assert (alone.exit_code, "01234567" in alone.stdout) == (0, True)
    assert CliRunner().invoke(cli, ["approvals"], env={"TOOLKEEP_HOME": str(project)}).exit_code == 0
    assert "revoke" in CliRunner().invoke(cli, ["approvals", "--help"]).stdout
    assert outcome(project, "deny")[0] == 0
    standing = approvals.standing(question().id)
    assert standing is not None
    assert standing.state == "denied"


def test_without_an_id_the_only_call_is_meant(project: Path, approvals: SqliteApprovals) -> None:
    with pytest.raises(NotAnswered, match=r"no call of .* waits"):
        waiting_questions(approvals, None)
    approvals.ask(question())
    assert [one.id for one in waiting_questions(approvals, None)] == [question().id]
    approvals.ask(question(id="0123ffffffffffff", tool="other"))
    with pytest.raises(NotAnswered, match="several calls wait"):
        waiting_questions(approvals, None)


def test_a_question_that_is_over_says_how(project: Path, approvals: SqliteApprovals) -> None:
    def said(question_id: str) -> str:
        status, _, stderr = outcome(project, "deny", question_id)
        assert status == 1
        return re.sub(r"\d{4}-\S+ \S+ UTC", "<time>", stderr.split("\n")[0]).removeprefix("✗ ACODE-TSR-047: ")

    approvals.ask(question(id="answered"))
    approvals.answer("answered", YES)
    assert said("answered") == "answered was approved by web:ada"
    approvals.ask(question(id="used"))
    approvals.answer("used", YES)
    approvals.use(question(id="used"))
    assert said("used") == "used was approved by web:ada, and it ran"
    approvals.ask(question(id="denied"))
    approvals.answer("denied", replace(YES, verdict="deny", reason="not\u202e today"))
    approvals.withdraw("denied")  # as its caller does, who has its answer
    assert said("denied") == "denied was denied by web:ada: not\\u202e today"
    approvals.ask(question(id="withdrawn"))
    approvals.withdraw("withdrawn")
    assert said("withdrawn") == "withdrawn was cancelled by its caller"
    approvals.ask(question(id="late", expires_at=time.time() - 1))
    assert said("late") == (
        "late cannot be answered: this approval request has expired (at <time>; it is now <time>)"
    )


def test_an_agent_named_like_the_approver_is_not_approved_by_it(
    project: Path, approvals: SqliteApprovals
) -> None:
    approvals.ask(question(agent=f"operator:{person()}"))
    wanted = refusal(
        "an agent cannot approve its own call", "let another person answer, or make the call again"
    )
    assert outcome(project, "deny", "0123") == wanted
    assert on_a_terminal(project, ["approve", "0123"]) == wanted[::2]


@pytest.mark.parametrize(
    ("changes", "options", "reason"),
    [
        ({"danger": "high"}, ("--session",), "a tool of danger high needs approval every time"),
        (
            {"danger": "critical", "acts": 2},
            ("--always",),
            "a tool of danger critical needs approval every time",
        ),
        ({"session": ""}, ("--session",), "the call belongs to no session"),
        ({}, ("--session", "--argument", "key=any"), "'key' must be equal: it is a credential"),
        ({}, ("--always", "--argument", "other=any"), "the call has no argument 'other'"),
        ({}, ("--session", "--argument", "path=folder:/"), "'folder:/' does not cover 'path' of this call"),
    ],
)
def test_a_yes_that_may_not_reach_so_far_is_refused_before_anything_is_asked(
    project: Path, approvals: SqliteApprovals, changes: dict[str, Any], options: tuple[str, ...], reason: str
) -> None:
    approvals.ask(question(**changes))
    wanted = refusal(reason, "approve it once: toolkeep approve 0123456789abcdef")
    assert on_a_terminal(project, ["approve", "0123", *options]) == wanted[::2]


@pytest.mark.parametrize(
    "options",
    [
        ("--session", "--always"),
        ("--days", "3"),
        ("--always", "--days", "366"),
        ("--argument", "path=any"),
    ],
)
def test_options_that_make_no_sense_are_wrong_usage(project: Path, options: tuple[str, ...]) -> None:
    assert run(project, "approve", "0123", *options).exit_code == 2


# --- answers -------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [(), ("--session",), ("--always",), ("--json",)], ids=str)
def test_a_yes_needs_a_terminal(project: Path, approvals: SqliteApprovals, options: tuple[str, ...]) -> None:
    approvals.ask(question())
    result = run(project, "approve", "0123", *options, text="y\ny\n")
    assert (result.exit_code, "approving needs a terminal" in result.output) == (1, True)
    assert len(approvals.waiting()) == 1


@pytest.mark.parametrize("redirected", ["stdin", "stdout", "stderr"])
def test_a_yes_needs_the_whole_terminal(
    project: Path, approvals: SqliteApprovals, monkeypatch: pytest.MonkeyPatch, redirected: str
) -> None:
    approvals.ask(question())
    monkeypatch.setattr("toolkeep.cli.approval_prompt.typed", lambda _: pytest.fail("it asked"))
    for where in ("toolkeep.cli.approval_prompt.is_terminal", "toolkeep.cli.approve.is_terminal"):
        monkeypatch.setattr(where, lambda stream: stream is not getattr(sys, redirected))
    assert run(project, "approve", "0123").exit_code == 1


def test_a_no_needs_none_and_carries_its_reason(project: Path, approvals: SqliteApprovals) -> None:
    approvals.ask(question())
    assert outcome(project, "deny", "0123", "not", "today") == (
        0,
        "✓ denied save_note, called by writer\n",
        "",
    )
    standing = approvals.standing("0123456789abcdef")
    assert standing is not None
    assert standing.answer is not None
    assert (standing.state, replace(standing.answer, given_at=0.0)) == (
        "denied",
        Answer(verdict="deny", approver=f"operator:{person()}", way="command", reason="not today"),
    )


@pytest.mark.parametrize("keys", ["n\n", "\n", "\x03", "\x04", "yes!\n"])
def test_anything_but_yes_leaves_the_call_waiting(
    project: Path, approvals: SqliteApprovals, keys: str
) -> None:
    approvals.ask(question())
    status, shown = on_a_terminal(project, ["approve", "0123"], ("[n]o: ", keys))
    assert status == 1
    assert shown.endswith(
        "✗ ACODE-TSR-047: you did not approve the call\n"
        "hint: the call still waits; deny it with: toolkeep deny 0123456789abcdef\n"
    )
    assert len(approvals.waiting()) == 1


def test_a_critical_call_is_approved_by_two_acts_or_not_at_all(
    project: Path, approvals: SqliteApprovals
) -> None:
    approvals.ask(question(danger="critical", acts=2))
    status, _ = on_a_terminal(project, ["approve", "0123"], ("[n]o: ", "y\n"), ("denies it: ", "y\n"))
    (standing,) = approvals.waiting()
    assert (status, standing.question.acts_done) == (1, 0)
    status, _ = on_a_terminal(project, ["approve", "0123"], ("[n]o: ", "y\n"), ("denies it: ", "save_note\n"))
    approved = approvals.standing("0123456789abcdef")
    assert (status, approved and approved.state) == (0, "approved")


ALWAYS = """\
These calls will run without asking:
  | writer calls save_note 1.2.0 with
  |   path equal to "notes/a.txt"
  |   key equal to "(secret, 12 characters)"
  |   content anything
The rule expires at <time>, in 7 days.
It would have allowed 0 of 0 recorded calls.
Add this rule? [y]es, [n]o, ARGUMENT=any, =equal, =folder:…, or days (1 to 365): y
✓ approved save_note, called by writer
  Rule rule-<id> approves such calls until <time>.
  Revoke it: toolkeep approvals revoke rule-<id>
"""


def test_always_shows_the_rule_before_it_asks(
    project: Path, approvals: SqliteApprovals, tmp_path: Path
) -> None:
    approvals.ask(question())
    arguments = ["approve", "0123", "--always", "--days", "7", "--argument", "content=any"]
    status, shown = on_a_terminal(project, arguments, ("365): ", "y\n"))
    shown = re.sub(r"\d{4}-\S+ \S+ UTC", "<time>", shown).replace("0123456789abcdef", "<id>")
    assert (status, shown[shown.index("These calls") :]) == (0, ALWAYS)
    standing = approvals.standing("0123456789abcdef")
    assert standing is not None
    assert standing.answer is not None
    assert replace(standing.answer, given_at=0.0) == Answer(
        verdict="approve",
        approver=f"operator:{person()}",
        way="command",
        reach="rule",
        days=7,
        arguments={"content": "any"},
    )


# --- rules ---------------------------------------------------------------------------------------


RULES = """\
rule-0123456789abcdef  expires 2100-01-01 00:00:00 UTC, in <days>
  made by terminal:ada for save_note, called by writer
  | writer calls save_note 1.2.0 with
  |   path equal to "a"
"""


def test_rules_are_listed_and_revoked(project: Path, approvals: SqliteApprovals) -> None:
    approvals.add_rule(RULE)
    status, shown, _ = outcome(project, "rules")
    assert (status, re.sub(r"in \d+ d( \d+ h)?", "in <days>", shown)) == (0, RULES)
    (listed,) = json.loads(run(project, "rules", "--json").stdout)
    assert (listed["text"], listed["ends_at"]) == (RULE.text, "2100-01-01T00:00:00+00:00")
    hint = "rules: rule-0123456789abcdef"
    for given in ("77", "", "rule-"):
        assert outcome(project, "revoke", given) == refusal(f"'{given}' matches no rule", hint)
    assert outcome(project, "revoke", "0123") == (0, "✓ revoked rule-0123456789abcdef\n", "")
    assert outcome(project, "revoke", "0123") == refusal(
        "'0123' matches no rule", "there are no approval rules"
    )


# --- with a call that really waits ---------------------------------------------------------------


def test_a_call_waits_in_one_process_and_runs_once_another_says_yes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Shop(tmp_path, monkeypatch.setenv)
    shop.configure("approvals: {wait: 60}\n")
    arguments = json.dumps({"path": "a.txt", "content": "one"})
    with subprocess.Popen(
        [sys.executable, "-m", "toolkeep", "call", "save_note", arguments, "--json"],
        cwd=shop.project,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as waiting:
        assert waiting.stderr is not None
        line = waiting.stderr.readline()
        question_id = line.split(" ")[-1].strip()
        wanted = f"! the call waits up to 1 min for approval: toolkeep approve {question_id}\n"
        assert line == wanted
        with Dialogue(["approve", question_id[:8]], cwd=shop.project) as dialogue:
            dialogue.until("Approve this call once? [y]es, [n]o: ")
            assert not (shop.project / "a.txt").exists()
            dialogue.enter("y\n")
            assert dialogue.end() == (0, "y\n\x1b[32m✓\x1b[0m approved save_note, called by operator\n")
        said, more = waiting.communicate(timeout=60)
    assert (more, (shop.project / "a.txt").read_text()) == ("", "one")
    assert json.loads(said)["approval"] == {
        "approver": f"operator:{person()}",
        "way": "command",
        "id": question_id,
    }
    assert plain(run(shop.project, "list").stdout, shop) == "No call waits for approval.\n"
    (answer,) = json.loads(run(shop.project, "answers", "--json").stdout)
    by = f"operator:{person()}"
    assert [answer[key] for key in ("tool", "agent", "verdict", "approver", "way", "status")] == [
        "save_note", "operator", "approved", by, "command", "ok"]  # fmt: skip
    row = run(shop.project, "answers").stdout.splitlines()[1].split()
    assert row[1:] == ["approved", answer["call_id"][:8], "save_note", "operator", by, "ok"]


def test_a_rule_from_another_process_is_judged_by_the_recorded_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Shop(tmp_path, monkeypatch.setenv)
    shop.configure("approvals: {wait: 60}\n")

    def answered(path: str, *options: str, words: str) -> str:
        arguments = json.dumps({"path": path, "content": "one"})
        with subprocess.Popen(
            [sys.executable, "-m", "toolkeep", "call", "save_note", arguments],
            cwd=shop.project,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        ) as waiting:
            assert waiting.stderr is not None
            question_id = waiting.stderr.readline().split(" ")[-1].strip()
            with Dialogue(["approve", question_id, *options], cwd=shop.project) as dialogue:
                shown = dialogue.until(words)
                dialogue.enter("y\n")
                assert dialogue.end()[0] == 0
            assert waiting.wait(60) == 0
        return click.unstyle(shown)

    for path in ("b.txt", "./a.txt", "a.txt"):
        answered(path, words="[n]o: ")
    (shop.project / "x").mkdir()
    shown = answered("x/../a.txt", "--always", words="365): ")
    assert "It would have allowed 2 of 3 recorded calls, the last of them:\n" in shown
    assert "could not be judged" not in shown


# --- by token ------------------------------------------------------------------------------------


def token_file(project: Path, *scopes: str, agent: str) -> str:
    with contextlib.closing(open_tokens(project)) as tokens:
        text = tokens.make("ci", scopes, agent=agent).text
    file = project.parent / "token"
    file.write_text(f"{text}\n")
    file.chmod(0o600)
    return str(file)


def test_a_token_with_the_scope_approves_without_a_terminal(
    project: Path, approvals: SqliteApprovals
) -> None:
    asked = question()
    approvals.ask(asked)
    file = token_file(project, "approve", agent="alice")
    result = run(project, "approve", asked.id, "--token-file", file, "--json")
    assert (result.exit_code, json.loads(result.stdout)["state"]) == (0, "approved")
    standing = approvals.standing(asked.id)
    assert standing is not None
    assert standing.answer is not None
    assert (standing.answer.approver, standing.answer.way) == ("alice", "token")


@pytest.mark.parametrize(
    ("scopes", "agent", "message"),
    [
        (("call", "mcp"), "alice", "the token in the file lacks the scope approve"),
        (("approve",), SHOWN.agent, "an agent cannot approve its own call"),
        (("admin",), SHOWN.agent, "an agent cannot approve its own call"),
    ],
)
def test_a_token_of_the_calling_agent_or_without_the_scope_approves_nothing(
    project: Path, approvals: SqliteApprovals, scopes: tuple[str, ...], agent: str, message: str
) -> None:
    asked = question()
    approvals.ask(asked)
    file = token_file(project, *scopes, agent=agent)
    result = run(project, "approve", asked.id, "--token-file", file)
    assert result.stderr.startswith(f"✗ ACODE-TSR-047: {message}\n")
    assert [standing.question.id for standing in approvals.waiting()] == [asked.id]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o644])
def test_a_token_that_others_may_know_approves_nothing(
    project: Path, approvals: SqliteApprovals, mode: int
) -> None:
    asked = question()
    approvals.ask(asked)
    file = token_file(project, "approve", agent="alice")
    Path(file).chmod(mode)
    result = run(project, "approve", asked.id, "--token-file", file)
    assert result.stderr == (
        f"✗ ACODE-TSR-047: other users can access the token file\nhint: run: chmod 600 {file}\n"
    )
    assert len(approvals.waiting()) == 1


def test_what_is_no_token_approves_nothing_and_is_not_shown(
    project: Path, approvals: SqliteApprovals
) -> None:
    asked = question()
    approvals.ask(asked)
    (project.parent / "token").write_text("tk_0123456789abcdef_" + "S" * 43)
    (project.parent / "token").chmod(0o600)
    result = run(project, "approve", asked.id, "--token-file", str(project.parent / "token"))
    assert result.exit_code == 1
    assert "SSS" not in result.output
    assert len(approvals.waiting()) == 1


def test_a_critical_call_needs_the_name_of_its_tool_and_a_rule_a_terminal(
    project: Path, approvals: SqliteApprovals
) -> None:
    asked = question(danger="critical", acts=2)
    approvals.ask(asked)
    words = ("approve", asked.id, "--token-file", token_file(project, "approve", agent="alice"))
    assert run(project, *words).exit_code == 1
    assert run(project, *words, "--tool-name", "other").exit_code == 1
    assert run(project, *words, "--always").exit_code == 2
    assert run(project, *words, "--session", "--argument", "path=any").exit_code == 2
    assert len(approvals.waiting()) == 1
    assert run(project, *words, "--tool-name", asked.tool).exit_code == 0
    standing = approvals.standing(asked.id)
    assert standing is not None
    assert standing.state == "approved"
