"""What the person at a terminal can type after a refused call.

A refusal is worded for a model, which can only ask its operator. The operator reads this instead.
"""

import shlex
from collections.abc import Sequence
from typing import Final

from toolkeep.calls import Refusal
from toolkeep.config.settings import Run
from toolkeep.errors import Code

_FOR_MODEL: Final = frozenset(
    {
        Code.NOT_PERMITTED,
        Code.AGENT_UNKNOWN,
        Code.TOOL_DISABLED,
        Code.TOOL_QUARANTINED,
        Code.APPROVAL_NEEDED,
        Code.ISOLATION_UNAVAILABLE,
        Code.NOT_RUNNABLE,
        Code.POLICIES_INVALID,
        Code.NOT_RECORDED,
        Code.OUTCOME_NOT_RECORDED,
        Code.TOOL_FAILED,
        Code.TIMED_OUT,
        Code.OUTPUT_TOO_BIG,
    }
)
"""Codes whose suggestion sends a model to its operator or user, who is the person at the terminal."""

_STEPS: Final[dict[Code, str]] = {
    Code.UNKNOWN_TOOL: "List the tools: toolkeep list{tools}",
    Code.NOT_JSON: "See its parameters: toolkeep show {tool}{tools}",
    Code.REQUIRED_MISSING: "See its parameters: toolkeep show {tool}{tools}",
    Code.WRONG_TYPE: "See its parameters: toolkeep show {tool}{tools}",
    Code.CONSTRAINT: "See its parameters: toolkeep show {tool}{tools}",
    Code.TOOL_DISABLED: "Enable it: toolkeep enable {tool}",
    Code.TOOL_QUARANTINED: "Review the change and accept it: toolkeep accept {tool}",
    Code.AGENT_UNKNOWN: "Declare the agent under `agents` in .agent/config.yml, then: toolkeep accept",
    Code.NOT_PERMITTED: "Find out why, and what would allow it: "
    "toolkeep policy explain {tool} ARGUMENTS{agent}{tools}",
    Code.APPROVAL_NEEDED: "Run it in a terminal and approve it there, or set `approvals.wait` and use: "
    "toolkeep approvals list",
    Code.POLICIES_INVALID: "Find the problem: toolkeep policy check",
    Code.ISOLATION_UNAVAILABLE: "See what this machine lacks: toolkeep doctor",
    Code.NOT_RUNNABLE: "See how it is run: toolkeep show {tool}{tools}",
    Code.NOT_RECORDED: "To see why, call it again with --log-level error",
    Code.OUTCOME_NOT_RECORDED: "Run toolkeep audit verify, and check the free space of the state folder",
    Code.OUTCOME_UNKNOWN: "See what is recorded: toolkeep audit list --tool {tool}",
}


_NOT_STARTED: Final = ("Permission denied", "Operation not permitted", "exit status 126")
"""How shells and other programs report a program that they were not allowed to start."""
_SPAWN: Final = (
    "If it starts other programs, grant each to the tool (`capabilities`) and the agent (`agents`) as "
    "process.spawn:/usr/bin/PROGRAM, then: toolkeep accept"
)


def operator_text(refusal: Refusal) -> str:
    """The refusal without advice that only a model can follow."""
    if refusal.code not in _FOR_MODEL or _is_fixable(refusal):
        return refusal.text
    lines = [
        f"- {error.path}: {error.message}." if error.path else f"- {error.message}."
        for error in refusal.errors
    ]
    return "\n".join([refusal.text.split("\n", 1)[0], *lines])


def _is_fixable(refusal: Refusal) -> bool:
    from toolkeep.policy.authorize import NAME_ANOTHER

    return any(error.suggestion == NAME_ANOTHER for error in refusal.errors)


def next_step(
    refusal: Refusal, runner: object = None, tools: Sequence[str] = (), agent: str = "operator"
) -> str:
    """The next command; empty if there is none.

    `runner` is that of the tool, `tools` are the files of tools that it may come from, `agent` made the call.
    """
    if refusal.code is Code.TOOL_FAILED and isinstance(runner, Run) and runner.kind == "command":
        # A script reports it as if a file mode were wrong. It was denied `execve`.
        is_told = refusal.diagnosis is not None and refusal.diagnosis.denied is not None
        return _SPAWN if not is_told and any(sign in refusal.text for sign in _NOT_STARTED) else ""
    if refusal.code is Code.NOT_PERMITTED and (refusal.decision is None or _is_fixable(refusal)):
        return ""  # Not policy: a file that does not exist, or a host that the tool's own definition lacks.
    named = [shlex.quote(file) for file in tools]
    if refusal.code is Code.TOOL_QUARANTINED and named:
        return f"Review the change and accept it: toolkeep accept {named[0]}"
    options = "".join(f" --tools {file}" for file in named)
    caller = "" if agent == "operator" else f" --agent {shlex.quote(agent)}"
    step = _STEPS.get(refusal.code, "")
    return step.format(tool=shlex.quote(refusal.tool), agent=caller, tools=options)
