"""Gemini's generateContent: JSON Schema in `parametersJsonSchema`, calls and results as parts."""

import re
from collections.abc import Sequence
from typing import Any, Final

from toolkeep.definitions.redacted_schema import public_schema
from toolkeep.limits import RESPONSE_BYTES
from toolkeep.providers.model_turn import ModelCall, Turn, from_object, name_in, settled
from toolkeep.providers.profiles import Profile
from toolkeep.providers.replies import Reply
from toolkeep.providers.response_reader import either, inside, items, word
from toolkeep.providers.stream_assembly import add_call, lasting
from toolkeep.providers.vendor import Messages, Shown, Vendor

_EXECUTABLE: Final = frozenset(("STOP",))

PROFILE: Final = Profile(
    name="gemini",
    name_pattern=r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}",
    max_tools=512,
    keywords=frozenset(
        (
            "$defs", "$ref", "type", "format", "title", "description", "enum", "items", "prefixItems",
            "minItems", "maxItems", "minimum", "maximum", "anyOf", "properties", "additionalProperties",
            "required",
        )
    ),
    references_stand_alone=True,
    takes_booleans=False,
)  # fmt: skip


def shape(shown: Shown) -> dict[str, Any]:
    """One declaration."""
    made: dict[str, Any] = {"name": shown.alias}
    if shown.description:
        made["description"] = shown.description
    made["parametersJsonSchema"] = shown.schema
    definition = shown.definition
    if definition.output_schema is not None and not definition.gives_bytes:
        made["responseJsonSchema"] = public_schema(
            definition.output_schema, is_sensitive=definition.sensitive
        )
    return made


def gather(declarations: Messages) -> Messages:
    """All declarations in one tool."""
    return [{"functionDeclarations": declarations}] if declarations else []


def missing(response: dict[str, Any]) -> str:
    """A blocked prompt has feedback and no candidates, and the last event of a stream may have usage only."""
    feedback = either(response, "promptFeedback", "prompt_feedback", "usageMetadata", "usage_metadata")
    is_response = isinstance(response.get("candidates"), (list, tuple)) or isinstance(feedback, dict)
    return "" if is_response else "candidates"


def read(response: dict[str, Any]) -> Turn:
    """The calls of the first candidate."""
    stream = Stream()
    stream.feed(response)
    return stream.turn()


class Stream:
    """The responses of one stream; a whole response is a stream of one."""

    def __init__(self) -> None:
        self._calls: list[ModelCall] = []
        self._partial: PartialCall | None = None
        self._stop = ""

    def feed(self, event: dict[str, Any]) -> None:
        """Feed the next response."""
        candidate = _first_candidate(event)
        is_late = bool(self._stop)
        for part in items(inside(candidate, "content"), "parts"):
            call = either(part, "functionCall", "function_call")
            if isinstance(call, dict) and is_late:
                # The model has stopped: whatever sends calls after that is not the model's answer.
                add_call(self._calls, _whole(call).without("it came after the end"))
            elif isinstance(call, dict):
                self._take(call)
        reason = word(either(candidate, "finishReason", "finish_reason"))
        self._stop = lasting(self._stop, reason, _EXECUTABLE)

    def _take(self, call: dict[str, Any]) -> None:
        pieces = either(call, "partialArgs", "partial_args")
        goes_on = either(call, "willContinue", "will_continue") is True
        if self._partial is None and not pieces and not goes_on:
            add_call(self._calls, _whole(call))
            return
        if self._partial is None:
            self._partial = PartialCall(_whole(call))
        else:
            self._partial.go_on(_whole(call))
        self._partial.add(pieces)
        if not goes_on:
            add_call(self._calls, self._partial.call())
            self._partial = None

    def turn(self) -> Turn:
        """The calls so far."""
        open_calls = [self._partial.call().without("it is incomplete")] if self._partial else []
        calls = [*self._calls, *open_calls]
        return settled(calls, self._stop, is_ended=self._stop in _EXECUTABLE, needs_ids=False)


def _first_candidate(event: dict[str, Any]) -> dict[str, Any]:
    """The first candidate; a stream may have others in responses of their own."""
    return next((one for one in items(event, "candidates") if one.get("index") in (0, None)), {})


def _whole(call: dict[str, Any]) -> ModelCall:
    return ModelCall(
        id=name_in(call.get("id")),
        name=name_in(call.get("name")),
        arguments=from_object(call.get("args")),
    )


_STEP: Final = re.compile(r"\.([A-Za-z_][A-Za-z0-9_]*)|\['((?:[^'\\]|\\.)*)'\]|\[(\d{1,6})\]")
_VALUES: Final = ("stringValue", "numberValue", "boolValue", "nullValue")
_SNAKE: Final = ("string_value", "number_value", "bool_value", "null_value")


