"""What each tier includes (POL-6): the seed's table at its borders, isolation, and formats of one's own."""

import logging
from collections.abc import Iterable
from typing import Any

import pytest

from tests.definitions.examples import made, made_elsewhere, with_properties
from toolkeep import Code, Refusal, ToolDefinition
from toolkeep.definitions.vocabulary import Isolation, Tier
from toolkeep.errors import LicenseRequired
from toolkeep.keep.keep import Keep
from toolkeep.registry.coerce import Offer
from toolkeep.registry.register import Skipped, StartUp, tools_of_tier
from toolkeep.registry.tiers import BUILT_INS, check_formats
from toolkeep.registry.tool_provider import ToolProvider
from toolkeep.tools.agent_hello_world import HelloWorldTool
from toolkeep.tools.catalog import CoreToolsProvider
from toolkeep.validation.compile import guarded_formats
from toolkeep.validation.schema_engine import Formats

pytestmark = pytest.mark.spec("POL-6")


class Custom:
    """Brings custom definitions, as configuration does."""

    name = "config"
    priority = 10

    def __init__(self, *definitions: ToolDefinition) -> None:
        self._definitions = definitions

    def get_tool_definitions(self) -> Iterable[Any]:
        return [Offer(tool=definition, is_custom=True) for definition in self._definitions]


def load(keep: Keep, *providers: ToolProvider) -> StartUp:
    """Load toolkeep's own providers."""
    return keep.load(own=providers)


def numbered(count: int) -> list[ToolDefinition]:
    return [made(name=f"tool_{number:03}") for number in range(count)]


def needed(skipped: Iterable[Skipped]) -> list[tuple[str, Code, str]]:
    """What was left out, and the tier that it needs."""
    found = []
    for one in skipped:
        assert isinstance(one.error, LicenseRequired)
        assert f"set `tier: {one.error.needed}`" in one.error.hint
        found.append((one.tool, one.error.code, one.error.needed))
    return found


# --- counts --------------------------------------------------------------------------------------

TABLE = [
    (Tier.CORE, 5, 0, Tier.WRITER_PRO),
    (Tier.WRITER_PRO, 5, 10, Tier.TEAMS),
    (Tier.TEAMS, 8, 50, Tier.ENTERPRISE),
    (Tier.ENTERPRISE, 8, None, None),
]
"""Tier, built-in definitions, custom definitions, and the tier that one more of those needs."""


def test_the_table_has_every_tier() -> None:
    assert [tier for tier, *_ in TABLE] == list(Tier)
    assert [tier.number for tier in Tier] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("tier", "custom", "next_tier"), [(tier, custom, after) for tier, _, custom, after in TABLE if after]
)
def test_a_tier_takes_its_custom_definitions_and_not_one_more(
    tier: Tier, custom: int, next_tier: Tier
) -> None:
    keep = Keep(tier=tier)
    start_up = load(keep, Custom(*numbered(custom + 2)))
    assert (start_up.tool_count, len(keep)) == (custom, custom)
    assert needed(start_up.skipped) == [
        (f"tool_{number:03}", Code.TIER_EXCEEDED, next_tier.value) for number in (custom, custom + 1)
    ]


def test_enterprise_takes_any_number() -> None:
    start_up = load(Keep(tier=Tier.ENTERPRISE), Custom(*numbered(60)))
    assert (start_up.tool_count, start_up.skipped) == (60, ())


def test_a_keep_is_enterprise_unless_something_else_is_said() -> None:
    assert load(Keep(), Custom(*numbered(60))).skipped == ()


@pytest.mark.parametrize(("tier", "built_in"), [(tier, built_in) for tier, built_in, *_ in TABLE])
def test_a_tier_includes_the_first_of_the_built_in_tools(tier: Tier, built_in: int) -> None:
    tools = [made(name=name) for name in ("agent_hello_world", *BUILT_INS)]
    assert [tool.name for tool in tools_of_tier(tools, tier)] == ["agent_hello_world", *BUILT_INS[:built_in]]


def test_the_built_in_tools_stand_in_the_order_in_which_tiers_include_them() -> None:
    assert BUILT_INS == (
        "read_file", "write_file", "list_directory", "grep_search", "edit_code",
        "run_command", "http_fetch", "web_search",
    )  # fmt: skip


@pytest.mark.parametrize("tier", Tier)
def test_hello_world_is_part_of_every_tier_and_counts_for_nothing(tier: Tier) -> None:
    keep = Keep(tier=tier)
    custom = dict(zip(Tier, (0, 10, 50, 60), strict=True))[tier]
    start_up = load(keep, CoreToolsProvider(tier), Custom(*numbered(custom)))
    assert start_up.skipped == ()
    assert HelloWorldTool.TOOL_NAME in keep


@pytest.mark.parametrize(
    "tools",
    [
        pytest.param([made(name="a"), made(name="b")], id="by hand"),
        pytest.param([made_elsewhere(name="a"), made_elsewhere(name="b")], id="imports"),
        pytest.param([{"name": "a", "description": "A."}, {"name": "b", "description": "B."}], id="data"),
    ],
)
def test_what_code_registers_is_not_counted(tools: list[Any]) -> None:
    keep = Keep(tier=Tier.CORE)
    keep.register(*tools)
    assert len(keep) == 2


def test_imports_and_tools_of_code_leave_the_count_to_custom_definitions() -> None:
    keep = Keep(tier=Tier.WRITER_PRO)
    keep.register(*(made(name=f"code_{number}") for number in range(20)))
    keep.register(*(made_elsewhere(name=f"mcp_{number}") for number in range(20)))
    assert load(keep, Custom(*numbered(10))).skipped == ()
    assert needed(load(keep, Custom(made(name="eleventh"))).skipped) == [
        ("eleventh", Code.TIER_EXCEEDED, "teams")
    ]


