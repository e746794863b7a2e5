"""A worker signs the answers that it gave, each once."""

from tests.fleet.running import new_key
from toolkeep.fleet.messages import Signed
from toolkeep.fleet.transcript import BATCH, Transcript


def test_what_a_worker_signs_is_what_it_answered() -> None:
    key = new_key()
    there, here = Transcript(b"session"), Transcript(b"session")
    leaves = [(there.add(name, b"job", b"answer"), here.add(name, b"job", b"answer"))[1] for name in "abc"]
    signed = there.sign(key)
    assert list(here.check(signed, key.public) or ()) == leaves
    assert len(here) == len(there) == 0
    assert here.check(signed, key.public) is None  # each once


def test_a_signature_over_anything_else_counts_for_nothing() -> None:
    key = new_key()

    def checked(
        answer: bytes = b"answer", session: bytes = b"session", signer: object = key, **ids: object
    ) -> object:
        there, here = Transcript(session), Transcript(b"session")
        there.add("a", b"job", answer)
        here.add("a", b"job", b"answer")
        signed = there.sign(signer)  # type: ignore[arg-type]
        return here.check(Signed(ids.get("ids", signed.ids), signed.signature), key.public)  # type: ignore[arg-type]

    assert checked() is not None
    assert checked(answer=b"other") is None
    assert checked(session=b"another") is None
    assert checked(signer=new_key()) is None
    for ids in (("b",), ("a", "a"), ("a", "b")):
        assert checked(ids=ids) is None


def test_one_signature_covers_a_batch_at_most() -> None:
    transcript = Transcript(b"session")
    for n in range(BATCH + 1):
        transcript.add(str(n), b"", b"")
    assert len(transcript.sign(new_key()).ids) == BATCH
    assert len(transcript) == 1
