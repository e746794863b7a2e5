"""The name that was probably meant."""

from collections.abc import Iterable

from toolkeep.wording import echo_name


def nearest(name: str, names: Iterable[str]) -> str | None:
    """The name that is most like it, if any is."""
    from rapidfuzz import process, utils
    from rapidfuzz.distance import OSA

    found = process.extractOne(
        name[:256],
        sorted(names),
        scorer=OSA.normalized_similarity,
        processor=utils.default_process,
        score_cutoff=0.6,
    )
    return None if found is None else str(found[0])


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """What to tell somebody who named what does not exist."""
    meant = nearest(name, names)
    return f"did you mean '{echo_name(meant)}'?" if meant else "name one that exists"
