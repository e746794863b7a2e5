"""`toolkeep call` on a terminal: the person is shown everything, and only a clear yes is a yes."""

import asyncio
import io
import json
import math
import re
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import click
import pytest
from msgspec.structs import replace

from tests.approval.test_question_text import QUESTION
from tests.cli.dialogue import Dialogue
from tests.cli.shop import Shop
from toolkeep.approval.question import Answer
from toolkeep.cli.approval_prompt import Picked, Reply, TerminalApprover, offer, person, picked_by, understand
from toolkeep.cli.rule_preview import RulePreview, preview_lines
from toolkeep.storage.sqlite.approvals_db import SqliteApprovals
from toolkeep.storage.sqlite.bodies_db import Bodies

pytestmark = pytest.mark.spec("POL-4")

NOTE = {"path": "a.txt", "content": "one"}
PROMPT = "[n]o [reason]: "


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    return Shop(tmp_path, monkeypatch.setenv)


def call(shop: Shop, tool: str, arguments: Any, *more: str, columns: int = 100) -> Dialogue:
    return Dialogue(["call", tool, json.dumps(arguments), *more], cwd=shop.project, columns=columns)


def said(
    shop: Shop, tool: str, arguments: Any, *answers: tuple[str, str], session: str = ""
) -> tuple[int, str]:
    """Exit status, and the whole screen without what differs each time."""
    more = ("--session", session) if session else ()
    with call(shop, tool, arguments, *more) as dialogue:
        for words, answer in answers:
            dialogue.until(words)
            dialogue.enter(answer)
        status, _ = dialogue.end()
        return status, plain(dialogue.shown, shop)


def plain(shown: str, shop: Shop) -> str:
    text = click.unstyle(shown).replace(str(shop.project), "<project>")
    text = re.sub(r"\b[0-9a-f]{32}\b|\b[0-9a-f]{16}\b", "<id>", text)
    text = re.sub(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+\+00:00| UTC)", "<time>", text)
    return re.sub(r"in (4 min \d+ s|5 min)", "in <minutes>", text)


WIPE = """\
Call <id> needs approval
Arguments:
  | {
  |   "name": "sda"
  | }
Permitted by:
  | the default, because you have no policies
Agent:        operator
Tool:         wipe
Version:      1.0.0
Danger:       critical, needs approval every time, confirmed twice
Why:          its danger is critical
Expires:      <time>, in <minutes>
[y]es once, [n]o [reason]: """
SECOND = """\
This call is critical and needs a second confirmation.
Type the name of the tool to approve it; anything else denies it: """
NO = """\
✗ Call to 'wipe' refused: 1 problem.
- A person denied this call to 'wipe'. Do not try again; find another way, or ask the user.

Call id: <id>
"""


def test_a_critical_call_runs_after_two_questions(shop: Shop) -> None:
    status, shown = said(shop, "wipe", {"name": "sda"}, (PROMPT, "y\n"), ("denies it: ", "wipe\n"))
    assert (status, shown) == (0, f"{WIPE}y\n{SECOND}wipe\nwiped sda\n")


@pytest.mark.parametrize("second", ["y", "yes", "", "Wipe", "wipe it", "wip"])
def test_a_critical_call_does_not_run_without_the_typed_name(shop: Shop, second: str) -> None:
    status, shown = said(shop, "wipe", {"name": "sda"}, (PROMPT, "y\n"), ("denies it: ", f"{second}\n"))
    assert (status, shown) == (1, f"{WIPE}y\n{SECOND}{second}\n{NO}")


@pytest.mark.parametrize(
    ("keys", "echoed"),
    [("\x03", "^C\n"), ("\x04", "\n"), ("y\x04\x04", "y\n")],
    ids=["Ctrl-C", "end of input", "no whole line"],
)
def test_the_end_of_the_input_is_a_no(shop: Shop, keys: str, echoed: str) -> None:
    assert said(shop, "wipe", {"name": "sda"}, (PROMPT, keys)) == (1, WIPE + echoed + NO)


