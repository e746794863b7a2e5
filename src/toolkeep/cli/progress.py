"""Says on the terminal that work goes on, if it takes longer than a second.

One line on stderr, rewritten and finally removed. Nothing is printed where stderr is no terminal.
"""

import contextlib
import itertools
import sys
import threading
import time
from collections.abc import Iterator
from typing import Final

import click

from toolkeep.cli.options import is_terminal

_PATIENCE_SECONDS: Final = 1.0
"""Time after which a person wonders whether anything happens."""
_FRAME_SECONDS: Final = 0.2
_FRAMES: Final = "|/-\\"
_ERASE: Final = "\r\x1b[K"


@contextlib.contextmanager
def progress(what: str) -> Iterator[None]:
    """Show `what` and the seconds that it takes, while the block runs. The block must not print."""
    if not is_terminal(sys.stderr):
        yield
        return
    is_done = threading.Event()
    shower = threading.Thread(target=_show, args=(what, is_done), daemon=True)
    shower.start()
    try:
        yield
    finally:
        is_done.set()
        shower.join()


def _show(what: str, is_done: threading.Event) -> None:
    started = time.monotonic()
    if is_done.wait(_PATIENCE_SECONDS):
        return
    for frame in itertools.cycle(_FRAMES):
        seconds = int(time.monotonic() - started)
        click.echo(f"{_ERASE}{frame} {what}… {seconds} s", nl=False, err=True)
        if is_done.wait(_FRAME_SECONDS):
            break
    click.echo(_ERASE, nl=False, err=True)
