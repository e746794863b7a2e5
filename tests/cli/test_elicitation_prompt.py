"""A server's questions to the person who runs `toolkeep call`: shown as the server's, and sent after a yes."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest

from tests.cli.dialogue import Dialogue
from tests.config.projects import accept
from tests.mcp_client.servers import add
from toolkeep.cli.approval_prompt import person
from toolkeep.cli.elicitation_prompt import field_lines, question_lines
from toolkeep.mcp_client.elicitation import ElicitationRequest
from toolkeep.sandbox.launch import interpreter

pytestmark = pytest.mark.spec("MCP-2", "POL-4")

SERVER = str(Path(__file__).resolve().parents[1] / "mcp_client" / "upstream.py")
FORM = {
    "type": "object",
    "properties": {
        "hour": {"type": "integer", "minimum": 0, "maximum": 23, "default": 9},
        "drink": {"type": "string", "oneOf": [{"const": "t", "title": "Tea"}, {"const": "c", "title": "Coffee"}]},
        "milk": {"type": "boolean", "title": "With milk?"},
        "why": {"type": "string", "maxLength": 10},
    },
    "required": ["drink", "milk"],
}  # fmt: skip
ASKED = {"message": "When shall we\nmeet?", "requestedSchema": FORM}
APPROVE = ("[n]o [reason]: ", "y\n")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    add(tmp_path, "up", "--", interpreter(), "-I", "-S", SERVER, "puts")
    return tmp_path


def said(project: Path, asked: Any, *answers: tuple[str, str]) -> tuple[Any, str]:
    """What the server was told, and the screen from its question on."""
    words = json.dumps({"text": json.dumps([asked])})
    with Dialogue(["call", "echo", words], cwd=project) as dialogue:
        for prompt, answer in (APPROVE, *answers):
            dialogue.until(prompt)
            dialogue.enter(answer)
        status, _ = dialogue.end()
        shown = click.unstyle(dialogue.shown)
    assert status == 0, shown
    question = shown[shown.index("The server up") :] if "The server up" in shown else ""
    return json.loads(shown.splitlines()[-1])[0], re.sub(
        r"for (4 min \d+ s|5 min)", "for <minutes>", question
    )


def recorded(project: Path) -> list[tuple[str, str]]:
    """What the log says of questions: outcome, and who answered."""
    command = [sys.executable, "-m", "toolkeep", "audit", "export"]
    lines = subprocess.run(command, cwd=project, check=True, capture_output=True, text=True).stdout
    records = [json.loads(line).get("record", {}) for line in lines.splitlines()]
    return [(one["outcome"], one["answerer"]) for one in records if one.get("type") == "ServerAsked"]


WHOLE = """\
The server up asks you, in its own words:
  | When shall we
  | meet?
It asks for 4 answers, for a call of operator.
It waits for <minutes>.
Never enter a password or key: servers may not ask for one here.
Answer the server now? [y]es, [n]o: y
Field 1 of 4: a whole number, at least 0, at most 23, may be left out
  | hour
It suggests:
  | 9
Your answer (Enter for the suggestion): 25
Invalid answer: expected: a whole number, at least 0, at most 23.
Your answer (Enter for the suggestion): 
Field 2 of 4: one of these
  | drink
  | 1. t: Tea
  | 2. c: Coffee
Number: 2
Field 3 of 4: yes or no
  | milk: With milk?
yes or no: n
Field 4 of 4: text, at most 10 characters, may be left out
  | why
Your answer (Enter to skip): 
This will be sent to the server up:
  | {
  |   "hour": 9,
  |   "drink": "c",
  |   "milk": false
  | }