def test_what_is_no_answer_is_asked_for_again(shop: Shop) -> None:
    again = f"Not one of the answers.\n[y]es once, {PROMPT}"
    answers = (PROMPT, "yes please\n"), (PROMPT, "\n"), (PROMPT, "n\n")
    assert said(shop, "wipe", {"name": "sda"}, *answers) == (1, f"{WIPE}yes please\n{again}\n{again}n\n{NO}")


def test_a_yes_that_was_typed_before_the_question_does_not_count(shop: Shop) -> None:
    with call(shop, "save_note", NOTE) as dialogue:
        dialogue.enter("y\ny\ny\n")
        dialogue.until(PROMPT)
        dialogue.enter("n\n")
        assert dialogue.end()[0] == 1
    assert not (shop.project / "a.txt").exists()


def test_the_reason_of_a_no_goes_back_to_the_caller(shop: Shop) -> None:
    _, shown = said(shop, "save_note", NOTE, (PROMPT, "n write to b.txt\n"))
    assert "denied this call to 'save_note': \"write to b.txt\". Do not try again" in shown


def test_a_difference_is_coloured_on_the_terminal(shop: Shop) -> None:
    (shop.project / "a.txt").write_text("zero")
    with call(shop, "save_note", NOTE) as dialogue:
        shown = dialogue.until(PROMPT)
        dialogue.enter("y\n")
        assert dialogue.end()[0] == 0
    assert ("\x1b[31m  | -zero\x1b[0m\n" in shown, "\x1b[32m  | +one\x1b[0m\n" in shown) == (True, True)
    assert (shop.project / "a.txt").read_text() == "one"


OFFERED = "[y]es once, [s]ession, [a]lways, [n]o [reason]: "


def test_a_yes_for_the_session_covers_the_same_arguments_and_no_other_session(shop: Shop) -> None:
    assert said(shop, "save_note", NOTE, (OFFERED, "s\n"), ("folder:…: ", "y\n"), session="s1")[0] == 0
    assert said(shop, "save_note", NOTE, session="s1") == (0, "saved\n")
    assert said(shop, "save_note", {**NOTE, "path": "b.txt"}, (OFFERED, "n\n"), session="s1")[0] == 1
    assert said(shop, "save_note", NOTE, (OFFERED, "n\n"), session="s2")[0] == 1


SESSION = """\
s
What each argument may be in later calls, and [the alternatives]:
  | path=equal  [equal, any, folder:<project>]
  | content=equal  [equal, any]
These calls will run without asking:
  | operator calls save_note 1.0.0 with
  |   path equal to "<project>/a.txt"
  |   content equal to "one"
In session s1, for at most one day.
It would have allowed 0 of 0 recorded calls.
Allow these calls in this session? [y]es, [n]o, or ARGUMENT=any, =equal, =folder:…: """
FREED = """\
content=any
These calls will run without asking:
  | operator calls save_note 1.0.0 with
  |   path equal to "<project>/a.txt"
  |   content anything
In session s1, for at most one day.
"""


def test_the_person_frees_and_bounds_arguments_and_sees_what_will_pass(shop: Shop) -> None:
    with call(shop, "save_note", NOTE, "--session", "s1", columns=200) as dialogue:
        dialogue.until(OFFERED)
        shown = []
        for line in (
            "s",
            "content=any",
            "path=folder:/nowhere",
            f"path=folder:{shop.project.resolve()}",
            "y",
        ):
            dialogue.enter(f"{line}\n")
            shown.append(plain(dialogue.until("folder:…: "), shop) if line != "y" else "")
        assert dialogue.end()[0] == 0
    assert shown[0] == SESSION
    assert shown[1].startswith(FREED)
    assert "Not possible: 'folder:/nowhere' does not cover 'path' of this call" in shown[2]
    assert "path in the folder <project>\n" in shown[3]
    other = {"path": "b.txt", "content": "two"}
    assert said(shop, "save_note", other, session="s1") == (0, "saved\n")


