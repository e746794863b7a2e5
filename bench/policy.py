"""What does a decision cost? A guarded call under 0, 10, 100 and 1,000 policies, decided before or not.

python bench/policy.py [--quick]

A tool without effects is called in memory, so that what is timed is work and no disk. `hit`: every call is
like one before, and its decision is remembered. `miss`: every call has a value that a policy reads and that
was never seen. The same call without policies of one's own is the base of the ratios, in the same rounds.

Then the decision alone, always a miss: of a tool that acts, so that Cedar decides it, and of one that does
not, whose policies are compiled. The base is `cedarpy.is_authorized` on the same slice of policies, parsed
before, with the same context. Last, what a program pays once: the first decision, and compiling with the
check against Cedar.
"""

import argparse
import asyncio
import gc
import itertools
import logging
import time
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import cedarpy

from measures.home import empty_home
from measures.statistics import median, median_ratio
from tables import print_notes, print_table
from toolkeep import Keep, tool
from toolkeep.calls import RegisteredTool
from toolkeep.policy.active_policies import read_all
from toolkeep.policy.cedar_engine import AgentEntity, CallFacts, Engine
from toolkeep.policy.policy_settings import PolicySource
from toolkeep.registry.admit import admit

SIZES = (10, 100, 1_000)
BASE = "no policies of one's own"

Batch = Callable[[int], Coroutine[Any, Any, None]]


@tool(side_effects=["None"])
async def find_order(number: int, shop: str = "main") -> str:
    """Find an order.

    Args:
        number: Its number.
        shop: Where it was placed.
    """
    return f"{shop} {number}"


def policies(count: int) -> str:
    """That many policies that all look at the call; one permits it."""
    permit = '@id("orders") permit (principal, action == Action::"call", resource == Tool::"find_order");'
    forbids = (
        f'@id("never-{n}") forbid (principal, action == Action::"call", resource)'
        f" when {{ context.arguments has number && context.arguments.number == {-n} }};"
        for n in range(1, count)
    )
    return "\n".join([permit, *forbids])


def open_lanes() -> dict[str, Batch]:
    """What is timed, by name."""
    fresh = itertools.count(1_000_000)
    lanes: dict[str, Batch] = {BASE: _hits(_keep(0))}
    for size in SIZES:
        keep = _keep(size)
        lanes[f"{size:,} policies, hit"] = _hits(keep)
        lanes[f"{size:,} policies, miss"] = _misses(keep, fresh)
    return lanes


def _keep(count: int) -> Keep:
    keep = Keep()
    keep.register(find_order)
    if count:
        keep.use_policies(policies(count))
    return keep


def _hits(keep: Keep) -> Batch:
    async def batch(calls: int) -> None:
        for _ in range(calls):
            await _call(keep, 7)

    return batch


def _misses(keep: Keep, fresh: "itertools.count[int]") -> Batch:
    async def batch(calls: int) -> None:
        for number in itertools.islice(fresh, calls):
            await _call(keep, number)

    return batch


async def _call(keep: Keep, number: int) -> None:
    result = await keep.call("find_order", b'{"number":%d}' % number)
    if not result.ok:
        raise RuntimeError(result.text)


async def measure(rounds: int, calls: int) -> dict[str, list[float]]:
    """Seconds of the processor for a call, each lane once a round, another one first each time."""
    lanes = open_lanes()
    names = list(lanes)
    found: dict[str, list[float]] = {name: [] for name in names}
    for batch in lanes.values():
        await batch(20)
    gc.collect()
    gc.freeze()
    for number in range(rounds):
        for place in range(len(names)):
            name = names[(place + number) % len(names)]
            start = time.process_time()
            await lanes[name](calls)
            found[name].append((time.process_time() - start) / calls)
    return found


@tool(danger="safe", side_effects=["Writes"])
async def close_order(number: int, shop: str = "main") -> str:
    """Close an order.

    Args:
        number: Its number.
        shop: Where it was placed.
    """
    return f"{shop} {number}"


AGENT = AgentEntity(id="local", permissions=frozenset({"tool.filesystem.read"}))
COMPILED, CEDAR, ALONE = "compiled", "by Cedar", "cedarpy alone"
ONCE = ["", "parse the policies", "first decision", "14 more", "compile and check"]


