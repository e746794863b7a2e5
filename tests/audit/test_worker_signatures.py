"""Signatures of workers in a log: what they cover, and what is found where they do not fit (SCL-3)."""

import base64
from typing import Any

import pytest

from toolkeep.audit.entry import NO_PREVIOUS, chain
from toolkeep.audit.findings import Kind
from toolkeep.audit.log_scan import Scan
from toolkeep.fleet.identity import PrivateKey
from toolkeep.fleet.transcript import Transcript
from toolkeep.json_values.canonical import canonical_bytes

pytestmark = pytest.mark.spec("SCL-3")
KEY = PrivateKey(b"1" * 32)


def records(**changed: Any) -> list[dict[str, Any]]:
    """Two answers of a worker, then its signature over both."""
    transcript = Transcript(b"\x01" * 8)
    hashes = [transcript.add(one, one.encode(), b"answer").hex() for one in ("a", "b")]
    signature = base64.b64encode(transcript.sign(KEY).signature).decode()
    known = {"key": KEY.public.text, "session": "01" * 8, "worker": "one"}
    ran = [{"type": "RanElsewhere", "call": one, "answer_hash": one, **known} for one in hashes]
    signed = {"type": "AnswersSigned", "answers": hashes, "signature": signature, **known, **changed}
    return [*ran, signed]


def scanned(found: list[dict[str, Any]]) -> Scan:
    lines, _ = chain([canonical_bytes(one) for one in found], 0, NO_PREVIOUS)
    scan = Scan()
    scan.read("00000000", b"".join(line + b"\n" for line in lines), is_last=True)
    scan.finish()
    return scan


@pytest.mark.parametrize("is_ahead", [False, True])
def test_a_signature_covers_answers_that_are_recorded_before_or_after_it(*, is_ahead: bool) -> None:
    first, second, signed = records()
    scan = scanned([signed, first, second] if is_ahead else [first, second, signed])
    assert (scan.findings, len(scan.workers.unsigned)) == ([], 0)


def test_answers_that_nobody_signed_are_counted() -> None:
    first, second, signed = records()
    elsewhere = {**second, "key": "ed25519:another"}
    assert len(scanned([first, second]).workers.unsigned) == 2
    assert len(scanned([first, elsewhere, signed]).workers.unsigned) == 1


@pytest.mark.parametrize(
    "changed",
    [
        {"answers": ["00" * 32]},
        {"session": "02" * 8},
        {"key": PrivateKey(b"2" * 32).public.text},
        {"signature": base64.b64encode(bytes(64)).decode()},
        {"signature": "?"},
        {"key": "ed25519:short"},
        {"answers": 3},
    ],
    ids=str,
)
def test_a_signature_over_something_else_is_found(changed: dict[str, Any]) -> None:
    scan = scanned(records(**changed))
    assert [finding.kind for finding in scan.findings] == [Kind.WORKER]
    assert len(scan.workers.unsigned) == 2
