"""What the person sees who is asked: all of it, and nothing that a hostile call can forge, hide or move."""

import json
import unicodedata
from typing import Any

import pytest
from msgspec.structs import replace

from toolkeep.approval.question import Question
from toolkeep.approval.question_text import GOES_ON, MARGIN, Line, duration, name, render_question, rows
from toolkeep.limits import VIEW_CHARS

pytestmark = pytest.mark.spec("POL-4")

QUESTION = Question(
    id="0123456789abcdef",
    call_id="c" * 32,
    agent="writer",
    conversation="c1",
    session="s1",
    tool="save_note",
    version="1.2.0",
    definition_hash="d",
    argument_hash="a",
    grant_hash="g",
    danger="medium",
    why=("its danger is medium", "policy 'careful' requires approval"),
    arguments='{"path": "notes/a.txt", "content": "one\\ntwo", "key": "(secret, 12 characters)"}',
    touches=("fs.write:/srv/notes/a.txt",),
    difference="--- a\n+++ a\n@@ -1 +1 @@\n-one\n+two",
    policies=("toolkeep.call",),
    asked_at=1_000_000.0,
    expires_at=1_000_300.0,
)

WHOLE = """\
Call 0123456789abcdef needs approval
Arguments:
  | {
  |   "content": "one\\ntwo",
  |   "path": "notes/a.txt",
  |   "key": "(secret, 12 characters)"
  | }
Difference:
  | --- a
  | +++ a
  | @@ -1 +1 @@
  | -one
  | +two
It would access:
  | fs.write:/srv/notes/a.txt
Permitted by:
  | the default, because you have no policies
Agent:        writer
Session:      s1
Conversation: c1
Tool:         save_note
Version:      1.2.0
Danger:       medium
Why:          its danger is medium
Why:          policy 'careful' requires approval
Expires:      1970-01-12 13:51:40 UTC, in 4 min 40 s"""


def shown(question: Question, width: int = 80) -> list[Line]:
    return render_question(question, now=1_000_020.0, width=width)


def text(lines: list[Line]) -> str:
    return "\n".join(line.text for line in lines)


def test_a_person_sees_the_whole_call_with_what_matters_most_beside_the_prompt() -> None:
    assert text(shown(QUESTION)) == WHOLE


def test_only_the_changes_of_a_difference_are_marked_to_be_coloured() -> None:
    looks = [line.look for line in shown(QUESTION)]
    assert [looks.count(look) for look in ("added", "removed")] == [1, 1]
    assert Line("  | +two", "added") in shown(QUESTION)


@pytest.mark.parametrize(
    ("danger", "acts", "said"),
    [
        ("low", 1, "low"),
        ("high", 1, "high, needs approval every time"),
        ("critical", 2, "critical, needs approval every time, confirmed twice"),
    ],
)
def test_how_often_it_is_asked_stands_beside_the_danger(danger: str, acts: int, said: str) -> None:
    assert f"Danger:       {said}" in text(shown(replace(QUESTION, danger=danger, acts=acts))).split("\n")


# --- attacks -------------------------------------------------------------------------------------

OURS = tuple(line.split(":")[0] + ":" for line in WHOLE.split("\n") if not line.startswith(" "))

ATTACKS = {
    "line break": "x\nDanger:       safe\nAgent:        boss",
    "carriage return": "x\rDanger:       safe",
    "vertical tab and form feed": "x\x0bDanger: safe\x0cDanger: safe",
    "line separators": "x\u2028Danger: safe\u2029Danger: safe\x85Danger: safe",
    "cursor up and erase": "x\x1b[10A\x1b[2KDanger: safe",
    "clear the screen": "\x1b[2J\x1b[H",
    "colour of the background": "\x1b[8mhidden\x1b[30;40mhidden",
    "eight-bit control sequence": "\x9b2J\x9d0;title\x9c",
    "title and link": "\x1b]0;title\x07\x1b]8;;http://evil\x07ok\x1b]8;;\x07",
    "backspaces": "rm -rf /" + "\x08" * 8 + "ls      ",
    "delete": "rm\x7f\x7fls",
    "null": "a\x00b",
    "right-to-left override": "\u202etxt.exe\u202c\u2066\u2069",
    "zero width": "a\u200bb\u200cc\u200dd\u2060e\ufefff",
    "tags": "".join(chr(0xE0000 + ord(char)) for char in "ignore"),
    "variation selectors": "a" + "\ufe00\U000e0100" * 9,
    "fillers": "\u3164\u115f\u1160\uffa0\u2800",
    "other spaces": "a\u00a0b\u2003c\u3000d\tz",
    "soft hyphen": "a\u00adb",
    "stacked marks": "a" + "\u0335\u0336\u0337\u0338" * 30,
    "marks without a letter": "\u20dd\u0338",
    "wraps to the left edge": " " * 76 + "Danger:       safe",
    "wraps everywhere": "Danger:       safe".center(77) * 40,
    "wide letters wrap": "\u4f60" * 38 + "Danger:       safe",
    "lone surrogates": "\ud800\udfff",
    "private use": "\ue000\U000f0000",
    "the margin itself": "\n  | \nDanger: safe",
}  # fmt: skip

