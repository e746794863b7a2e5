"""What ordinary tools do, each by itself; run in workers of each level."""

import asyncio
import ctypes
import multiprocessing
import os
import sqlite3
import subprocess
import tempfile
import threading
import zoneinfo
from datetime import datetime


def threads() -> int:
    found: list[int] = []
    started = [threading.Thread(target=found.append, args=(number,)) for number in range(8)]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()
    return len(found)


def event_loop() -> int:
    async def main() -> int:
        return sum(await asyncio.gather(*(asyncio.sleep(0, number) for number in range(9))))

    return asyncio.run(main())


def database_in_memory() -> int:
    with sqlite3.connect(":memory:") as connection:
        return int(connection.execute("SELECT 36").fetchone()[0])


def database_in_a_file() -> int:
    with sqlite3.connect("notes.db") as connection:
        connection.execute("CREATE TABLE notes (number INTEGER)")
        connection.execute("INSERT INTO notes VALUES (36)")
        return int(connection.execute("SELECT number FROM notes").fetchone()[0])


def temporary_file() -> int:
    with tempfile.NamedTemporaryFile() as file:
        return file.write(b"x" * 36)


def time_zone() -> int:
    return int(datetime(2026, 1, 1, tzinfo=zoneinfo.ZoneInfo("Europe/Berlin")).strftime("%z")[2]) * 36


def foreign_function() -> int:
    return int(ctypes.CDLL(None).abs(-36))


def program() -> int:
    return len(subprocess.run(["/usr/bin/printf", "x" * 36], capture_output=True, check=True).stdout)


def forked_process() -> int:
    heard, said = os.pipe()
    if os.fork() == 0:
        os.write(said, b"36")
        os._exit(0)
    os.wait()
    return int(os.read(heard, 2))


def queue_between_processes() -> int:
    context = multiprocessing.get_context("fork")
    answers = context.SimpleQueue()
    child = context.Process(target=answers.put, args=(36,))
    child.start()
    child.join()
    return int(answers.get())
