"""Asks the person at the terminal what an upstream server wants to know (MCP, elicitation).

The words are the server's: each row of them stands behind a margin, with who asks above it. Nothing is sent
before the person has seen all of it and says yes; the end of input, Ctrl-C and every other word are a no.
"""

import asyncio
import json
import re
import time
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from toolkeep.approval.view import Line, duration, name, rows
from toolkeep.cli.asking import YES, columns, person, show, typed
from toolkeep.cli.options import say
from toolkeep.sources.mcp.forms import Form, FormRefused
from toolkeep.sources.mcp.questions import UpstreamAnswer, UpstreamQuestion
from toolkeep.wording import counted

_TRIES: Final = 3
"""To fill in one field; after that it is a no."""
_WORDS: Final = {
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "yes or no",
    "array": "any of these",
}
_FORMATS: Final = {"email": "a mail address", "uri": "a URL", "date": "a date", "date-time": "a time"}
_BOUNDS: Final = {
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "minimum": "at least {}",
    "maximum": "at most {}",
    "minItems": "at least {}",
    "maxItems": "at most {}",
}
_TRUTHS: Final = {"y": True, "yes": True, "true": True, "n": False, "no": False, "false": False}
_NUMBER: Final = re.compile(r"[+-]?\d{1,15}(\.\d{1,15})?", re.ASCII)


class _NotSent(Exception):
    """The person said no, or gave up."""


class _Unfit(Exception):
    """What was typed is no answer to the field; says why."""


class Choice(NamedTuple):
    """One value that may be chosen, and what the server calls it."""

    value: str
    title: str = ""


async def answer(question: UpstreamQuestion) -> UpstreamAnswer:
    """What the person at the terminal wants to be sent; no content for a no."""
    by = f"terminal:{person()}"
    try:
        return UpstreamAnswer(content=await _filled(question), by=by)
    except _NotSent:
        say("Nothing was sent.", err=True)
        return UpstreamAnswer(content=None, by=by)
    except asyncio.CancelledError:
        say("", "The server does not wait for your answer any more.", err=True)
        raise


async def _filled(question: UpstreamQuestion) -> dict[str, Any]:
    fields = question.schema["properties"]
    show(question_lines(question, now=time.time(), width=columns()))
    await _agreed("Answer it? [y]es, [n]o: ")
    given: dict[str, Any] = {}
    for number, (key, field) in enumerate(fields.items(), 1):
        is_required = key in question.schema["required"]
        show(field_lines(key, field, f"{number} of {len(fields)}", is_required=is_required, width=columns()))
        value = await _value(key, field, is_required=is_required)
        given |= {} if value is None else {key: value}
    try:
        content = Form(question.schema).filled(given)
    except FormRefused as refused:
        say(f"It cannot be sent: {refused}.", err=True)
        raise _NotSent from None
    show([Line(f"This would be sent to the server {name(question.upstream)}:", "heading")])
    show(rows(json.dumps(content, indent=2, ensure_ascii=False), columns()))
    await _agreed("Send it? [y]es, [n]o: ")
    return content


async def _agreed(prompt: str) -> None:
    if ((await typed(prompt)) or "").strip().casefold() not in YES:
        raise _NotSent


def question_lines(question: UpstreamQuestion, *, now: float, width: int) -> Iterator[Line]:
    """Who asks, in which words, and what it wants."""
    count = len(question.schema["properties"])
    yield Line(f"The server {name(question.upstream)} asks you, in its own words:", "heading")
    yield from rows(question.message, width)
    for key in ("title", "description"):
        if text := question.schema.get(key):
            yield from rows(text, width)
    wanted = "a yes or a no" if not count else counted(count, "answer")
    yield Line(f"It wants {wanted}, for a call of {name(question.agent)}.", "label")
    yield Line(f"It waits for {duration(question.expires_at - now)}.", "label")
    yield Line("Never tell it a password or a key: no server may ask for one here.", "note")


