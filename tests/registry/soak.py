"""Differences of schemas against generated calls, for `scripts/soak`: the first broken promise ends it.

python -m tests.registry.soak --minutes 10
"""

import argparse
import sys
import time

from tests.registry import changing


def main() -> None:
    parser = argparse.ArgumentParser(description="Change schemas until the time is up.")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args()
    ends = time.monotonic() + 60 * options.minutes
    changes = promises = calls = 0
    for seed in changing.seeds(options.seed):
        if time.monotonic() >= ends:
            break
        found = changing.run(seed, changes=500)
        changes, promises, calls = changes + found.changes, promises + found.promises, calls + found.calls
        for failure in found.failures[:3]:
            print(f"seed {seed}: {failure}")
        if found.failures:
            sys.exit(1)
    print(f"{changes} changes, {promises} with a promise, {calls} calls, none broken")


if __name__ == "__main__":
    main()
