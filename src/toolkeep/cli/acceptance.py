"""What the commands that accept something share: the question, the difference, and the answer."""

import json
import sys
from collections.abc import Iterator
from typing import Any

from toolkeep.cli.options import is_agreed, is_terminal, print_json, say_done
from toolkeep.compat.value_diff import changed_lines
from toolkeep.errors import NotAccepted


def confirm(wanted: str, given: str | None, shown: dict[str, Any] | None) -> None:
    """Return if a person agrees, or gave the expected hash; with JSON nobody is asked."""
    if given is not None:
        # The hash binds the consent to what the person reviewed: a file that changed since is not accepted.
        if given.removeprefix("sha256:").lower() != wanted:
            hint = "review it again: the file, or code that it names, may have changed"
            raise NotAccepted(f"the hash is {wanted}, not {given[:80]}", hint=hint)
        return
    if shown is not None:
        print_json(shown)
        sys.exit(1)
    if not is_terminal(sys.stdin):
        raise NotAccepted("accepting needs a terminal", hint="run it in a terminal, or pass --hash SHA256")
    if not is_agreed("Accept this?"):
        raise NotAccepted("you declined", hint="nothing was changed")


def finish(data: dict[str, Any], text: str, as_json: bool) -> None:  # noqa: FBT001 -- as everywhere here
    """Report what was accepted."""
    if as_json:
        print_json(data)
    else:
        say_done(text)


def difference_lines(before: str, after: str) -> Iterator[str]:
    """The facts that differ between the accepted and the current version, as `path: value`."""
    old, new = (list(_sealed_facts(json.loads(text))) for text in (before, after))
    yield from changed_lines(old, new, around=0)


def _sealed_facts(sealed: dict[str, Any]) -> Iterator[str]:
    """What a file would do comes first, then its text."""
    rest = dict(sealed)
    yield from (effect[-1] for effect in rest.pop("effects", ()))
    yield from _facts(rest.pop("file", {}))
    yield from _facts(rest)


def _facts(value: Any, path: str = "") -> Iterator[str]:
    """One line for each scalar. Items of a list share its path, so that inserting one changes no other."""
    if isinstance(value, dict) and value:
        for key, inside in value.items():
            yield from _facts(inside, f"{path}.{key}" if path else key)
    elif isinstance(value, list) and value:
        for inside in value:
            yield from _facts(inside, path)
    else:
        said = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        yield f"{path}: {said}" if path else said


def code_difference(before: str, after: str) -> Iterator[str]:
    """The lines that differ between two versions of a source file, complete and with their places."""
    if not before or (before.endswith("\n") and after.endswith("\n")):
        before, after = before.removesuffix("\n"), after.removesuffix("\n")
    old = before.split("\n") if before else []
    yield from changed_lines(old, after.split("\n"), around=2, has_places=True)
