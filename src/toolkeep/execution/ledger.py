"""Exactly once: a call with an idempotency key is claimed before it runs, and its result is remembered.

A key counts for one agent, conversation and tool. The same key with other arguments is a conflict. A claim
whose process died without a result is reported as unknown, never run again silently.
"""

import base64
import hashlib
import json
import logging
from collections.abc import Callable
from typing import Any, Literal, Protocol

import msgspec

from toolkeep.calls import Advice, PermittedCall, Refusal, ToolResult, Violation, base64_text
from toolkeep.errors import Code, ToolkeepError
from toolkeep.refusals import refuse

log = logging.getLogger("toolkeep.execution")


class Earlier(msgspec.Struct, frozen=True, kw_only=True):
    """A claim that somebody made before."""

    state: Literal["done", "running", "unknown"]
    argument_hash: str
    result: bytes = b""


class Ledger(Protocol):
    """Claims by key. Making one is atomic, whoever else tries."""

    def claim(self, key: str, call_id: str, argument_hash: str) -> Earlier | None:
        """None if the claim is now ours; else what was there before."""

    def finish(self, key: str, result: bytes) -> None:
        """Remember the result of a claimed call."""

    def release(self, key: str) -> None:
        """Take a claim back: nothing was run."""


class MemoryLedger:
    """Claims that last as long as the process."""

    def __init__(self) -> None:
        self._claims: dict[str, Earlier] = {}

    def claim(self, key: str, call_id: str, argument_hash: str) -> Earlier | None:
        """None if the claim is now ours; else what was there before."""
        new = Earlier(state="running", argument_hash=argument_hash)
        held = self._claims.setdefault(key, new)
        return None if held is new else held

    def finish(self, key: str, result: bytes) -> None:
        """Remember the result of a claimed call."""
        self._claims[key] = msgspec.structs.replace(self._claims[key], state="done", result=result)

    def release(self, key: str) -> None:
        """Take a claim back: nothing was run."""
        if key in self._claims and self._claims[key].state != "done":
            del self._claims[key]


class Claim:
    """The claim of one call; a call without a key has an empty one, which does nothing."""

    def __init__(self, ledger: Ledger | None, key: str) -> None:
        self._ledger = ledger
        self._key = key

    def finish(self, result: ToolResult, *, keeps_value: bool = True) -> None:
        """Remember what became of the call; of a tool with secrets everything but the value."""
        if self._ledger and self._key:
            kept = result if keeps_value else msgspec.structs.replace(result, value=None)
            _try(lambda ledger: ledger.finish(self._key, encode(kept)), self._ledger)

    def release(self) -> None:
        """Nothing was run; the key is free again."""
        if self._ledger and self._key:
            _try(lambda ledger: ledger.release(self._key), self._ledger)


NO_CLAIM = Claim(None, "")


def _try(settle: Callable[[Ledger], None], ledger: Ledger) -> None:
    """Settle a claim; one that cannot be settled stays, and a second call of its key is told so."""
    try:
        settle(ledger)
    except ToolkeepError as error:
        log.exception("a claim could not be settled", extra={"error_code": error.code.value})


def claim(ledger: Ledger, call: PermittedCall, argument_hash: str) -> Claim | ToolResult | Refusal:
    """A claim for the call; the recorded result of the same call; or why it cannot be run now."""
    if not call.request.options.idempotency_key:
        return NO_CLAIM
    key = _scoped(call)
    try:
        earlier = ledger.claim(key, call.request.id, argument_hash)
    except ToolkeepError as error:
        message = f"The call could not be claimed ({type(error).__name__}); nothing was run"
        return refuse(call.request, Code.NOT_RECORDED, message, "Tell the operator.")
    if earlier is None:
        return Claim(ledger, key)
    if earlier.argument_hash != argument_hash:
        message = "The idempotency key was used for a call with other arguments"
        return refuse(call.request, Code.KEY_CONFLICT, message, "Use another key for another call.")
    if earlier.state == "done":
        return _repeated(call, earlier.result)
    if earlier.state == "running":
        message = "The same call is running already"
        return refuse(call.request, Code.KEY_CONFLICT, message, "Wait for it; do not call again.")
    message = "The same call was begun before and its process died: whether it had an effect is unknown"
    return refuse(
        call.request, Code.OUTCOME_UNKNOWN, message, "Find out before you call again, with a new key."
    )


def _repeated(call: PermittedCall, result: bytes) -> ToolResult | Refusal:
    """The result that was remembered; a refusal where it cannot be read any more."""
    try:
        return msgspec.structs.replace(decode(result), is_repeated=True)
    except (ValueError, KeyError, TypeError, msgspec.MsgspecError) as error:
        fields = {"error_type": type(error).__name__}
        log.error("a remembered result cannot be read", extra=fields)  # noqa: TRY400 -- its text may hold values
        message = "The same call was made before, and its result cannot be read any more"
        return refuse(
            call.request, Code.OUTCOME_UNKNOWN, message, "Find out before you call again, with a new key."
        )


def _scoped(call: PermittedCall) -> str:
    request = call.request
    parts = (request.agent, request.conversation, call.tool.name, str(request.options.idempotency_key))
    text = "\0".join(f"{len(part)}:{part}" for part in parts)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def encode(result: ToolResult) -> bytes:
    """A result as bytes that `decode` reads."""
    is_binary = isinstance(result.value, bytes)
    value = base64_text(result.value) if is_binary else result.value
    rest = msgspec.to_builtins(msgspec.structs.replace(result, value=None), enc_hook=_as_data)
    return json.dumps({"result": rest, "value": value, "is_binary": is_binary}).encode()


def decode(data: bytes) -> ToolResult:
    """The result that was encoded."""
    held = json.loads(data)
    value = base64.b64decode(held["value"]) if held["is_binary"] else held["value"]
    result = msgspec.convert(held["result"], ToolResult, dec_hook=_from_data)
    return msgspec.structs.replace(result, value=value)


def _as_data(part: object) -> dict[str, Any]:
    """What msgspec cannot encode: the parts of a refusal that may not be worked out yet."""
    if isinstance(part, Violation):
        return part.to_dict()
    if isinstance(part, Advice):
        return {"schema_hint": part.schema_hint, "repair": part.repair}
    raise NotImplementedError


def _from_data(kind: type, data: Any) -> object:
    if kind is Violation:
        return Violation(**{**data, "code": Code(data["code"])})
    if kind is Advice:
        return Advice(data["schema_hint"], data["repair"] and tuple(data["repair"]))
    raise NotImplementedError
