"""Which parts of a policy's conditions hold for a call, as Cedar itself says (POL-5).

In come a policy that holds and a function that asks Cedar about another one. Out go the operands of each
chain of `&&`, in the order in which they are evaluated. Nothing here decides.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Literal

import msgspec
import orjson

from toolkeep.policy.cedar_bindings import cedarpy
from toolkeep.policy.cedar_parser import access
from toolkeep.policy.policy_set import Policy, conjuncts, policy_set_json
from toolkeep.text.display import counted, shorten

_SHOWN_PARTS: Final = 50
"""Parts of a policy that are evaluated and shown: each is a decision by Cedar."""
_TEXT_CHARS: Final = 400
"""Of a part: some five lines of the page."""
_VALUE_CHARS: Final = 80
"""Of a compared value, which stands in a sentence."""
_COMPARED: Final = {
    ">": "above {}",
    ">=": "of {} or more",
    "<": "below {}",
    "<=": "of {} or less",
    "==": "equal to {}",
    "!=": "other than {}",
}
_BARE: Final = re.compile(r"(?<!\w)\(([\w.]+)\)")
"""Brackets that Cedar prints around a variable or an attribute."""

IsHeld = Callable[[dict[str, Any]], bool | None]
"""Whether a policy in Cedar's JSON format holds; None if it cannot be evaluated."""


class Condition(msgspec.Struct, frozen=True, kw_only=True):
    """One part of the conditions of a policy."""

    kind: Literal["when", "unless"]
    text: str
    """In Cedar."""
    holds: bool
    arguments: tuple[str, ...]
    """The arguments that it reads."""
    compared: str = ""
    """A comparison of one argument with a value in words, such as `above 2000`."""
    is_test: bool = False
    """Whether it only says that there is an argument."""


def held_conditions(policy: Policy, is_held: IsHeld) -> tuple[Condition, ...]:
    """The parts that Cedar evaluates of a policy that holds, up to the one that decides each condition."""
    return tuple(_held(policy, is_held))


def _held(policy: Policy, is_held: IsHeld) -> Iterator[Condition]:
    left = _SHOWN_PARTS
    for condition in policy.tree["conditions"]:
        for part in conjuncts(condition["body"]):
            alone = _alone(policy.tree, part)
            holds = is_held(alone) if left else None
            if holds is None:
                return
            left -= 1
            operator, operand = next(iter(part.items()))
            path = access(operand["left"]) if operator in _COMPARED else None
            value = operand["right"].get("Value") if path and path[:2] == ("context", "arguments") else None
            is_comparison = isinstance(value, int | str) and path is not None and len(path) == 3
            yield Condition(
                kind=condition["kind"],
                text=_text(part),
                holds=holds,
                arguments=_arguments(part),
                compared=_COMPARED[operator].format(shown_value(value)) if is_comparison else "",
                is_test=operator == "has",
            )
            if not holds:  # `&&` stops here
                break


def _alone(tree: dict[str, Any], part: dict[str, Any]) -> dict[str, Any]:
    return {**tree, "effect": "permit", "conditions": [{"kind": "when", "body": part}]}


def _text(part: dict[str, Any]) -> str:
    """A part in Cedar, without the brackets that Cedar would print around every operand."""
    every = {"op": "All"}
    head = {"principal": every, "action": every, "resource": every, "annotations": {}}
    printed = cedarpy.policies_from_json_str(policy_set_json({"policy0": _alone(head, part)}))
    whole = printed[printed.index("{") + 1 : printed.rindex("}")].strip()
    short = whole
    while (shorter := _BARE.sub(r"\1", short)) != short:
        short = shorter
    return shorten(short if _means(short, part) else whole, _TEXT_CHARS)


def _means(text: str, part: dict[str, Any]) -> bool:
    """Whether a text is this part: a text in it may have brackets, too."""
    try:
        policies = cedarpy.policies_to_json_str(f"permit (principal, action, resource) when {{ {text} }};")
    except ValueError:
        return False
    trees = list(orjson.loads(policies)["staticPolicies"].values())
    return [one["conditions"] for one in trees] == [[{"kind": "when", "body": part}]]


def _arguments(part: dict[str, Any]) -> tuple[str, ...]:
    """The names of the arguments that an expression reads or tests."""
    found: dict[str, None] = {}
    waiting: list[Any] = [part]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            path = access(node)
            if path is not None and path[:2] == ("context", "arguments") and len(path) > 2:
                found[path[2]] = None
            waiting.extend(node.values())
        elif isinstance(node, list):
            waiting.extend(node)
    return tuple(sorted(found))


def in_words(conditions: Sequence[Condition], arguments: dict[str, Any]) -> str:
    """What a forbid forbids of a call, and what the call has; empty where that takes more than a sentence.

    `arguments` are those of the call, without what may be secret.
    """
    if not conditions:
        return "forbids it whatever its arguments"
    telling = [one for one in conditions if not one.is_test]
    if any(one.kind == "unless" or not one.compared for one in telling) or not telling:
        return ""
    names = [one.arguments[0] for one in telling]
    if not all(name in arguments for name in names):
        return ""
    forbidden = " and ".join(f"`{name}` {one.compared}" for name, one in zip(names, telling, strict=True))
    has = " and ".join(shown_value(arguments[name]) for name in dict.fromkeys(names))
    return f"forbids {forbidden}; this call has {has}"


def shown_value(value: Any) -> str:
    """A value of an argument, or of a policy, in a sentence."""
    if isinstance(value, list | dict):
        return counted(len(value), "value")
    return shorten(orjson.dumps(value).decode(), _VALUE_CHARS)
