"""What a person at a terminal reads after a refused call."""

import re

import pytest

from toolkeep.calls import Refusal, Violation
from toolkeep.cli.main import COMMANDS
from toolkeep.cli.next_step import next_step, operator_text
from toolkeep.config.settings import Run
from toolkeep.errors import Code

pytestmark = pytest.mark.spec("CLI-1")


def refusal(code: Code, tool: str = "save_note") -> Refusal:
    error = Violation("/path", code, "it may not", "", None, "Do without it, or ask the operator.")
    return Refusal(tool=tool, errors=(error,), correlation_id="c")


def test_the_operator_is_not_told_to_ask_the_operator() -> None:
    refused = refusal(Code.NOT_PERMITTED)
    assert operator_text(refused) == "Call to 'save_note' refused: 1 problem.\n- /path: it may not."
    assert "ask the operator" in refused.text


def test_what_a_model_could_mend_is_told_in_full() -> None:
    assert operator_text(refusal(Code.WRONG_TYPE)) == refusal(Code.WRONG_TYPE).text


@pytest.mark.parametrize("code", list(Code))
def test_a_next_step_names_a_command_that_there_is(code: Code) -> None:
    step = next_step(refusal(code))
    named = re.findall(r"toolkeep ([a-z-]+)", step)
    assert set(named) <= set(COMMANDS)
    assert not step or named or "--log-level" in step


def test_a_step_for_the_tool_of_a_file_names_the_file() -> None:
    steps = {
        Code.WRONG_TYPE: "toolkeep show save_note --tools 'my tools.py'",
        Code.UNKNOWN_TOOL: "toolkeep list --tools 'my tools.py'",
        Code.TOOL_QUARANTINED: "toolkeep accept 'my tools.py'",
    }
    for code, command in steps.items():
        assert next_step(refusal(code), None, ["my tools.py"]).endswith(f": {command}")


def test_policy_explain_is_not_named_where_no_policy_decided() -> None:
    assert next_step(refusal(Code.NOT_PERMITTED)) == ""


def test_a_script_that_may_start_no_program_is_told_of_the_grant() -> None:
    error = Violation("", Code.TOOL_FAILED, "sh: 1: cat: Permission denied", "", None, "Try another way.")
    failed = Refusal(tool="shout", errors=(error,), correlation_id="c")
    assert "process.spawn:" in next_step(failed, Run(kind="command", target=["sh"]))
    assert next_step(failed, Run(kind="python", target="m:f")) == ""
    assert next_step(failed) == ""


def test_a_name_that_a_model_wrote_is_quoted_for_the_shell() -> None:
    assert next_step(refusal(Code.TOOL_DISABLED, "x; rm -rf")) == "Enable it: toolkeep enable 'x; rm -rf'"
