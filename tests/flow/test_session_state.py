"""Results are looked into late and by columns; every answer is that of a session that looks at each value at once."""

import contextlib
from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolkeep.definitions.result_labels import ANY_STEP, PLAIN_TEXT, Label, read_labels
from toolkeep.definitions.vocabulary import Form, Role
from toolkeep.flow import session_state
from toolkeep.flow.facts import FlowFacts
from toolkeep.flow.flow_plan import Plan
from toolkeep.flow.known_values import KnownValues
from toolkeep.flow.result_reader import FORMS, READ_FIRST, ResultReader
from toolkeep.flow.session_state import FALLEN, Origin, SessionState
from toolkeep.json_values.canonical import canonical_bytes

pytestmark = pytest.mark.spec("FLO-1", "FLO-2")

WORDS = frozenset({"up", "n"})
ROLES = {"any": Role.RECORD, "day": Role.TIME, "sum": Role.AMOUNT, "key": Role.CREDENTIAL}
POINTERS = ("", "/*", "/id", "/n", "/*/id", "/*/who", "/*/*", "/n/*/id", "/a~1b")
LABELS: tuple[Any, ...] = (
    "system", "outside", "text", {"system": "text"}, {"outside": "email"}, {"system": "date"},
    {"outside": "number"}, {"outside": "iban"}, {"system": "id", "readers": ["user"]},
    {"outside": "text", "readers": ["user"]},
)  # fmt: skip
STRINGS = ("", "m1", "M1", "m2.", "up", "n", "eve@evil.test", "Eve@evil.test", "2026-12-01", "12", "7.50", "a\nb",
           "m1\nm2", "Ask m1 on 1 December 2026, 12 EUR", "zoë", 'a "b" \\', "DE89 3704 0044 0532", "x" * 65)  # fmt: skip
KEYS = ("id", "who", "n", "up", "m2", "a/b", "free key", "")
SCALARS = st.sampled_from([*STRINGS, 1, 12, 12.0, 7.5, -3, 2**70, 1e-9, True, None])
VALUES = st.recursive(
    SCALARS,
    lambda inside: st.lists(inside, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inside, max_size=3),
    max_leaves=8,
)
ROWS = st.lists(st.fixed_dictionaries({"id": SCALARS, "who": SCALARS}), max_size=3)
FLOWS = st.dictionaries(st.sampled_from(POINTERS), st.sampled_from(LABELS), max_size=3)
ARGUMENTS = st.dictionaries(st.sampled_from(KEYS[:3]), SCALARS, max_size=2)
RESULTS = st.tuples(FLOWS, VALUES | ROWS, ARGUMENTS)


class Eager:
    """Takes in every value of every result as it comes, one by one, and forgets nothing."""

    def __init__(self) -> None:
        self.opened = self.secret = False
        self.system, self.outside = KnownValues(1 << 30), KnownValues(1 << 30)

    def observe(self, flow: dict[str, Any], value: Any, arguments: dict[str, Any]) -> None:
        labels = read_labels(flow)
        # Labelled as plain text is as good as not labelled.
        is_labelled = any(label != PLAIN_TEXT for label in labels.values())
        if is_labelled or not self.opened:
            shown = list(self.shown(labels, value, (), None))
            opens = any(self.is_text(one, label) for one, label in shown)
            self.opened |= opens
            self.secret |= any(
                label is not None and label.is_secret for _, label in self.all_of(labels, value)
            )
            if is_labelled or not opens:
                own = {low(one) for one, _ in self.shown({}, arguments, (), None, names=frozenset(arguments))}
                for one, label in shown:
                    self.know(one, label, own)

    def all_of(self, labels: Any, value: Any) -> Any:
        return self.shown(labels, value, (), None, is_all=True)

    def shown(
        self, labels: Any, value: Any, at: tuple[str, ...], label: Label | None, *,
        names: frozenset[str] = WORDS, is_all: bool = False,
    ) -> Any:  # fmt: skip
        """Every string and number with its label, undeclared keys too; truth values and words if `is_all`."""
        label = labels.get(at, label)
        if isinstance(value, dict):
            for key, inside in value.items():
                is_declared = any(steps[: len(at) + 1] == (*at, key) for steps in labels)
                below = (*at, key) if is_declared else (*at, ANY_STEP)
                if key not in names and not is_declared:
                    yield key, label
                    if is_all:
                        yield key, labels.get(below, label)
                yield from self.shown(labels, inside, below, label, names=names, is_all=is_all)
        elif isinstance(value, list):
            for inside in value:
                yield from self.shown(labels, inside, (*at, ANY_STEP), label, names=names, is_all=is_all)
        elif value is not None and (is_all or (value is not True and value != "" and value not in names)):
            yield value, label

    @staticmethod
    def is_text(one: Any, label: Label | None) -> bool:
        if not isinstance(one, str) or not one:
            return False
        if label is None or (label.form is Form.TEXT and not label.is_system):
            return True
        return label.form is not Form.TEXT and FORMS[label.form].fullmatch(one) is None

    def know(self, one: Any, label: Label | None, own: set[Any]) -> None:
        if one == "" or self.is_text(one, label):
            return
        if label is None or not label.is_system:
            self.outside.add_values([one])
        elif isinstance(one, str) and label.form is Form.TEXT:
            text = one.lower()
            for part in own:
                text = text.replace(str(part), "\u00ff")
            self.system.add_text(text)
        elif low(one) not in own:
            self.system.add_values([one])

    def origin(self, role: Role, part: Any) -> Origin:
        if session_state._knows(self.outside, role, part):
            return Origin.OUTSIDE
        is_made = role is not Role.CREDENTIAL and session_state._knows(self.system, role, part)
        return Origin.SYSTEM if is_made else Origin.UNKNOWN


