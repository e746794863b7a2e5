"""The arguments of a call on the command line: JSON, or `key=value` words typed by the tool's schema."""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click

from toolkeep.errors import UnknownTool
from toolkeep.keep.keep import Keep
from toolkeep.limits import DEFAULT_LIMITS

arguments = click.argument("arguments", nargs=-1, metavar="[ARGUMENTS]...")
_REFERENCES = 8
"""`$ref`s that are followed; a schema may refer to itself."""


def read_arguments(words: Sequence[str], keep: Keep, name: str) -> bytes:
    """JSON text of the arguments that a person wrote for the tool NAME, or gave on standard input.

    The text is checked by the keep like any other: here only its form is decided.
    """
    schema = _schema(keep, name)
    if not words and not schema.get("properties", True):
        return b"{}"
    if not words or words == ("-",):
        return _from_standard_input(schema, is_asked=bool(words))
    return read_words(words, schema)


def read_words(words: Sequence[str], schema: Mapping[str, Any]) -> bytes:
    """JSON text of one JSON object, or of `key=value` and `key:=JSON` words that a schema types."""
    if len(words) == 1 and _is_json(words[0]):
        return words[0].encode("utf-8", "surrogateescape")
    members = dict(_members(words, schema))
    if len(members) < len(words):
        raise click.UsageError("An argument is given twice.")
    text = ",".join(f"{json.dumps(key, ensure_ascii=False)}:{value}" for key, value in members.items())
    return f"{{{text}}}".encode("utf-8", "surrogateescape")


def _schema(keep: Keep, name: str) -> Mapping[str, Any]:
    try:
        return keep.get(name).definition.parameters
    except UnknownTool:  # the call says so, with a name that is near
        return {}


def _from_standard_input(schema: Mapping[str, Any], *, is_asked: bool) -> bytes:
    if not is_asked and (sys.stdin is None or sys.stdin.isatty()):
        if schema and not schema.get("required"):
            return b"{}"
        raise click.UsageError("Give the arguments as key=value words or as JSON, or on standard input.")
    if sys.stdin is None:
        raise click.UsageError("There is no standard input.")
    return sys.stdin.buffer.read(DEFAULT_LIMITS.argument_bytes + 1)


def _is_json(word: str) -> bool:
    return "=" not in word or word.lstrip()[:1] in ("{", "[", '"')


def _members(words: Sequence[str], schema: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Key and value of each word, the value as JSON text."""
    properties = schema.get("properties", {})
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or key in ("", ":"):
            raise click.UsageError(f"{word[:80]!r} is not an argument: write key=value, or key:=JSON.")
        if key.endswith(":"):
            if not _parses(value):
                raise click.UsageError(f"The value of {key[:80]}= is not JSON.")
            yield key[:-1], value
        elif _takes_text(properties.get(key, True), schema) or not _parses(value):
            yield key, json.dumps(value, ensure_ascii=False)
        else:
            yield key, value  # as written: the keep refuses numbers that Python would round


def _parses(value: str) -> bool:
    try:
        json.loads(value)
    except (ValueError, RecursionError):
        return False
    return True


def _takes_text(inside: Any, schema: Mapping[str, Any], left: int = _REFERENCES) -> bool:
    """Whether a parameter may be a string; then a value is one, whatever it looks like."""
    if not isinstance(inside, Mapping) or not left:
        return True
    if isinstance(reference := inside.get("$ref"), str):
        name = reference.removeprefix("#/$defs/")
        return _takes_text(schema.get("$defs", {}).get(name), schema, left - 1)
    if "type" in inside:
        kinds = inside["type"]
        return "string" in ([kinds] if isinstance(kinds, str) else kinds)
    for key, judge in (("anyOf", any), ("oneOf", any), ("allOf", all)):
        if key in inside:
            return judge(_takes_text(one, schema, left - 1) for one in inside[key])
    values = inside.get("enum", [inside["const"]] if "const" in inside else [""])
    return any(isinstance(value, str) for value in values)