def decisions(count: int, fresh: "itertools.count[int]") -> tuple[dict[str, Callable[[], object]], list[str]]:
    """What decides a call that is like none before, by name; and what it took to get there, in ms."""
    reads, acts = admit(find_order.definition), admit(close_order.definition)
    text = policies(count).replace('resource == Tool::"find_order"', "resource")

    def decide(engine: Engine, asked: RegisteredTool) -> None:
        facts = CallFacts(arguments={"number": next(fresh), "shop": "main"})
        verdict = engine.decide(AGENT, asked, facts)
        if verdict.is_cached or not verdict.is_allowed:
            raise RuntimeError(str(verdict))

    times = [time.process_time()]
    engine = Engine(read_all([PolicySource(name="bench", text=text)]))
    times.append(time.process_time())
    decide(engine, reads)
    times.append(time.process_time())
    for _ in range(14):
        decide(engine, reads)
    times.append(time.process_time())
    decide(engine, reads)
    times.append(time.process_time())
    sliced, compiled = (engine._slice(AGENT, one) for one in (acts, reads))  # noqa: SLF001 -- what it gives Cedar
    if compiled.evaluate is None or sliced.is_compilable:
        raise RuntimeError("not decided as it should be")

    def alone() -> None:
        context = f'{{"arguments":{{"number":{next(fresh)}}}}}'
        answer = cedarpy.is_authorized(
            {**sliced.request, "context": context},
            sliced.prepared.call.handle,
            sliced.entities,
            sliced.prepared.schema,
        )
        if not answer.allowed:
            raise RuntimeError(str(answer.diagnostics.errors))

    lanes: dict[str, Callable[[], object]] = {
        COMPILED: partial(decide, engine, reads),
        CEDAR: partial(decide, engine, acts),
        ALONE: alone,
    }
    once = [f"{(after - before) * 1e3:.1f}" for before, after in itertools.pairwise(times)]
    return lanes, [f"{count:,} policies", *once]


def measure_decisions(rounds: int, calls: int) -> tuple[list[list[str]], list[list[str]]]:
    """Rows of both tables: each lane once a round, another one first each time."""
    fresh = itertools.count(1_000_000)
    rows, onces = [], []
    for count in SIZES:
        lanes, once = decisions(count, fresh)
        onces.append(once)
        found: dict[str, list[float]] = {name: [] for name in lanes}
        gc.collect()
        gc.freeze()
        for number in range(rounds):
            for place in range(len(lanes)):
                name = list(lanes)[(place + number) % len(lanes)]
                start = time.process_time()
                for _ in range(calls):
                    lanes[name]()
                found[name].append((time.process_time() - start) / calls)
        rows += [
            [
                f"{count:,} policies, {name}",
                f"{median(one) * 1e6:.0f}",
                f"{min(one) * 1e6:.0f}",
                f"{median_ratio(one, found[ALONE]):.2f}",
            ]
            for name, one in found.items()
        ]
    return rows, onces


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="What a decision costs, in a guarded call.")
    parser.add_argument("--quick", action="store_true", help="a short run, to see that everything works")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    with empty_home():
        found = asyncio.run(measure(*((5, 50) if options.quick else (40, 200))))
        missed, onces = measure_decisions(*((5, 30) if options.quick else (40, 100)))
    base = found[BASE]
    rows = [
        [
            name,
            f"{median(one) * 1e6:.0f}",
            f"{min(one) * 1e6:.0f}",
            f"{(median(one) - median(base)) * 1e6:+.0f}",
            f"{median_ratio(one, base):.2f}",
        ]
        for name, one in found.items()
    ]
    heads = ["", "median", "best", "over base", "× base"]
    print_table("A guarded call in memory, µs of the processor", heads, rows)
    print_notes(["miss: compiled policies decide, as the tool has no effects; Cedar decides 1 in 100 again."])
    heads = ["", "median", "best", "× cedarpy alone"]
    print_table("A decision that is not remembered, µs of the processor", heads, missed)
    print_table("Once for a policy set, or for an agent and a tool, ms of the processor", ONCE, onces)


if __name__ == "__main__":
    main()