def low(one: Any) -> Any:
    return one.lower() if isinstance(one, str) else one


def compiled(flow: dict[str, Any]) -> ResultReader:
    reader = ResultReader(flow, WORDS)
    for _ in range(READ_FIRST):
        reader.shows_values_alone(b"null")
    return reader


def plan(flow: dict[str, Any]) -> Plan:
    reader = compiled(flow)
    nothing: frozenset[str] = frozenset()
    return Plan(
        tool="t",
        roles=ROLES,
        destinations=nothing,
        free=nothing,
        choices={},
        reader=reader,
        names=nothing,
        acts=True,
        leaves=True,
    )


@given(st.lists(RESULTS, max_size=4), st.sampled_from([1 << 20, 200, 40]))
def test_a_session_that_looks_late_knows_what_one_knows_that_looks_at_once(results: Any, room: int) -> None:
    names = ("SYSTEM_BYTES", "OUTSIDE_BYTES", "WAITING_BYTES", "LOOKED_BYTES")
    with contextlib.ExitStack() as patched:
        for name in names:
            patched.enter_context(mock.patch.object(session_state, name, room))
        session, eager = SessionState("a", "s", key="k"), Eager()
        for flow, value, arguments in results:
            opened, secret = session.observe(plan(flow), value, canonical_bytes(value), arguments)
            session.fall(opened=opened, secret=secret)
            eager.observe(flow, value, arguments)
            assert (session.state.opened, session.state.secret) == (eager.opened, eager.secret)
        for name, role in ROLES.items():
            for part in (*filter(None, STRINGS), "m2", 1, 12, 7.5, -3, 2**70):
                (found,) = session.origin(plan({}), name, part).origins
                wanted = eager.origin(role, part)
                # With little room a session knows less, and trusts nothing more.
                assert found is wanted or (room < 1 << 20 and found is not Origin.SYSTEM)


@given(FLOWS, VALUES | ROWS)
def test_the_pattern_of_a_result_matches_no_text_and_no_secret(flow: dict[str, Any], value: Any) -> None:
    reader = compiled(flow)
    if reader.shows_values_alone(canonical_bytes(value)):
        found = reader.read(value)
        assert not found.opens
        assert not found.is_secret


@pytest.mark.parametrize(
    ("flow", "value"),
    [
        (
            {"/*/id": "system", "/*/who": {"outside": "email"}},
            [{"id": "m1", "who": "eve@evil.test"}, {"id": 7}],
        ),
        ({"": "system"}, {"id": "m1", "items": ["m2", None, 3]}),
        ({"/items/*/id": "system", "/total": "outside"}, {"items": [{"id": "m1"}], "total": 1.5}),
        ({}, {"n": [1, 2.5, {"up": True}]}),
    ],
)
def test_results_of_typed_values_need_no_second_look(flow: dict[str, Any], value: Any) -> None:
    assert compiled(flow).shows_values_alone(canonical_bytes(value))


def test_a_key_beside_a_secret_place_is_secret_too() -> None:
    flow = {"": "system", "/*": {"system": "id", "readers": ["user"]}}
    assert not compiled(flow).shows_values_alone(b'{"m1":null}')
    assert compiled(flow).read({"m1": None}).is_secret


def test_once_outside_values_find_no_room_no_service_is_trusted() -> None:
    session, listed = SessionState("a", "s", key="k"), plan({"/id": "system", "/who/*": "outside"})
    for number in range(3):
        value = {"id": "m1", "who": [f"{number}-{one:060}" for one in range(100)]}
        session.observe(listed, value, canonical_bytes(value), {})
        assert session.origin(listed, "any", "m1").is_trusted is (number == 0)


LISTED = {"/id": "system", "/who": {"outside": "id"}}


def observed(session: SessionState, value: Any) -> None:
    session.observe(plan(LISTED), value, canonical_bytes(value), {})


@pytest.mark.parametrize(
    ("value", "change", "then"),
    [
        ("new", lambda session: session.said("the new one"), ("trusted", False)),
        ("new", lambda session: session.endorse(plan(LISTED), {"any": "new"}), ("trusted", True)),
        ("new", lambda session: observed(session, {"id": "new"}), ("trusted", False)),
        ("made", lambda session: observed(session, {"who": "made"}), ("untrusted", False)),
        ("made", lambda session: observed(session, {"who": "made", "text": "Hi"}), ("untrusted", False)),
        ("agreed", lambda session: session.fall(secret=True), ("trusted", False)),
        ("agreed", lambda session: session.inherit(FALLEN), ("trusted", False)),
    ],
)
@pytest.mark.parametrize("opened", [False, True])
def test_a_second_decision_knows_what_changed_since_the_first(
    value: str, change: Callable[[SessionState], None], then: tuple[str, bool], *, opened: bool
) -> None:
    tool, session = plan(LISTED), SessionState("a", "s", key="k")
    session.endorse(tool, {"any": "agreed"})
    session.fall(opened=opened)
    observed(session, {"id": "made"})
    arguments = {"any": value}
    first = FlowFacts(tool, session, arguments)
    told = sections(first)
    assert FlowFacts(tool, session, arguments, first).origins is first.origins
    assert sections(FlowFacts(tool, session, {"any": "other"}, first)) == ("untrusted", False)
    change(session)
    assert sections(FlowFacts(tool, session, arguments, first)) == then != told


def sections(facts: FlowFacts) -> tuple[str, bool]:
    return facts.section("authority", None), facts.section("endorsed", None)


def test_the_groups_of_an_iban_are_cut_in_one_way() -> None:
    assert FORMS[Form.IBAN].fullmatch("DE89 3704 0044 0532 0130 00")
    assert not FORMS[Form.IBAN].fullmatch("DE89ABC")  # in three groups of one, and in thousands of other ways
