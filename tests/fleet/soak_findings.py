"""What `tests.fleet.soak` promised and what became of it, by notes, files, logs and the faults that were made."""

import json
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

from tests.fleet.soak_server import LARGE, MOST_S
from toolkeep import Code
from toolkeep.storage.log.verify_folder import verify

UNKNOWN = Code.OUTCOME_UNKNOWN.value
NOT_RUN = (Code.WORKER_UNAVAILABLE.value, Code.STORE_UNAVAILABLE.value)
_LOOKED_AT = ("type", "call", "status", "is_settled", "reason", "count")
SETTLE_S = 10.0
"""How long a worker that was cut off may take, once healed, to connect again and to answer."""


class Fault(NamedTuple):
    """Something that was done to the fleet."""

    kind: str
    of: str
    began: float
    ended: float


class Findings:
    """Of one soak."""

    def __init__(self, notes: Path, effects: Path, states: list[Path], faults: list[Fault]) -> None:
        said = [json.loads(line) for line in notes.read_text().splitlines()]
        self.calls = [one for one in said if one["kind"] in MOST_S]
        self._hung = [one for one in said if one["kind"] == "hung"]
        self._lags = [one["seconds"] for one in said if one["kind"] == "lag"]
        self._faults = faults
        self._effects = Counter(_line_of(one.name) for one in effects.iterdir() if one.is_file())
        self._last_tick = {one.name: last_tick(one) for one in (effects / "ticks").iterdir()}
        self._reports = [verify(state) for state in states]
        self._records = [one for state in states for one in _records(state)]
        self._late = {one["call"]: one for one in self._records if one["type"] == "AnsweredLate"}

    def counts(self) -> dict[str, Any]:
        """What happened."""
        took = {kind: [one["ended"] - one["began"] for one in self._of(kind)] for kind in MOST_S}
        unknown = [one for one in self._writes() if one["code"] == UNKNOWN and not one["is_again"]]
        return {
            "calls": len(self.calls),
            "codes": dict(Counter(f"{one['kind']} {one['code']}".strip() for one in self.calls)),
            "acknowledged writes": len(self._acknowledged()),
            "writes whose outcome was unknown": len(unknown),
            "large bodies refused, seconds after their leader died": self._refused_for(),
            "settled by a late answer": sum(1 for one in unknown if self._is_settled(one)),
            "late answers": len(self._late),
            "longest, seconds": {kind: round(max(values, default=0.0), 1) for kind, values in took.items()},
            "busiest moment of a server, seconds late": round(max(self._lags, default=0.0), 1),
            "records": sum(report.records for report in self._reports),
            "answers without signature": sum(report.unsigned_answers for report in self._reports),
            "frames refused": dict(_refused(self._records)),
        }

    def violations(self) -> dict[str, list[Any]]:
        """Promises that were broken: every list must be empty."""
        return {
            "acknowledged writes lost": [line for line in self._acknowledged() if not self._effects[line]],
            "writes twice": [line for line, count in self._effects.items() if count > 1],
            "ran, though refused": [
                one
                for one in self._of("note", "note_at_length")
                if one["code"] in NOT_RUN and self._effects[one["line"]]
            ],
            "cancelled by nobody": [one for one in self.calls if one["code"] == Code.CANCELLED.value],
            "wrong answers": [one for one in self.calls if not one["is_right"]],
            "hung": self._hung,
            "calls without their record": self._unrecorded(),
            "outcome told twice": self._told_twice(),
            "unknown though the worker answers": self._unsettled(),
            "late answers that a key does not give": self._unheard(),
            "ran on after their call had ended": self._ran_on(),
            "logs that do not verify": [str(one) for one in self._reports if not one.is_intact],
        }

    def _refused_for(self) -> list[float]:
        """Until the first call with large bodies that began after each such fault ended well."""
        well = [one for one in self._of(*LARGE) if not one["code"]]
        found = []
        for fault in self._faults:
            if fault.kind == "bucket_leader_killed":
                after = [one["ended"] - fault.began for one in well if one["began"] > fault.began]
                found.append(round(min(after, default=float("inf")), 1))
        return found

    def _of(self, *kinds: str) -> list[dict[str, Any]]:
        return [one for one in self.calls if one["kind"] in kinds]

    def _writes(self) -> list[dict[str, Any]]:
        return self._of("note", "keyed", "note_at_length")

    def _acknowledged(self) -> set[str]:
        return {one["line"] for one in self._writes() if not one["code"]}

    def _is_settled(self, call: dict[str, Any]) -> bool:
        return call["call"] in self._late and self._late[call["call"]]["is_settled"]

    def _unrecorded(self) -> list[Any]:
        outcomes = {one["call"] for one in self._records if one.get("status") and "call" in one}
        return [one for one in self.calls if not one["code"] and one["call"] not in outcomes]

    def _told_twice(self) -> list[str]:
        outcomes = Counter(one["call"] for one in self._records if one["type"] == "ToolCompleted")
        late = Counter(one["call"] for one in self._records if one["type"] == "AnsweredLate")
        return [call for counted in (outcomes, late) for call, count in counted.items() if count > 1]

    def _unsettled(self) -> list[Any]:
        """Writes that ran on a worker that was cut off and came back, and whose answer never came.

        Not those with large results: a worker without its lease ends what still waits for the bucket.
        """
        found = []
        for call in self._of("note", "keyed"):
            if call["code"] == UNKNOWN and not call["is_again"] and self._effects[call["line"]]:
                faults = [one for one in self._faults if one.ended + SETTLE_S > call["began"] > one.began - 1]
                if {one.kind for one in faults} == {"link_cut"} and not self._is_settled(call):
                    found.append(call)
        return found

    def _unheard(self) -> list[Any]:
        """A key whose call was settled with a value gives that value."""
        settled = {
            one["line"]
            for one in self._of("keyed")
            if self._is_settled(one) and self._late[one["call"]]["status"] == "ok"
        }
        return [
            one
            for one in self._of("keyed")
            if one["is_again"] and one["line"] in settled and one["code"] not in ("", *NOT_RUN)
        ]

    def _ran_on(self) -> list[Any]:
        return [
            (one["line"], last - one["ended"])
            for one in self._of("tick")
            if (last := self._last_tick.get(one["line"], 0.0)) > one["ended"]
        ]


def _line_of(name: str) -> str:
    """Whose file an effect is."""
    return name.rpartition(".")[0].rpartition(".")[0]


def last_tick(ticks: Path) -> float:
    """When it was written last; a line may be cut short."""
    lines = [line for line in ticks.read_text().split("\n")[:-1] if line]
    return float(lines[-1]) if lines else 0.0


def _records(state: Path) -> list[dict[str, Any]]:
    """Of those that say how a call ended, or that a frame was refused, what is looked at."""
    found = []
    for segment in sorted((state / "audit" / "segments").iterdir()):
        for line in segment.read_bytes().split(b"\n"):
            if line.strip(b"\0"):
                record = json.loads(line)["record"]
                if "status" in record or record["type"] == "WorkerRefused":
                    found.append({key: record[key] for key in _LOOKED_AT if key in record})
    return found


def _refused(records: list[dict[str, Any]]) -> Counter[str]:
    found = Counter[str]()
    for one in records:
        if one["type"] == "WorkerRefused":
            found[one["reason"]] += one["count"]
    return found
