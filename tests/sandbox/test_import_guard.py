"""The host imports nothing that a tool may have written, and everything else as before (SBX-6)."""

import importlib.util
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from toolkeep import Code, open_keep
from toolkeep.approval.question import Answer, Question
from toolkeep.sandbox import import_guard

pytestmark = pytest.mark.spec("SBX-6")


PRELUDE = """\
from toolkeep.sandbox.import_guard import watch

def tried(name):
    try:
        __import__(name)
    except ImportError as error:
        return "refused" if "may have written" in str(error) else "absent"
    return "imported"
"""


def run(folder: Path, program: str, *, script: str = "host.py", **variables: str) -> str:
    """What a program prints whose script lies in a folder that a tool may write."""
    (folder / script).write_text(PRELUDE + textwrap.dedent(program))
    done = subprocess.run(
        [sys.executable, script],
        cwd=folder,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_module_that_was_there_is_imported_later(tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").touch()
    (tmp_path / "package" / "inner.py").write_text("value = 3")
    program = """
        watch(".")
        import package.inner
        print(package.inner.value)
    """
    assert run(tmp_path, program) == "3"


def test_a_module_that_came_later_is_not_imported(tmp_path: Path) -> None:
    program = """
        watch(".")
        open("later.py", "w").write("print('ran')")
        print(tried("later"))
    """
    assert run(tmp_path, program) == "refused"


@pytest.mark.parametrize(
    "change",
    [
        "open('there.py', 'a').write('#')",
        "import os; os.replace('other.py', 'there.py')",
        "import os; os.unlink('there.py'); os.link('other.py', 'there.py')",
        "import os; os.unlink('there.py'); os.symlink('other.py', 'there.py')",
        "import os; os.chmod('there.py', 0o600)",
    ],
)
def test_a_module_that_changed_is_not_imported(tmp_path: Path, change: str) -> None:
    for name in ("there", "other"):
        (tmp_path / f"{name}.py").write_text("print('ran')")
    program = f"""
        watch(".")
        {change}
        print(tried("there"))
    """
    assert run(tmp_path, program) == "refused"


def test_an_old_module_that_was_moved_to_another_name_is_not_imported(tmp_path: Path) -> None:
    """Its content and times are as they were: a folder above it was renamed."""
    (tmp_path / "attic").mkdir()
    (tmp_path / "attic" / "__init__.py").write_text("print('ran')")
    program = """
        watch(".")
        import os; os.rename("attic", "wanted")
        print(tried("wanted"))
    """
    assert run(tmp_path, program) == "refused"


def test_a_link_that_came_later_is_not_followed_out_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "wanted.py").write_text("print('ran')")
    (tmp_path / "work").mkdir()
    program = """
        watch(".")
        import os; os.symlink("../outside/wanted.py", "wanted.py")
        print(tried("wanted"))
    """
    assert run(tmp_path / "work", program) == "refused"


@pytest.mark.parametrize("is_link", [False, True])
def test_bytecode_beside_an_unchanged_source_is_not_run(tmp_path: Path, *, is_link: bool) -> None:
    """The poisoned bytecode carries the time and size of the source, so that Python would take it."""
    work = tmp_path / "work"
    work.mkdir()
    source = tmp_path / "elsewhere.py" if is_link else work / "there.py"
    source.write_text("said = 'source'\n")
    if is_link:
        (work / "there.py").symlink_to(source)
    program = """
        import importlib.util, marshal, os, struct
        watch(".")
        status = os.stat("there.py")
        body = importlib.util.MAGIC_NUMBER + struct.pack("<III", 0, int(status.st_mtime), status.st_size)
        body += marshal.dumps(compile("said = 'bytecode'", "there.py", "exec"))
        os.makedirs("__pycache__", exist_ok=True)
        open(importlib.util.cache_from_source("there.py"), "wb").write(body)
        if os.environ.get("UNGUARDED"):
            import sys
            sys.meta_path.pop(0)
            sys.path_hooks.pop(0)
            sys.path_importer_cache.clear()
        import there
        print(there.said)
    """
    assert run(work, program, UNGUARDED="1") == "bytecode"  # that is how it would have run
    assert run(work, program) == "source"


def test_installed_code_gets_the_installed_module_although_a_file_of_that_name_was_there(
    tmp_path: Path,
) -> None:
    """A tool may have left it in an earlier run: then it was there when the keep opened."""
    (tmp_path / "rapidfuzz.py").write_text("raise SystemExit('ran')")
    program = """
        watch(".")
        from toolkeep.text.nearest import nearest_name
        print(nearest_name("helo", ["hello", "world"]))
    """
    assert "hello" in run(tmp_path, program)


def test_toolkeep_does_not_import_a_package_that_is_not_installed_from_the_work(tmp_path: Path) -> None:
    (tmp_path / "absent_extra.py").write_text("print('ran')")
    program = """
        import toolkeep
        watch(".")
        ours = {"__name__": "toolkeep.extra", "__file__": toolkeep.__file__}
        try:
            exec("import absent_extra", ours)
        except ImportError as error:
            print("is not the installed module" in str(error))
    """
    assert run(tmp_path, program) == "True"


def test_a_link_outside_that_leads_into_the_folder_is_judged_by_where_it_leads(tmp_path: Path) -> None:
    """The folder of the link is safe, what it leads to is not."""
    (tmp_path / "work" / "inner").mkdir(parents=True)
    (tmp_path / "work" / "inner" / "linked.py").write_text("")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "linked.py").symlink_to(tmp_path / "work" / "inner" / "linked.py")
    program = """
        import sys
        sys.path.append("../outside")
        watch(".")
        open("inner/linked.py", "w").write("print('ran')")
        print(tried("linked"))
    """
    assert run(tmp_path / "work", program) == "refused"


