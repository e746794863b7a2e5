"""What does flow cost? Calls in sessions that have seen 50 results of 4 KB, each another one.

python bench/flow.py [--quick]

First flow's own work: whose session a call is of, the origins of its arguments, what the log says of them,
and what its result does to the session. Not in it: the decision by policies, and to write a longer record.
Then whole calls, with and without flow; the difference is everything. Then what a typed view of 100 KB takes.
Last, the memory of a session at rest among 10,000. Calls run in process, with a state folder, the lanes in
turns: own work by the clock, since to ask for processor time takes longer than many of its parts; whole calls
and views by processor time of the thread.
"""

import argparse
import asyncio
import gc
import itertools
import logging
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Annotated, Any

import msgspec

from measures.home import empty_home
from measures.statistics import median
from tables import print_notes, print_table
from toolkeep import Content, Destination, Destroys, Keep, Session, open_keep, tool
from toolkeep.flow.facts import FlowFacts
from toolkeep.flow.flow_plan import Plan
from toolkeep.flow.host_session import state_of
from toolkeep.flow.result_reader import ResultReader
from toolkeep.flow.tracker import Flow
from toolkeep.flow.typed_view import make_view
from toolkeep.keep.pipeline import Pipeline

EARLIER = 50
LABELS = {"/*/id": "system", "/*/sender": {"outside": "email"}}
BODY = "Minutes of the meeting on Monday. " * 4
numbers = itertools.count()


def typed(first: int) -> list[dict[str, str]]:
    """4 KB of typed values."""
    return [
        {"id": f"message-{first:015}-{n:015}", "sender": f"somebody.{first:010}.{n:010}@example.org"}
        for n in range(42)
    ]


@tool(effects="reads", flow=LABELS)
async def search_mail() -> list[dict[str, str]]:
    """Search mail, with texts from outside."""
    first = next(numbers)
    return [
        {"id": f"m{first}-{n}", "sender": f"user{first}.{n}@example.org", "body": BODY} for n in range(22)
    ]


@tool(effects="reads", flow=LABELS)
async def list_mail() -> list[dict[str, str]]:
    """List mail, typed values alone."""
    return typed(next(numbers))


@tool(effects="reads", flow={"/*": "system"})
async def list_ids() -> list[str]:
    """List ids alone, few of them."""
    return [f"ticket-{next(numbers):06}"]


@tool(effects="writes", danger="low", flow={"": "system"})
async def send_mail(to: Annotated[str, Destination()], body: Annotated[str, Content()]) -> bool:
    """Send a mail."""
    return True


@tool(effects="writes", danger="low", flow={"": "system"})
async def close_ticket(ticket: Annotated[str, Destroys()]) -> bool:
    """Close a ticket."""
    return True


TOOLS = (search_mail, list_mail, list_ids, send_mail, close_ticket)
Call = Callable[[], Coroutine[Any, Any, None]]


class OwnWork:
    """Times everything that flow does in a call, but for measures and the decision."""

    PLACES = (
        (Pipeline, "_session"),
        (Flow, "facts"),
        (FlowFacts, "section"),
        (FlowFacts, "to_record"),
        (Pipeline, "_observed"),
    )

    def __init__(self) -> None:
        self.taken_ns, self._is_inside = 0, False
        self.cost_ns = median([self._nothing() for _ in range(1_000)])
        for owner, name in self.PLACES:
            setattr(owner, name, self._timed(getattr(owner, name)))

    @staticmethod
    def _nothing() -> int:
        began = time.perf_counter_ns()
        return time.perf_counter_ns() - began

    def _timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **options: Any) -> Any:
            if self._is_inside:
                return function(*args, **options)
            self._is_inside = True
            began = time.perf_counter_ns()
            try:
                return function(*args, **options)
            finally:
                self.taken_ns += max(0, time.perf_counter_ns() - began - int(self.cost_ns))
                self._is_inside = False

        return timed


async def lanes(keep: Keep, session: Session | None, reads: str) -> dict[str, Call]:
    """What is timed in a session that has seen its results."""
    who: dict[str, Any] = {"agent": "assistant", "session": session or "s1", "forwarded": True}

    async def call(name: str, arguments: dict[str, str]) -> Any:
        result = await keep.call(name, arguments, **who)
        if not result.ok:
            raise SystemExit(result.text)
        return result.value

    (ticket,) = await call("list_ids", {})
    for _ in range(EARLIER):
        await call(reads, {})

    async def read() -> None:
        await call(reads, {})

    async def act() -> None:
        await call("send_mail", {"to": "bob@example.org", "body": "Hello"})

    async def act_on_made() -> None:
        await call("close_ticket", {"ticket": ticket})

    return {
        "a read of 4 KB": read,
        "an act on what the user named": act,
        "an act on what a service made": act_on_made,
    }


def opened(*, flow: bool, reads: str) -> tuple[Keep, dict[str, Call]]:
    """A keep with its lanes."""
    keep = open_keep(
        project=tempfile.mkdtemp(),
        built_in=False,
        flow={"policy": "standard"} if flow else None,
        agents={"assistant": {}},
        approver=lambda _: True,
    )
    keep.register(*TOOLS)
    session = keep.session("s1", agent="assistant", said="Mail bob@example.org") if flow else None
    return keep, asyncio.run(lanes(keep, session, reads))


