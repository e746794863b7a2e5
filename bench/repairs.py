"""How often is the repair of a refused call the call that was meant? Prints a table.

bench/repairs.py [--data FOLDER] [--seed N]

Real calls are damaged as models damage them. Every damaged call that is refused is repaired with
the JSON Patch of its refusal, and compared with the call before the damage.
"""

import argparse
import json
import random
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tables import print_notes, print_table
from toolkeep import Keep, Refusal, ToolkeepError, open_keep
from workloads.real import RealCall, read_calls

ROOT = Path(__file__).parent.parent
Call = dict[str, Any]
Damage = Callable[[Call, Mapping[str, Any], random.Random], Iterator[Call]]


def main() -> None:
    """Damage, repair, count and print."""
    parser = argparse.ArgumentParser(description="How often a repair is the call that was meant.")
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    calls = read_calls(options.data)
    rows = []
    with open_keep() as keep:
        known = [call for call in calls if _is_registered(keep, call)]
        for damage in DAMAGES:
            rows.append(_row(keep, known, damage, random.Random(options.seed)))
    print_table(
        f"{len(known)} real calls, damaged",
        ("damage", "refused", "repaired", "as meant", "otherwise", "right name", "wrong name"),
        rows,
    )
    print_notes(["names: of the names that the advice about an unknown property holds"])


def _is_registered(keep: Keep, call: RealCall) -> bool:
    try:
        keep.register(call.definition)
    except ToolkeepError:
        return False
    return not isinstance(keep.try_validate_arguments(call.name, call.raw), Refusal)


def _row(keep: Keep, calls: list[RealCall], damage: Damage, chance: random.Random) -> list[str]:
    refused = repaired = meant = right = wrong = 0
    for number, call in enumerate(calls):
        intended = json.loads(call.raw)
        for damaged in damage(intended, call.schema, chance):
            # An agent for each call: the advice to one that is refused again and again is shorter.
            check = keep.try_validate_arguments(call.name, json.dumps(damaged), agent=f"{number}")
            if not isinstance(check, Refusal):
                continue
            refused += 1
            told = [
                name
                for error in check.errors
                for name in re.findall(r"Did you mean '(.+)'\?", error.suggestion)
            ]
            right += sum(name in intended for name in told)
            wrong += sum(name not in intended for name in told)
            if check.repair is not None:
                repaired += 1
                meant += _patched(damaged, check.repair) == intended
    said = (damage.__doc__ or "").rstrip(".")
    return [said, *map(str, (refused, repaired, meant, repaired - meant, right, wrong))]


def _patched(call: Call, patch: Any) -> Call:
    """The call after a patch, as a client would apply it."""
    document: dict[str, Any] = {"": json.loads(json.dumps(call))}
    for operation in patch:
        value = operation.get("value")
        if operation["op"] == "move":
            holder, key = _member(document, operation["from"])
            value = holder.pop(key)
        holder, key = _member(document, operation["path"])
        if operation["op"] == "remove":
            del holder[key]
        else:
            holder[key] = value
    return document[""]  # type: ignore[no-any-return]  # an object stays one


def _member(document: dict[str, Any], path: str) -> tuple[Any, Any]:
    holder: Any = document
    steps = [step.replace("~1", "/").replace("~0", "~") for step in path.split("/")]
    for step in steps[:-1]:
        holder = holder[int(step) if isinstance(holder, list) else step]
    return holder, int(steps[-1]) if isinstance(holder, list) else steps[-1]


def _null_for_optional(call: Call, schema: Mapping[str, Any], chance: random.Random) -> Iterator[Call]:
    """null for an optional parameter."""
    yield from ({**call, name: None} for name in _left_out(schema, call, chance))


def _none_for_optional(call: Call, schema: Mapping[str, Any], chance: random.Random) -> Iterator[Call]:
    """the text None for an optional parameter."""
    yield from ({**call, name: "None"} for name in _left_out(schema, call, chance))


def _python_literals(call: Call, _: Mapping[str, Any], __: random.Random) -> Iterator[Call]:
    """a value as a Python literal in text."""
    for name, value in call.items():
        if not isinstance(value, str):
            yield {**call, name: repr(value)}


def _json_text(call: Call, _: Mapping[str, Any], __: random.Random) -> Iterator[Call]:
    """a value as JSON in text."""
    for name, value in call.items():
        if not isinstance(value, str):
            yield {**call, name: json.dumps(value)}