@pytest.mark.parametrize("library", ["importlib.metadata", "importlib_metadata"])
def test_distributions_in_a_writable_folder_are_not_found(tmp_path: Path, library: str) -> None:
    """`keyring` and others call each entry point of a group; an installed function needs no code to be left."""
    program = """
        import importlib, os
        watch(".")
        metadata = importlib.import_module("LIBRARY")
        os.mkdir("left-1.dist-info")
        open("left-1.dist-info/METADATA", "w").write("Metadata-Version: 2.1\\nName: toolkeep\\nVersion: 9.9.9\\n")
        open("left-1.dist-info/entry_points.txt", "w").write("[keyring.backends]\\nx = os:abort\\n")
        found = metadata.entry_points(group="keyring.backends")
        print("x" in {point.name for point in found}, metadata.version("toolkeep") == "9.9.9")
        print(sum(one.name == "pytest" for one in metadata.distributions()))
    """
    assert run(tmp_path, program.replace("LIBRARY", library)) == "False False\n1"


def test_the_work_itself_may_still_name_a_module_as_an_installed_one(tmp_path: Path) -> None:
    (tmp_path / "yaml.py").write_text("mine = True")
    assert run(tmp_path, "watch('.')\nimport yaml\nprint(yaml.mine)") == "True"


def test_the_module_that_a_planted_one_stood_in_front_of_is_imported(tmp_path: Path) -> None:
    program = """
        watch(".")
        open("rapidfuzz.py", "w").write("print('ran')")
        import rapidfuzz
        print(hasattr(rapidfuzz, "fuzz"))
    """
    assert run(tmp_path, program) == "True"


def test_the_standard_library_is_not_replaced(tmp_path: Path) -> None:
    program = """
        watch(".")
        open("stringprep.py", "w").write("print('ran')")
        import stringprep
        print(stringprep.__file__ != "stringprep.py")
    """
    assert run(tmp_path, program) == "True"


def test_a_namespace_package_is_found_and_what_came_into_it_later_is_not(tmp_path: Path) -> None:
    (tmp_path / "space").mkdir()
    (tmp_path / "space" / "old.py").write_text("")
    program = """
        watch(".")
        open("space/new.py", "w").write("print('ran')")
        print(tried("space.old"), tried("space.new"))
    """
    assert run(tmp_path, program) == "imported refused"


def test_what_is_recorded_first_counts(tmp_path: Path) -> None:
    """A second grant of the same folder, or of one inside it, must not take what was planted for old."""
    (tmp_path / "inner").mkdir()
    program = """
        watch("inner")
        open("inner/later.py", "w").write("print('ran')")
        import sys; sys.path.insert(0, "inner")
        watch("inner"); watch("."); watch("inner")
        print(tried("later"))
    """
    assert run(tmp_path, program) == "refused"


def test_a_finder_that_another_put_first_stands_behind_again_after_the_next_grant(tmp_path: Path) -> None:
    (tmp_path / "second").mkdir()
    program = """
        import sys
        watch(".")
        guard = sys.meta_path[0]
        sys.meta_path.insert(0, sys.meta_path.pop())
        watch("second")
        print(sys.meta_path[0] is guard, sys.meta_path.count(guard))
    """
    assert run(tmp_path, program) == "True 1"


def test_a_folder_with_too_many_modules_opens_a_keep_and_refuses_each_call_that_would_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(import_guard, "PROTECTED_ENTRIES", 1)
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("a.py", "b.py"):
        (tmp_path / name).touch()

    async def agree(question: Question) -> Answer:
        return Answer(verdict="approve", approver="eve", way="program")

    with open_keep(project=tmp_path, approver=agree) as keep:
        keep.declare_agent("ada", capabilities=["fs.write:."], permissions=["tool.filesystem.write"])
        with pytest.raises(ValueError, match="too many modules"):
            import_guard.watch(str(tmp_path))
        arguments = {"path": str(tmp_path / "c.txt"), "content": "x"}
        result = keep.call_sync("write_file", arguments, agent="ada")
    assert (result.code, "too many modules" in result.text) == (Code.ISOLATION_UNAVAILABLE, True)


