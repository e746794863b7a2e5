"""Never finishes importing."""

import time

from .declare import attempt, is_inside


@attempt("host-sound", "hung", endings=("timed_out",), deadline_s=2.0)
def never_be_ready() -> str:
    return "late"


if is_inside(__name__):
    time.sleep(60)
