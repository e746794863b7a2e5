"""Answers bare requests over NATS in a process of its own: python -m servers.nats_echo URL."""

import asyncio
import sys

import nats
import uvloop
from nats.aio.msg import Msg


async def answer(message: Msg) -> None:
    """Give back what came."""
    await message.respond(message.data)


async def serve(url: str) -> None:
    """Until it is ended."""
    connection = await nats.connect(url)
    await connection.subscribe("bench.echo", cb=answer)
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(serve(sys.argv[1]))
