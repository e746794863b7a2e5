"""What a server sends of the code of a tool that is in an installed package."""

from pathlib import Path

import msgspec
import pytest

from tests.fleet.packages import GREET, Site, write
from toolkeep import Keep
from toolkeep.config.tools_file import find_tools_file
from toolkeep.errors import FileUnreadable
from toolkeep.execution.code_identity import code_hash_of
from toolkeep.fleet import code_bundle
from toolkeep.fleet.code_bundle import Bundle, machine_here, pack
from toolkeep.fleet.installed_package import Pin
from toolkeep.keep.open import tools_file_provider, tools_reader
from toolkeep.registry.tool_provider import FILES

pytestmark = pytest.mark.spec("SCL-3")

TOOL = GREET["greet_tools/tools.py"]
TEXTS = {name: content.encode() for name, content in GREET.items()}


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    """Installed packages of a test."""
    return Site(tmp_path, monkeypatch)


def packed(site: Site, module: str = "greet_tools.tools") -> Bundle:
    with Keep() as keep:
        keep.register(site.load(module).greet)
        tool = keep.get("greet")
        code = code_hash_of(tool, keep.project)
        assert code is not None
        return msgspec.msgpack.decode(pack(tool, keep.project, code), type=Bundle)


def test_a_package_is_sent_whole_with_its_data_and_without_bytecode(site: Site) -> None:
    site.install("greet-tools", files=GREET, requires=("paint",))
    site.install("paint", "2.0.1")
    assert packed(site) == Bundle(
        "package", TEXTS, "greet_tools.tools", "greet", pin=Pin("greet-tools", "1.2", {"paint": "2.0.1"})
    )
    write(site.folder, {"greet_tools/__pycache__/tools.cpython-399.pyc": b"x"})
    assert packed(site).files == TEXTS


def test_an_installed_module_of_tools_is_known_by_its_code_and_sent_as_a_package(
    site: Site, tmp_path: Path
) -> None:
    site.install("greet-tools", files=GREET)
    bundle = packed(site)
    with Keep() as keep:
        file = find_tools_file("greet_tools.tools", tmp_path)
        assert (
            keep.load(own=[tools_file_provider(file, keep, tools_reader(tmp_path), name=FILES)]).skipped == ()
        )
        tool = keep.get("greet")
        code = code_hash_of(tool, keep.project) or ""
        assert code != file.seal
        assert msgspec.msgpack.decode(pack(tool, keep.project, code), type=Bundle) == bundle


def test_a_single_module_is_sent(site: Site) -> None:
    module = TOOL.partition("\n")[2]
    site.install("greet", "3", {"greet_alone.py": module})
    bundle = packed(site, "greet_alone")
    assert (bundle.files, bundle.target) == ({"greet_alone.py": module.encode()}, "greet_alone")


def test_an_editable_install_is_sent_like_any_other(site: Site, tmp_path: Path) -> None:
    write(tmp_path / "project" / "src", GREET)
    site.install_editable("greet-tools", tmp_path / "project")
    bundle = packed(site)
    assert (bundle.files, bundle.pin) == (TEXTS, Pin("greet-tools", "1.2", {}))


def test_extension_modules_are_sent_with_what_they_are_made_for(site: Site) -> None:
    site.install("greet-tools", files={**GREET, "greet_tools/fast.abi3.so": b"\x7fELF"})
    assert packed(site).machine == machine_here()


def test_a_namespace_package_is_refused(site: Site) -> None:
    site.install("greet-tools", files={"greet_tools/tools.py": TOOL.partition("\n")[2]})
    with pytest.raises(FileUnreadable, match="greet_tools: is a namespace package"):
        packed(site)


@pytest.mark.parametrize("name", [".token", ".git/config", "a\nb"])
def test_a_file_that_is_hidden_or_has_an_odd_name_is_refused(site: Site, name: str) -> None:
    site.install("greet-tools", files=GREET)
    write(site.folder, {f"greet_tools/{name}": "x"})
    with pytest.raises(FileUnreadable, match="is hidden, or has an odd name, and is not sent"):
        packed(site)


def test_a_link_in_a_package_is_not_followed(site: Site, tmp_path: Path) -> None:
    site.install("greet-tools", files=GREET)
    (tmp_path / "secret").mkdir()
    (site.folder / "greet_tools" / "data").symlink_to(tmp_path / "secret")
    with pytest.raises(FileUnreadable, match="has links in it"):
        packed(site)


@pytest.mark.parametrize("limit", ["CODE_FILES", "CODE_SOURCE_BYTES"])
def test_a_package_beyond_the_limits_is_refused(
    site: Site, limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(code_bundle, limit, 2)
    site.install("greet-tools", files=GREET)
    with pytest.raises(FileUnreadable, match="too much to be sent; install it on the worker"):
        packed(site)


def test_a_module_that_nothing_installed_is_refused(site: Site) -> None:
    write(site.folder, {"greet_work.py": TOOL.partition("\n")[2]})
    with pytest.raises(FileUnreadable, match="is of no installed distribution"):
        packed(site, "greet_work")


def test_a_package_that_changed_after_it_was_hashed_is_not_sent(site: Site) -> None:
    site.install("greet-tools", files=GREET)
    with Keep() as keep:
        keep.register(site.load("greet_tools.tools").greet)
        tool = keep.get("greet")
        code = code_hash_of(tool, keep.project) or ""
        write(site.folder, {"greet_tools/words.txt": "bye"})
        with pytest.raises(FileUnreadable, match="changed since its tools were registered"):
            pack(tool, keep.project, code)
