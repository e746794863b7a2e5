"""Descriptors with large numbers, as a process has them that serves thousands of connections."""

import fcntl
import os
import resource

_BEYOND_SELECT = 1100
"""`select` knows numbers below 1024 alone."""


def moved_up(descriptor: int) -> int:
    """The same open file under a number beyond what `select` can wait for."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft <= _BEYOND_SELECT:
        resource.setrlimit(resource.RLIMIT_NOFILE, (2 * _BEYOND_SELECT, hard))
    try:
        return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _BEYOND_SELECT)
    finally:
        os.close(descriptor)
