"""Policy lint: comparisons that can never hold, because policies see the canonical form of a value (POL-5).

In come a policy and the tools it applies to; out go notes for `toolkeep policy check`. A note refuses
nothing: only comparisons with string literals are checked, and links may differ where the policy is used.
"""

import os
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from toolkeep.calls import RegisteredTool
from toolkeep.definitions.vocabulary import TouchForm
from toolkeep.policy.cedar_parser import access
from toolkeep.policy.policy_set import Policy, PolicyProblem, Reads
from toolkeep.policy.touched_resources import TouchPlan
from toolkeep.text.display import echo_name

_COMPARISONS: Final = ("==", "!=", "contains", "containsAll", "containsAny")
_HOST: Final = re.compile(r"[a-z0-9._:\[\]-]*")
_ANYTHING: Final = "*"


class _Comparison(NamedTuple):
    """An access path and the literal it is compared with."""

    reads: Reads
    text: str
    """For a `like` pattern, the part before its first wildcard."""
    is_whole: bool
    """Whether the literal is complete, not the prefix of a pattern."""

    @property
    def place(self) -> str:
        return ".".join(map(echo_name, self.reads))


def comparison_notes(policy: Policy, tools: Iterable[RegisteredTool]) -> Iterator[PolicyProblem]:
    """Comparisons of a policy that can never hold for any of its tools."""
    about = list(tools)
    for comparison in dict.fromkeys(_comparisons(policy.tree["conditions"])):
        if (problem := _problem(comparison, about)) is not None:
            what, fix = problem
            shown = f"compares {comparison.place} with '{echo_name(comparison.text)}'"
            yield policy.problem(f"{shown}, {what}", fix)


def _problem(comparison: _Comparison, tools: list[RegisteredTool]) -> tuple[str, str] | None:
    match comparison.reads:
        case ("context", "programs"):
            return _of_path(comparison, "the real paths of programs")
        case ("context", "hosts" | "url_hosts" | "mail_domains"):
            return _of_host(comparison)
        case ("context", "arguments", *names):
            having = [tool for tool in tools if names[:1] and names[0] in tool.definition.properties]
            forms = {form for tool in having for form in _forms(tool, names)}
            return _of_argument(comparison, forms.pop()) if len(forms) == 1 else None
    return None


def _forms(tool: RegisteredTool, names: list[str]) -> set[TouchForm | None]:
    """The touch forms of an argument or its items; None for a plain argument."""
    marks = TouchPlan(tool.definition).marks
    named = {
        mark.form
        for path, mark in marks
        if [*path[: len(names)]] == names and {*path[len(names) :]} <= {None}
    }
    return named or {None}


def _of_argument(comparison: _Comparison, form: TouchForm | None) -> tuple[str, str] | None:
    match form:
        case TouchForm.PATH:
            return _of_path(comparison, "the real, absolute path")
        case TouchForm.URL | TouchForm.HOST:
            return _of_host(comparison)
        case TouchForm.ARGV if comparison.text.startswith("/"):
            return (
                "the path of a program; policies see the whole command line as the caller wrote it",
                "read context.programs, which holds the real path of the program",
            )
    return None


def _of_path(comparison: _Comparison, seen: str) -> tuple[str, str] | None:
    text = comparison.text
    if text in ("", _ANYTHING):  # a leading wildcard, or the wildcard for any resource
        return None
    if not text.startswith("/"):
        return f"which is not absolute; policies see {seen}", "write the real path"
    folder = text if comparison.is_whole else text[: text.rindex("/")] or "/"
    if (real := os.path.realpath(folder)) != folder:
        return f"which leads to '{echo_name(real)}' here; policies see {seen}", "write the real path"
    return None


def _of_host(comparison: _Comparison) -> tuple[str, str] | None:
    text = comparison.text
    is_name = _HOST.fullmatch(text) and not (comparison.is_whole and text.endswith("."))
    if is_name or text == _ANYTHING:
        return None
    return (
        "which no host is; policies see hosts in lower case, as xn-- labels, without scheme, user and path",
        "write the host alone",
    )


def _comparisons(node: Any) -> Iterator[_Comparison]:
    waiting = [node]
    while waiting:
        here = waiting.pop()
        if isinstance(here, list):
            waiting.extend(here)
        elif isinstance(here, dict):
            for operator, operand in here.items():
                yield from _of_operator(operator, operand)
            waiting.extend(here.values())


def _of_operator(operator: str, operand: Any) -> Iterator[_Comparison]:
    if not isinstance(operand, dict) or "left" not in operand:
        return
    if operator == "like" and (reads := access(operand["left"])):
        text, is_whole = _beginning(operand["pattern"])
        yield _Comparison(reads, text, is_whole)
    elif operator in _COMPARISONS:
        sides = (operand["left"], operand["right"])
        for one, other in (sides, sides[::-1]):
            if reads := access(one):
                yield from (_Comparison(reads, text, is_whole=True) for text in _literals(other))


def _beginning(pattern: list[Any]) -> tuple[str, bool]:
    """The literal prefix of a pattern, and whether it is the whole pattern."""
    text = ""
    for part in pattern:
        if not isinstance(part, dict):
            return text, False
        text += part["Literal"]
    return text, True


def _literals(node: Any) -> Iterator[str]:
    values = node.get("Set", [node]) if isinstance(node, dict) else []
    for value in values:
        literal = value.get("Value") if isinstance(value, dict) else None
        if isinstance(literal, str):
            yield literal
