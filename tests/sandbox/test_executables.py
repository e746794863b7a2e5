"""What a program is loaded by, read from the file that is there now."""

import os
from pathlib import Path

import pytest

from toolkeep.sandbox.executables import executables


def script(path: Path, first: str) -> list[str]:
    path.write_text(f"{first}\n")
    return list(executables(str(path)))


def test_a_script_and_a_binary_name_what_loads_them(tmp_path: Path) -> None:
    shell = os.path.realpath("/bin/sh")
    found = script(tmp_path / "a", "#!/bin/sh")
    assert found[:2] == [str(tmp_path / "a"), shell]
    assert "ld-" in found[-1]
    assert script(tmp_path / "b", "no first line") == [str(tmp_path / "b")]
    assert list(executables(str(tmp_path / "none"))) == [str(tmp_path / "none")]


def test_a_file_that_changed_is_read_anew(tmp_path: Path) -> None:
    path = tmp_path / "a"
    assert os.path.realpath("/bin/sh") in script(path, "#!/bin/sh")
    before = path.stat()
    path.write_text("#!/bin/ls\n")  # as long as before, and as old as before for whoever looks at its time
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert list(executables(str(path)))[1] == os.path.realpath("/bin/ls")
    replaced = tmp_path / "other"
    replaced.write_text("#!/bin/sh\n")
    replaced.replace(path)
    assert list(executables(str(path)))[1] == os.path.realpath("/bin/sh")


def test_what_the_kernel_would_not_load_does_not_count(tmp_path: Path) -> None:
    """A script that a tool may write could name any file or folder, and that would be shown; or a terminal."""
    secret, folder, terminal = tmp_path / "secret", tmp_path / "folder", tmp_path / "terminal"
    secret.write_text("loot")
    folder.mkdir()
    os.mkfifo(terminal, 0o700)  # whoever opens it waits
    for named in (secret, folder, terminal, tmp_path / "absent"):
        assert script(tmp_path / "a", f"#!{named}") == [str(tmp_path / "a")]
    secret.chmod(0o711)
    assert script(tmp_path / "a", f"#!{secret}") == [str(tmp_path / "a"), str(secret)]


def test_a_binary_comes_with_its_loader() -> None:
    found = list(executables("/bin/sh"))
    assert found[0] == os.path.realpath("/bin/sh")
    assert "ld-" in found[1]


def test_a_script_comes_with_its_interpreter(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("#! /bin/sh -e\necho")
    assert list(executables(str(script))) == [os.path.realpath(script), *executables("/bin/sh")]


def test_env_comes_with_what_it_finds(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("#!/usr/bin/env -S FOO=1 sh\n")
    found = list(executables(str(script)))
    assert os.path.realpath("/usr/bin/env") in found
    assert os.path.realpath("/bin/sh") in found


@pytest.mark.parametrize(
    "content", [b"", b"#!", b"#!relative", b"\x7fELF", b"\x7fELF\x02\x01" + b"\xff" * 60, b"text"]
)
def test_what_names_nothing_comes_alone(content: bytes, tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_bytes(content)
    assert list(executables(str(program))) == [os.path.realpath(program)]


def test_a_script_of_itself_ends(tmp_path: Path) -> None:
    script = Path(os.path.realpath(tmp_path)) / "script"
    script.write_text(f"#!{script}\n")
    assert set(executables(str(script))) == {str(script)}


@pytest.mark.skipif(not Path("/usr/bin/gcc").exists(), reason="there is no gcc here")
def test_a_compiler_of_the_system_comes_with_what_it_starts_and_no_other_program_of_its_name(
    tmp_path: Path,
) -> None:
    found = set(executables("/usr/bin/gcc"))
    assert {os.path.realpath("/usr/bin/as"), os.path.realpath("/usr/bin/ld")} < found
    assert found & {"/usr/lib/gcc", "/usr/libexec/gcc"}
    assert script(tmp_path / "gcc", "#!/bin/sh") == [str(tmp_path / "gcc"), *executables("/bin/sh")]
