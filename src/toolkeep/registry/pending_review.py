"""A definition that awaits acceptance, for a person to review: what changed, and what is suspicious.

The terminal and the page show the same. A change must not hide in an omitted part: what the person does not
see would be accepted with the rest.
"""

from collections.abc import Iterator

import msgspec

from toolkeep.compat.definition_diff import changes_between
from toolkeep.compat.value_diff import text_lines, value_difference
from toolkeep.definitions.injection_scan import scan_for_injection
from toolkeep.definitions.serialization import definition_from_dict
from toolkeep.stores.registry_state import Pin, accepted
from toolkeep.text.display import visible


class FieldChange(msgspec.Struct, frozen=True, kw_only=True):
    """One field that changed."""

    field: str
    what: str
    weight: str
    """major, minor or patch."""
    lines: list[str]
    """What differs, as lines that begin with `+`, `-` or a space."""


class Review(msgspec.Struct, frozen=True, kw_only=True):
    """What a person accepts."""

    tool: str
    origin: str
    hash: str
    """Of the definition that awaits acceptance: what the acceptance is bound to."""
    version: str
    """The version in use; empty if none was accepted."""
    next_version: str
    changes: list[FieldChange]
    definition: list[str]
    """The whole definition as lines, if none was accepted before."""
    suspicions: list[str]
    """Text that looks like instructions to a model."""

    def lines(self) -> Iterator[str]:
        """As text."""
        which = f"{visible(self.tool)} from {visible(self.origin)}"
        if self.version:
            yield f"{which} changed since it was accepted:"
        else:
            yield f"{which} was never accepted:"
        for change in self.changes:
            yield f"  {visible(change.field)}: {change.what} ({change.weight})"
            yield from (f"    {line}" for line in change.lines)
        yield from (f"    {line}" for line in self.definition)
        yield from (f"  Suspicious: {one}" for one in self.suspicions)


def review_of(pin: Pin) -> Review:
    """The review of a pin with a pending definition."""
    new = definition_from_dict(pin.pending or {})
    changes = changes_between(definition_from_dict(pin.definition), new) if pin.is_accepted else []
    return Review(
        tool=pin.name,
        origin=pin.origin,
        hash=pin.pending_hash,
        version=pin.version if pin.is_accepted else "",
        next_version=accepted(pin).version,
        changes=[
            FieldChange(
                field=one.field,
                what=one.what,
                weight=one.weight.name.lower(),
                lines=list(value_difference(one.before, one.after)),
            )
            for one in changes
        ],
        definition=[] if pin.is_accepted else [visible(line) for line in text_lines(pin.pending)],
        suspicions=[f"{visible(str(one))} ({one.rule})" for one in scan_for_injection(new)],
    )
