"""Checks compiled policies against Cedar, on contexts that are generated from the policies' own literals.

Policies of one form, which differ in literals alone, are compiled to the same code; one of each form is
checked. Each is evaluated alone, so that no other policy hides what it says.
"""

import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import orjson

from toolkeep.policy.cedar_schema import LONGS
from toolkeep.policy.compiled_policies import Type, Values, compile_policies
from toolkeep.policy.policy_set import Policy

CONTEXTS: Final = 6
"""Generated contexts for each form of policy; Cedar takes about 0.06 ms for each."""

FORMS: Final = 200
"""More forms than this are not compiled: their check would take longer than most programs call."""

_TYPES: Final = {str: "String", int: "Long", bool: "Boolean"}
_OTHERS: Final[Mapping[str, tuple[Any, ...]]] = {
    "String": ("", "other"),
    "Long": (0, 1, *LONGS),
    "Boolean": (True, False),
    "decimal": ("0.0", "-1.5"),
}
"""Values beside the literals of a policy, by type."""

AskAlone = Callable[[Policy, list[Values]], list[bool | None]]
"""Whether a policy holds by Cedar, for each context; None if it cannot be evaluated."""


def forms(policies: Iterable[Policy]) -> list[Policy]:
    """One policy of each form."""
    found: dict[bytes, Policy] = {}
    for policy in policies:
        found.setdefault(orjson.dumps([_form(one) for one in policy.tree["conditions"]]), policy)
    return list(found.values())


def disputed(
    policy: Policy,
    types: Mapping[str, Type],
    attributes: tuple[Values, Values],
    ask: AskAlone,
) -> bool:
    """Whether a policy, compiled alone, contradicts Cedar; `attributes` are of principal and resource."""
    evaluate = compile_policies([policy], types)(*attributes)
    contexts = list(generated([policy], types["context"], CONTEXTS))
    for context, holds in zip(contexts, ask(policy, contexts), strict=True):
        try:
            is_held = bool(evaluate(context))
        except Exception:  # noqa: BLE001, S112 -- no answer: Cedar decides such a call
            continue
        if is_held is not holds:
            return True
    return False


def generated(policies: Iterable[Policy], context: Type, count: int) -> Iterator[Values]:
    """Contexts of a type, from the literals of policies; the same ones each time."""
    pools: dict[str, list[Any]] = {name: list(values) for name, values in _OTHERS.items()}
    for policy in policies:
        for name, literal in _literals(policy.tree["conditions"]):
            pools[name].append(literal)
            if name == "Long":
                pools[name] += [near for near in (literal - 1, literal + 1) if LONGS[0] <= near <= LONGS[1]]
    dice = random.Random(count)  # noqa: S311 -- reproducible on purpose
    return (_value(context, pools, dice) for _ in range(count))


def _value(its_type: Type, pools: Mapping[str, list[Any]], dice: random.Random) -> Any:
    kind = its_type["type"]
    if kind == "Record":
        return {
            name: _value(inside, pools, dice)
            for name, inside in its_type["attributes"].items()
            if inside.get("required", True) or dice.random() < 0.8
        }
    if kind == "Set":
        return [_value(its_type["element"], pools, dice) for _ in range(dice.randrange(4))]
    if kind == "Extension":
        return {"__extn": {"fn": its_type["name"], "arg": _drawn(pools["decimal"], dice)}}
    return _drawn(pools[kind], dice)


def _drawn(pool: list[Any], dice: random.Random) -> Any:
    """A value of a pool; literals of the policies stand last and are drawn more often."""
    return pool[-1 - int(len(pool) * dice.random() ** 2)]


def _literals(tree: Any) -> Iterator[tuple[str, Any]]:
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            if type(value := node.get("Value")) in _TYPES:
                yield _TYPES[type(value)], value
            elif "decimal" in node:
                yield "decimal", node["decimal"][0].get("Value", "0.0")
            else:
                waiting.extend(node.values())
        elif isinstance(node, list):
            waiting.extend(node)


def _form(tree: Any) -> Any:
    """A tree without its literals; a set of literals is one form, whatever their number."""
    if isinstance(tree, list):
        inside = [_form(one) for one in tree]
        return inside[:1] if all(one == inside[0] for one in inside) else inside
    if not isinstance(tree, dict):
        return tree
    if "Value" in tree:
        return {"Value": type(tree["Value"]).__name__}
    return {name: _form(inside) for name, inside in tree.items()}
