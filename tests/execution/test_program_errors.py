"""What a program was denied, by its own words."""

from pathlib import Path

import pytest

from toolkeep.calls import Denied
from toolkeep.execution.program_errors import Denial, denials
from toolkeep.network.egress_proxy import Contact

pytestmark = pytest.mark.spec("SBX-5")


def test_denials_name_the_capability_that_would_allow_them(tmp_path: Path) -> None:
    there, program = tmp_path / "notes.txt", tmp_path / "helper"
    there.write_text("")
    program.write_text("")
    program.chmod(0o755)
    words = "\n".join(
        (
            f"FileNotFoundError: [Errno 2] No such file or directory: '{there}'",
            f"FileNotFoundError: [Errno 2] No such file or directory: '{tmp_path}/nothing'",
            f"Error: EROFS: read-only file system, open '{there}'",
            f"Error: EACCES: permission denied, mkdir '{tmp_path}/new'",
            f"Error: spawn {program} EACCES",
            f"fork/exec {program}: permission denied",
            "Error: getaddrinfo EAI_AGAIN api.example",
        )
    )
    contacts = [
        Contact(method="CONNECT", host="shop.example", port=8443, is_denied=True),
        Contact(method="GET", host="slow.example", port=80, problem="it is slow"),
    ]
    assert denials(words, contacts) == (
        Denial(Denied.HOST, "shop.example:8443", "net.write:shop.example:8443"),
        Denial(Denied.FILE, str(there), f"fs.read:{there}"),
        Denial(Denied.FILE, str(there), f"fs.write:{there}"),
        Denial(Denied.FILE, f"{tmp_path}/new", f"fs.write:{tmp_path}/new"),
        Denial(Denied.PROGRAM, str(program), f"process.spawn:{program}"),
        Denial(Denied.HOST, "api.example", "net.write:api.example"),
    )
