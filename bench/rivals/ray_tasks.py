"""Ray on this machine alone. A worker is two of its processors; a resource for each number of workers bounds
how many tasks of a lane run at once."""

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import ray

SLOTS = 2


def add(a: int, b: int) -> int:
    """Add."""
    return a + b


@contextlib.contextmanager
def lanes(
    folder: str, *workers: str
) -> Iterator[dict[str, tuple[Callable[[], Any], Callable[[Any], object]]]]:
    """How to hand in a task to so many workers, and how to wait for its result."""
    ray.init(
        address="local",
        num_cpus=SLOTS * max(map(int, workers)),
        resources={f"workers-{number}": SLOTS * int(number) for number in workers},
        include_dashboard=False,
        log_to_driver=False,
        _temp_dir=folder,
    )
    tasks = {"ordinary": ray.remote(add), "fresh": ray.remote(max_calls=1)(add)}
    try:
        yield {
            f"{mode}-{number}": (
                partial(task.options(resources={f"workers-{number}": 1}).remote, 1, 2),
                partial(ray.get, timeout=120),
            )
            for number in workers
            for mode, task in tasks.items()
        }
    finally:
        ray.shutdown()
