"""Danger and effects of imported tools, as the person says it: reading tools at once, others by name.

A server's claims never lower anything by themselves. A tool counts as reading if the server says so
(readOnlyHint) and its name says so too; the person still has to agree.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import click

from toolkeep.cli.approval_prompt import forget_typed
from toolkeep.cli.options import is_agreed, say
from toolkeep.definitions.tool_names import kind_of, with_kind
from toolkeep.definitions.vocabulary import CallKind, Danger
from toolkeep.errors import ImportRefused, NotAccepted
from toolkeep.registry.coerce import Offer
from toolkeep.text.display import counted, echo_name

_READS: Final = """
    count describe diff fetch find get head history info inspect list log lookup preview read search show
    stat status summarize tail tree view
"""
_WRITES: Final = """
    add append apply approve archive assign cancel checkout clear click clone close commit copy create delete
    deploy destroy disable drop edit enable exec execute fill grant import insert install invite kill make
    merge migrate modify move mutate navigate open overwrite patch post press publish purge push put release
    remove rename replace reply reset restart restore revert revoke run save schedule send set start stop
    submit sync trigger truncate type uninstall unlink update upload upsert write
"""
"""A name with one of these is no reading one, whatever else it holds: get_or_create, read_and_delete."""
_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_LEVELS: Final = ", ".join(level.value for level in Danger)


def reading_tools(tools: Iterable[Mapping[str, Any]], offers: Iterable[Offer]) -> set[str]:
    """Server's names of the tools that read, by their name and the server's claim.

    Tools that need review, because their text looks like an attack, are left out.
    """
    trusted = {original for offer in offers if (original := original_of(offer)) and not offer.suspicion}
    return {name for tool in tools if (name := str(tool.get("name"))) in trusted and _reads(name, tool)}


def original_of(offer: Offer) -> str:
    """Server's name of an offered tool, with its prefix if it is none; empty if it cannot be imported."""
    target = getattr(offer.runner, "target", {})
    return with_kind(kind_of(str(offer.name)), str(target["tool"])) if "tool" in target else ""


def _reads(name: str, tool: Mapping[str, Any]) -> bool:
    claims = tool.get("annotations")
    if not isinstance(claims, Mapping) or claims.get("readOnlyHint") is not True:
        return False
    words = {word.lower() for word in _WORD.findall(name)}
    is_named_so = not words.isdisjoint(_READS.split()) and words.isdisjoint(_WRITES.split())
    return is_named_so and claims.get("destructiveHint") is not True


def read_dangers(told: Iterable[str], offers: Iterable[Offer]) -> dict[str, str]:
    """Danger by the server's names, from TOOL=LEVEL words; raises `ImportRefused`."""
    names = _names(offers)
    return dict(_read_danger(one, names) for one in told)


def ask_dangers(offers: Sequence[Offer], reading: set[str]) -> dict[str, dict[str, str]]:
    """Ask the person at the terminal; Enter changes nothing. Keys are those of the configuration."""
    names = _names(offers)
    found: dict[str, str] = {}
    effects: dict[str, str] = {}
    say("", "Calls to these tools ask you first, as long as their danger is medium or more.", err=True)
    forget_typed()
    if reading and is_agreed(
        f"Set {counted(len(reading), 'tool')} to low as they only read, so that calls do not ask?"
    ):
        found |= dict.fromkeys(sorted(reading), Danger.LOW.value)
        effects = dict.fromkeys(sorted(reading), "reads")
    while answer := typed_line("Change another one? TOOL=LEVEL, or Enter to go on: "):
        try:
            found |= dict([_read_danger(answer, names)])
        except ImportRefused as refused:
            say(f"  {refused.message}", err=True)
    return {"danger": found, "effects": effects}


def typed_line(question: str) -> str:
    """A line that the person types; Ctrl-C and end of input raise `NotAccepted`."""
    try:
        return str(click.prompt(question, default="", show_default=False, prompt_suffix="", err=True)).strip()
    except click.Abort:
        click.echo(err=True)
        raise NotAccepted("you declined", hint="nothing was changed") from None


def _names(offers: Iterable[Offer]) -> dict[str, str]:
    """Server's names by both names of each tool; the server's own wins."""
    originals = {str(offer.name): original_of(offer) for offer in offers if original_of(offer)}
    kinds = {kind_of(name) for name in originals} - {CallKind.TOOL}
    patterns = [with_kind(kind, "*") for kind in kinds]
    return {**originals, **{name: name for name in (*originals.values(), *patterns)}}


def _read_danger(told: str, names: Mapping[str, str]) -> tuple[str, str]:
    name, _, level = told.rpartition("=")
    original = names.get(name.strip())
    if original is None:
        raise ImportRefused(
            f"'{echo_name(told)}'",
            "does not name one of its tools",
            hint="write TOOL=LEVEL, such as search=low",
        )
    try:
        return original, Danger.read(level).value
    except ValueError:
        raise ImportRefused(
            f"'{echo_name(told)}'", f"has none of the levels {_LEVELS}", hint="write TOOL=LEVEL"
        ) from None
