"""Runs `subjects.leaves` in a worker that may write one folder and read one file, and says what came of it.

leaving.py KIND FOLDER FILE; started by tests as whoever is to be the host.
"""

import asyncio
import sys

from tests.sandbox.workers import caller, recipe
from toolkeep.sandbox.isolation_levels import Isolation


async def main(kind: str, folder: str, file: str) -> str:
    async with caller() as here:
        made = recipe(Isolation.STRICT, "leaves", write=(folder,), read=(file,))
        reply = await here.call(made, kind=kind, folder=folder, readable=file)
        return str(reply.value or reply)


if __name__ == "__main__":
    print(asyncio.run(main(*sys.argv[1:])))