@pytest.mark.parametrize("second", ["n", "", "7", "yes please"])
def test_a_yes_for_the_session_needs_a_second_clear_yes(shop: Shop, second: str) -> None:
    answers = (OFFERED, "s\n"), ("folder:…: ", f"{second}\n")
    assert said(shop, "save_note", NOTE, *answers, session="s1")[0] == 1


ALWAYS = """\
These calls will run without asking:
  | operator calls save_note 1.0.0 with
  |   path equal to "<project>/a.txt"
  |   content equal to "one"
The rule expires at <time>, in DAYS.
It would have allowed 1 of 3 recorded calls, the last of them:
  <time>  <id>
1 could not be evaluated: their arguments are not stored.
Add this rule? [y]es, [n]o, ARGUMENT=any, =equal, =folder:…, or days (1 to 365): """


def test_always_shows_the_rule_its_end_and_what_it_would_have_allowed(shop: Shop) -> None:
    assert said(shop, "save_note", {**NOTE, "path": "c.txt"}, (PROMPT, "y\n"))[0] == 0
    with closing(Bodies(shop.state)) as bodies:
        assert bodies.erase_older(math.inf)
    assert said(shop, "save_note", {**NOTE, "path": "./a.txt"}, (PROMPT, "y\n"))[0] == 0
    assert said(shop, "save_note", {**NOTE, "path": "b.txt"}, (PROMPT, "y\n"))[0] == 0
    with call(shop, "save_note", NOTE, columns=200) as dialogue:
        dialogue.until(PROMPT)
        dialogue.enter("a\n")
        first = dialogue.until("(1 to 365): ")
        dialogue.enter("1\n")
        second = dialogue.until("(1 to 365): ")
        dialogue.enter("y\n")
        assert dialogue.end()[0] == 0
    choices = SESSION[SESSION.index("What each") : SESSION.index("These")]
    assert plain(first, shop) == "a\n" + choices + ALWAYS.replace("DAYS", "30 days")
    assert plain(second, shop) == "1\n" + ALWAYS.replace("DAYS", "1 day")
    assert said(shop, "save_note", NOTE) == (0, "saved\n")
    with closing(SqliteApprovals(shop.state)) as approvals:
        (rule,) = approvals.rules()
    assert (rule.approver, round(rule.ends_at - rule.made_at)) == (f"terminal:{person()}", 86_400)


@pytest.mark.parametrize("second", ["n", "", "0", "366", "-1", "y 7"])
def test_always_needs_a_second_clear_yes(shop: Shop, second: str) -> None:
    assert said(shop, "save_note", NOTE, (PROMPT, "a\n"), ("365): ", f"{second}\n"))[0] == 1
    with closing(SqliteApprovals(shop.state)) as approvals:
        assert approvals.rules() == []


def test_a_question_that_is_answered_elsewhere_is_taken_off_the_terminal(shop: Shop) -> None:
    with call(shop, "save_note", NOTE) as dialogue:
        dialogue.until(PROMPT)
        with closing(SqliteApprovals(shop.state)) as approvals:
            (standing,) = approvals.waiting()
            approvals.answer(standing.question.id, Answer(verdict="approve", approver="web:ada", way="web"))
        status, shown = dialogue.end()
    assert (status, shown) == (
        0,
        "\nThe call was approved elsewhere; your answer is no longer needed.\nsaved\n",
    )


def test_without_a_terminal_nobody_is_asked(shop: Shop) -> None:
    command = [sys.executable, "-m", "toolkeep", "call", "save_note", json.dumps(NOTE)]
    done = subprocess.run(command, cwd=shop.project, input="y\n", capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr, "no approver is available" in done.stdout) == (1, "", True)


