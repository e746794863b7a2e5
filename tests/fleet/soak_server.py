"""One of the servers of `tests.fleet.soak`: makes calls until SIGTERM, and notes how each ended.

python -m tests.fleet.soak_server PROJECT NOTES NAME
"""

import asyncio
import itertools
import json
import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any

from toolkeep import Code, Keep, ToolResult, open_keep

LEASE_S = 3.0
TICK_S = 8.0
_APPEAR_S, _GIVE_UP_S, _SLACK_S = 3.0, LEASE_S + 1.0, 5.0
"""A call waits for a worker to appear, and a second longer than the lease for one that is silent. The slack is
for a machine that is shared."""
_ONCE_S = _APPEAR_S + _GIVE_UP_S + _SLACK_S
_DEADLINE_S = 30.0
"""Of the tools."""
LARGE = ("echo", "note_at_length")
"""With bodies that no frame holds."""
MOST_S = {
    "note": _ONCE_S,
    "keyed": _ONCE_S,
    "double": _ONCE_S + _GIVE_UP_S,
    "tick": TICK_S + _ONCE_S,
    **dict.fromkeys(LARGE, _DEADLINE_S + _SLACK_S),
}
"""A call that takes longer hangs. One that only reads may lose a second worker; a large one waits for a leader of
the bucket up to four times, and no longer than to its deadline."""
LANES = ("tick",) * 4 + ("double",) * 3 + ("note",) * 3 + ("keyed",) * 3 + LARGE
_TEXT = "toolkeep " * 111_112
AGAIN = (Code.STORE_UNAVAILABLE, Code.WORKER_UNAVAILABLE, Code.NOT_RECORDED, Code.KEY_CONFLICT)
"""Of a call with a key: nothing ran, or the other server runs it."""
_ASK_AGAIN_S = 20.0
"""Until a worker that was cut off is back and has answered."""


def now() -> float:
    """The clock that tools and the soak read, too."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Load:
    """The calls of one server."""

    def __init__(self, keep: Keep, notes: Path, name: str) -> None:
        self._keep = keep
        self._notes = os.open(notes, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._name = name
        self._first = _next_keys(notes)
        self._under_way: dict[str, tuple[str, float]] = {}
        self._again: set[asyncio.Task[None]] = set()
        self.is_over = asyncio.Event()

    async def run(self) -> None:
        """Until told to end; then every call that is under way ends."""
        watch = asyncio.create_task(self._watch())
        await asyncio.gather(*(self._lane(kind, number) for number, kind in enumerate(LANES)))
        await asyncio.gather(*self._again)
        watch.cancel()

    async def _lane(self, kind: str, number: int) -> None:
        """One call after the other."""
        chance = random.Random(f"{self._name}{number}")  # noqa: S311 -- no secret
        first = self._first.get(number, 0) if kind == "keyed" else 0
        for count in itertools.count(first):
            if self.is_over.is_set():
                return
            await asyncio.sleep(chance.uniform(0, 0.2))
            if kind == "keyed":
                # Both servers use the same keys, and a new process begins with the last ones of the one before.
                line = f"keyed-{number}-{count}"
                result = await self._call(kind, line)
                while result.code in AGAIN and not self.is_over.is_set():
                    await asyncio.sleep(0.2)
                    result = await self._call(kind, line)
                if result.code is Code.OUTCOME_UNKNOWN:
                    self._again.add(asyncio.create_task(self._ask_again(line)))
            else:
                await self._call(kind, f"{self._name}-{number}-{count}")

    async def _ask_again(self, line: str) -> None:
        await asyncio.sleep(_ASK_AGAIN_S)
        result = await self._call("keyed", line, is_again=True)
        while result.code in AGAIN and not self.is_over.is_set():
            await asyncio.sleep(0.2)
            result = await self._call("keyed", line, is_again=True)

    async def _call(self, kind: str, line: str, *, is_again: bool = False) -> ToolResult:
        began = now()
        self._under_way[line] = (kind, began)
        if kind == "double":
            number = len(line)
            result = await self._keep.call("double", {"number": number})
            is_right = not result.ok or result.value == 2 * number
        elif kind in LARGE:
            told = {"line": line} if kind == "note_at_length" else {}
            result = await self._keep.call(kind, {**told, "text": line + _TEXT})
            is_right = not result.ok or result.value == line + _TEXT
        else:
            tool, key = ("tick" if kind == "tick" else "note"), (line if kind == "keyed" else "")
            result = await self._keep.call(tool, {"line": line}, idempotency_key=key)
            is_right = not result.ok or result.value == line
        self._under_way.pop(line, None)
        self._note(
            kind=kind,
            line=line,
            server=self._name,
            call=result.call_id,
            code=result.code.value if result.code else "",
            said="" if result.error is None else result.error.errors[0].message,
            began=began,
            ended=now(),
            is_right=is_right,
            is_again=is_again,
        )
        return result

    def _note(self, **said: Any) -> None:
        os.write(self._notes, json.dumps(said).encode() + b"\n")

    async def _watch(self) -> None:
        """Note calls that hang, and how busy this process is."""
        told = set[str]()
        while True:
            began = now()
            await asyncio.sleep(1)
            self._note(kind="lag", seconds=now() - began - 1)
            for line, (kind, since) in list(self._under_way.items()):
                if now() - since > MOST_S[kind] and line not in told:
                    told.add(line)
                    self._note(kind="hung", line=line, server=self._name, seconds=now() - since)


def _next_keys(notes: Path) -> dict[int, int]:
    """By lane, a few keys before the newest."""
    newest = dict[int, int]()
    for text in notes.read_text().splitlines() if notes.exists() else ():
        said = json.loads(text)
        if said["kind"] == "keyed":
            _, lane, count = said["line"].split("-")
            newest[int(lane)] = max(newest.get(int(lane), 0), int(count) - 3)
    return newest


async def main(project: str, notes: str, name: str) -> None:
    """Make calls."""
    async with open_keep(project=Path(project)) as keep:
        load = Load(keep, Path(notes), f"{name}.{time.time_ns()}")
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, load.is_over.set)
        await load.run()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:4]))