def test_the_same_definition_again_and_a_new_version_are_not_one_more() -> None:
    keep = Keep(tier=Tier.WRITER_PRO)
    load(keep, Custom(*numbered(10)))
    again = load(keep, Custom(*numbered(10), made(name="tool_003", version="2.0.0")))
    assert again.skipped == ()
    assert keep.get("tool_003").version == "2.0.0"


def test_a_custom_definition_that_goes_makes_room_for_another() -> None:
    keep = Keep(tier=Tier.WRITER_PRO)
    load(keep, Custom(*numbered(10)))
    keep.unregister("tool_003")
    assert load(keep, Custom(made(name="another"))).skipped == ()


def test_a_custom_definition_that_is_disabled_still_counts() -> None:
    keep = Keep(tier=Tier.WRITER_PRO)
    load(keep, Custom(*numbered(10)))
    keep.disable("tool_003")
    assert len(load(keep, Custom(made(name="another"))).skipped) == 1


# --- isolation -----------------------------------------------------------------------------------


@pytest.mark.parametrize("tier", [Tier.WRITER_PRO, Tier.TEAMS, Tier.ENTERPRISE])
@pytest.mark.parametrize(
    ("isolation", "first_tier"),
    [
        (Isolation.NONE, Tier.CORE),
        (Isolation.STANDARD, Tier.CORE),
        (Isolation.STRICT, Tier.TEAMS),
        (Isolation.RESTRICTED, Tier.ENTERPRISE),
    ],
)
def test_a_custom_definition_asks_for_no_more_isolation_than_its_tier_includes(
    tier: Tier, isolation: Isolation, first_tier: Tier
) -> None:
    keep = Keep(tier=tier)
    start_up = load(keep, Custom(made(constraints={"required_isolation": isolation.value})))
    if tier.number >= first_tier.number:
        assert (start_up.tool_count, start_up.skipped) == (1, ())
    else:
        assert needed(start_up.skipped) == [("read_file", Code.TIER_EXCEEDED, first_tier.value)]


def test_what_code_registers_runs_at_its_own_isolation_in_every_tier() -> None:
    keep = Keep(tier=Tier.CORE)
    keep.register(made(constraints={"required_isolation": "restricted"}))
    assert keep.get("read_file").definition.constraints.isolation is Isolation.RESTRICTED


# --- formats of one's own ------------------------------------------------------------------------


@pytest.mark.parametrize("tier", [Tier.CORE, Tier.WRITER_PRO, Tier.TEAMS])
def test_format_checks_of_ones_own_need_enterprise(tier: Tier) -> None:
    with pytest.raises(LicenseRequired) as caught:
        check_formats(tier)
    assert (caught.value.code, caught.value.needed) == (Code.TIER_EXCEEDED, "enterprise")
    assert caught.value.message == f"a format check of your own is not included in the tier {tier.value}"
    check_formats(Tier.ENTERPRISE)


def isbn_keep(formats: Formats) -> Keep:
    keep = Keep(formats=guarded_formats(formats))
    schema = with_properties({"book": {"type": "string", "format": "isbn"}}, required=["book"])
    keep.register(made(parameters=schema))
    return keep


def verdict(keep: Keep, book: str) -> Code | None:
    """None where the call passes."""
    check = keep.try_validate_arguments("read_file", {"book": book})
    return check.code if isinstance(check, Refusal) else None


def raises(text: str) -> bool:
    raise RuntimeError(text)


@pytest.mark.parametrize(
    ("check", "code"),
    [
        pytest.param(lambda text: text == "978-3", None, id="says yes"),
        pytest.param(lambda text: text != "978-3", Code.CONSTRAINT, id="says no"),
        pytest.param(raises, Code.CONSTRAINT, id="raises"),
        pytest.param(lambda text: 1, Code.CONSTRAINT, id="says one"),
        pytest.param(lambda text: "yes", Code.CONSTRAINT, id="says a word"),
        pytest.param(lambda text: None, Code.CONSTRAINT, id="says nothing"),
    ],
)
def test_a_format_check_of_ones_own_decides_and_only_true_is_yes(check: Any, code: Code | None) -> None:
    assert verdict(isbn_keep({"isbn": check}), "978-3") is code


def test_a_format_without_a_check_says_nothing() -> None:
    assert verdict(isbn_keep({}), "978-3") is None


def test_a_refusal_by_a_format_check_names_place_and_format() -> None:
    check = isbn_keep({"isbn": lambda text: False}).try_validate_arguments("read_file", {"book": "978-3"})
    assert isinstance(check, Refusal)
    assert [(error.path, error.code) for error in check.errors] == [("/book", Code.CONSTRAINT)]
    assert "isbn" in check.errors[0].expected


@pytest.mark.parametrize(("length", "code", "asked"), [(8192, None, True), (8193, Code.CONSTRAINT, False)])
def test_text_that_is_too_long_is_refused_without_asking(
    length: int, code: Code | None, *, asked: bool
) -> None:
    lengths: set[int] = set()

    def accept(text: str) -> bool:
        lengths.add(len(text))
        return True

    assert verdict(isbn_keep({"isbn": accept}), "x" * length) is code
    assert (length in lengths) is asked


def test_the_words_of_a_check_that_breaks_are_logged_nowhere(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    caplog.clear()
    keep = isbn_keep({"isbn": raises})
    check = keep.try_validate_arguments("read_file", {"book": "sk-live-4242"})
    said = [
        str(record.__dict__)
        for record in caplog.records
        if record.getMessage() == "internal error in a format check"
    ]
    assert said
    assert "sk-live-4242" not in "".join(said)
    assert not check.success
