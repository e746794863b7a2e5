"""Elicitation prompt on the terminal: asks the person what an upstream MCP server wants to know.

The text is the server's: every line of it is indented behind a margin, below the name of the server, so that
it cannot pass for a prompt of ours. Nothing is sent before the person has seen all of it and agrees; end of
input, Ctrl-C and every other answer mean no.
"""

import asyncio
import json
import re
import time
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from toolkeep.approval.question_text import Line, duration, name, rows
from toolkeep.cli.approval_prompt import YES, columns, person, show, typed
from toolkeep.cli.options import say
from toolkeep.mcp_client.elicitation import ElicitationAnswer, ElicitationRequest
from toolkeep.mcp_client.elicitation_form import Form, FormRefused
from toolkeep.text.display import counted

_TRIES: Final = 3
"""Tries for one field; then it counts as declined."""
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
    """The person declined or gave up."""


class _Unfit(Exception):
    """The input does not fit the field; says why."""


class Choice(NamedTuple):
    """One allowed value, with the server's title."""

    value: str
    title: str = ""


async def answer(question: ElicitationRequest) -> ElicitationAnswer:
    """Ask the person; no content if declined."""
    by = f"terminal:{person()}"
    try:
        return ElicitationAnswer(content=await _filled(question), by=by)
    except _NotSent:
        say("Nothing was sent.", err=True)
        return ElicitationAnswer(content=None, by=by)
    except asyncio.CancelledError:
        say("", "The server is no longer waiting for your answer.", err=True)
        raise


async def _filled(question: ElicitationRequest) -> dict[str, Any]:
    fields = question.schema["properties"]
    show(question_lines(question, now=time.time(), width=columns()))
    await _agreed("Answer the server now? [y]es, [n]o: ")
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
    show([Line(f"This will be sent to the server {name(question.upstream)}:", "heading")])
    show(rows(json.dumps(content, indent=2, ensure_ascii=False), columns()))
    await _agreed("Send it? [y]es, [n]o: ")
    return content


async def _agreed(prompt: str) -> None:
    if ((await typed(prompt)) or "").strip().casefold() not in YES:
        raise _NotSent


def question_lines(question: ElicitationRequest, *, now: float, width: int) -> Iterator[Line]:
    """The server, its message, and the fields that it asks for."""
    count = len(question.schema["properties"])
    yield Line(f"The server {name(question.upstream)} asks you, in its own words:", "heading")
    yield from rows(question.message, width)
    for key in ("title", "description"):
        if text := question.schema.get(key):
            yield from rows(text, width)
    wanted = "a yes or no" if not count else counted(count, "answer")
    yield Line(f"It asks for {wanted}, for a call of {name(question.agent)}.", "label")
    yield Line(f"It waits for {duration(question.expires_at - now)}.", "label")
    yield Line("Never enter a password or key: servers may not ask for one here.", "note")


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
    """The allowed values of a field, if it lists them."""
    within = field.get("items", field)
    titled = within.get("oneOf") or within.get("anyOf") or ()
    if titled:
        return [Choice(one["const"], one["title"]) for one in titled]
    titles = field.get("enumNames", ())
    values = within.get("enum", ())
    titles = titles if len(titles) == len(values) else [""] * len(values)
    return [Choice(value, title) for value, title in zip(values, titles, strict=True)]


def _suggested(key: str, field: dict[str, Any]) -> Any:
    """The server's default, if its own schema accepts it."""
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
    """Ask for a field; None if it is left out."""
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
            say(f"Invalid answer: {unfit}.", err=True)
    raise _NotSent


def _prompt(field: dict[str, Any], *, has_suggestion: bool, is_required: bool) -> str:
    if _choices(field):
        wanted = "Numbers, with commas" if field["type"] == "array" else "Number"
    else:
        wanted = "yes or no" if field["type"] == "boolean" else "Your answer"
    if has_suggestion:
        return f"{wanted} (Enter for the suggestion): "
    return f"{wanted}: " if is_required else f"{wanted} (Enter to skip): "


def _understood(key: str, field: dict[str, Any], text: str) -> Any:
    """Parse a line for a field; raises `_Unfit`."""
    value = _READERS[field["type"]](field, text)
    if not _fits(key, field, value):
        raise _Unfit(f"expected: {', '.join(_kind(field))}")
    return value


def _text(field: dict[str, Any], text: str) -> str:
    choices = _choices(field)
    return _chosen(choices, text) if choices else text


def _number(_: dict[str, Any], text: str) -> int | float:
    if not _NUMBER.fullmatch(text):
        raise _Unfit("enter a number, such as 7 or 7.5")
    return float(text) if "." in text else int(text)


def _truth(_: dict[str, Any], text: str) -> bool:
    try:
        return _TRUTHS[text.casefold()]
    except KeyError:
        raise _Unfit("answer yes or no") from None


def _several(field: dict[str, Any], text: str) -> list[str]:
    choices = _choices(field)
    return list(dict.fromkeys(_chosen(choices, one.strip()) for one in text.split(",")))


def _chosen(choices: list[Choice], text: str) -> str:
    """A choice by number: titles come from the server, and two may look the same."""
    if not re.fullmatch(r"\d{1,3}", text, re.ASCII) or not 1 <= int(text) <= len(choices):
        raise _Unfit(f"enter a number from 1 to {len(choices)}")
    return choices[int(text) - 1].value


_READERS: Final = {
    "string": _text,
    "integer": _number,
    "number": _number,
    "boolean": _truth,
    "array": _several,
}
