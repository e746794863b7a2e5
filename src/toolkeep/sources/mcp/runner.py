"""Runs tools of upstream MCP servers: a program that stays, in the sandbox, or an address, through vetting.

One conversation for each server, agent and grant. When one begins, the tools are listed again: what is
described otherwise than when a person took it over is not called (REG-3). What a server says wrongly ends the
conversation, and the next call begins another.
"""

import hashlib
import json
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from toolkeep.calls import RecordedCall, RegisteredTool
from toolkeep.definitions.context import ToolContext
from toolkeep.errors import Code, ToolkeepError
from toolkeep.events import Event
from toolkeep.execution.contacts import Contacts
from toolkeep.execution.hiding import hidden
from toolkeep.execution.machine import Machine
from toolkeep.execution.residence import level_of, recipe, residence
from toolkeep.execution.residents import Described, Residents, User
from toolkeep.execution.runner import RunRefused, Timed
from toolkeep.execution.staying import BetweenCalls, Staying
from toolkeep.limits import DEFAULT_RESIDENT_IDLE_SECONDS
from toolkeep.sandbox.errors import SandboxBroken
from toolkeep.sandbox.levels import Isolation, Mechanism, in_use
from toolkeep.sandbox.plan import NotThere
from toolkeep.sandbox.pool import Pool
from toolkeep.sandbox.trusted import THIS_PROCESS, TrustedPaths
from toolkeep.sign_ins import KeptTokens, MemoryTokens
from toolkeep.wording import excerpt_lines

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from toolkeep.sources.mcp.http_session import Access
    from toolkeep.sources.mcp.noting import Record
    from toolkeep.sources.mcp.questions import Answerer, Questions
    from toolkeep.sources.mcp.speaking import UpstreamFailed
    from toolkeep.sources.mcp.talk import Talk

log = logging.getLogger("toolkeep.execution")

MCP: Final = "mcp"
REMOTE: Final = "remote"
_REASON_CHARS: Final = 400


