"""Long fuzzing, for `scripts/soak`: new seeds until the time is up; the first failure ends it.

python -m tests.soak --minutes 10
"""

import argparse
import json
import sys
import time

from tests import fuzz


def main() -> None:
    parser = argparse.ArgumentParser(description="Fuzz until the time is up.")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args()
    ends = time.monotonic() + 60 * options.minutes
    schemas = calls = accepted = repaired = 0
    seed = options.seed
    while time.monotonic() < ends:
        found = fuzz.run(seed, schemas=500)
        schemas, calls = schemas + found.schemas, calls + found.calls
        accepted, repaired = accepted + found.accepted, repaired + found.repaired
        for reason, case in found.failures[:3]:
            print(
                f"seed {seed}: {reason}\n  {case.dialect} {json.dumps(case.schema)}\n  {json.dumps(case.value)}"
            )
        if found.failures:
            sys.exit(1)
        seed += 1
    print(f"{schemas} schemas, {calls} calls, {accepted} accepted, {repaired} repaired, no failure")


if __name__ == "__main__":
    main()
