"""Searches by the index: they find what a scan of the whole log finds, and nothing that is not in the log."""

import asyncio
import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.server.talk import Client
from tests.server.test_asgi_app import talk
from toolkeep import Keep
from toolkeep.audit.kept_refusal import KeptProblem, KeptRefusal, kept_body
from toolkeep.errors import Code
from toolkeep.host.clock import stamp
from toolkeep.server.api import audit_routes, call_index
from toolkeep.server.api.call_index import CallIndex
from toolkeep.server.api.recorded_calls import CallFilters, CallSummary
from toolkeep.storage.log.audit_log import AuditLog
from toolkeep.storage.log.segments import segments_folder
from toolkeep.stores.api_tokens import Scope, Token

BEGIN = 1_790_000_000.0
REFUSED = Code.ARGUMENTS_TOO_BIG.value


def call(number: int) -> list[dict[str, Any]]:
    """The records of a call: most succeeded, some failed, were refused, denied or repeated, or have not
    ended."""
    name = f"{number:032x}"
    invoked = {
        "type": "ToolInvoked",
        "call": name,
        "agent": ("ada", "bob")[number % 2],
        "tool": ("add", "greet", "fetch")[number % 3],
        "session": f"s-{number // 10}",
        "conversation": f"Chat {number % 4}",
    }
    asked = {"asked_by": ["ask"], "shadow": {"policies": ["later"]}} if number % 3 else {}
    decided = {"type": "PolicyDecision", "call": name, "decision": "allow", "policies": ["all"], **asked}
    ended = {"type": "ToolCompleted", "call": name, "status": "ok", "execute_us": number * 100, "codes": []}
    if number % 7 == 0:
        told = {"diagnosis_hash": f"refusal {number}"} if number % 2 else {}
        return [{**invoked, "status": "error", "codes": [REFUSED], **told}]
    if number % 7 == 1:
        return [invoked, {**decided, "decision": "deny", "status": "error", "codes": ["ACODE-TSR-021"]}]
    if number % 7 == 2:
        return [invoked, decided]
    if number % 7 == 3:
        return [invoked, decided, {**ended, "status": "error", "codes": ["ACODE-TSR-033"]}]
    if number % 14 == 4:
        return [{**invoked, "status": "repeated", "repeats": f"{number - 1:032x}"}]
    if number % 14 == 13:
        late: dict[str, Any] = {
            "type": "AnsweredLate",
            "call": name,
            "status": "error",
            "codes": ["ACODE-TSR-033"],
        }
        late["is_settled"] = number % 3 == 0
        return [invoked, decided, {**ended, "status": "error", "codes": ["ACODE-TSR-040"]}, late]
    return [invoked, decided, ended]


def interleaved(calls: int) -> list[dict[str, Any]]:
    """Records of calls that were made at once, and some of the log about itself."""
    dice, waiting, records = random.Random(7), [], []  # noqa: S311 -- the same each time
    for number in range(calls):
        waiting.append(call(number))
        while waiting and dice.random() < 0.7:
            held = dice.choice(waiting)
            records.append(held.pop(0))
            waiting = [one for one in waiting if one]
        if number % 20 == 0:
            records.append({"type": "OperatorChange", "kind": "policy"})
    records += [record for held in waiting for record in held]
    return [{**record, "time": stamp(BEGIN + place)} for place, record in enumerate(records)]


@pytest.fixture
def log(tmp_path: Path) -> Iterator[AuditLog]:
    with AuditLog(tmp_path, segment_bytes=20_000) as log:
        append(log, interleaved(300))
        yield log


def append(log: AuditLog, records: list[dict[str, Any]]) -> None:
    for start in range(0, len(records), 50):
        log.append_all(records[start : start + 50])[-1].result()


def body(digest: str) -> bytes:
    """What is kept of a refusal; of one in three, nothing."""
    number = int(digest.removeprefix("refusal "))
    if number % 3 == 0:
        raise KeyError(digest)
    problem = KeptProblem(code=REFUSED, message=f"'Größe' of {number} is too long")
    return kept_body(KeptRefusal(problems=[problem]))


@pytest.fixture
def index() -> Iterator[CallIndex]:
    index = CallIndex(body)
    yield index
    index.close()


def made(index: CallIndex, log: AuditLog) -> CallIndex:
    """The index, when the thread that makes it has ended."""
    index.prepare(log)
    join()
    return index


def join() -> None:
    for thread in threading.enumerate():
        if thread.name == "toolkeep-index":
            thread.join()


