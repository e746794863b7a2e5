"""Tools that workers run; a sandboxed process imports this file."""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from toolkeep import Secret, ToolContext, Touches, tool

STRICT: dict[str, Any] = {"constraints": {"required_isolation": "strict", "max_execution_time": 60}}
NOTHING: dict[str, Any] = {**STRICT, "side_effects": ["None"]}


@tool(**NOTHING)
def shout(text: str) -> str:
    """Say it loudly."""
    return text.upper()


@tool(**NOTHING)
def wait(seconds: float) -> str:
    """Take a while, and change nothing."""
    time.sleep(seconds)
    return "waited"


@tool(**{**NOTHING, "side_effects": ["Writes"], "danger": "low"})
def act(seconds: float) -> str:
    """Take a while, and say that something may have changed."""
    time.sleep(seconds)
    return "acted"


@tool(**NOTHING)
def sign_in(steps: int, context: ToolContext) -> list[Any]:
    """Use a secret, and tell of it on the way."""
    for step in range(steps):
        context.progress(step + 1, steps, f"step {step + 1}")
    return [len(context.secret("key")), context.agent, context.conversation_id, context.correlation_id]


@tool(**NOTHING)
def count(to: int) -> Iterator[str]:
    """Lines, one by one."""
    for number in range(to):
        yield f"{number}\n"


@tool(**NOTHING)
def break_rules(how: str) -> str:
    """Fail in some way."""
    if how == "raise":
        raise ValueError("it does not work")
    if how == "read":
        Path("/etc/shadow").read_text()
    while True:
        pass


@tool(**{**STRICT, "side_effects": ["FsWrite"], "capabilities": ["fs.write"], "danger": "low"})
def note(path: Annotated[str, Touches("fs.write")], text: str, seconds: float = 0.0) -> str:
    """Add a line to a file, and take a while."""
    with Path(path).open("a") as file:
        file.write(f"{text}\n")
    time.sleep(seconds)
    return text


@tool(
    **{**STRICT, "side_effects": ["FsWrite"], "capabilities": ["fs.write"], "danger": "low"}, idempotent=True
)
def put(path: Annotated[str, Touches("fs.write")], text: str) -> str:
    """Write a file, and take long if nobody has before."""
    is_first = not Path(path).exists()
    Path(path).write_text(text)
    time.sleep(60 if is_first else 0)
    return text


@tool(**{**STRICT, "side_effects": ["FsRead"], "capabilities": ["fs.read"]})
def look(path: Annotated[str, Touches("fs.read")]) -> str:
    """Read a file."""
    return Path(path).read_text()


@tool(**{**STRICT, "side_effects": ["FsRead"], "capabilities": ["fs.read"]})
def look_anywhere(mirrored: str) -> str:
    """Read a file that no argument names openly, within all that the agent may read."""
    return Path(mirrored[::-1]).read_text()


@tool(**{**STRICT, "side_effects": ["NetRead"], "capabilities": ["net.read"]})
def reach(url: Annotated[str, Touches("net.read")]) -> str:
    """Reach a host."""
    return url


@tool(**{**NOTHING, "constraints": {"required_isolation": "restricted"}})
def add(a: int, b: int) -> int:
    """Add two numbers where nothing is within reach."""
    return a + b


@tool(**NOTHING, determinism="Pure")
def reverse(text: str) -> str:
    """Say it backwards."""
    return text[::-1]


@tool(**NOTHING, determinism="Pure")
def guess() -> str:
    """Declared as it is not: every run gives another result."""
    return os.urandom(8).hex()


@tool(**NOTHING, determinism="NonDeterministic")
def ponder(text: str) -> str:
    """Say it, and perhaps another time something else."""
    return text


@tool(**NOTHING, determinism="Deterministic")
def unlock(text: Annotated[str, Secret()]) -> int:
    """Take a secret."""
    return len(text)


@tool(**NOTHING, capabilities=["fs.read"], determinism="Pure")
def peek(path: Annotated[str, Touches("fs.read")]) -> str:
    """Read a file, which other machines need not have."""
    return Path(path).read_text()


@tool(**STRICT, danger="low", determinism="Pure")
def change(text: str) -> str:
    """Say nothing of side effects, so that it may have some."""
    return text
