"""What was asked for of late is remembered, and no more than there is room for."""

from concurrent.futures import ThreadPoolExecutor

from toolkeep.policy.cedar_engine import LruCache


def remembered(recent: LruCache[int, str], count: int) -> list[int]:
    """The keys that are there; looking renews them, so a copy is asked."""
    return [key for key in range(count) if key in {**recent._older, **recent._newer}]


def test_a_value_is_found_under_its_key_alone() -> None:
    recent: LruCache[int, str] = LruCache(4)
    assert recent.put(1, "one") == "one"
    assert (recent.get(1), recent.get(2)) == ("one", None)


def test_a_key_that_is_kept_again_has_the_new_value() -> None:
    recent: LruCache[int, str] = LruCache(2)
    for value in ("one", "two"):
        recent.put(1, value)
    recent.put(2, "other")
    recent.put(1, "three")
    assert recent.get(1) == "three"


def test_there_are_never_more_than_the_limit_and_always_the_newest_half() -> None:
    recent: LruCache[int, str] = LruCache(10)
    for key in range(100):
        recent.put(key, str(key))
        kept = remembered(recent, 100)
        assert len(kept) <= 10
        assert set(kept) >= set(range(max(0, key - 4), key + 1))


def test_what_is_asked_for_stays_and_the_others_go() -> None:
    recent: LruCache[int, str] = LruCache(4)
    recent.put(0, "asked for")
    for key in range(1, 100):
        recent.put(key, str(key))
        assert recent.get(0) == "asked for"
    assert recent.get(1) is None


def test_any_number_of_threads_may_ask_and_keep() -> None:
    recent: LruCache[int, int] = LruCache(8)

    def use(turn: int) -> bool:
        key = turn % 20
        return (recent.get(key) or recent.put(key, key + 1)) == key + 1

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(use, range(5_000)))
    assert len(recent._newer) + len(recent._older) <= 8
