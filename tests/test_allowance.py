"""So many in a second, some at once after a pause, and no more."""

from toolkeep.allowance import Allowance


class Clock:
    """A clock that somebody sets."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def taken(allowance: Allowance, times: int) -> list[bool]:
    return [allowance.take() for _ in range(times)]


def test_a_burst_passes_and_no_more() -> None:
    assert taken(Allowance(1.0, 3.0, Clock()), 5) == [True, True, True, False, False]


def test_time_gives_back_as_much_as_the_rate_says() -> None:
    allowance = Allowance(2.0, 3.0, clock := Clock())
    taken(allowance, 3)
    clock.now += 1.0
    assert taken(allowance, 3) == [True, True, False]


def test_a_long_pause_gives_back_no_more_than_a_burst() -> None:
    allowance = Allowance(2.0, 3.0, clock := Clock())
    clock.now += 3600.0
    assert taken(allowance, 4) == [True, True, True, False]


def test_without_a_rate_anything_passes() -> None:
    assert all(taken(Allowance(0.0, 1.0, Clock()), 100))
