"""A program that stays, for the tests: for each line that it reads it does what the line says."""

import os
import sys
import time

KEPT: list[object] = []


def do(what: str) -> None:
    word, _, rest = what.partition(" ")
    if word == "leave":
        sys.exit(int(rest))
    elif word == "kill":
        os.kill(os.getpid(), int(rest))
    elif word == "close":
        os.close(1)
        time.sleep(60)
    elif word == "complain":
        sys.stderr.write(rest)
        sys.stderr.flush()
        say("complained")
    elif word == "die":
        say("dying")
        sys.stdin.readline()
        sys.exit(rest)
    elif word == "flood":
        sys.stdout.write("x" * int(rest))
        sys.stdout.flush()
    elif word == "hang":
        time.sleep(60)
    elif word == "beget":
        beget()
    elif word == "take":
        take(int(rest))
    elif word == "variable":
        say(os.environ.get(rest, "none"))
    elif word == "raise":
        raise_limit()
    else:
        say(what)


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def beget() -> None:
    """A child that holds the output open, in a session of its own."""
    if os.fork() == 0:
        os.setsid()
        time.sleep(60)
        os._exit(0)
    say("begotten")


def take(count: int) -> None:
    import mmap

    held = mmap.mmap(-1, count)
    for start in range(0, count, 1 << 20):
        held.seek(start)
        held.write(b"x" * min(1 << 20, count - start))
    KEPT.append(held)
    time.sleep(60)


def raise_limit() -> None:
    import resource

    try:
        resource.setrlimit(resource.RLIMIT_DATA, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    except (ValueError, OSError):
        say("refused")
    else:
        say("raised")


for line in sys.stdin:
    do(line.rstrip("\n"))
