"""Records are written canonically, whatever their texts hold."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET, UnsetType

from toolkeep.audit import record_kinds
from toolkeep.audit.record_kinds import Record, written
from toolkeep.calls import Approval, Decision, FlowRecord, Identity, ShadowDecision, UsedReference
from toolkeep.json_values.canonical import canonical_bytes

TEXT = st.text(max_size=20)
NAMES = st.lists(TEXT, max_size=3).map(tuple)


def in_order(found: dict[str, Any]) -> dict[str, Any]:
    """As its maker has to give it: by the keys as RFC 8785 compares them."""
    return dict(sorted(found.items(), key=lambda item: item[0].encode("utf-16-be", "surrogatepass")))


FLOW = st.builds(
    FlowRecord,
    measures=st.dictionaries(TEXT, TEXT, max_size=3).map(in_order) | st.just(UNSET),
    opened=st.booleans(),
    origins=st.dictionaries(TEXT, NAMES, max_size=3).map(in_order),
    secret=st.booleans(),
    session=TEXT,
)
IDENTITY = st.builds(Identity, client=TEXT, issuer=TEXT, subject=TEXT, token_id=TEXT) | st.just(UNSET)
TIMES = st.lists(st.integers(0, 2**53 - 1), max_size=7).map(tuple)
USED = st.builds(UsedReference, TEXT, st.booleans(), TEXT)
SHADOW = st.builds(ShadowDecision, decision=st.sampled_from(["allow", "ask", "deny"]), policies=NAMES)
FIELDS = {
    str: TEXT,
    tuple[UsedReference, ...] | UnsetType: st.lists(USED, max_size=3).map(tuple) | st.just(UNSET),
    Identity | UnsetType: IDENTITY,
    FlowRecord | UnsetType: FLOW | st.just(UNSET),
    ShadowDecision | UnsetType: SHADOW | st.just(UNSET),
    str | UnsetType: TEXT | st.just(UNSET),
    tuple[str, ...]: NAMES,
    tuple[str, ...] | UnsetType: NAMES | st.just(UNSET),
    tuple[int, ...]: TIMES,
    tuple[int, ...] | UnsetType: TIMES | st.just(UNSET),
    bool: st.booleans(),
    bool | UnsetType: st.booleans() | st.just(UNSET),
    int: st.integers(-(2**53) + 1, 2**53 - 1),
    int | UnsetType: st.integers(0, 2**53 - 1) | st.just(UNSET),
    Approval | None: st.none() | st.builds(Approval, approver=TEXT, way=TEXT, id=TEXT, identity=IDENTITY),
    Decision | None: st.none()
    | st.builds(
        Decision,
        decision=st.sampled_from(["allow", "deny"]),
        policies=NAMES,
        policy_set_hash=TEXT,
        request_hash=TEXT,
        spared_by=NAMES | st.just(UNSET),
        asked_by=NAMES | st.just(UNSET),
        flow=FLOW | st.just(UNSET),
        shadow=SHADOW | st.just(UNSET),
        capabilities=NAMES,
        touches=NAMES,
        decided_at=TEXT,
    ),
}
KINDS = Record.__subclasses__()


def records(kind: type[Record]) -> st.SearchStrategy[Record]:
    fields = {field.name: FIELDS[field.type] for field in msgspec.structs.fields(kind)}
    return st.builds(kind, **fields)


def left(record: Record) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(msgspec.to_builtins(record)))
    return found


@pytest.mark.spec("AUD-1")
@given(st.one_of([records(kind) for kind in KINDS]))
def test_a_record_is_canonical_as_it_is_written(record: Record) -> None:
    assert written(record) == canonical_bytes(left(record))


def test_every_kind_is_tried() -> None:
    assert {kind.__name__ for kind in KINDS} == {
        "ToolInvoked", "CapabilityCheck", "PolicyDecision", "ApprovalGiven", "ServerAsked", "ToolCompleted", "SessionEnded",
        "OperatorChange", "AuditAlarm", "RanElsewhere", "AnsweredLate", "AnswersSigned", "WorkerRefused",
        "RefusedElsewhere",
        "WorkersDisagreed", "IdentityRefused", "AgentDrift",
    }  # fmt: skip
    assert all(getattr(record_kinds, kind.__name__) is kind for kind in KINDS)


def test_a_record_with_an_integer_that_json_cannot_hold_is_still_canonical() -> None:
    completed = msgspec.structs.replace(COMPLETED, execute_us=2**70)
    assert b'"execute_us":1180591620717411303424,' in written(completed)


COMPLETED = record_kinds.ToolCompleted(
    agent="a", approval=None, argument_hash="", call="c", codes=(), decision=None, definition_hash="",
    enforced=(), execute_us=1, is_cached=False, isolation="none", result_hash="", status="ok", time="", tool="t", version="1",
)  # fmt: skip
