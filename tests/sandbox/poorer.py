"""Runs a command as on a poorer machine: the system calls that are named by number fail with EPERM.

poorer.py NUMBER[,NUMBER…] COMMAND…
"""

import ctypes
import os
import struct
import sys


def deny(numbers: list[int]) -> None:
    steps = [(0x20, 0, 0, 0)]
    for number in numbers:
        steps += [(0x15, 0, 1, number), (0x06, 0, 0, 0x00050001)]
    steps.append((0x06, 0, 0, 0x7FFF0000))
    code = ctypes.create_string_buffer(b"".join(struct.pack("<HBBI", *step) for step in steps))
    program = struct.pack("HxxxxxxP", len(steps), ctypes.addressof(code))
    library = ctypes.CDLL(None, use_errno=True)
    if library.prctl(38, 1, 0, 0, 0) or library.prctl(22, ctypes.c_ulong(2), program, 0, 0):
        raise OSError(ctypes.get_errno(), "no filter")


if __name__ == "__main__":
    deny([int(number) for number in sys.argv[1].split(",")])
    os.execv(sys.argv[2], sys.argv[2:])  # noqa: S606 -- that is its purpose