def _number_for_text(call: Call, _: Mapping[str, Any], __: random.Random) -> Iterator[Call]:
    """a number for text."""
    for name, value in call.items():
        if isinstance(value, str) and re.fullmatch("[1-9][0-9]{0,8}", value):
            yield {**call, name: int(value)}


def _longer_name(call: Call, schema: Mapping[str, Any], chance: random.Random) -> Iterator[Call]:
    """a name with a word before it."""
    for name in call:
        yield _renamed(call, name, f"{chance.choice(_WORDS)}_{name}")


def _shorter_name(call: Call, schema: Mapping[str, Any], chance: random.Random) -> Iterator[Call]:
    """one word of a name."""
    for name in call:
        words = name.split("_")
        if len(words) > 1:
            yield _renamed(call, name, chance.choice(words))


def _camel_case(call: Call, schema: Mapping[str, Any], chance: random.Random) -> Iterator[Call]:
    """a name in camelCase."""
    for name in call:
        if "_" in name.strip("_"):
            first, *rest = name.split("_")
            yield _renamed(call, name, first + "".join(word.capitalize() for word in rest))


def _misspelt(call: Call, schema: Mapping[str, Any], chance: random.Random) -> Iterator[Call]:
    """a name with two letters swapped."""
    for name in call:
        if len(name) > 3:
            at = chance.randrange(1, len(name) - 2)
            yield _renamed(call, name, name[:at] + name[at + 1] + name[at] + name[at + 2 :])


def _other_case(call: Call, schema: Mapping[str, Any], chance: random.Random) -> Iterator[Call]:
    """a value of an enum in other letters."""
    for name, value in call.items():
        part = schema.get("properties", {}).get(name)
        if isinstance(value, str) and isinstance(part, dict) and "enum" in part:
            yield {**call, name: value.swapcase()}


def _unknown_extra(call: Call, schema: Mapping[str, Any], chance: random.Random) -> Iterator[Call]:
    """an unknown parameter more."""
    yield {**call, chance.choice(_WORDS): "x"}


def _missing_and_extra(call: Call, schema: Mapping[str, Any], chance: random.Random) -> Iterator[Call]:
    """another name altogether."""
    for name in call:
        yield _renamed(call, name, chance.choice(_WORDS))


def _in_a_list(call: Call, _: Mapping[str, Any], __: random.Random) -> Iterator[Call]:
    """a value in a list of one."""
    for name, value in call.items():
        yield {**call, name: [value]}


def _lone_item(call: Call, _: Mapping[str, Any], __: random.Random) -> Iterator[Call]:
    """the one item of a list without the list."""
    for name, value in call.items():
        if isinstance(value, list) and len(value) == 1:
            yield {**call, name: value[0]}


def _in_a_wrapper(call: Call, _: Mapping[str, Any], chance: random.Random) -> Iterator[Call]:
    """all parameters in an object."""
    yield {chance.choice(("arguments", "parameters", "input", "params")): call}


def _one_level_up(call: Call, _: Mapping[str, Any], __: random.Random) -> Iterator[Call]:
    """the members of an object beside it."""
    for name, value in call.items():
        if isinstance(value, dict) and value and call.keys().isdisjoint(value):
            yield {**{one: call[one] for one in call if one != name}, **value}


DAMAGES: tuple[Damage, ...] = (
    _null_for_optional,
    _none_for_optional,
    _python_literals,
    _json_text,
    _number_for_text,
    _other_case,
    _camel_case,
    _misspelt,
    _longer_name,
    _shorter_name,
    _missing_and_extra,
    _unknown_extra,
    _in_a_list,
    _lone_item,
    _in_a_wrapper,
    _one_level_up,
)
_WORDS = (
    "input",
    "file",
    "user",
    "target",
    "data",
    "query",
    "line",
    "new",
    "list",
    "verbose",
    "reason",
    "item",
)


def _renamed(call: Call, old: str, new: str) -> Call:
    return call if new in call else {new if name == old else name: value for name, value in call.items()}


def _left_out(schema: Mapping[str, Any], call: Call, chance: random.Random) -> list[str]:
    required = schema.get("required", ())
    free = [n for n in schema.get("properties", {}) if n not in call and n not in required]
    return [chance.choice(free)] if free else []


if __name__ == "__main__":
    main()
