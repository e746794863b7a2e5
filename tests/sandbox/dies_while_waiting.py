"""A tool whose thread ends the worker before any call comes."""

import os
import threading


def never() -> None:
    return None


if os.getpid() == 1:
    threading.Timer(0.05, os._exit, (1,)).start()