def timed(calls: dict[str, Call], rounds: int, own: OwnWork) -> dict[str, list[tuple[float, float]]]:
    """Microseconds of each call and of flow's own work in it, in turns."""

    async def run() -> dict[str, list[tuple[float, float]]]:
        taken: dict[str, list[tuple[float, float]]] = {name: [] for name in calls}
        for _ in range(rounds):
            for name, call in calls.items():
                own.taken_ns = 0
                began = time.thread_time_ns()
                await call()
                whole = time.thread_time_ns() - began
                taken[name].append((whole / 1000, own.taken_ns / 1000))
        return taken

    return asyncio.run(run())


def late(values: list[float]) -> float:
    """The 99th percentile."""
    return sorted(values)[int(len(values) * 0.99)]


def memory_of_a_session(count: int) -> float:
    """KB of a session at rest that has seen its results, by what so many add to the process."""
    keep, _ = opened(flow=True, reads="list_mail")
    flow, found = keep._pipeline.flow, keep._registry.find("list_mail")  # noqa: SLF001
    if flow is None or found is None:
        raise SystemExit("nothing watches sessions")
    plan, held = flow.plan(found), []
    gc.collect()
    before = resident_kb()
    for n in range(count):
        session = keep.session(f"many-{n}", agent="assistant", said="Mail bob@example.org " * 100)
        for value in results():
            state_of(session).observe(plan, value, msgspec.json.encode(value), {})
        held.append(session)
    gc.collect()
    size = (resident_kb() - before) / len(held)
    keep.close()
    return size


def results() -> Iterator[list[dict[str, str]]]:
    """What a session has seen."""
    for _ in range(EARLIER):
        yield typed(next(numbers))


VIEWS: dict[str, tuple[dict[str, Any], Any]] = {
    "20 pages of 5 KB": (
        {"/*/url": {"outside": "url"}, "/*/text": "text"},
        [{"url": f"https://news.example/{n}", "text": BODY * 36} for n in range(20)],
    ),
    "230 mails": (
        {"/*/id": "system", "/*/sender": {"outside": "email"}, "/*/subject": "text", "/*/body": "text"},
        [
            {"id": f"m{n}", "sender": f"u{n}@example.org", "subject": "Minutes of Monday", "body": BODY * 2}
            for n in range(230)
        ],
    ),
    "1,000 ids and addresses": (LABELS, [row for first in range(24) for row in typed(first)]),
    "10,000 numbers": ({"": "system"}, [n + 0.125 for n in range(10_000)]),
    "one text": ({"": "text"}, BODY * 735),
}


def views() -> list[tuple[str, ...]]:
    """Rows about typed views of some 100 KB, in processor time."""
    rows: list[tuple[str, ...]] = []
    for name, (labels, value) in VIEWS.items():
        reader, body = ResultReader(labels, frozenset()), msgspec.json.encode(value)
        plan = Plan(
            tool="any", roles={}, free=frozenset(), destinations=frozenset(), choices={}, reader=reader,
            names=frozenset(), acts=False, leaves=False,
        )  # fmt: skip
        taken = []
        for _ in range(200):
            began = time.thread_time_ns()
            view = make_view(plan, value, body, "abcdefghijklmnop")
            taken.append((time.thread_time_ns() - began) / 1000)
        texts = str(len(view.texts))
        rows.append((name, f"{len(body) / 1000:.0f}", texts, f"{median(taken):.0f}", f"{late(taken):.0f}"))
    return rows


def resident_kb() -> float:
    """Memory of this process."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * 4.0


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds and sessions")
    is_quick = parser.parse_args().quick
    rounds, sessions = (300, 1_000) if is_quick else (1_000, 10_000)
    logging.disable()
    apart, whole = [], []
    own = OwnWork()
    with empty_home():
        for title, reads in (("opened", "search_mail"), ("clean", "list_mail")):
            off, without = opened(flow=False, reads=reads)
            on, watched = opened(flow=True, reads=reads)
            calls = {f"off {name}": call for name, call in without.items()}
            # An act that waits for an answer is not compared with one that does not.
            timings = timed(calls | watched, rounds, own)
            for name in watched:
                lane, base = timings[name], timings[f"off {name}"]
                works = [one for _, one in lane]
                apart.append((f"{name}, {title}", f"{median(works):.0f}", f"{late(works):.0f}"))
                if title == "clean" or name == "a read of 4 KB":
                    times = [median([one for one, _ in timing]) for timing in (base, lane)]
                    more = times[1] - times[0]
                    row = (f"{name}, {title}", f"{times[0]:.0f}", f"{times[1]:.0f}", f"{more:.0f}")
                    whole.append(row)
            off.close()
            on.close()
        heads = ("call, session", "median µs", "p99 µs")
        print_table(f"Flow's own work in a call after {EARLIER} results of 4 KB", heads, apart)
        print_table("The whole call", ("call, session", "off µs", "on µs", "more µs"), whole)
        print_table("A typed view", ("result", "KB", "references", "median µs", "p99 µs"), views())
        size = memory_of_a_session(sessions)
        print_notes([f"A session at rest, of {sessions}: {size:.0f} KB."])


if __name__ == "__main__":
    main()
