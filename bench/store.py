"""What does the store cost? Changes, a look at a token, a start, and how soon another keep sees a change.

.venv/bin/python bench/store.py [--quick] [--postgres postgresql://USER@HOST/DATABASE]

The base of the ratios is an insert of one row into SQLite with the same durability, in the same rounds. The
PostgreSQL is one that you have, with a database that holds nothing else; without it the embedded store alone
is measured. `seen` is from the call that makes a change to the moment at which another keep answers with it.
"""

import argparse
import contextlib
import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from measures.home import empty_home
from measures.statistics import median, median_ratio, percentile
from tables import print_notes, print_table
from toolkeep.config.settings import DatabaseSettings
from toolkeep.events import Event, StoreFollowed
from toolkeep.keep.keep import Keep
from toolkeep.sources.stored_definitions import EarlierProvider, StoreProvider, offer_of
from toolkeep.storage.postgres.shared_state import open_shared_tokens
from toolkeep.storage.sql.database_location import DatabaseLocation, PostgresLocation, SqliteLocation
from toolkeep.storage.sql.definition_store import SqlDefinitionStore
from toolkeep.storage.sqlite.tokens_db import SqliteTokens
from toolkeep.stores.api_tokens import Scope, Tokens, TokenTable

BASE = "insert, bare sqlite3"
Action = Callable[[int], object]


def definition(number: int, version: str = "1.0.0") -> dict[str, object]:
    """A small tool of its own."""
    field = {"type": "string", "maxLength": 80, "description": "Some text."}
    return {
        "name": f"tool_{number}",
        "description": "A tool that a client runs.",
        "version": version,
        "client_executed": True,
        "parameters": {"type": "object", "properties": {"text": field}, "required": ["text"]},
    }


def open_there(place: DatabaseLocation) -> Keep:
    """A keep on a place, with what is stored there."""
    keep = Keep(store=SqlDefinitionStore(place), offer_of=offer_of)
    if place.exists():
        newest = StoreProvider(keep.editor.read)
        keep.load(own=[newest, EarlierProvider(newest, keep.editor.holds)])
    return keep


@contextlib.contextmanager
def bare(folder: Path) -> Iterator[Action]:
    """One row into a file, durable."""
    connection = sqlite3.connect(folder / "bare.db", isolation_level=None)
    connection.executescript(
        "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; CREATE TABLE rows (id INTEGER, text TEXT)"
    )
    yield lambda number: connection.execute("INSERT INTO rows VALUES (?, ?)", (number, "x" * 400))
    connection.close()


def timed(action: Action, number: int) -> float:
    """Milliseconds of one."""
    began = time.perf_counter()
    action(number)
    return (time.perf_counter() - began) * 1000


def measure(
    name: str, place: DatabaseLocation, table: TokenTable, base: Action, rounds: int
) -> list[list[str]]:
    """A row for each thing that is measured on one place."""
    keep, tokens = open_there(place), Tokens(table)
    made = tokens.make("bench", [Scope.CALL]).text
    actions: dict[str, Action] = {
        "create": lambda n: keep.create_definition(definition(n)),
        "update": lambda n: keep.update_definition(f"tool_{n}", {"version": "1.1.0"}),
        "switch": lambda n: keep.update_definition(f"tool_{n}", {"enabled": False}),
        "token": lambda _: tokens.recognize(made),
    }
    keep.create_definition(definition(-1) | {"name": "warm"})
    times: dict[str, list[float]] = {BASE: [], **{key: [] for key in actions}}
    for number in range(rounds):
        times[BASE].append(timed(base, number))
        for key, action in actions.items():
            times[key].append(timed(action, number))
    times["open, all of them stored"] = [timed(lambda _: open_there(place).close(), 0) for _ in range(3)]
    times["seen"] = seen(keep, place, rounds)
    keep.close()
    tokens.close()
    return [
        [
            f"{name}: {key}",
            f"{median(values):.2f}",
            f"{percentile(values, 0.99):.2f}",
            f"{median_ratio(values, times[BASE]):.1f}" if len(values) == rounds and key != "seen" else "",
        ]
        for key, values in times.items()
        if key != BASE or name == "sqlite"
    ]


def seen(keep: Keep, place: DatabaseLocation, rounds: int) -> list[float]:
    """Milliseconds until another keep has taken a change over."""
    other = open_there(place)
    came = threading.Event()

    def listen(event: Event) -> None:
        if isinstance(event, StoreFollowed):
            came.set()

    other.subscribe(listen)
    other.follow_store()
    keep.create_definition(definition(-2) | {"name": "first"})
    came.wait(30)
    times = []
    for number in range(min(rounds, 30)):
        came.clear()
        began = time.perf_counter()
        keep.create_definition(definition(number) | {"name": f"seen_{number}"})
        came.wait(30)
        times.append((time.perf_counter() - began) * 1000)
    other.close()
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--postgres", metavar="URL", help="an empty database")
    given = parser.parse_args()
    logging.disable(logging.CRITICAL)
    rounds = 30 if given.quick else 200
    with empty_home() as home, bare(home) as base:
        embedded = SqliteLocation(home / "state")
        rows = measure("sqlite", embedded, SqliteTokens(home / "state"), base, rounds)
        if given.postgres:
            shared = PostgresLocation(given.postgres)
            settings = DatabaseSettings(url=given.postgres, is_single=True)
            tokens = open_shared_tokens(settings, lambda: b"key", home)
            rows += measure("postgres", shared, tokens, base, rounds)
    print_table("The store", ("what", "median ms", "p99 ms", "× base"), rows)
    print_notes([f"{rounds} rounds, interleaved; base: {BASE}, durable"])


if __name__ == "__main__":
    main()
