"""Calls workers before and after something is mounted in their folder: mounting.py FOLDER; started by root.

In mounts of its own. Says as JSON what was read and where it was written, before, during and after the mount.
"""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from tests.sandbox.workers import caller, recipe
from toolkeep.sandbox.guest import linux
from toolkeep.sandbox.isolation_levels import Isolation


async def main(folder: Path) -> list[Any]:
    inner = folder / "inner"
    inner.mkdir()
    (inner / "file").write_text("below")
    reads = recipe(Isolation.STRICT, "read", read=(str(folder),))
    writes = recipe(Isolation.STRICT, "append", write=(str(folder),))
    said: list[Any] = []
    async with caller() as here:

        async def note() -> None:
            await here.call(writes, path=str(inner / "file"), text="+")
            reply = await here.call(reads, path=str(inner / "file"))
            said.append([reply.value, (inner / "file").read_text()])

        await note()
        linux.mount("tmpfs", str(inner), "tmpfs", 0)
        (inner / "file").write_text("above")
        await note()
        linux.mount("tmpfs", "/mnt", "tmpfs", 0)  # nobody's business
        (part,) = here.pool._loops.values()
        before = {*part._zygotes.values()}
        await note()
        said.append({*part._zygotes.values()} == before)
        linux._checked(linux._libc.umount2(str(inner).encode(), linux.MNT_DETACH), "umount2")
        await note()
    return said


if __name__ == "__main__":
    linux.unshare(linux.CLONE_NEWNS)
    linux.mount(None, "/", None, linux.MS_REC | linux.MS_PRIVATE)
    print(json.dumps(asyncio.run(main(Path(sys.argv[1])))))
