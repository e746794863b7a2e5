"""Listening sockets of the commands that serve."""

import contextlib
import errno
import logging
import socket
from collections.abc import Iterator
from pathlib import Path


def listen(host: str, port: int, *, option: str) -> socket.socket:
    """Open a listening socket; an OSError names the address and the option to change."""
    from toolkeep.server.run_server import bind

    try:
        return bind(host, port)
    except OSError as error:
        option = option if error.errno in (errno.EADDRINUSE, errno.EACCES) else "--host"
        reason = f"{error.strerror or 'cannot be listened at'}; choose another with {option}"
        raise OSError(error.errno, reason, address(host, port)) from error


def address(host: str, port: int) -> str:
    """Host and port as in a URL."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def whole(files: tuple[Path, ...]) -> tuple[Path, ...]:
    """Absolute paths, valid in another working folder."""
    return tuple(path.absolute() for path in files)


@contextlib.contextmanager
def alarms_shown() -> Iterator[None]:
    """Show errors of the audit log on stderr, also where --log-level is off: a fork must not go unseen."""
    logger = logging.getLogger("toolkeep.audit")
    before = logger.level
    if not logger.isEnabledFor(logging.ERROR):
        logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)
