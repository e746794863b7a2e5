"""Celery with Redis as broker and result backend; `BENCH_REDIS` is its address.

A worker consumes one queue for each number of workers that it is part of: with four workers, the first
consumes `fresh-1`, `fresh-2` and `fresh-4`.
"""

import contextlib
import os
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from celery import Celery

app = Celery("rivals.celery_tasks", broker=os.environ["BENCH_REDIS"], backend=os.environ["BENCH_REDIS"])


@app.task  # type: ignore[untyped-decorator]
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


@contextlib.contextmanager
def lanes(*queues: str) -> Iterator[dict[str, tuple[Callable[[], Any], Callable[[Any], object]]]]:
    """How to hand in a task to each queue, and how to wait for its result."""
    yield {
        queue: (partial(add.apply_async, (1, 2), queue=queue), lambda task: task.get(60)) for queue in queues
    }
