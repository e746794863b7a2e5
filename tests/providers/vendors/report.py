"""Everything that the vendors' types judge, in one process: what they cost to import is paid once."""

import json
import sys
from pathlib import Path

from tests.providers.vendors import judge_exports, judge_speech

if __name__ == "__main__":
    data = Path(sys.argv[1])
    print(json.dumps({"exports": judge_exports.main(data), "speech": judge_speech.main(data)}))
