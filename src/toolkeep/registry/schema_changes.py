"""What changed between two schemas of one place, and whether the place takes more or less than before.

`WIDENED` promises that everything that fitted still fits, `NARROWED` that nothing fits that did not before.
Where neither is sure it is `CHANGED`: careful rather than clever. Objects of arguments are closed as
`validation/closing.py` closes them; an output schema is taken as written. The steps of a comparison are
counted, so that no schema takes long. How it is done is in `changes/`, of which `walk.py` is the middle.
"""

from typing import Any

from toolkeep.registry.changes.effects import Effect, SchemaChange
from toolkeep.registry.changes.reading import bare, has_other_references, is_equal
from toolkeep.registry.changes.walk import Walk
from toolkeep.registry.changes.words import reworded


def schema_changes(
    before: dict[str, Any], after: dict[str, Any], place: str, *, closes: bool
) -> tuple[SchemaChange, ...]:
    """Every difference; `closes` for arguments, whose silent objects take no other properties."""
    if is_equal(bare(before), bare(after)):
        return tuple(reworded(before, after, place))
    if any(has_other_references(schema) for schema in (before, after)):
        what = "changed: it has references that are not followed here"
        return (SchemaChange(place, Effect.CHANGED, what, before, after),)
    walk = Walk(before, after, closes=closes)
    walk.compare_roots(place)
    return tuple(walk.found)
