"""Approval prompt on the terminal (POL-4): shows the complete call, and accepts only an explicit yes.

End of input and Ctrl-C mean no; another answer is asked for again. Input typed before the prompt is
discarded. It cannot tell a person from a program that controls the terminal.
"""

import asyncio
import builtins
import contextlib
import os
import signal
import sys
import threading
import time
import types
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import click
from msgspec.structs import replace

from toolkeep.approval.question import Answer, AnswerRefused, Question, Reach, covered
from toolkeep.approval.question_text import (
    Line,
    duration,
    moment,
    name,
    preview_answer,
    render_question,
    render_questions,
    rows,
)
from toolkeep.cli.options import is_terminal, say, warn
from toolkeep.limits import RULE_DAYS
from toolkeep.text.columns import fit
from toolkeep.text.display import counted

_DAY_SECONDS: Final = 86_400
"""A unit: rules are granted in days, the clock counts seconds."""
YES: Final = frozenset({"y", "yes"})
_COLORS: Final = {"heading": "cyan", "added": "green", "removed": "red", "note": "yellow"}


class Reply(NamedTuple):
    """The parsed answer of a person."""

    reach: Reach | None = None
    """Scope of the approval; None is a denial."""
    reason: str = ""


def person() -> str:
    """The user name from the system's user database; variables such as USER can be set to anything."""
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def can_ask() -> bool:
    """Whether stdin and stderr are a terminal, so that a person can read and answer."""
    return is_terminal(sys.stdin) and is_terminal(sys.stderr)


def _has_notebook() -> bool:
    """Whether `input()` asks in a notebook: its kernel replaces the function while a cell runs."""
    return not isinstance(builtins.input, types.BuiltinFunctionType)


class TerminalApprover:
    """An approver that asks the person at this terminal, as `toolkeep call` does, or in this notebook."""

    def __init__(self, project: Path | None = None) -> None:
        """`project` is the folder of the keep, by default the working folder and those above it."""
        self._project = project
        self._approver = f"terminal:{person()}"
        self._turns: tuple[asyncio.AbstractEventLoop, asyncio.Lock] | None = None

    async def __call__(self, question: Question) -> Answer:
        """Ask one question; a critical call needs a second confirmation. Raises where nobody can be asked."""
        async with self._asking():
            return await self._ask(question)

    async def ask_all(self, questions: Sequence[Question]) -> list[Answer]:
        """Ask about the calls of one response at once. Raises where nobody can be asked."""
        async with self._asking():
            show(render_questions(questions, now=time.time(), width=columns()))
            picked = await pick(len(questions))
            if picked.one_by_one:
                return [await self._ask(question) for question in questions]
            no = Reply(reason=picked.reason)
            return [
                self._answer(Reply("once") if number in picked.approved else no, question)
                for number, question in enumerate(questions, 1)
            ]

    async def _ask(self, question: Question) -> Answer:
        if question.wants_name:
            if question.response:  # which of several calls it is
                show(render_question(question, now=time.time(), width=columns()))
            return self._answer(Reply("once" if await typed_name(question) else None), question)
        show(render_question(question, now=time.time(), width=columns()))
        reply = await self._reply(question)
        if reply.reach in ("session", "rule"):
            wanted = self._answer(reply, question)
            return await agreed(question, wanted, self._project) or self._answer(Reply(), question)
        return self._answer(reply, question)

    @contextlib.asynccontextmanager
    async def _asking(self) -> AsyncIterator[None]:
        """One prompt at a time: of two that read the same terminal, one would take the other's answer."""
        if not can_ask() and not _has_notebook():
            raise RuntimeError(
                "no one can be prompted: stdin or stderr is not a terminal, and this is not a notebook"
            )
        loop = asyncio.get_running_loop()
        if self._turns is None or self._turns[0] is not loop:
            self._turns = loop, asyncio.Lock()
        async with self._turns[1]:
            try:
                yield
            except asyncio.CancelledError as cancelled:
                say(
                    "", str(cancelled) or "The call was cancelled; your answer is no longer needed.", err=True
                )
                raise

    async def _reply(self, question: Question) -> Reply:
        """Ask until the person gives one of the answers; end of input and Ctrl-C are a no."""
        while (line := await typed(offer(question))) is not None:
            if (reply := understand(line, question)) is not None:
                return reply
            say("Not one of the answers.", err=True)
        return Reply()

    def _answer(self, reply: Reply, question: Question) -> Answer:
        if reply.reach is None:
            return Answer(verdict="deny", approver=self._approver, way="terminal", reason=reply.reason)
        return Answer(
            verdict="approve",
            approver=self._approver,
            way="terminal",
            reach=reply.reach,
            typed_name=question.tool if question.wants_name else "",
        )


