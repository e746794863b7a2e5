"""A tool that starts a thread as soon as it is imported."""

import threading

threading.Thread(target=threading.Event().wait, daemon=True).start()


def count_threads() -> int:
    return threading.active_count()
