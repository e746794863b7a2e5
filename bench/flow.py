"""What does flow cost? Whole calls with and without it, in sessions that have seen 50 results of 4 KB.

python bench/flow.py [--quick]

Calls run in process and in memory. `off`: nothing watches sessions. `on`: the shipped policies decide. The
difference is all of flow: state, origins, what its policies cost, and what the record of the decision says. A
read gives a labelled result of 4 KB; an act sends something to a destination that the user named. Processor
time of the thread, each pair in the same rounds.
"""

import argparse
import asyncio
import gc
import logging
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Coroutine
from typing import Annotated, Any

from measures.home import empty_home
from measures.statistics import median
from tables import print_notes, print_table
from toolkeep import Content, Destination, Keep, Session, open_keep, tool

EARLIER = 50
SESSIONS = 10_000
RESULT = [
    {"id": f"m{n}", "sender": f"user{n}@example.org", "body": "Minutes of the meeting on Monday. " * 4}
    for n in range(22)
]


@tool(effects="reads", flow={"/*/id": "system", "/*/sender": {"outside": "email"}})
async def search_mail() -> list[dict[str, str]]:
    """Search mail, with texts from outside."""
    return RESULT


@tool(effects="reads", flow={"/*/id": "system", "/*/sender": {"outside": "email"}})
async def list_mail() -> list[dict[str, str]]:
    """List mail, typed values alone."""
    return [{"id": f"message-{n:030}", "sender": f"somebody.{n:020}@example.org"} for n in range(44)]


@tool(effects="writes", danger="low", flow={"": "system"})
async def send_mail(to: Annotated[str, Destination()], body: Annotated[str, Content()]) -> bool:
    """Send a mail."""
    return True


Call = Callable[[], Coroutine[Any, Any, None]]


async def lanes(keep: Keep, session: Session | None, reads: str) -> dict[str, Call]:
    """What is timed in a session that has seen its results."""
    who: dict[str, Any] = {"agent": "assistant", "session": session or "s1", "forwarded": True}
    for _ in range(EARLIER):
        await keep.call(reads, {}, **who)

    async def read() -> None:
        await keep.call(reads, {}, **who)

    async def act() -> None:
        result = await keep.call("send_mail", {"to": "bob@example.org", "body": "Hello"}, **who)
        if not result.ok:
            raise SystemExit(result.text)

    return {"read": read, "act": act}


def opened(*, flow: bool, reads: str) -> tuple[Keep, dict[str, Call]]:
    """A keep with its lanes."""
    keep = open_keep(
        project=tempfile.mkdtemp(),
        built_in=False,
        flow={"policy": "standard"} if flow else None,
        agents={"assistant": {}},
        approver=lambda _: True,
    )
    keep.register(search_mail, list_mail, send_mail)
    session = keep.session("s1", agent="assistant", said="Mail bob@example.org") if flow else None
    return keep, asyncio.run(lanes(keep, session, reads))


def timed(calls: dict[str, Call], rounds: int) -> dict[str, list[float]]:
    """Microseconds of each call, interleaved."""

    async def run() -> dict[str, list[float]]:
        taken: dict[str, list[float]] = {name: [] for name in calls}
        for _ in range(rounds):
            for name, call in calls.items():
                began = time.thread_time_ns()
                await call()
                taken[name].append((time.thread_time_ns() - began) / 1000)
        return taken

    return asyncio.run(run())


def memory_of_a_session(count: int) -> float:
    """KB of a session at rest that has seen 50 results, by the difference that many sessions make."""
    keep, _ = opened(flow=True, reads="list_mail")
    gc.collect()
    tracemalloc.start()

    async def fill() -> list[Session]:
        sessions = []
        for n in range(count):
            session = keep.session(f"many-{n}", agent="assistant", said="Mail bob@example.org " * 20)
            for _ in range(EARLIER if n < 50 else 1):
                await keep.call("list_mail", {}, agent="assistant", session=session)
            sessions.append(session)
        return sessions

    held = asyncio.run(fill())
    gc.collect()
    size = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    keep.close()
    return size / len(held) / 1024


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    rounds = 300 if parser.parse_args().quick else 3_000
    logging.disable()
    rows = []
    with empty_home():
        for title, reads in (("after text from outside", "search_mail"), ("clean", "list_mail")):
            off, without = opened(flow=False, reads=reads)
            on, watched = opened(flow=True, reads=reads)
            calls = {f"off {name}": call for name, call in without.items()}
            calls |= {
                f"on {name}": call for name, call in watched.items() if title == "clean" or name == "read"
            }
            taken = timed(calls, rounds)
            for name in ("read", "act"):
                if f"on {name}" not in taken:
                    continue
                base, with_flow = sorted(taken[f"off {name}"]), sorted(taken[f"on {name}"])
                more = median(with_flow) - median(base)
                late = with_flow[int(len(with_flow) * 0.99)] - base[int(len(base) * 0.99)]
                row = (f"{name}, session {title}", f"{median(base):.0f}", f"{median(with_flow):.0f}")
                rows.append((*row, f"{more:.0f}", f"{late:.0f}"))
            off.close()
            on.close()
        heads = ("call", "off µs", "on µs", "more, median", "more, p99")
        print_table(f"A call after {EARLIER} results of 4 KB", heads, rows)
        size = memory_of_a_session(200)
        print_notes(
            [
                f"A session at rest: {size:.0f} KB, records in memory included.",
                "An act after text from outside asks a person, and is not timed.",
            ]
        )


if __name__ == "__main__":
    main()
