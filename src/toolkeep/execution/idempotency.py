"""Idempotency keys: a call with a key is claimed before it runs, and runs at most once.

A key is scoped to agent, conversation and tool. The same key with other arguments is a conflict. A claim
whose process died without a result is reported as unknown, never silently run again.
"""

import asyncio
import base64
import hashlib
import json
import logging
from collections.abc import Awaitable
from typing import Any, Literal, Protocol

import msgspec

from toolkeep.calls import Advice, PermittedCall, Refusal, ToolResult, Violation, base64_text, refuse
from toolkeep.errors import Code, ToolkeepError

log = logging.getLogger("toolkeep.execution")


class IdempotentResult(msgspec.Struct, frozen=True, kw_only=True):
    """An existing claim."""

    state: Literal["done", "running", "unknown"]
    argument_hash: str
    result: bytes = b""


class Ledger(Protocol):
    """Store of claims by key. Claiming is atomic, across processes."""

    async def claim(self, key: str, call_id: str, argument_hash: str) -> IdempotentResult | None:
        """None if the claim is now ours; else the existing one."""

    async def finish(self, key: str, call_id: str, argument_hash: str, result: bytes) -> None:
        """Store the result of a claimed call, or its real one if that comes late."""

    async def release(self, key: str, call_id: str) -> None:
        """Remove the claim of a call: nothing was run. A result, or a claim of another call, stays."""

    def close(self) -> None:
        """Close what is open."""


class MemoryLedger:
    """Claims for the lifetime of the process."""

    def __init__(self) -> None:
        self._claims: dict[str, IdempotentResult] = {}
        self._calls: dict[str, str] = {}

    async def claim(self, key: str, call_id: str, argument_hash: str) -> IdempotentResult | None:
        """None if the claim is now ours; else the existing one."""
        new = IdempotentResult(state="running", argument_hash=argument_hash)
        held = self._claims.setdefault(key, new)
        if held is not new:
            return held
        self._calls[key] = call_id
        return None

    async def finish(self, key: str, call_id: str, argument_hash: str, result: bytes) -> None:
        """Store the result of a claimed call."""
        if self._calls.get(key) != call_id:
            return
        self._claims[key] = msgspec.structs.replace(self._claims[key], state="done", result=result)

    async def release(self, key: str, call_id: str) -> None:
        """Remove the claim of a call: nothing was run. A result, or a claim of another call, stays."""
        if self._calls.get(key) == call_id and self._claims[key].state != "done":
            del self._claims[key], self._calls[key]

    def close(self) -> None:
        """No-op."""


class Claim:
    """The claim of one call; a call without a key has an empty one, which does nothing."""

    def __init__(self, ledger: Ledger | None, key: str, call_id: str = "", argument_hash: str = "") -> None:
        self._ledger = ledger
        self._key = key
        self._call_id = call_id
        self._argument_hash = argument_hash

    async def finish(self, result: ToolResult, *, keeps_value: bool = True) -> None:
        """Store the result; for tools with secrets, everything except the value."""
        if self._ledger and self._key:
            # The ledger is a file on disk: secrets must not be stored there.
            # A view holds references of this session; who repeats the call is shown a view of their own.
            kept = msgspec.structs.replace(
                result, value=result.value if keeps_value else None, typed_view=msgspec.UNSET
            )
            stored = self._ledger.finish(self._key, self._call_id, self._argument_hash, encode(kept))
            await _settled(stored)

    async def release(self) -> None:
        """Nothing was run; free the key."""
        if self._ledger and self._key:
            await _settled(self._ledger.release(self._key, self._call_id))


NO_CLAIM = Claim(None, "")


async def _settled(settling: Awaitable[None]) -> None:
    """Settle a claim; if that fails it stays, and a second call with its key is refused."""
    try:
        await settling
    except ToolkeepError as error:
        log.exception("a claim could not be settled", extra={"error_code": error.code.value})


async def claim(ledger: Ledger, call: PermittedCall, argument_hash: str) -> Claim | ToolResult | Refusal:
    """A claim for the call, the stored result of the same call, or a refusal."""
    if not call.request.options.idempotency_key:
        return NO_CLAIM
    key, ours = _scoped(call), call.request.id
    try:
        # Atomic insert: a check followed by an insert would let two processes both run the call.
        earlier = await ledger.claim(key, ours, argument_hash)
    except asyncio.CancelledError:
        await Claim(ledger, key, ours).release()  # the claim may be made all the same
        raise
    except ToolkeepError as error:
        message = f"The call could not be claimed ({type(error).__name__}); nothing was run"
        return refuse(call.request, Code.NOT_RECORDED, message, "Tell the operator.")
    if earlier is None:
        return Claim(ledger, key, ours, argument_hash)
    # Returning the old result would tell the caller that other arguments had been used.
    if earlier.argument_hash != argument_hash:
        message = "The idempotency key was used for a call with other arguments"
        return refuse(call.request, Code.KEY_CONFLICT, message, "Use another key for another call.")
    if earlier.state == "done":
        return _repeated(call, earlier.result)
    if earlier.state == "running":
        message = "The same call is running already"
        return refuse(call.request, Code.KEY_CONFLICT, message, "Wait for it; do not call again.")
    # The tool may have acted before the crash: it must run at most once.
    message = "The same call was started before and its process died; whether it had an effect is unknown"
    return refuse(
        call.request,
        Code.OUTCOME_UNKNOWN,
        message,
        "Find out what it did. If it is still needed, call again with a new key.",
    )


def _repeated(call: PermittedCall, result: bytes) -> ToolResult | Refusal:
    """The stored result; a refusal if it cannot be read any more."""
    try:
        return msgspec.structs.replace(decode(result), is_repeated=True)
    except (ValueError, KeyError, TypeError, msgspec.MsgspecError) as error:
        fields = {"error_type": type(error).__name__}
        log.error("a remembered result cannot be read", extra=fields)  # noqa: TRY400 -- its text may hold values
        message = "The same call was made before, and its result cannot be read any more"
        return refuse(
            call.request,
            Code.OUTCOME_UNKNOWN,
            message,
            "Find out what it did. If it is still needed, call again with a new key.",
        )


def _scoped(call: PermittedCall) -> str:
    """Digest of the key with its scope."""
    request = call.request
    parts = (request.agent, request.conversation, call.tool.name, str(request.options.idempotency_key))
    # Length-prefixed: ("ab", "c") and ("a", "bc") must not give the same key.
    text = "\0".join(f"{len(part)}:{part}" for part in parts)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def encode(result: ToolResult) -> bytes:
    """Serialize a result for `decode`."""
    is_binary = isinstance(result.value, bytes)
    value = base64_text(result.value) if is_binary else result.value
    # The raw output may hold a secret that a value without one was made of; nothing of it is stored.
    rest = msgspec.to_builtins(msgspec.structs.replace(result, value=None, raw=None), enc_hook=_as_data)
    return json.dumps({"result": rest, "value": value, "is_binary": is_binary}).encode()


def decode(data: bytes) -> ToolResult:
    """Deserialize a result."""
    held = json.loads(data)
    value = base64.b64decode(held["value"]) if held["is_binary"] else held["value"]
    result = msgspec.convert(held["result"], ToolResult, dec_hook=_from_data)
    return msgspec.structs.replace(result, value=value)


def _as_data(part: object) -> dict[str, Any]:
    """Encode hook: parts of a refusal that may not be computed yet."""
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