@pytest.mark.parametrize(("typed", "verdict"), [("y", "approve"), ("n not now", "deny"), (None, "deny")])
def test_in_a_notebook_its_input_asks(
    typed: str | None, verdict: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(prompt: str) -> str:
        assert prompt == offer(QUESTION)
        if typed is None:
            raise KeyboardInterrupt
        return typed

    monkeypatch.setattr("sys.stdin", io.StringIO())
    monkeypatch.setattr("builtins.input", answer)  # as a kernel does while a cell runs
    assert asyncio.run(TerminalApprover()(QUESTION)).verdict == verdict


@pytest.mark.parametrize(
    ("line", "reply"),
    [
        ("y", Reply("once")),
        (" YES ", Reply("once")),
        ("s", Reply("session")),
        ("always", Reply("rule")),
        ("n", Reply()),
        ("No  because ", Reply(reason="because")),
        ("nope", None),
        ("ye", None),
        ("y y", None),
        ("\u0443", None),
        ("", None),
    ],
)
def test_what_a_line_means(line: str, reply: Reply | None) -> None:
    assert understand(line, QUESTION) == reply


@pytest.mark.parametrize(
    ("line", "picked"),
    [
        ("y", Picked(frozenset((1, 2, 3)))),
        (" 3, 1 ", Picked(frozenset((1, 3)))),
        ("no not  these ", Picked(reason="not  these")),
        ("o", Picked(one_by_one=True)),
        ("0", None),
        ("1 4", None),
        ("1 y", None),
        ("-1", None),
        ("\u0661", None),
        (",", None),
        ("", None),
    ],
)
def test_what_a_line_means_for_several_calls(line: str, picked: Picked | None) -> None:
    assert picked_by(line, 3) == picked


@pytest.mark.spec("FLO-7")
@pytest.mark.parametrize(
    ("lines", "verdicts"),
    [
        (["y"], ["approve", "approve"]),
        (["2"], ["deny", "approve"]),
        (["n why"], ["deny", "deny"]),
        (["o", "n", "y"], ["deny", "approve"]),
    ],
)
def test_several_calls_are_one_prompt(
    lines: list[str], verdicts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO())
    monkeypatch.setattr("builtins.input", lambda _: lines.pop(0))
    answers = asyncio.run(TerminalApprover().ask_all([QUESTION, replace(QUESTION, id="0" * 16)]))
    assert ([answer.verdict for answer in answers], lines) == (verdicts, [])


def test_prompts_at_once_come_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def answer(prompt: str) -> str:
        asked.append("begins")
        time.sleep(0.01)
        asked.append("ends")
        return "y"

    async def two() -> None:
        approver = TerminalApprover()
        await asyncio.gather(approver(QUESTION), approver(QUESTION))

    monkeypatch.setattr("sys.stdin", io.StringIO())
    monkeypatch.setattr("builtins.input", answer)
    asyncio.run(two())
    assert asked == ["begins", "ends"] * 2


@pytest.mark.parametrize(
    ("changes", "offered", "refused"),
    [
        ({"session": ""}, "[y]es once, [a]lways, [n]o [reason]: ", "s"),
        ({"danger": "high"}, "[y]es once, [n]o [reason]: ", "a"),
        ({"danger": "high"}, "[y]es once, [n]o [reason]: ", "s"),
    ],
)
def test_only_answers_that_may_be_given_are_offered_and_taken(
    changes: dict[str, str], offered: str, refused: str
) -> None:
    question = replace(QUESTION, **changes)
    assert (offer(question), understand(refused, question)) == (offered, None)


def test_what_could_not_be_judged_is_counted_by_its_reason() -> None:
    lines = [line.text for line in preview_lines(RulePreview(9, (), 2, 3), width=80)]
    assert lines == [
        "It would have allowed 0 of 9 recorded calls.",
        "2 could not be evaluated: their arguments are not stored.",
        "3 could not be evaluated: the tool is not available here.",
    ]


def test_who_sits_at_the_terminal_is_not_what_a_variable_says(monkeypatch: pytest.MonkeyPatch) -> None:
    before = person()
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.setenv(name, "somebody-else")
    assert person() == before


def test_a_user_without_a_name_has_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.getuid", lambda: 3_999_999_999)
    assert person() == "3999999999"
