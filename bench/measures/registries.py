"""Registries of several sizes, every framework and size timed in turn in the same rounds."""

import asyncio
import gc
import itertools
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from measures.comparison import Seconds
from measures.interleave import Batch, seconds_interleaved
from rivals.registry import CallKind, Registry
from workloads.functions import SENTENCES

CALL_KINDS: tuple[CallKind, ...] = get_args(CallKind)
LISTING: CallKind = "list all, by the tool"
SEARCH: CallKind = "search, a sentence"

MORE_A_ROUND = 4
"""Tools that are registered one by one in a round of `time_one_more`; the first is not timed."""

_NAMES = 100
"""Names that are looked up in turn, spread over all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A row of the tables: a framework, and the tools that it is given."""

    name: str
    make: Callable[[], Registry]
    tools: Sequence[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Filled:
    """A registry with that many tools, and those that it may be given next."""

    line: str
    size: int
    registry: Registry
    names: Sequence[str]
    more: Iterator[Any]


def fill(lines: Sequence[Line], sizes: Sequence[int]) -> list[Filled]:
    """A registry for every line and size; what they hold is no part of later collections."""
    filled = [_fill(line, size) for line in lines for size in sizes]
    gc.collect()
    gc.freeze()
    return filled


def _fill(line: Line, size: int) -> Filled:
    registry = line.make()
    registry.register(*line.tools[:size])
    names = [_name(tool) for tool in line.tools[:size]]
    more = iter(line.tools[size:])
    return Filled(line=line.name, size=size, registry=registry, names=names, more=more)


def _name(tool: Any) -> str:
    name: str = tool.__name__ if callable(tool) else tool.name
    return name


def time_calls(kind: CallKind, filled: Sequence[Filled], *, rounds: int) -> Seconds:
    """One kind of call, of every registry that knows it."""
    able = [one for one in filled if kind in one.registry.calls]
    with asyncio.Runner() as runner:
        for one in able:
            _check(kind, one, runner)
        batches = [_batch(one.registry, kind, _arguments(kind, one), runner) for one in able]
        seconds = seconds_interleaved(batches, rounds=rounds)
    return {(one.line, one.size): _by_tool(kind, one, mine) for one, mine in zip(able, seconds, strict=True)}


def time_one_more(filled: Sequence[Filled], *, rounds: int) -> dict[str, Seconds]:
    """Registering one more tool, then the first listing and the first search that see it."""
    steps: dict[str, dict[tuple[str, int], list[float]]] = {
        "register one more": {},
        "the first listing after that, by the tool": {},
        "the first search after that": {},
    }
    with asyncio.Runner() as runner:
        for number in range(rounds + 1):
            for one in filled:
                for title, seconds in zip(steps, _one_more(one, runner), strict=True):
                    if number and seconds is not None:  # the first round brings in what is imported on demand
                        steps[title].setdefault((one.line, one.size), []).append(seconds)
    return dict(steps)


def _one_more(one: Filled, runner: asyncio.Runner) -> tuple[float, float, float | None]:
    one.registry.register(next(one.more))  # the one before, another registry, left its traces in the caches
    tools = list(itertools.islice(one.more, MORE_A_ROUND - 1))
    registering = _timed(one.registry.register, tools) / len(tools)
    listing = _batch(one.registry, LISTING, [""], runner)(1) / one.size
    if SEARCH not in one.registry.calls:
        return registering, listing, None
    return registering, listing, _batch(one.registry, SEARCH, SENTENCES, runner)(1)


def _arguments(kind: CallKind, one: Filled) -> Sequence[str]:
    spread = one.names[:: max(1, one.size // _NAMES)]
    match kind:
        case "look up, exact name":
            return spread
        case "look up, other case":
            return [name.upper() for name in spread]
        case "a miss" | "a miss, with the nearest name" | "a call of an unknown tool, refused":
            return [f"no_such_tool_{number}" for number in range(_NAMES)]
        case "list all, by the tool":
            return [""]
        case "search, a sentence":
            return SENTENCES


def _check(kind: CallKind, one: Filled, runner: asyncio.Runner) -> None:
    """Raise where a call does not do what its title says."""
    answer = one.registry.calls[kind](_arguments(kind, one)[0])
    if one.registry.is_async:
        answer = runner.run(answer)
    if kind == "a miss":
        is_right = answer is None
    elif kind == LISTING:
        is_right = len(answer) == one.size
    else:
        is_right = bool(answer)
    if not is_right:
        raise RuntimeError(f"{one.line} with {one.size:,} tools: {kind} gives {answer!r}")


def _batch(registry: Registry, kind: CallKind, arguments: Sequence[str], runner: asyncio.Runner) -> Batch:
    call, turns = registry.calls[kind], itertools.cycle(arguments)
    if registry.is_async:
        return lambda repeats: runner.run(_timed_async(call, itertools.islice(turns, repeats)))
    return lambda repeats: _timed(call, itertools.islice(turns, repeats))


def _timed(call: Callable[[Any], Any], arguments: Iterable[Any]) -> float:
    gc.disable()
    start = time.perf_counter()
    for argument in arguments:
        call(argument)
    elapsed = time.perf_counter() - start
    gc.enable()
    return elapsed


async def _timed_async(call: Callable[[str], Coroutine[Any, Any, Any]], arguments: Iterable[str]) -> float:
    gc.disable()
    start = time.perf_counter()
    for argument in arguments:
        await call(argument)
    elapsed = time.perf_counter() - start
    gc.enable()
    return elapsed


def _by_tool(kind: CallKind, one: Filled, seconds: list[float]) -> list[float]:
    return [value / one.size for value in seconds] if kind == LISTING else seconds