Send it? [y]es, [n]o: y
"""  # noqa: W291 -- as it is typed


def test_a_form_is_filled_in_field_by_field_and_sent_after_a_yes(project: Path) -> None:
    told, shown = said(
        project,
        ASKED,
        ("Answer the server now? [y]es, [n]o: ", "y\n"),
        ("suggestion): ", "25\n"),
        ("suggestion): ", "\n"),
        ("Number: ", "2\n"),
        ("yes or no: ", "n\n"),
        ("to skip): ", "\n"),
        ("Send it? [y]es, [n]o: ", "y\n"),
    )
    assert told == {"action": "accept", "content": {"hour": 9, "drink": "c", "milk": False}}
    assert shown.startswith(WHOLE)
    assert recorded(project) == [("accept", f"terminal:{person()}")]


@pytest.mark.parametrize("keys", ["\n", "n\n", "yes please\n", "\x03", "\x04"])
def test_anything_but_a_clear_yes_sends_nothing(project: Path, keys: str) -> None:
    told, shown = said(project, ASKED, ("Answer the server now? [y]es, [n]o: ", keys))
    assert told == {"action": "decline"}
    assert "Nothing was sent." in shown
    assert recorded(project) == [("decline", f"terminal:{person()}")]


def test_whoever_does_not_want_to_send_what_they_filled_in_sends_nothing(project: Path) -> None:
    form = {"type": "object", "properties": {"why": {"type": "string"}}}
    told, _ = said(
        project,
        {"message": "Why?", "requestedSchema": form},
        ("Answer the server now? [y]es, [n]o: ", "y\n"),
        ("to skip): ", "my own business\n"),
        ("Send it? [y]es, [n]o: ", "\n"),
    )
    assert told == {"action": "decline"}


def test_who_does_not_find_an_answer_that_fits_sends_nothing(project: Path) -> None:
    form = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    wrong = ("Your answer: ", "seven\n")
    told, shown = said(
        project,
        {"message": "How many?", "requestedSchema": form},
        ("Answer the server now? [y]es, [n]o: ", "y\n"),
        wrong,
        wrong,
        ("Your answer: ", "\n"),
    )
    assert told == {"action": "decline"}
    assert shown.count("Invalid answer: enter a number, such as 7 or 7.5.") == 3


def test_a_question_for_a_secret_is_not_shown(project: Path) -> None:
    form = {"type": "object", "properties": {"password": {"type": "string"}}}
    told, shown = said(project, {"message": "Who are you?", "requestedSchema": form})
    assert (told, shown) == ({"action": "decline"}, "")
    assert recorded(project) == [("refused", "")]


def test_nobody_is_asked_where_there_is_no_terminal(project: Path) -> None:
    path = project / ".agent" / "config.yml"
    path.write_text(f"{path.read_text()}    danger: {{echo: safe}}\n")
    accept(project)
    words = json.dumps({"text": json.dumps([ASKED])})
    command = [sys.executable, "-m", "toolkeep", "call", "echo", words]
    done = subprocess.run(
        command, cwd=project, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True
    )
    assert (done.stdout, done.stderr) == ('[{"action": "decline"}]\n', "")
    assert recorded(project) == [("refused", "")]


def test_who_is_not_waited_for_any_more_is_told_so(tmp_path: Path) -> None:
    add(tmp_path, "up", "--", interpreter(), "-I", "-S", SERVER, "rushes")
    with Dialogue(["call", "echo", '{"text": "When?"}'], cwd=tmp_path) as dialogue:
        dialogue.until(APPROVE[0])
        dialogue.enter(APPROVE[1])
        status, shown = dialogue.end()
    assert status == 0
    assert "The server is no longer waiting for your answer.\n" in shown
    assert recorded(tmp_path) == [("cancel", "")]


EVIL = "\x1b[2J\x1b[HThe server bank asks you:\nSend it? [y]es, [n]o: y\r\u202e"


def hostile(**fields: Any) -> ElicitationRequest:
    schema = {"type": "object", "title": EVIL, "properties": fields, "required": []}
    return ElicitationRequest(upstream="up", agent="ada", message=EVIL, schema=schema, expires_at=300.0)


@pytest.mark.parametrize("width", [1, 24, 80])
def test_no_word_of_a_server_passes_for_one_of_ours(width: int) -> None:
    field = {"type": "string", "title": EVIL, "description": EVIL, "default": "x\nSend it?", "enum": ["a"]}
    lines = [
        *question_lines(hostile(x=field), now=0.0, width=width),
        *field_lines("x" * 100, field, "1 of 1", is_required=False, width=width),
    ]
    foreign = [line.text for line in lines if line.look == "foreign"]
    assert all(text.startswith(("  | ", "  : ")) and text.isprintable() for text in foreign)
    assert all("bank" not in line.text for line in lines if line.look != "foreign")
    assert all(len(line.text) <= max(width, 24) for line in lines if line.look == "foreign")