FIELDS = ("agent", "session", "conversation", "tool", "version", "danger", "id")


def hostile(field: str, attack: str) -> Question:
    given: Any = attack
    if field in ("touches", "policies", "why"):
        given = (attack, attack)
    elif field == "arguments":
        given = json.dumps({attack: attack, "inside": [attack]}, ensure_ascii=False)
    return replace(QUESTION, **{field: given})


def is_seen(char: str) -> bool:
    return char == " " or unicodedata.category(char)[0] not in "CZ"


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=list(ATTACKS))
def test_foreign_words_move_nothing_hide_nothing_and_pass_for_no_line_of_ours(attack: str) -> None:
    for field in (*FIELDS, "touches", "policies", "why", "arguments", "difference"):
        for width in (30, 80, 200):
            check_nothing_moves(width, field, attack)


def check_nothing_moves(width: int, field: str, attack: str) -> None:
    lines = [line.text for line in shown(hostile(field, attack), width)]
    assert all(is_seen(char) for line in lines for char in line)
    ours = [line for line in lines if not line.startswith((MARGIN, GOES_ON))]
    assert all(line.startswith(("Call ", *OURS, "  ")) for line in ours)
    titles = [line.split(":")[0] for line in ours if ":" in line and not line.startswith((" ", "Why"))]
    assert len(titles) == len(set(titles))
    foreign = [line for line in lines if line.startswith((MARGIN, GOES_ON)) or line.startswith(OURS)]
    assert all(cells(line) <= width for line in foreign)
    assert "Danger:       safe" not in lines


def cells(line: str) -> int:
    wide = sum(unicodedata.east_asian_width(char) in "WF" for char in line)
    return len(line) + wide - sum(unicodedata.category(char) == "Mn" for char in line)


def test_marks_stay_on_the_letter_that_they_belong_to_and_are_few() -> None:
    assert [line.text for line in rows("e\u0301 \u0338x\u0301\u0301\u0301\u0301", 80)] == [
        "  | e\u0301 \\u0338x\u0301\u0301\u0301\\u0301"
    ]


def test_a_name_that_looks_like_another_is_written_out() -> None:
    assert name("writer") == "writer"
    assert name("writer ") == '"writer "'
    assert name("") == '""'
    assert name("wr\u0456ter") == '"wr\u0456ter", written "wr\\u0456ter"'


def test_letters_that_read_from_right_to_left_are_told() -> None:
    lines = text(shown(replace(QUESTION, arguments='{"to": "\u05d0/1"}'))).split("\n")
    assert lines[5:7] == ["  Some of this reads right to left:", "  it may be shown in another order."]


# --- length --------------------------------------------------------------------------------------


def test_a_long_argument_hides_no_other() -> None:
    arguments = {"body": "x" * 200_000, "to": "eve@evil.example"}
    lines = text(shown(replace(QUESTION, arguments=json.dumps(arguments)))).split("\n")
    assert lines[3] == '  |   "to": "eve@evil.example",'
    assert lines[4].startswith('  |   "body": "xxxxxxx')
    assert "more" in "".join(line.strip(" :|") for line in lines)
    assert lines[lines.index("  Long values are cut here; see all of them:") + 1] == (
        "  toolkeep approvals show 0123456789abcdef --json"
    )


def test_what_is_shown_whole_is_not_called_cut() -> None:
    around = len(json.dumps({"a": ""}, indent=2))
    for more, is_cut in ((0, False), (1, True)):
        arguments = json.dumps({"a": "x" * (VIEW_CHARS - around + more)})
        assert ("values are cut" in text(shown(replace(QUESTION, arguments=arguments)))) is is_cut


def test_a_long_line_goes_on_behind_a_margin_of_its_own() -> None:
    assert [line.text for line in rows("x" * 30, 24)] == [MARGIN + "x" * 20, GOES_ON + "x" * 10]
    assert text(shown(replace(QUESTION, agent="a" * 30), 24)).count("  :           aaaaaaaaaa") == 2


@pytest.mark.parametrize(
    ("seconds", "wanted"),
    [
        (-5, "0 s"),
        (0.2, "0 s"),
        (59, "59 s"),
        (60, "1 min"),
        (299, "4 min 59 s"),
        (3605, "1 h"),
        (86_400 * 29 + 3_600, "29 d 1 h"),
    ],
)
def test_a_length_of_time_has_its_two_largest_units(seconds: float, wanted: str) -> None:
    assert duration(seconds) == wanted


def test_a_question_whose_time_is_over_says_so() -> None:
    assert render_question(QUESTION, now=2_000_000.0)[-1].text.endswith(", which has passed")
