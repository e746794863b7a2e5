"""Providers of other packages: real entry points, installed in a folder; only those that are named run."""

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from toolkeep import Code, open_keep
from toolkeep.errors import ProviderFailed
from toolkeep.sandbox.import_guard import watch
from toolkeep.sources.entry_points import load_provider

GOOD = """
class Shop:
    name = "shop"
    priority = 50

    def get_tool_definitions(self):
        return [{"name": "buy", "description": "Buy something."}]

SHOP = Shop()
"""
SECRET = "sk-live-4242"

Install = Callable[[str, str], None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Installs one package with a module `toolkeep_shop_for_tests` and these entry points."""

    def install(module: str, points: str) -> None:
        site = tmp_path / "site"
        info = site / "toolkeep_shop_for_tests-1.0.dist-info"
        info.mkdir(parents=True)
        (site / "toolkeep_shop_for_tests.py").write_text(module)
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: toolkeep-shop-for-tests\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[toolkeep.providers]\n{points}\n")
        monkeypatch.syspath_prepend(str(site))
        importlib.invalidate_caches()

    yield install
    sys.modules.pop("toolkeep_shop_for_tests", None)


def configure(*providers: str) -> None:
    """Name providers in the user's own configuration."""
    folder = Path.home() / ".agent"
    folder.mkdir()
    (folder / "config.yml").write_text(f"tool_registry:\n  providers: [{', '.join(providers)}]\n")


def failure(name: str) -> ProviderFailed:
    with pytest.raises(ProviderFailed) as caught:
        load_provider(name)
    assert (caught.value.code, caught.value.provider) == (Code.PROVIDER_FAILED, name)
    return caught.value


@pytest.mark.spec("REG-4")
@pytest.mark.parametrize("attribute", ["Shop", "SHOP"])
def test_a_provider_that_the_configuration_names_is_loaded(install: Install, attribute: str) -> None:
    install(GOOD, f"shop = toolkeep_shop_for_tests:{attribute}")
    configure("shop")
    keep = open_keep(built_in=False)
    assert [(held.name, held.provider) for held in keep.tools()] == [("buy", "shop")]
    assert keep.start_up.skipped == ()


@pytest.mark.spec("REG-4")
@pytest.mark.parametrize("named", [(), ("another",)])
def test_a_provider_that_nobody_names_never_runs(install: Install, named: tuple[str, ...]) -> None:
    install(f"raise SystemExit\n{GOOD}", "shop = toolkeep_shop_for_tests:Shop")
    if named:
        configure(*named)
    keep = open_keep()
    assert "toolkeep_shop_for_tests" not in sys.modules
    assert "buy" not in keep


@pytest.mark.spec("REG-4")
def test_a_provider_that_a_project_names_runs_only_after_a_person_accepted_it(
    install: Install, tmp_path: Path
) -> None:
    install(GOOD, "shop = toolkeep_shop_for_tests:Shop")
    config = tmp_path / "clone" / ".agent" / "config.yml"
    config.parent.mkdir(parents=True)
    config.write_text("tool_registry:\n  providers: [shop]\n")
    keep = open_keep(project=tmp_path / "clone")
    assert "toolkeep_shop_for_tests" not in sys.modules
    assert "buy" not in keep
    assert keep.start_up.held_back == (str(config),)


@pytest.mark.spec("REG-4")
def test_a_provider_that_cannot_be_loaded_is_skipped_while_the_rest_load(install: Install) -> None:
    install(GOOD, "shop = toolkeep_shop_for_tests:Shop\nbroken = toolkeep_shop_for_tests:Nothing")
    configure("broken", "shop", "shpo")
    keep = open_keep()
    assert [held.name for held in keep.tools() if not held.is_built_in] == ["buy"]
    assert "agent_hello_world" in keep
    assert [(one.provider, one.tool, one.error.code) for one in keep.start_up.skipped] == [
        ("broken", "", Code.PROVIDER_FAILED),
        ("shpo", "", Code.PROVIDER_FAILED),
    ]


def test_an_unknown_name_says_which_was_meant(install: Install) -> None:
    install(GOOD, "shop = toolkeep_shop_for_tests:Shop")
    error = failure("shpo")
    assert (error.message, error.hint) == ("provider 'shpo' is not installed", "did you mean 'shop'?")


def test_a_name_that_is_near_nothing_says_what_to_install() -> None:
    assert failure("quux").hint == "install the package that has it (entry points toolkeep.providers)"


@pytest.mark.spec("REG-4")
@pytest.mark.parametrize(
    ("module", "point", "error_type"),
    [
        pytest.param(f"raise RuntimeError({SECRET!r})", "Shop", "RuntimeError", id="import raises"),
        pytest.param("import toolkeep_is_not_here", "Shop", "ModuleNotFoundError", id="import fails"),
        pytest.param("class", "Shop", "SyntaxError", id="no Python"),
        pytest.param(GOOD, "Shpo", "AttributeError", id="no such class"),
        pytest.param(
            f"class Shop:\n    def __init__(self):\n        raise RuntimeError({SECRET!r})",
            "Shop",
            "RuntimeError",
            id="cannot be made",
        ),
        pytest.param("raise SystemExit(3)", "Shop", "SystemExit", id="import leaves"),
        pytest.param(
            "import asyncio\nraise asyncio.CancelledError", "Shop", "CancelledError", id="import is cancelled"
        ),
        pytest.param(
            "class Shop:\n    def __init__(self, key):\n        pass", "Shop", "TypeError", id="needs more"
        ),
    ],
)
def test_a_provider_that_breaks_is_named_with_the_type_of_the_error_alone(
    install: Install, module: str, point: str, error_type: str
) -> None:
    install(module, f"shop = toolkeep_shop_for_tests:{point}")
    error = failure("shop")
    assert error.message == f"provider 'shop' cannot be loaded: {error_type}"
    assert SECRET not in str(error)


@pytest.mark.spec("REG-4")
@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("get_tool_definitions", "get_definitions", "has no get_tool_definitions()"),
        ("priority = 50", "priority = '50'", "has no whole number as its priority"),
        ("priority = 50", "priority = True", "has no whole number as its priority"),
        ("priority = 50", "", "has no whole number as its priority"),
        ('name = "shop"', "name = 5", "has no name"),
        ('name = "shop"', "", "has no name"),
    ],
)
def test_a_provider_of_the_wrong_shape_is_refused(install: Install, old: str, new: str, reason: str) -> None:
    install(GOOD.replace(old, new), "shop = toolkeep_shop_for_tests:Shop")
    error = failure("shop")
    assert error.message == f"provider 'shop' {reason}"


