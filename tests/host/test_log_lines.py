"""What an operator reads of a failure, with plain logging and with none."""

import subprocess
import sys

import pytest

PROGRAM = """
import logging, sys
from typing import Annotated
from toolkeep import Keep, Secret, TerminalApprover, tool
if sys.argv[1] == "basic":
    logging.basicConfig()
@tool(effects="none")
def boom(text: str) -> str:
    '''Fail.'''
    raise RuntimeError(text + chr(10) + "ERROR:toolkeep.audit:forged")
@tool(effects="none")
def sign_in(password: Annotated[str, Secret()]) -> str:
    '''Fail.'''
    raise RuntimeError(password[::-1])
@tool(effects="writes", danger="medium")
def order() -> str:
    '''Order.'''
    return "ordered"
def ask(question):
    raise RuntimeError("the desk is empty")
with Keep(approver=ask, after_call=[lambda call, value: value]) as keep:
    keep.register(boom, sign_in, order)
    told = keep.call_sync("boom", {"text": "shelf A4"})
    print(keep, told, told.text, repr(told.error.diagnosis), told.error.diagnosis, sep=chr(10))
    keep.call_sync("sign_in", {"password": "hunter2"})
    keep.call_sync("order", {})
with Keep(approver=TerminalApprover()) as keep:
    keep.register(order)
    print(keep.call_sync("order", {}).text)
"""


@pytest.mark.parametrize("logs", ["none", "basic"])
def test_the_operator_reads_why_a_tool_or_an_approver_failed(logs: str) -> None:
    command = [sys.executable, "-c", PROGRAM, logs]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=True)
    text, _, read = done.stdout.partition("<diagnosis: unexpected; print() shows it>")
    assert text.startswith("<Keep with 3 tools>\n<ToolResult error of 'boom', call ")
    assert "shelf A4" not in text
    assert "shelf A4" in read
    assert "Tool 'boom', call " in done.stderr
    assert "in boom" in done.stderr
    assert "shelf A4" in done.stderr
    # A line of the tool's own cannot pass for a record of ours.
    assert not any(line.startswith("ERROR:toolkeep.audit") for line in done.stderr.splitlines())
    assert not any(form in done.stderr for form in ("hunter2", "2retnuh"))
    assert "in sign_in" in done.stderr
    assert "the desk is empty" in done.stderr
    assert "no one can be prompted: stdin or stderr is not a terminal" in done.stderr
    assert "asking for it failed" in done.stdout
