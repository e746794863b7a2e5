"""Takes long to import, as anything does on a busy machine."""

import time

time.sleep(60)