@pytest.mark.spec("REG-4")
@pytest.mark.parametrize("field", ["name", "priority", "get_tool_definitions"])
def test_a_provider_that_breaks_when_it_is_looked_at_is_a_provider_that_fails(
    install: Install, field: str
) -> None:
    broken = f"""
    @property
    def {field}(self):
        raise RuntimeError({SECRET!r})
"""
    install(GOOD.replace("\nSHOP", f"{broken}\nSHOP"), "shop = toolkeep_shop_for_tests:Shop")
    assert SECRET not in str(failure("shop"))


@pytest.mark.spec("REG-4")
@pytest.mark.parametrize("field", ["name", "priority", "get_tool_definitions"])
@pytest.mark.parametrize("after", range(4))
def test_a_provider_that_breaks_when_it_is_looked_at_again_is_skipped(
    install: Install, field: str, after: int
) -> None:
    broken = f"""
    looks = 0

    def __getattribute__(self, attribute):
        if attribute == {field!r}:
            Shop.looks += 1
            if Shop.looks > {after}:
                raise RuntimeError({SECRET!r})
        return object.__getattribute__(self, attribute)
"""
    install(GOOD.replace("\nSHOP", f"{broken}\nSHOP"), "shop = toolkeep_shop_for_tests:Shop")
    configure("shop")
    keep = open_keep()
    assert "agent_hello_world" in keep
    assert SECRET not in str(keep.start_up)


@pytest.mark.spec("REG-4")
@pytest.mark.parametrize("claimed", ["core", "code", "config", "project", "other", ""])
def test_a_provider_is_who_its_entry_point_says_whatever_it_calls_itself(
    install: Install, claimed: str
) -> None:
    install(GOOD.replace('"shop"', repr(claimed)), "shop = toolkeep_shop_for_tests:Shop")
    configure("shop")
    keep = open_keep()
    bought = keep.get("buy")
    assert (bought.provider, bought.is_built_in, keep.start_up.skipped) == ("shop", False, ())
    keep.unregister("buy")


@pytest.mark.spec("REG-4")
@pytest.mark.parametrize("name", ["core", "Core", "code", "config", "project"])
def test_an_entry_point_under_a_name_of_ours_is_skipped(install: Install, name: str) -> None:
    install(GOOD, f"{name} = toolkeep_shop_for_tests:Shop")
    configure(name)
    keep = open_keep()
    assert "buy" not in keep
    assert [(one.provider, one.error.code) for one in keep.start_up.skipped] == [(name, Code.PROVIDER_FAILED)]


@pytest.mark.spec("SBX-6")
def test_an_entry_point_in_a_folder_that_a_tool_may_write_does_not_count(
    install: Install, tmp_path: Path
) -> None:
    """It could be there under the name of a provider that is configured."""
    install("raise SystemExit", "shop = toolkeep_shop_for_tests:SHOP")
    watch(str(tmp_path))
    assert "is not installed" in failure("shop").message