def pages(
    log: AuditLog, filters: CallFilters, *, agent: str | None, index: CallIndex | None
) -> Iterator[list[CallSummary]]:
    """All calls that fit, a page after the other."""
    scopes = (Scope.CALL,) if agent else (Scope.AUDIT_READ,)
    caller = Token(id="t", name="t", scopes=scopes, agent=agent or "ops", created_at=0)
    stop: int | None = None
    while stop != 0:
        page, stop = audit_routes._call_page(
            audit_routes._ServerLog(log, body),
            stop,
            caller=caller,
            filters=filters,
            limit=17,
            index=index,
            tells_why=agent is None,
        )
        yield page


def found(log: AuditLog, filters: CallFilters, index: CallIndex | None, agent: str | None = None) -> Any:
    return [one for page in pages(log, filters, agent=agent, index=index) for one in page]


FILTERS = [
    CallFilters(),
    CallFilters(agent="ada"),
    CallFilters(tool="greet", status="ok"),
    CallFilters(status="refused"),
    CallFilters(status="error"),
    CallFilters(status="unsuccessful"),
    CallFilters(status="deny"),
    CallFilters(status="under way"),
    CallFilters(status="repeated"),
    CallFilters(status="allow", agent="bob"),
    CallFilters(type="OperatorChange"),
    CallFilters(type="ToolCompleted", conversation="Chat 1"),
    CallFilters(code=REFUSED),
    CallFilters(session="s-7"),
    CallFilters(text="CHAT 2"),
    CallFilters(text="0c"),
    CallFilters(text="argument"),
    CallFilters(text="%"),
    CallFilters(text="GRÖSSE"),
    CallFilters(text="is too long", status="refused"),
    CallFilters(slower_ms="20"),
    CallFilters(ran_ms="12.3"),
    CallFilters(policy="all"),
    CallFilters(policy="ask", status="ok"),
    CallFilters(policy="later"),
    CallFilters(since=stamp(BEGIN + 300), until=stamp(BEGIN + 400)),
    CallFilters(hours="1"),
    CallFilters(agent="nobody"),
]


@pytest.mark.spec("WEB-2")
@pytest.mark.parametrize("agent", [None, "ada"])
def test_the_index_finds_what_a_scan_of_the_whole_log_finds(
    log: AuditLog, index: CallIndex, agent: str | None
) -> None:
    made(index, log)
    assert index.codes(log) == {code for one in found(log, CallFilters(), None) for code in one.codes}
    sizes = []
    for filters in FILTERS:
        scanned = found(log, filters, None, agent)
        assert found(log, filters, index, agent) == scanned
        counted = index.count(log, filters, agent=agent, tells_why=agent is None)
        assert counted == sum(bool(one.newest.call) for one in scanned)
        sizes.append(len(scanned))
    assert sizes[0] == (315 if agent is None else 150)
    assert [filters for filters, size in zip(FILTERS, sizes, strict=True) if not size][-1] == FILTERS[-1]


def test_a_search_brings_the_index_up_to_date(log: AuditLog, index: CallIndex) -> None:
    made(index, log)
    waiting = CallFilters(status="under way", session="s-0")
    (before, _) = index.find(log, waiting, agent=None, stop=None, limit=50) or ([], 0)
    name = before[0].newest.call
    ended = {"type": "ToolCompleted", "call": name, "status": "ok", "codes": [], "time": stamp(BEGIN + 5000)}
    append(log, [ended, *({**one, "time": stamp(BEGIN + 6000)} for one in call(300))])
    assert index.count(log, waiting, agent=None) == len(before) - 1
    newest, _ = index.find(log, CallFilters(), agent=None, stop=None, limit=2) or ([], 0)
    assert [(one.newest.call, one.outcome) for one in newest] == [(f"{300:032x}", "ok"), (name, "ok")]
    assert [entry.record["type"] for entry in index.entries_of(log, name)] == [
        "ToolInvoked",
        "PolicyDecision",
        "ToolCompleted",
    ]


