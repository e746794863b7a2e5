"""A client of the benchmarks of workers, driven over standard input.

python -m measures.fleet_client keep HOME... | bare URL | celery QUEUE... | ray FOLDER WORKERS...

A first line says that it is ready. Then each line that comes in is `[lane, in_flight, seconds]`; the answer
is a list of `[began, ended]`, in seconds since the turn began. What a library prints goes to standard error.
"""

import asyncio
import importlib
import json
import logging
import os
import sys
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

ARGUMENTS = {"a": 1, "b": 2}
Call = Callable[[], Awaitable[object]]
Times = list[tuple[float, float]]


@asynccontextmanager
async def _keeps(*homes: str) -> AsyncIterator[dict[str, Call]]:
    """The tools of servers, each with a home of its own: `HOME TOOL`; `HOME ready` waits for all workers."""
    from measures.fleet_parts import state_of
    from toolkeep import Keep, open_keep, tool

    @tool(side_effects=["None"])
    async def nothing(a: int, b: int) -> dict[str, int]:
        """Give back.

        Args:
            a: A number.
            b: A number.
        """
        return {"a": a, "b": b}

    async def call(keep: Keep, name: str) -> None:
        result = await keep.call(name, ARGUMENTS)
        if not result.ok:
            raise RuntimeError(result.text)

    async def ready(keep: Keep) -> None:
        await keep.connect_workers()
        while any(one.state != "ready" for one in keep.workers() or ()):  # noqa: ASYNC110 -- no event tells it
            await asyncio.sleep(0.05)

    calls: dict[str, Call] = {}
    async with AsyncExitStack() as stack:
        for home in map(Path, homes):
            os.environ.update(HOME=str(home), TOOLKEEP_HOME=state_of(home))
            keep = await stack.enter_async_context(open_keep(project=home))
            keep.register(nothing)
            calls |= {f"{home.name} {name}": partial(call, keep, name) for name in ("add", "echo", "nothing")}
            calls[f"{home.name} ready"] = partial(ready, keep)
        yield calls


@asynccontextmanager
async def _bare(url: str) -> AsyncIterator[dict[str, Call]]:
    """Requests over NATS without any of ours."""
    import nats

    connection = await nats.connect(url)
    body = json.dumps(ARGUMENTS).encode()
    try:
        yield {"request": lambda: connection.request("bench.echo", body, timeout=30)}
    finally:
        await connection.close()


async def _together(make: Call, in_flight: int, seconds: float) -> Times:
    """At least one call of each caller."""
    times: Times = []
    start = time.perf_counter()

    async def caller() -> None:
        ended = -1.0
        while ended < seconds:
            began = time.perf_counter() - start
            await make()
            ended = time.perf_counter() - start
            times.append((began, ended))

    await asyncio.gather(*(caller() for _ in range(in_flight)))
    return times


async def _serve(opened: Callable[..., Any], words: list[str]) -> None:
    async with opened(*words) as calls:
        _say(sorted(calls))
        # The event loop goes on meanwhile: it has leases to renew.
        while line := await asyncio.to_thread(sys.stdin.readline):
            lane, in_flight, seconds = json.loads(line)
            _say(await _together(calls[lane], in_flight, seconds))


def _serve_rival(lanes: Mapping[str, tuple[Callable[[], Any], Callable[[Any], object]]]) -> None:
    """`lanes`: how to hand in a task, and how to wait for its result."""
    _say(sorted(lanes))
    for line in sys.stdin:
        lane, in_flight, seconds = json.loads(line)
        _say(_window(*lanes[lane], in_flight, seconds))


def _window(
    hand_in: Callable[[], Any], result_of: Callable[[Any], object], in_flight: int, seconds: float
) -> Times:
    """With so many tasks handed in: wait for the oldest, then hand in another one."""
    times: Times = []
    waiting: deque[tuple[float, Any]] = deque()
    start, now = time.perf_counter(), -1.0
    while waiting or now < seconds:
        while len(waiting) < in_flight and now < seconds:
            waiting.append((time.perf_counter() - start, hand_in()))
        began, task = waiting.popleft()
        _check(result_of(task))
        now = time.perf_counter() - start
        times.append((began, now))
    return times


def _check(value: object) -> None:
    if value != 3:
        raise RuntimeError(f"a wrong answer: {value!r}")


def _say(what: object) -> None:
    print(json.dumps(what), file=_ANSWERS, flush=True)


if __name__ == "__main__":
    # A line of a library, or of a process that it starts, would be taken for an answer.
    _ANSWERS = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    logging.disable(logging.CRITICAL)
    kind, *words = sys.argv[1:]
    if kind in ("celery", "ray"):
        rival = importlib.import_module(f"rivals.{kind}_tasks")
        with rival.lanes(*words) as rival_lanes:
            _serve_rival(rival_lanes)
    else:
        from toolkeep.mcp_server.serve_http import run

        opened: Callable[..., Any] = _keeps if kind == "keep" else _bare
        run(_serve(opened, words))  # as `toolkeep serve` does, on uvloop
