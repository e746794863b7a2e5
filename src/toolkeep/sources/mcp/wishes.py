"""A server that wants input before it answers (2026-07-28, multi round-trip requests), and what it is told.

Nothing is made up: a question to the user is declined where the host named nobody who answers, there are no
roots to tell of, and no model answers.
"""

from typing import TYPE_CHECKING, Any, Final

from toolkeep.sources.mcp.speaking import UpstreamFailed

if TYPE_CHECKING:
    from toolkeep.sources.mcp.questions import Questions

_STATE_CHARS: Final = 64 * 1024
_WISHES: Final = 20
_ELICITATION: Final = "elicitation/create"
_NO: Final[dict[str, dict[str, Any]]] = {
    _ELICITATION: {"action": "decline"},
    "roots/list": {"roots": []},
}


async def answers_to(said: dict[str, Any], questions: "Questions | None" = None) -> dict[str, Any] | None:
    """What to add to a call that is made again; None where the answer is no wish. Raises `UpstreamFailed`."""
    if said.get("resultType") != "input_required":
        return None
    wishes, state = said.get("inputRequests"), said.get("requestState")
    if wishes is None and state is None:
        raise UpstreamFailed("it wants input, and does not say which", is_over=False)
    if not isinstance(wishes, dict | None) or len(wishes or ()) > _WISHES:
        raise UpstreamFailed("it wants input in a form that cannot be read", is_over=False)
    if not isinstance(state, str | None) or len(state or "") > _STATE_CHARS:
        raise UpstreamFailed("it wants a state kept that is no text, or too long", is_over=False)
    more: dict[str, Any] = {} if state is None else {"requestState": state}
    if wishes is not None:
        no = {name: _no_to(wish, questions) for name, wish in wishes.items()}
        asked = {name: wish for name, wish in wishes.items() if wish["method"] == _ELICITATION}
        yes = (
            {name: await questions.answer(wish.get("params")) for name, wish in asked.items()}
            if questions
            else {}
        )
        more["inputResponses"] = {**no, **yes}
    return more


def _no_to(wish: Any, questions: "Questions | None") -> dict[str, Any]:
    method = wish.get("method") if isinstance(wish, dict) else None
    if questions is not None and method != _ELICITATION:
        questions.refuse(str(method), wish.get("params") if isinstance(wish, dict) else None)
    if method not in _NO:
        raise UpstreamFailed("it wants the answer of a model, which is not given to it", is_over=False)
    return _NO[method]