def test_a_refusal_that_another_process_writes_after_its_record_is_found_too(
    log: AuditLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: dict[str, bytes] = {}
    index = CallIndex(kept.__getitem__)

    def counted(number: int) -> int | None:
        return index.count(log, CallFilters(text=f"größe' of {number} "), agent=None, tells_why=True)

    made(index, log)
    assert counted(7) == 0
    kept["refusal 7"] = body("refusal 7")
    assert counted(7) == 1
    monkeypatch.setattr(call_index, "_AWAITED_SECONDS", -1.0)
    made(index := CallIndex(kept.__getitem__), log)
    assert (counted(7), counted(35)) == (1, 0)
    kept["refusal 35"] = body("refusal 35")
    assert counted(35) == 0  # no longer looked for


def test_records_before_the_indexed_ones_are_scanned(
    log: AuditLog, index: CallIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(call_index, "INDEXED_RECORDS", 400)
    monkeypatch.setattr(call_index, "SCANNED_RECORDS", 100)
    made(index, log)
    filters = CallFilters(status="ok")
    newest, stop = index.find(log, filters, agent=None, stop=None, limit=1000) or ([], 0)
    everything = found(log, filters, None)
    assert 300 < stop < 700
    assert 10 < len(newest) < len(everything)
    assert found(log, filters, index) == everything
    assert index.count(log, filters, agent=None) is None


def test_an_index_that_has_grown_too_large_is_made_anew_from_the_newest_records(
    log: AuditLog, index: CallIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(index, log)
    monkeypatch.setattr(call_index, "INDEXED_RECORDS", 400)
    monkeypatch.setattr(call_index, "SCANNED_RECORDS", 100)
    assert index.find(log, CallFilters(), agent=None, stop=None, limit=9) is None
    made(index, log)
    assert index.count(log, CallFilters(), agent=None) is None
    assert found(log, FILTERS[2], index) == found(log, FILTERS[2], None)


def edit(log: AuditLog, old: bytes, new: bytes) -> None:
    """Change the files below the index, as nobody should."""
    for path in segments_folder(log.folder / "audit").iterdir():
        path.write_bytes(path.read_bytes().replace(old, new))


def test_what_the_log_does_not_say_is_not_shown(log: AuditLog, index: CallIndex) -> None:
    made(index, log)
    edit(log, b'"agent":"ada"', b'"agent":"eve"')
    assert index.count(log, CallFilters(agent="ada"), agent=None) == 150
    for agent in (None, "ada"):
        page = index.find(log, CallFilters(agent="ada"), agent=agent, stop=None, limit=50)
        assert page is not None
        assert page[0] == []
    (bob, _) = index.find(log, CallFilters(agent="bob"), agent=None, stop=None, limit=50) or ([], 0)
    assert {one.newest.agent for one in bob} == {"bob"}


@pytest.mark.parametrize("is_longer", [True, False])
def test_another_log_in_its_place_is_indexed_anew(
    log: AuditLog, index: CallIndex, tmp_path_factory: pytest.TempPathFactory, *, is_longer: bool
) -> None:
    made(index, log)
    log.close()
    with AuditLog(tmp_path_factory.mktemp("other"), segment_bytes=20_000) as other:
        append(other, interleaved(400 if is_longer else 20)[3:])
    for path in segments_folder(log.folder / "audit").iterdir():
        path.unlink()
    for path in segments_folder(other.folder / "audit").iterdir():
        path.rename(segments_folder(log.folder / "audit") / path.name)
    assert index.find(log, CallFilters(), agent=None, stop=None, limit=50) is None
    made(index, log)
    assert index.count(log, CallFilters(), agent=None) == (399 if is_longer else 19)
    assert found(log, FILTERS[2], index) == found(log, FILTERS[2], None)


def test_a_log_that_cannot_be_indexed_is_scanned(log: AuditLog, index: CallIndex) -> None:
    edit(log, b'"index":7,', b'"index":9,')
    made(index, log)
    assert index.find(log, CallFilters(), agent=None, stop=None, limit=50) is None
    assert len(found(log, CallFilters(), index)) > 300


def test_a_page_says_how_many_calls_fit(keep: Keep) -> None:
    async def act(client: Client) -> Any:
        for number in range(5):
            await client.call("add", {"a": number})
        await client.get("/v1/audit/calls?limit=2")
        await asyncio.to_thread(join)
        every = (await client.get("/v1/audit/calls?limit=2")).data
        later = (await client.get(f"/v1/audit/calls?limit=2&cursor={every['next']}")).data
        none = (await client.get("/v1/audit/calls?tool=nothing")).data
        refused = await client.get("/v1/audit/calls?since=2026-13-32T00:00:00Z")
        return every["total"], later["total"], none["total"], refused.status

    assert talk(keep, act) == (5, 5, 0, 400)


def test_a_closed_index_makes_nothing_more(log: AuditLog, index: CallIndex) -> None:
    index.close()
    index.prepare(log)
    assert "toolkeep-index" not in {thread.name for thread in threading.enumerate()}