# --- other ways to find a module -----------------------------------------------------------------


def test_the_finder_of_a_folder_refuses_too(tmp_path: Path) -> None:
    """The loop by which programs load plug-ins asks no finder of `sys.meta_path`."""
    (tmp_path / "old.py").write_text("said = 'old'")
    program = """
        import pkgutil, sys
        sys.path_importer_cache.clear()
        list(pkgutil.iter_modules(["."]))
        watch(".")
        open("new.py", "w").write("print('ran')")
        for finder, name, _ in pkgutil.iter_modules(["."]):
            try:
                print(name, finder.find_spec(name) is not None)
            except ImportError as error:
                print(name, "may have written" in str(error))
    """
    assert run(tmp_path, program) == "host True\nnew True\nold True"
    unguarded = program.replace('watch(".")', "")
    assert "ran" not in run(tmp_path, unguarded)
    (tmp_path / "new.py").unlink()
    loop = program.replace(
        "print(name, finder.find_spec(name) is not None)",
        "finder.find_spec(name).loader.load_module(name) if name == 'new' else 0",
    )
    assert run(tmp_path, loop) == "new True"


def test_a_finder_that_is_put_first_later_does_not_stay_there(tmp_path: Path) -> None:
    program = """
        import sys
        from importlib.machinery import FileFinder, SourceFileLoader
        watch(".")
        class Other:
            @staticmethod
            def find_spec(name, path=None, target=None):
                return FileFinder(".", (SourceFileLoader, [".py"])).find_spec(name)
        sys.meta_path.insert(0, Other)
        open("later.py", "w").write("print('ran')")
        watch(".")  # as the next call does
        print(tried("later"))
    """
    assert run(tmp_path, program) == "refused"


@pytest.mark.parametrize("is_changed", [False, True])
def test_a_loader_of_somebody_else_gets_no_bytecode_that_came_later(
    tmp_path: Path, *, is_changed: bool
) -> None:
    """pytest keeps bytecode of its own beside that of Python."""
    (tmp_path / "there.py").write_text("said = 'source'")
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__" / "there.other.pyc").write_bytes(b"old")
    program = f"""
        import importlib.machinery, importlib.util, sys
        class Loader(importlib.machinery.SourceFileLoader):
            pass
        class Other:
            @staticmethod
            def find_spec(name, path=None, target=None):
                if name == "there":
                    return importlib.util.spec_from_file_location(name, "there.py", loader=Loader(name, "there.py"))
        sys.meta_path.insert(0, Other)
        watch(".")
        if {is_changed}:
            open("__pycache__/there.other.pyc", "wb").write(b"new")
        print(tried("there"))
    """
    assert run(tmp_path, program) == ("refused" if is_changed else "imported")


@pytest.mark.parametrize("left", ["", "package/libdep.so", "package.libs/libdep.so.1", "libdep-2.so"])
def test_an_extension_module_is_not_loaded_once_a_library_beside_it_changed(
    tmp_path: Path, left: str
) -> None:
    """By its RPATH it would load a library that a tool left, and run it."""
    real = importlib.util.find_spec("_bisect")
    assert real is not None
    if real.origin in (None, "built-in"):
        pytest.skip("this Python has no extension modules as files")
    (tmp_path / "package").mkdir()
    (tmp_path / "package.libs").mkdir()
    (tmp_path / "package" / "__init__.py").touch()
    shutil.copy(str(real.origin), tmp_path / "package")
    program = f"""
        watch(".")
        if {left!r}:
            open({left!r}, "w").write("a library")
        print(tried("package._bisect"))
    """
    assert run(tmp_path, program) == ("refused" if left else "imported")


def test_a_path_is_walked_as_the_kernel_does(tmp_path: Path) -> None:
    """`app/../lib` leads elsewhere once `app` is a link."""
    for folder in ("work/app", "work/lib", "elsewhere/app", "elsewhere/lib"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "work" / "lib" / "there.py").write_text("")
    (tmp_path / "elsewhere" / "lib" / "there.py").write_text("print('ran')")
    program = """
        import os, sys
        sys.path.insert(0, os.path.abspath("app") + "/../lib")
        watch(".")
        os.rmdir("app")
        os.symlink("../elsewhere/app", "app")
        print(tried("there"))
    """
    assert run(tmp_path / "work", program) == "refused"
