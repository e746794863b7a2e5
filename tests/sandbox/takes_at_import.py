"""A tool whose children take memory before any call comes."""

import os
import time

if os.getpid() == 1:
    for _ in range(4):
        if os.fork() == 0:
            taken = bytearray(b"x") * (100 << 20)
            time.sleep(60)
            os._exit(0)


def never() -> None:
    time.sleep(30)