class Picked(NamedTuple):
    """Which of several numbered calls a person approves."""

    approved: frozenset[int] = frozenset()
    reason: str = ""
    one_by_one: bool = False


async def pick(count: int, *, one_by_one: bool = True) -> Picked:
    """Ask about several calls at once until there is an answer; end of input and Ctrl-C are a no to all."""
    words = ["[y]es to all", "numbers to approve these alone", *(["[o]ne by one"] if one_by_one else [])]
    while (line := await typed(", ".join([*words, "[n]o [reason]: "]))) is not None:
        if (picked := picked_by(line, count)) is not None and (one_by_one or not picked.one_by_one):
            return picked
        say("Not one of the answers.", err=True)
    return Picked()


def picked_by(line: str, count: int) -> Picked | None:
    """Parse a line; None if it is none of the answers."""
    word, _, rest = line.strip().partition(" ")
    match line.strip().casefold():
        case "y" | "yes":
            return Picked(frozenset(range(1, count + 1)))
        case "o" | "one" | "one by one":
            return Picked(one_by_one=True)
    if word.casefold() in ("n", "no"):
        return Picked(reason=rest.strip())
    numbers = line.replace(",", " ").split()
    # A number that is out of range makes the whole line unclear: nothing of it counts.
    known = {str(number): number for number in range(1, count + 1)}
    if numbers and all(number in known for number in numbers):
        return Picked(frozenset(known[number] for number in numbers))
    return None


def announce(question: Question) -> None:
    """Say that a call waits for approval elsewhere; returns no answer."""
    wait = duration(question.expires_at - question.asked_at)
    text = f"the call waits up to {wait} for approval: toolkeep approve {name(question.id)}"
    warn(text)


def offer(question: Question) -> str:
    """The prompt with the possible answers."""
    has_session = bool(question.session) and question.may_be_remembered
    words = ["[y]es once"]
    words += ["[s]ession"] if has_session else []
    words += ["[a]lways"] if question.may_be_remembered else []
    return ", ".join([*words, "[n]o [reason]: "])


def understand(line: str, question: Question) -> Reply | None:
    """Parse a line; None if it is none of the answers."""
    text = line.strip()
    word, _, rest = text.partition(" ")
    match text.casefold():
        case "y" | "yes":
            return Reply("once")
        case "s" | "session" if question.session and question.may_be_remembered:
            return Reply("session")
        case "a" | "always" if question.may_be_remembered:
            return Reply("rule")
    return Reply(reason=rest.strip()) if word.casefold() in ("n", "no") else None


async def agreed(question: Question, answer: Answer, project: Path | None) -> Answer | None:
    """Ask for an approval of the session or a rule, after showing what it will cover; None is a no.

    The person may change it first: `path=folder:/srv/docs`, `content=any`, another number of days.
    """
    from toolkeep.cli.rule_preview import preview_lines, preview_rule

    show(choice_lines(question, width=columns()))
    while True:
        constraints = covered(question, answer)
        back = await asyncio.to_thread(preview_rule, question, constraints, project)
        show(covered_lines(question, answer, now=time.time(), width=columns()))
        show(preview_lines(back, width=columns()))
        text = (await typed(_AGREE[answer.reach]) or "").strip()
        changed = _changed(question, answer, text)
        if changed is None:
            return answer if text.casefold() in YES else None
        answer = changed


