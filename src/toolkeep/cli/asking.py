"""Asks the person at the terminal about a call (POL-4): shows all of it, and takes only a clear yes for one.

The end of input, Ctrl-C and every other word are a no. What was typed before the question stood on the screen
does not count. It cannot tell a person from a program that holds the terminal.
"""

import asyncio
import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

import click

from toolkeep.approval.question import Answer, Question, Reach
from toolkeep.approval.view import Line, duration, view
from toolkeep.cli.options import is_terminal, say, warn
from toolkeep.limits import RULE_DAYS

YES: Final = frozenset({"y", "yes"})
_COLORS: Final = {"heading": "cyan", "added": "green", "removed": "red", "note": "yellow"}


class Reply(NamedTuple):
    """What a person typed, understood."""

    reach: Reach | None = None
    """How far a yes goes; None is a no."""
    reason: str = ""


def person() -> str:
    """Who sits here, by the system's word: variables such as USER say whatever somebody set them to."""
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def can_ask() -> bool:
    """Whether a person reads what is asked, and types the answer."""
    return is_terminal(sys.stdin) and is_terminal(sys.stderr)


class TerminalApprover:
    """The approver of `toolkeep call`."""

    def __init__(self, project: Path | None) -> None:
        self._project = project
        self._approver = f"terminal:{person()}"

    async def __call__(self, question: Question) -> Answer:
        """What the person says to one question; a critical call brings two."""
        try:
            if question.wants_name:
                return self._answer(Reply("once" if await typed_name(question) else None), question)
            show(view(question, now=time.time(), width=columns()))
            reply = understand(await typed(offer(question)), question)
            if reply.reach == "rule":
                days = await agreed_days(question, self._project)
                return self._answer(reply if days else Reply(), question, days or 1)
            return self._answer(reply, question)
        except asyncio.CancelledError:
            say("", "The call does not wait for your answer any more.", err=True)
            raise

    def _answer(self, reply: Reply, question: Question, days: int = 1) -> Answer:
        if reply.reach is None:
            return Answer(verdict="deny", approver=self._approver, way="terminal", reason=reply.reason)
        return Answer(
            verdict="approve",
            approver=self._approver,
            way="terminal",
            reach=reply.reach,
            typed_name=question.tool if question.wants_name else "",
            days=days,
        )


def announce(question: Question) -> None:
    """Say that a call waits for somebody at another terminal; no answer by itself."""
    wait = duration(question.expires_at - question.asked_at)
    text = f"the call waits up to {wait} for a person: toolkeep approve approve {question.id}"
    warn(text)


def offer(question: Question) -> str:
    """The prompt, with the answers that the question may have."""
    has_session = bool(question.session) and question.may_be_remembered
    words = ["[y]es once"]
    words += ["[s]ession (this tool, any arguments)"] if has_session else []
    words += ["[a]lways"] if question.rule and question.may_be_remembered else []
    return ", ".join([*words, "[n]o [reason]: "])


def understand(line: str | None, question: Question) -> Reply:
    """What a line means; whatever is no clear yes is a no."""
    text = (line or "").strip()
    word, _, rest = text.partition(" ")
    match text.casefold():
        case "y" | "yes":
            return Reply("once")
        case "s" | "session" if question.session and question.may_be_remembered:
            return Reply("session")
        case "a" | "always" if question.rule and question.may_be_remembered:
            return Reply("rule")
    return Reply(reason=rest.strip() if word.casefold() in ("n", "no") else "")


async def agreed_days(question: Question, project: Path | None, days: int | None = None) -> int | None:
    """How long a rule shall hold, once a person has seen it, its end and what it would have allowed."""
    from toolkeep.cli.approve.hindsight import hindsight_lines, look_back, rule_lines

    shown = days or Answer(verdict="approve", approver="", way="").days
    back = await asyncio.to_thread(look_back, question, project)
    while True:
        show(rule_lines(question, now=time.time(), days=shown, width=columns()))
        show(hindsight_lines(back, width=columns()))
        line = await typed(f"Add this rule? [y]es, [n]o, or other days (1 to {RULE_DAYS}): ")
        text = (line or "").strip()
        if not (text.isascii() and text.isdecimal() and len(text) <= len(str(RULE_DAYS))):
            return shown if text.casefold() in YES else None
        if not 1 <= int(text) <= RULE_DAYS:
            return None
        shown = int(text)


async def typed_name(question: Question) -> bool:
    """The second act for a critical call."""
    show([Line("Second question: this call is critical.", "note")])
    line = await typed("Type the tool's name to let it run; anything else is a no: ")
    return line is not None and line.strip() == question.tool


def columns() -> int:
    """The width of the person's screen."""
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or 80
    except (OSError, ValueError):
        return 80


def show(lines: Iterable[Line]) -> None:
    """Rows on stderr, in the colours of what they are."""
    for line in lines:
        color = _COLORS.get(line.look)
        click.echo(click.style(line.text, fg=color) if color else line.text, err=True)


async def typed(prompt: str) -> str | None:
    """The next line that the person types; None for the end of input, Ctrl-C, or a terminal that is gone."""
    loop = asyncio.get_running_loop()
    line: asyncio.Future[bytes] = loop.create_future()
    descriptor = sys.stdin.fileno()

    def take(data: bytes) -> None:
        if not line.done():
            line.set_result(data)

    with _interrupted_by(loop, lambda: take(b"")):
        _forget_typed(descriptor)
        click.echo(prompt, nl=False, err=True)
        loop.add_reader(descriptor, lambda: take(_read(descriptor)))
        try:
            data = await line
        finally:
            loop.remove_reader(descriptor)
    if not data.endswith(b"\n"):
        click.echo(err=True)
        return None
    return data.decode("utf-8", "replace").removesuffix("\n")


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 65_536)
    except OSError:
        return b""


def _forget_typed(descriptor: int) -> None:
    """A yes that was typed before the question was there is no answer to it."""
    import termios

    with contextlib.suppress(termios.error):
        termios.tcflush(descriptor, termios.TCIFLUSH)


@contextlib.contextmanager
def _interrupted_by(loop: asyncio.AbstractEventLoop, take: Callable[[], None]) -> Iterator[None]:
    """Ctrl-C answers the question; only a loop in the main thread hears of it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    loop.add_signal_handler(signal.SIGINT, take)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)
        signal.signal(signal.SIGINT, before)
