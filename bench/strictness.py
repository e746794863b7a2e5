"""Which bad calls does a framework let through, and what reaches the tool? Prints one table.

The same function is defined as a tool in each framework in its ordinary way; each call takes the path that
a model's call takes there. See bench/README.md.
"""

import json
import logging
import sys
import warnings
from typing import Any

from rivals.contestant import Contestant
from rivals.field import ENTRIES, gather, version_of
from tables import print_notes, print_table
from workloads.transfer import CALLS, Call, make_transfer

NOT_INSTALLED = "not installed"


def main() -> int:
    """Run every call through every contestant; the exit status is 1 when toolkeep judges one wrongly."""
    logging.disable(logging.CRITICAL)  # the frameworks log the refusals that this provokes
    warnings.simplefilter("ignore")
    field = gather()
    by_name = {contestant.name: contestant for contestant in field.present}
    rows = [
        [
            call.title,
            *(judge(by_name[entry.name], call) if entry.name in by_name else "-" for entry in ENTRIES),
        ]
        for call in CALLS
    ]
    print_table("Bad calls", ["call", *(entry.name for entry in ENTRIES)], rows)
    print_notes(
        [
            "refused: the tool did not run, and the framework says so in its own way.",
            "ACCEPTED: the tool ran; the value is what reached it. REFUSED: a good call did not get through.",
            "n of 5: how many of the five faults are named in what comes back.",
            "error: an exception that is not the framework's word for a bad call came out.",
        ]
    )
    print_notes(
        f"{contestant.name} {version_of(contestant)}: {contestant.sent}" for contestant in field.present
    )
    print_notes(f"{name}: {NOT_INSTALLED}" for name in field.absent)
    return 0 if all(row[1] in ("refused", "5 of 5", "accepted: 42") for row in rows) else 1


def judge(contestant: Contestant, call: Call) -> str:
    """One cell of the table."""
    received: list[dict[str, Any]] = []
    try:
        said = contestant.send(make_transfer(received.append), call.raw)
    except Exception as error:
        return f"error: {type(error).__name__}"
    if received:
        reached = json.dumps(received[-1][call.shows]) if call.shows in received[-1] else "(without it)"
        return f"{'accepted' if call.is_good else 'ACCEPTED'}: {reached}"
    if call.faults:
        return f"{sum(name_in(said, fault) for fault in call.faults)} of {len(call.faults)}"
    return "REFUSED" if call.is_good else "refused"


def name_in(text: str, name: str) -> bool:
    """Whether a property is named, as a word."""
    return name in text.translate(_TO_SPACES).split()


_TO_SPACES = str.maketrans(dict.fromkeys("\n/.,:;'\"`()[]{}=*", " "))


if __name__ == "__main__":
    sys.exit(main())
