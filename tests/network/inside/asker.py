"""A program that stays and fetches what it is told; it finds its way out by the usual variables."""

import json
import sys
import urllib.request

for line in sys.stdin:
    request = json.loads(line)
    try:
        with urllib.request.urlopen(request["arguments"]["url"], timeout=10) as page:  # noqa: S310 -- of the test
            said = page.read().decode()
    except OSError as error:
        said = str(error)
    sys.stdout.write(json.dumps({"id": request["id"], "result": said}) + "\n")
    sys.stdout.flush()
