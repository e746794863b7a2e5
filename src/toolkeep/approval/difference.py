"""How a file would change, for the person who is asked about a write."""

from collections.abc import Mapping
from typing import Any, Final

from toolkeep.approval.changed_lines import unified
from toolkeep.calls import PermittedCall
from toolkeep.limits import DIFFERENCE_BYTES, DIFFERENCE_LINES
from toolkeep.wording import visible

_CONTENTS: Final = ("content", "contents", "text", "data", "body")
"""What the parameter is called that holds the whole new content of a file."""

_HARMLESS: Final = frozenset(("encoding", "create_parents", "create_directories", "overwrite", "mode"))
"""Other parameters that do not change what is written; any other might, and so might another mode."""

_OVERWRITE: Final = "overwrite"
_APPEND: Final = "append"


def difference(call: PermittedCall, shown: Mapping[str, Any]) -> str:
    """A unified difference between the file that is there and the content that a call would write.

    Empty where the call does not write exactly one file, or its content is not plain in the arguments.
    """
    written = [one for one in call.touched if one.kind == "fs.write"]
    contents = [shown[name] for name in _CONTENTS if isinstance(shown.get(name), str)]
    paths = {one.pointer.removeprefix("/") for one in written}
    mode = shown.get("mode", _OVERWRITE)
    if shown.keys() - _HARMLESS - paths - set(_CONTENTS) or mode not in (_OVERWRITE, _APPEND):
        return ""
    if len(written) != 1 or len(contents) != 1 or len(contents[0]) > DIFFERENCE_BYTES:
        return ""
    before = written[0].content(DIFFERENCE_BYTES)
    if before is None:
        return ""
    try:
        old = before.decode()
    except UnicodeDecodeError:
        became = "followed" if mode == _APPEND else "replaced"
        return f"{len(before)} bytes that are no text would be {became} by {len(contents[0])} characters"
    new = old + contents[0] if mode == _APPEND else contents[0]
    changes = list(unified(_lines(old), _lines(new)))
    if not changes:
        return ""
    name = visible(written[0].shown)
    # No dates: a tab stands before each, which whoever shows the lines has to escape.
    head = [f"--- {name} (now)", f"+++ {name} (after)"]
    room = DIFFERENCE_LINES - len(head)
    cut = len(changes) - room
    more = [f"… and {cut} lines more"] if cut > 0 else []
    return "\n".join([*head, *map(visible, changes[:room]), *more])


def _lines(text: str) -> list[str]:
    return text.split("\n") if text else []