def field_lines(
    key: str, field: dict[str, Any], place: str, *, is_required: bool, width: int
) -> Iterator[Line]:
    """One field of the form, as the server describes it."""
    need = "" if is_required else ", may be left out"
    yield Line(f"Field {place}: {', '.join(_kind(field))}{need}", "label")
    yield from rows(f"{key}: {field['title']}" if "title" in field else key, width)
    if "description" in field:
        yield from rows(field["description"], width)
    for number, choice in enumerate(_choices(field), 1):
        text = f"{choice.value}: {choice.title}" if choice.title else choice.value
        yield from rows(f"{number}. {text}", width)
    if (suggested := _suggested(key, field)) is not None:
        yield Line("It suggests:", "label")
        yield from rows(_as_text(suggested), width)


def _kind(field: dict[str, Any]) -> Iterable[str]:
    is_choice = field["type"] == "string" and _choices(field)
    yield "one of these" if is_choice else _FORMATS.get(field.get("format", ""), _WORDS[field["type"]])
    for bound, words in _BOUNDS.items():
        if bound in field:
            yield words.format(field[bound])


def _choices(field: dict[str, Any]) -> list[Choice]:
    """The values that a field may have, where it names them."""
    within = field.get("items", field)
    titled = within.get("oneOf") or within.get("anyOf") or ()
    if titled:
        return [Choice(one["const"], one["title"]) for one in titled]
    titles = field.get("enumNames", ())
    values = within.get("enum", ())
    titles = titles if len(titles) == len(values) else [""] * len(values)
    return [Choice(value, title) for value, title in zip(values, titles, strict=True)]


def _suggested(key: str, field: dict[str, Any]) -> Any:
    """What the server suggests, if its own form takes it."""
    return field["default"] if "default" in field and _fits(key, field, field["default"]) else None


def _fits(key: str, field: dict[str, Any], value: Any) -> bool:
    alone = {name: inside for name, inside in field.items() if name != "default"}
    try:
        Form({"type": "object", "properties": {key: alone}, "required": [key]}).filled({key: value})
    except FormRefused:
        return False
    return True


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


async def _value(key: str, field: dict[str, Any], *, is_required: bool) -> Any:
    """What the person types for a field; None where it is left out."""
    suggested = _suggested(key, field)
    for _ in range(_TRIES):
        line = await typed(_prompt(field, has_suggestion=suggested is not None, is_required=is_required))
        if line is None:
            raise _NotSent
        text = line.strip()
        if not text and (suggested is not None or not is_required):
            return suggested
        try:
            return _understood(key, field, text)
        except _Unfit as unfit:
            say(f"That is no answer: {unfit}.", err=True)
    raise _NotSent


def _prompt(field: dict[str, Any], *, has_suggestion: bool, is_required: bool) -> str:
    if _choices(field):
        wanted = "Numbers, with commas" if field["type"] == "array" else "Number"
    else:
        wanted = "yes or no" if field["type"] == "boolean" else "Your answer"
    if has_suggestion:
        return f"{wanted} (Enter takes what it suggests): "
    return f"{wanted}: " if is_required else f"{wanted} (Enter leaves it out): "


def _understood(key: str, field: dict[str, Any], text: str) -> Any:
    """What a line means for a field; raises `_Unfit`."""
    value = _READERS[field["type"]](field, text)
    if not _fits(key, field, value):
        raise _Unfit(f"it wants {', '.join(_kind(field))}")
    return value


def _text(field: dict[str, Any], text: str) -> str:
    choices = _choices(field)
    return _chosen(choices, text) if choices else text


def _number(_: dict[str, Any], text: str) -> int | float:
    if not _NUMBER.fullmatch(text):
        raise _Unfit("it wants a number, such as 7 or 7.5")
    return float(text) if "." in text else int(text)


def _truth(_: dict[str, Any], text: str) -> bool:
    try:
        return _TRUTHS[text.casefold()]
    except KeyError:
        raise _Unfit("it wants yes or no") from None


def _several(field: dict[str, Any], text: str) -> list[str]:
    choices = _choices(field)
    return list(dict.fromkeys(_chosen(choices, one.strip()) for one in text.split(",")))


def _chosen(choices: list[Choice], text: str) -> str:
    """A choice by its number, which no value of a server can stand for."""
    if not re.fullmatch(r"\d{1,3}", text, re.ASCII) or not 1 <= int(text) <= len(choices):
        raise _Unfit(f"it wants a number from 1 to {len(choices)}")
    return choices[int(text) - 1].value


_READERS: Final = {
    "string": _text,
    "integer": _number,
    "number": _number,
    "boolean": _truth,
    "array": _several,
}