class McpRunner:
    """Runs what other MCP servers answer."""

    def __init__(
        self,
        residents: Residents,
        machine: Machine,
        contacts: Contacts,
        tell: Callable[[Event], None],
        record: "Record",
        trusted: TrustedPaths = THIS_PROCESS,
        sign_ins: KeptTokens | None = None,
        answerer: "Answerer | None" = None,
    ) -> None:
        """No server writes what is `trusted`; `sign_ins` holds the tokens that servers are shown.

        `answerer` answers what servers ask a person; without one, that is declined. `tell` hears of both,
        and `record` writes them into the log.
        """
        self._tell = tell
        self._record = record
        self._answerer = answerer
        self._sign_ins = sign_ins or MemoryTokens()
        self._contacts = contacts
        self._residents = residents
        self._machine = machine
        self._trusted = trusted

    def runs(self, tool: RegisteredTool) -> bool:
        """Whether it is a tool of an upstream server."""
        if getattr(tool.runner, "kind", "") != MCP:
            return False
        stated = tool.definition.constraints.required_isolation
        return stated is None or ("url" not in tool.runner.target and level_of(tool) is Isolation.STRICT)

    def isolation(self, tool: RegisteredTool) -> str:
        """The level of its process, or that it runs elsewhere."""
        return REMOTE if "url" in tool.runner.target else level_of(tool).value

    def enforced(self, tool: RegisteredTool) -> tuple[str, ...]:
        """The mechanisms that confine its process."""
        if "url" in tool.runner.target:
            return ()
        return in_use(level_of(tool), self._machine.tree_bound or Mechanism.MEMORY_WATCH)

    async def run(self, call: RecordedCall, context: Callable[[], ToolContext], slot: Timed) -> Any:
        """What the server answers."""
        from toolkeep.sources.mcp.answers import value_of
        from toolkeep.sources.mcp.speaking import UpstreamFailed

        known = context()
        try:
            said = await self._said(call, known, slot)
        except UpstreamFailed as failed:
            raise _failed(call, failed, known) from failed
        except SandboxBroken as error:
            log.error("a server could not be confined", extra={"reason": error.message})  # noqa: TRY400 -- whole
            raise _not_run(call, error.code, "the sandbox could not be set up") from error
        except ToolkeepError as error:
            raise _not_run(call, error.code, error.message) from error
        except (NotThere, OSError) as error:
            log.warning("a server was not granted its places", extra={"reason": str(error)})
            raise _not_run(call, Code.TOUCHED_CHANGED, "what it would touch has changed meanwhile") from error
        except ValueError as error:
            raise _not_run(call, Code.NOT_RUNNABLE, str(error)) from error
        try:
            return value_of(said, wants_structure=call.tool.definition.output_schema is not None)
        except UpstreamFailed as failed:
            reason = f"Tool '{call.tool.name}' gave no result: of its server, {failed.reason}"
            raise RunRefused(Code.OUTPUT_INVALID, reason) from failed

    async def _said(self, call: RecordedCall, known: ToolContext, slot: Timed) -> dict[str, Any]:
        from toolkeep.sources.mcp.noting import UnderWay

        target = call.tool.runner.target
        key, start, described = await self._wanted(call, known)
        idle_s = float(target.get("idle_s", DEFAULT_RESIDENT_IDLE_SECONDS))
        user = User(call.tool.name, call.request.agent)
        between_calls = BetweenCalls(target.get("between_calls", BetweenCalls.RUNNING))
        async with self._residents.use(
            key,
            start,
            user=user,
            idle_s=idle_s,
            is_shared=True,
            between_calls=between_calls,
            described=described,
        ) as talk:
            await talk.look_again()
            _check_pin(call, talk)
            if talk.way_out is not None:
                talk.way_out.begin(call.tool, self._contacts.of(call))
            arguments = json.loads(json.dumps(call.checked.arguments))
            under_way = UnderWay(call.request.id, slot.pause)
            return await talk.conversation.call(target["tool"], arguments, under_way, known.on_progress)

    async def _wanted(
        self, call: RecordedCall, known: ToolContext
    ) -> "tuple[tuple[Any, ...], Callable[[Pool], Awaitable[Talk]], Described | None]":
        target = call.tool.runner.target
        who = (MCP, target["upstream"], call.request.agent)
        if "url" in target:
            return (*self._by_http(call, known, who), None)
        from toolkeep.sources.mcp.filling import Filling
        from toolkeep.sources.mcp.talk import start_by_lines

        words = {key: target[key] for key in ("environment", "code", "between_calls") if key in target}
        staying = Staying.read({"argv": list(target["command"]), **words})
        base = target["base"]
        filling = Filling(known.secret)
        program = staying.program(base, filling.secret)
        place = residence(call.approved.permitted, program.path, staying.shown(base), self._trusted, base)
        findings = await self._machine.findings(place.level)
        told = _digest(dict(program.environment))
        key = (*who, program.argv, told, staying.between_calls, *place.key)
        protocol = target.get("protocol", "")

        def start(pool: Pool) -> "Awaitable[Talk]":
            made, questions = recipe(place, findings, staying.between_calls), self._questions(call)
            return start_by_lines(pool, made, program, place.hosts, protocol, questions, filling.given)

        return key, start, Described(target["upstream"], place.level.value, place.words)

    def _by_http(
        self, call: RecordedCall, known: ToolContext, who: tuple[str, ...]
    ) -> "tuple[tuple[Any, ...], Callable[[Pool], Awaitable[Talk]]]":
        from toolkeep.execution.reach import hosts_of
        from toolkeep.sources.mcp.filling import Filling
        from toolkeep.sources.mcp.talk import start_by_http

        target = call.tool.runner.target
        hosts = hosts_of(call.approved.permitted)
        filling = Filling(known.secret)
        headers = filling.headers(target.get("headers") or {})
        told = target.get("oauth") or {}
        own = known.secret(told["client_secret"]) if "client_secret" in told else ""
        key = (*who, target["url"], str(hosts), _digest({**headers, "oauth": f"{own} {told}"}))
        protocol = target.get("protocol", "")
        access = self._access(target, known)
        return key, lambda _: start_by_http(
            target["url"], hosts, lambda: headers, protocol, access, self._questions(call), filling.given
        )

    def _questions(self, call: RecordedCall) -> "Questions":
        """Those of a conversation that begins; it serves one agent alone."""
        from toolkeep.sources.mcp.questions import Questions

        upstream = call.tool.runner.target["upstream"]
        return Questions(self._answerer, upstream, call.request.agent, self._tell, self._record)

    def _access(self, target: Mapping[str, Any], known: ToolContext) -> "Access | None":
        """What lets the calls of a server in, where its upstream says that there is something."""
        if "oauth" not in target:
            return None
        from toolkeep.sources.oauth.access import OwnSecret, SignedIn
        from toolkeep.sources.oauth.clients import Wanted

        told = target["oauth"]
        if told.get("grant") == "client_credentials":
            return OwnSecret(target["url"], Wanted.read(told, known.secret(told["client_secret"])))
        return SignedIn(target["upstream"], target["url"], self._sign_ins)


def _check_pin(call: RecordedCall, talk: "Talk") -> None:
    """Raise where the server describes the tool otherwise than when a person took it over."""
    target = call.tool.runner.target
    now = talk.pins.get(target["tool"])
    if now == target["pin"]:
        return
    changed = "is no longer there" if now is None else "is described otherwise by now"
    hint = f"run `toolkeep add mcp {target['upstream']} --refresh` to look at it"
    raise _not_run(call, Code.TOOL_QUARANTINED, f"on its server it {changed}; {hint}")


def _not_run(call: RecordedCall, code: Code, why: str) -> RunRefused:
    return RunRefused(code, f"Tool '{call.tool.name}' was not run: {why}")


def _failed(call: RecordedCall, failed: "UpstreamFailed", known: ToolContext) -> RunRefused:
    said = _without_secrets(failed.reason, known)
    if failed.last_words:
        fields = {"tool_name": call.tool.name, "reason": _without_secrets(failed.last_words, known)}
        log.warning("a server gave no answer", extra=fields)
    upstream = call.tool.runner.target["upstream"]
    what = f"Tool '{call.tool.name}' gave no result: of its server '{upstream}', {said}"
    return RunRefused(Code.TOOL_FAILED, f"{what}; the next call begins anew")


def _without_secrets(text: str, known: ToolContext) -> str:
    return excerpt_lines(hidden(text, known.secrets.values(), shortest=1), _REASON_CHARS)


def _digest(texts: Mapping[str, str]) -> bytes:
    return hashlib.sha256(json.dumps(sorted(texts.items())).encode()).digest()
