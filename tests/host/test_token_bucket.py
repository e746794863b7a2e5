"""So many in a second, some at once after a pause, and no more."""

from toolkeep.host.token_bucket import TokenBucket


class Clock:
    """A clock that somebody sets."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def taken(bucket: TokenBucket, times: int) -> list[bool]:
    return [bucket.take() for _ in range(times)]


def test_a_burst_passes_and_no_more() -> None:
    assert taken(TokenBucket(1.0, 3.0, Clock()), 5) == [True, True, True, False, False]


def test_time_gives_back_as_much_as_the_rate_says() -> None:
    bucket = TokenBucket(2.0, 3.0, clock := Clock())
    taken(bucket, 3)
    clock.now += 1.0
    assert taken(bucket, 3) == [True, True, False]


def test_a_long_pause_gives_back_no_more_than_a_burst() -> None:
    bucket = TokenBucket(2.0, 3.0, clock := Clock())
    clock.now += 3600.0
    assert taken(bucket, 4) == [True, True, True, False]


def test_without_a_rate_anything_passes() -> None:
    assert all(taken(TokenBucket(0.0, 1.0, Clock()), 100))


def test_servers_divide_rate_and_burst() -> None:
    bucket = TokenBucket(4.0, 6.0, clock := Clock())
    assert [bucket.take(servers=2) for _ in range(4)] == [True, True, True, False]
    clock.now += 1.0
    assert [bucket.take(servers=2) for _ in range(3)] == [True, True, False]
    clock.now += 1.0
    assert [bucket.take(servers=100) for _ in range(2)] == [False, False]
    clock.now += 3600.0
    assert [bucket.take(servers=100) for _ in range(2)] == [True, False]