_AGREE: Final[dict[Reach, str]] = {
    "session": "Allow these calls in this session? [y]es, [n]o, or ARGUMENT=any, =equal, =folder:…: ",
    "rule": f"Add this rule? [y]es, [n]o, ARGUMENT=any, =equal, =folder:…, or days (1 to {RULE_DAYS}): ",
}


def _changed(question: Question, answer: Answer, text: str) -> Answer | None:
    """The answer as changed by a line; None if the line is not a change."""
    argument, is_choice, how = text.partition("=")
    if is_choice:
        changed = replace(answer, arguments={**answer.arguments, argument.strip(): how.strip()})
        try:
            covered(question, changed)
        except AnswerRefused as refused:
            show([Line(fit(f"Not possible: {refused.reason}", columns()), "note")])
            return answer
        return changed
    is_days = text.isascii() and text.isdecimal() and len(text) <= len(str(RULE_DAYS))
    if answer.reach == "rule" and is_days and 1 <= int(text) <= RULE_DAYS:
        return replace(answer, days=int(text))
    return None


def choice_lines(question: Question, *, width: int) -> Iterator[Line]:
    """The constraints that may be chosen for each argument."""
    yield Line("What each argument may be in later calls, and [the alternatives]:", "heading")
    for one in question.choices:
        now = "equal" if not one.role else f"any ({one.role})"
        other = f"cannot be changed: {one.fixed}" if one.fixed else ", ".join(("equal", "any", *one.bounds))
        yield from rows(f"{name(one.name)}={now}  [{other}]", width)


def covered_lines(question: Question, answer: Answer, *, now: float, width: int) -> Iterator[Line]:
    """Which calls will pass without a question, and until when."""
    yield Line("These calls will run without asking:", "heading")
    yield from rows(preview_answer(question, answer), width)
    if answer.reach == "rule":
        ends = moment(now + answer.days * _DAY_SECONDS)
        yield Line(f"The rule expires at {ends}, in {counted(answer.days, 'day')}.", "label")
    else:
        yield Line(f"In session {name(question.session)}, for at most one day.", "label")


async def typed_name(question: Question) -> bool:
    """The second confirmation of a critical call: typing the tool's name."""
    show([Line("This call is critical and needs a second confirmation.", "note")])
    line = await typed("Type the name of the tool to approve it; anything else denies it: ")
    return line is not None and line.strip() == question.tool


def columns() -> int:
    """Width of the person's terminal."""
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or 80
    except (OSError, ValueError):
        return 80


def show(lines: Iterable[Line]) -> None:
    """Print lines on stderr in their colours."""
    for line in lines:
        color = _COLORS.get(line.look)
        click.echo(click.style(line.text, fg=color) if color else line.text, err=True)


async def typed(prompt: str) -> str | None:
    """Read a line from the terminal; None at end of input, on Ctrl-C, or if the terminal is gone."""
    if not is_terminal(sys.stdin):
        with contextlib.suppress(EOFError, KeyboardInterrupt):
            return await asyncio.to_thread(input, prompt)
        return None
    loop = asyncio.get_running_loop()
    line: asyncio.Future[bytes] = loop.create_future()
    descriptor = sys.stdin.fileno()

    def take(data: bytes) -> None:
        if not line.done():
            line.set_result(data)

    with _interrupted_by(loop, lambda: take(b"")):
        forget_typed()
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


def forget_typed() -> None:
    """Discard pending input: a "y" that was typed ahead must not answer a question that nobody has read."""
    import termios

    with contextlib.suppress(termios.error):
        termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)


@contextlib.contextmanager
def _interrupted_by(loop: asyncio.AbstractEventLoop, take: Callable[[], None]) -> Iterator[None]:
    """Make Ctrl-C answer the question; works in the main thread only."""
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