class PartialCall:
    """A call whose arguments arrive one by one, each with its path (Vertex AI)."""

    def __init__(self, begun: ModelCall) -> None:
        self._begun = begun
        self._fault = ""
        self._arguments: dict[str, Any] = dict(begun.arguments) if isinstance(begun.arguments, dict) else {}
        self._open: dict[str, list[str]] = {}
        """Text that continues, by its path."""
        self._chars = 0

    def go_on(self, said: ModelCall) -> None:
        """Check that the next response names the same call, or none."""
        if said.name not in ("", self._begun.name) or said.id not in ("", self._begun.id):
            self._fail("another call starts before it ends")
        if said.arguments:
            self._fail("its pieces do not fit together")

    def add(self, pieces: Any) -> None:
        """Add the next pieces."""
        for piece in pieces if isinstance(pieces, (list, tuple)) else [pieces]:
            if isinstance(piece, dict):
                self._add(piece)
            elif piece:
                self._fail("a piece of it cannot be placed")

    def _add(self, piece: dict[str, Any]) -> None:
        path = str(either(piece, "jsonPath", "json_path") or "")
        value = _value_of(piece)
        self._chars += len(path) + (len(value) if isinstance(value, str) else 0) + 1
        if self._chars > RESPONSE_BYTES:
            self._fail("it is too long")
            return
        goes_on = either(piece, "willContinue", "will_continue") is True
        if not goes_on and path not in self._open:
            self._put(_steps(path), value)
        elif not isinstance(value, str):
            self._fail("its pieces do not fit together")
        else:
            self._open.setdefault(path, []).append(value)
            if not goes_on:
                self._put(_steps(path), "".join(self._open.pop(path)))

    def _put(self, steps: list[str | int], value: Any) -> None:
        if not steps or not isinstance(steps[0], str) or value is _NOTHING:
            self._fail("a piece of it cannot be placed")
        elif not _put(self._arguments, steps, value):
            self._fail("its pieces do not fit together")

    def _fail(self, reason: str) -> None:
        self._fault = self._fault or reason

    def call(self) -> ModelCall:
        """The call so far."""
        fault = self._fault or ("a part of it is incomplete" if self._open else "")
        begun = self._begun
        return ModelCall(id=begun.id, name=begun.name, arguments=self._arguments, unfinished=fault)


_NOTHING: Final = object()


def _value_of(piece: dict[str, Any]) -> Any:
    for camel, snake in zip(_VALUES, _SNAKE, strict=True):
        found = either(piece, camel, snake)
        if found is not None:
            return None if camel == "nullValue" else found
    return _NOTHING


def _steps(path: str) -> list[str | int]:
    """The keys and indexes of `$.a['b'][0]`; empty for any other path."""
    found: list[str | int] = []
    at = 1
    while path[:1] == "$" and at < len(path):
        step = _STEP.match(path, at)
        if step is None:
            return []
        name, quoted, number = step.groups()
        if number is not None:
            found.append(int(number))
        else:
            found.append(name if name is not None else re.sub(r"\\(.)", r"\1", quoted))
        at = step.end()
    return found


def _put(root: dict[str, Any], steps: list[str | int], value: Any) -> bool:
    """Set a value where there is none yet; returns whether that was possible."""
    place: Any = root
    for step, following in zip(steps, [*steps[1:], None], strict=True):
        is_last = following is None
        fresh: Any = value if is_last else {} if isinstance(following, str) else []
        if isinstance(step, str) and isinstance(place, dict):
            known = step in place
        elif isinstance(step, int) and isinstance(place, list) and step <= len(place):
            known = step < len(place)
            if not known:
                place.append(fresh)
        else:
            return False
        if is_last and known:
            return False
        if not known and isinstance(place, dict):
            place[step] = fresh
        place = place[step]
    return True


def write(replies: Sequence[Reply]) -> Messages:
    """One content with a response for each call."""
    parts = [{"functionResponse": _response(reply)} for reply in replies]
    return [{"role": "user", "parts": parts}] if parts else []


def _response(reply: Reply) -> dict[str, Any]:
    made: dict[str, Any] = {"id": reply.call.id} if reply.call.id else {}
    said: Any = reply.text if reply.is_error or reply.value is None else reply.value
    made.update(name=reply.call.name, response={"error" if reply.is_error else "output": said})
    if reply.blobs:
        made["parts"] = [
            {"inlineData": {"mimeType": blob.mime_type, "data": blob.text}} for blob in reply.blobs
        ]
    return made


VENDOR: Final = Vendor(
    profile=PROFILE,
    shape=shape,
    gather=gather,
    missing=missing,
    read=read,
    is_event=lambda event: not missing(event),
    stream=Stream,
    write=write,
    features=frozenset(("outputs",)),
)
