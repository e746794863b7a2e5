"""Frames between a server and a worker open once, in order, for the other one alone."""

import os

import pytest

from tests.fleet.running import new_key
from toolkeep.fleet import sealed_session
from toolkeep.fleet.sealed_session import FrameInvalid, Opening, SealedSession, read_hello, welcome


def opened() -> tuple[SealedSession, SealedSession]:
    """The session of a server, and of a worker."""
    server, worker = new_key(), new_key()
    facts = {"version": "0", "reply": "0" * 16, "boot": b"b", "number": 1, "lease_ms": 5000}
    opening = Opening(server, worker.public, **facts)
    hello, signer = read_hello(opening.frame)
    assert signer == server.public
    there, answer = welcome(worker, opening.frame, hello)
    return opening.finish(answer), there


def refused(session: SealedSession, frame: bytes) -> str:
    """Why a frame does not open."""
    with pytest.raises(FrameInvalid) as invalid:
        session.open(frame)
    return str(invalid.value)


def test_a_frame_opens_once_and_in_order_for_the_other_side_alone() -> None:
    here, there = opened()
    first, second, third = (here.seal(text) for text in (b"a", b"b", b"c"))
    assert there.open(first) == b"a"
    assert refused(there, first) == "it was sent before"
    assert there.open(third) == b"c"  # one may be lost
    assert refused(there, second) == "it was sent before"
    assert refused(here, third) == "its seal is broken"  # turned round
    back = there.seal(b"d")
    assert here.open(back) == b"d"
    other, _ = opened()
    assert refused(other, back) == "it is of another session"
    assert refused(other, back[:1] + other.id + back[9:]) == "its seal is broken"
    assert b"secret" not in here.seal(b"secret" * 10)


def test_a_frame_that_does_not_open_changes_nothing() -> None:
    here, there = opened()
    frame = here.seal(b"a")
    raised = frame[:9] + (1 << 40).to_bytes(8, "big") + frame[17:]
    assert refused(there, raised) == "its seal is broken"
    for cut in range(len(frame)):
        refused(there, frame[:cut])
    assert there.open(frame) == b"a"


def test_a_session_is_used_up_before_its_counter_comes_round() -> None:
    session = SealedSession(b"12345678", seal=os.urandom(32), open_=os.urandom(32))
    session._sealed = sealed_session._LAST
    with pytest.raises(FrameInvalid, match="used up"):
        session.seal(b"")
