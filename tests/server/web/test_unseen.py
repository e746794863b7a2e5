"""Characters that nobody sees, or that turn text around: none reaches a page as it is."""

import re
from urllib.parse import urlencode

import pytest

from tests.server.web.test_app import Visitor, visit
from toolkeep import Keep, ToolDefinition

BIDI = "\u202egnp.exe\u2066"
FOREIGN = {
    "name": "foreign",
    "description": f"Reads. {BIDI}",
    "version": "1.0.0",
    "danger": "medium",
    "usage_metadata": BIDI,
    "metadata": {BIDI: BIDI},
    "client_executed": True,
    "parameters": {
        "type": "object",
        "properties": {
            BIDI: {"type": "string", "description": BIDI, "default": BIDI, "title": BIDI},
            "choice": {"type": "string", "enum": [BIDI, "fine"], "description": BIDI},
        },
    },
    "output_schema": {"type": "object", "description": BIDI},
}
PAGES = ["", "tools", "tools/foreign", "approvals", "audit", "policies", "tokens", "definitions/new"]


def raw(text: str) -> list[str]:
    """Where such a character stands as it is.

    The name of a field, a hidden field, and the value of a choice that has a text, are shown to nobody, and must
    be exact.
    """
    shown = re.sub(
        r'<input type="hidden"[^>]*>| name="at:[^"]*"| value="[^"]*"(?=( selected)?>[^<])', "", text
    )
    return [shown[max(0, found.start() - 60) : found.end()] for found in re.finditer("[\u202e\u2066]", shown)]


@pytest.mark.parametrize("page", [*PAGES, "calls", "sessions", "sessions/show"])
@pytest.mark.spec("WEB-2")
def test_no_page_holds_a_character_that_turns_text_around(keep: Keep, page: str) -> None:
    keep.register(ToolDefinition.from_elsewhere(FOREIGN))
    keep.declare_agent(BIDI)
    made = keep.call_sync("add", {"a": BIDI, BIDI: 1}, agent=BIDI, session=BIDI, conversation=BIDI)
    keep.call_sync(BIDI, {}, agent=BIDI)
    path = f"/ui/calls/{made.call_id}" if page == "calls" else f"/ui/{page}"
    if page == "sessions/show":
        path += f"?{urlencode({'agent': BIDI, 'session': BIDI})}"

    async def act(visitor: Visitor) -> tuple[int, str]:
        answer = await visitor.get(path)
        return answer.status, answer.body.decode()

    status, text = visit(keep, act)
    assert (status, raw(text)) == (200, [])
