"""Search for the slowest call that is let in: hostile schemas at every limit, hostile calls for each.

Every schema goes through the public API like any imported tool; those that are refused at registration are
only counted. For each admitted one the largest admitted call of each shape is found by halving, and the
slowest verdict is printed, valid and invalid calls alike.

    python bench/worst.py
    python bench/worst.py --minutes 60

With `--minutes` schemas, calls and answers are random, and small changes are kept where they are slower. Each
case above 100 ms of processor time is printed as JSON (`--case` runs it again), and the status is then 1.
"""

import argparse
import json
import random
import resource
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from measures.home import empty_home
from toolkeep import DefinitionError, Keep, Limits, Refusal, ToolDefinition, open_keep
from toolkeep.registry.admit import admit
from toolkeep.sandbox.frames import FrameRefused, parse_value
from toolkeep.validation.refusal_history import RefusalHistory
from toolkeep.validation.validate import validate
from workloads.hostile import Case, Maker, scaled, write

Shape = Callable[[int], bytes]
SIZE = Limits().argument_bytes


class Slow(NamedTuple):
    milliseconds: float
    schema: str
    shape: str
    size: int
    outcome: str


def nested(keyword: str, depth: int, width: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object", "properties": {"v": {"type": "integer"}}}
    for _ in range(depth):
        schema = {keyword: [{"type": "object", "properties": {"a": schema}} for _ in range(width)]}
    return schema


def items(schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": {"a": {"type": "array", "items": schema}}}


def recursive(node: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": {"a": {"$ref": "#/$defs/n"}}, "$defs": {"n": node}}


REF = {"$ref": "#/$defs/n"}


def schemas() -> Iterator[tuple[str, dict[str, Any]]]:
    for keyword in ("anyOf", "oneOf", "allOf"):
        for depth, width in ((1, 60), (1, 200), (2, 10), (3, 6), (5, 3), (7, 2)):
            yield f"{keyword} {width} wide {depth} deep", nested(keyword, depth, width)
        yield (
            f"items {keyword} 100 types",
            items({keyword: [{"type": "integer", "minimum": i} for i in range(100)]}),
        )
        yield (
            f"items {keyword} 60 objects",
            items(
                {
                    keyword: [
                        {"type": "object", "properties": {f"p{i}": {"type": "integer"}}} for i in range(60)
                    ]
                }
            ),
        )
        yield (
            f"recursive {keyword}",
            recursive(
                {keyword: [{"type": "object", "properties": {"a": REF, f"p{i}": REF}} for i in range(3)]}
            ),
        )
    for states in (5, 20, 60, 200, 400, 900):
        pattern = f"[ab]*a[ab]{{{states}}}c"
        yield (
            f"pattern {states}",
            {"type": "object", "properties": {"a": {"type": "string", "pattern": pattern}}},
        )
        yield f"items pattern {states}", items({"type": "string", "pattern": pattern})
        yield f"key pattern {states}", {"type": "object", "patternProperties": {pattern: {"type": "integer"}}}
        yield f"property names {states}", {
            "type": "object", "additionalProperties": True, "propertyNames": {"pattern": pattern},
        }  # fmt: skip
    for count in (10, 60):
        yield (
            f"{count} patterns",
            items({"allOf": [{"pattern": f"[ab]*a[ab]{{{i + 1}}}c"} for i in range(count)]}),
        )
        yield (
            f"{count} key patterns",
            {
                "type": "object",
                "patternProperties": {f"[ab]*a[ab]{{{i + 1}}}c": {"type": "integer"} for i in range(count)},
            },
        )
    for count in (10, 100, 1000, 2500):
        yield f"items enum of {count} objects", items({"enum": [{"a": i} for i in range(count)]})
        yield f"items enum of {count} words", items({"enum": [f"w{i}" for i in range(count)]})
        yield (
            f"items with {count} properties",
            items({"type": "object", "properties": {f"p{i}": {"type": "integer"} for i in range(count)}}),
        )
        yield (
            f"items with {count} required",
            items(
                {"type": "object", "additionalProperties": True, "required": [f"p{i}" for i in range(count)]}
            ),
        )
    for name in (
        "regex",
        "idn-hostname",
        "idn-email",
        "uri-template",
        "iri",
        "date-time",
        "email",
        "duration",
    ):
        yield f"items format {name}", items({"type": "string", "format": name})
    yield (
        "unique items",
        {"type": "object", "properties": {"a": {"type": "array", "uniqueItems": True, "items": True}}},
    )
    yield (
        "contains",
        {"type": "object", "properties": {"a": {"contains": {"const": {"x": [1, 2, 3]}}, "type": "array"}}},
    )
    yield "free map", {"type": "object", "additionalProperties": True}
    yield "anything", {"type": "object", "properties": {"a": {}}}
    yield "map of maps", recursive({"type": "object", "additionalProperties": REF})
    yield "list of lists", recursive({"type": "array", "items": REF})
    yield "multiple of", items({"type": "integer", "multipleOf": 7})
    yield (
        "unevaluated",
        {
            "type": "object",
            "allOf": [{"properties": {f"p{i}": {"type": "integer"}}} for i in range(60)],
        },
    )
    prefixes = [{"prefixItems": [{"type": "integer"}] * i} for i in range(40)]
    array = {"type": "array", "anyOf": prefixes, "unevaluatedItems": False}
    yield "unevaluated items", {"type": "object", "properties": {"a": array}}
    yield "string", {"type": "object", "properties": {"a": {"type": "string"}}}


def shapes() -> Iterator[tuple[str, Shape]]:
    pick = random.Random(7)
    letters = "".join(pick.choices("ab", k=SIZE))

    def in_array(item: str) -> Shape:
        return lambda size: ('{"a":[' + ",".join([item] * max(1, size // (len(item) + 1))) + "]}").encode()

    yield "one string", lambda size: ('{"a":"' + letters[:size] + '"}').encode()

    def names(length: int) -> Shape:
        def shape(size: int) -> bytes:
            count = max(1, size // (length + 12))
            return ("{" + ",".join(f'"{letters[i : i + length]}{i}":1' for i in range(count)) + "}").encode()

        return shape

    for length in (10, 100, 1000, 8000):
        yield f"strings of {length}", in_array(f'"{letters[:length]}"')
        yield f"names of {length}", names(length)
    deep = '{"a":{"a":{"a":{"a":{}}}}}'
    long_number = "9" * 4000
    for item in (
        "0",
        '"w1"',
        "{}",
        "[]",
        '{"a":9999}',
        '{"p0":1}',
        deep,
        "1.5",
        long_number,
        "null",
        '{"x":[1,2,3]}',
    ):
        yield f"array of {item[:20]}", in_array(item)
    yield "nested objects", lambda size: b'{"a":' * min(60, size // 6) + b"1" + b"}" * min(60, size // 6)
    yield (
        "bush",
        lambda size: (
            '{"a":{' + ",".join(f'"p{i}":{{"a":{{}}}}' for i in range(max(1, size // 16))) + "}}"
        ).encode(),
    )
    yield (
        "unknown names",
        lambda size: ("{" + ",".join(f'"x{i}":0' for i in range(max(1, size // 9))) + "}").encode(),
    )
    yield (
        "different numbers",
        lambda size: ('{"a":[' + ",".join(map(str, range(max(1, size // 6)))) + "]}").encode(),
    )


def slowest(keep: Keep, name: str, shape: Shape, repeats: int) -> tuple[float, int, str]:
    """The slowest admitted call of a shape, over sizes that halve from the limit."""
    worst = (0.0, 0, "")
    size = SIZE - 64
    while size > 100:
        raw = shape(size)
        times = []
        for number in range(repeats):
            started = time.process_time()
            check = keep.try_validate_arguments(name, raw, agent=f"{size}-{number}")
            times.append(time.process_time() - started)
        outcome = check.errors[0].code.value if isinstance(check, Refusal) else "accepted"
        worst = max(worst, (min(times) * 1e3, len(raw), outcome))
        if outcome not in ("ACODE-TSR-010", "ACODE-TSR-011") and min(times) < 0.002:
            break
        size //= 3
    return worst


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--repeats", type=int, default=2, help="runs of each call; the fastest counts")
    parser.add_argument("--top", type=int, default=15)
    parser.add_argument("--only", default="", help="schemas whose name holds this")
    parser.add_argument("--minutes", type=float, default=0.0, help="evolve random cases for so long")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--case", default="", help="a case as it was printed")
    options = parser.parse_args()
    if options.case or options.minutes:
        with empty_home():
            cases = [Case(**json.loads(options.case))] if options.case else []
            sys.exit(evolve(options.seed, options.minutes, options.top, cases))
    with empty_home():
        found, refused = search(options.only, options.repeats)
    found.sort(reverse=True)
    print(f"{len(found)} searches; refused at registration: {len(refused)} ({', '.join(refused)})")
    for slow in found[: options.top]:
        where = f"{slow.schema:32} {slow.shape:24} {slow.size:8} bytes"
        print(f"{slow.milliseconds:8.1f} ms  {where}  {slow.outcome}")


def search(only: str, repeats: int) -> tuple[list[Slow], list[str]]:
    """How slow each shape of call is for each schema, and the schemas that are refused."""
    found: list[Slow] = []
    refused: list[str] = []
    for number, (label, schema) in enumerate(schemas()):
        if only not in label:
            continue
        keep = open_keep()
        definition = ToolDefinition.from_elsewhere({"name": f"t{number}", "parameters": schema})
        started = time.process_time()
        try:
            keep.register(definition)
        except DefinitionError:
            refused.append(label)
            continue
        finally:
            found.append(Slow((time.process_time() - started) * 1e3, label, "registration", 0, ""))
        print(f"{label} …", file=sys.stderr)
        for shape_name, shape in shapes():
            found.append(_slow(keep, definition.name, label, shape_name, shape, repeats))
    return found, refused


def _slow(keep: Keep, name: str, label: str, shape_name: str, shape: Shape, repeats: int) -> Slow:
    milliseconds, size, outcome = slowest(keep, name, shape, repeats)
    return Slow(milliseconds, label, shape_name, size, outcome)


MOST_MS = 100.0
"""What no admitted call takes (VAL-7)."""

_TOO_MUCH = ("ACODE-TSR-010", "ACODE-TSR-011", "too much work")
_KEPT = 30
_MEMORY_BYTES = 4 << 30


class Timed(NamedTuple):
    """A case, what came of it, and the processor time of its verdict."""

    milliseconds: float
    outcome: str
    size: int
    case: Case


def evolve(seed: int, minutes: float, top: int, cases: list[Case]) -> int:
    """Try cases until the time is up, and change the slowest of each kind; the status of the program."""
    resource.setrlimit(
        resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES)
    )  # a case that takes more has been found
    maker = Maker(seed)
    kept: dict[tuple[bool, str], list[Timed]] = {}
    above: list[Timed] = []
    ends, tried, refused = time.monotonic() + 60 * minutes, 0, 0
    while cases or time.monotonic() < ends:
        timed = timed_case(cases.pop() if cases else _next(maker, kept))
        tried += 1
        if timed is None:
            refused += 1
            continue
        if timed.milliseconds > MOST_MS:
            above.append(timed)
            _print(timed, timed.case.text)
        if timed.milliseconds > 10 * MOST_MS:
            continue  # it need not get any slower
        rivals = kept.setdefault((timed.case.is_output, timed.outcome), [])
        rivals.append(timed)
        rivals.sort(key=lambda one: -one.milliseconds)
        del rivals[_KEPT:]
    print(f"seed {seed}: {tried} cases, {refused} refused whole, {len(above)} above {MOST_MS:g} ms")
    for rivals in kept.values():
        for timed in rivals[: max(1, top // 5)]:
            _print(timed, timed.case.text[:300])
    return 1 if above else 0


def _print(timed: Timed, text: str) -> None:
    kind = "answer" if timed.case.is_output else "call"
    print(f"{timed.milliseconds:8.1f} ms  {kind} {timed.size:8} bytes  {timed.outcome}  {text}", flush=True)


def _next(maker: Maker, kept: dict[tuple[bool, str], list[Timed]]) -> Case:
    if not kept or maker.pick.random() < 0.4:
        return maker.case()
    rivals = kept[maker.pick.choice(list(kept))]
    return maker.changed(rivals[int(len(rivals) * maker.pick.random() ** 2)].case)


def timed_case(case: Case) -> Timed | None:
    """The slowest verdict on a case, made smaller until it is let in; None where its schema is refused."""
    try:
        answer = _answering(case) if case.is_output else _checking(case)
        for factor in (1.0, 0.6, 0.36, 0.2, 0.1, 0.03, 0.01):
            smaller = case._replace(value=scaled(case.value, factor) if factor < 1 else case.value)
            raw = _written(smaller)
            if raw is None:
                continue
            milliseconds, outcome = answer(raw)
            if milliseconds > MOST_MS:  # only what is slow again is slow
                milliseconds = min(milliseconds, answer(raw)[0], answer(raw)[0])
            if outcome not in _TOO_MUCH or milliseconds > MOST_MS:
                return Timed(milliseconds, outcome, len(raw), smaller)
    except (DefinitionError, RecursionError):
        return None
    except MemoryError:
        return Timed(float("inf"), "out of memory", 0, case)
    return None


def _written(case: Case) -> bytes | None:
    """The call as bytes, if it is no longer than a call may be."""
    if _size(case.value) > SIZE:
        return None
    raw = write(case.value).encode()
    return raw if len(raw) <= SIZE else None


def _size(template: Any) -> Any:
    """About how many bytes a template has when it is written out."""
    match template:
        case {"§many": [item, count]}:
            return 1 + max(1, count) * (1 + _size(item))
        case {"§names": [value, count, length]}:
            return 1 + max(1, count) * (length + 4 + _size(value))
        case {"§text": [text, count]}:
            return len(text) * int(count)
        case dict():
            return 2 + sum(len(name) + 4 + _size(value) for name, value in template.items())
        case list():
            return 2 + sum(1 + _size(value) for value in template)
        case _:
            return len(str(template))


def _checking(case: Case) -> Callable[[bytes], tuple[float, str]]:
    admitted = admit(ToolDefinition.from_elsewhere({"name": "t", "parameters": case.schema}))

    def answer(raw: bytes) -> tuple[float, str]:
        refusals = RefusalHistory()
        started = time.process_time()
        check = validate(admitted, raw, refusals, "agent")
        took = time.process_time() - started
        return took * 1e3, check.errors[0].code.value if isinstance(check, Refusal) else "accepted"

    return answer


def _answering(case: Case) -> Callable[[bytes], tuple[float, str]]:
    """What the output schema adds to a call that answers so, if such an answer is read at all."""
    definition = {"name": "t", "parameters": {"type": "object"}, "output_schema": case.schema}
    schema = admit(ToolDefinition.from_elsewhere(definition)).output
    if schema is None:
        raise MemoryError  # it was admitted without one

    def answer(raw: bytes) -> tuple[float, str]:
        try:
            value = parse_value(raw)
        except FrameRefused:
            return 0.0, "too much work"
        started = time.process_time()
        verdict = schema.is_valid_output(value, len(raw))
        outcome = "too much work" if verdict is None else "valid" if verdict else "invalid"
        return (time.process_time() - started) * 1e3, outcome

    return answer


if __name__ == "__main__":
    main()
