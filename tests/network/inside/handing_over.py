"""What the conformance suite runs as a client: hands its scenario to the process that drives the product."""

import json
import os
import socket
import sys

with socket.socket(socket.AF_UNIX) as link:
    link.connect(sys.argv[1])
    asked = {
        "name": os.environ["MCP_CONFORMANCE_SCENARIO"],
        "protocol": os.environ.get("MCP_CONFORMANCE_PROTOCOL_VERSION", ""),
        "context": json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}")),
        "url": sys.argv[2],
    }
    link.sendall(json.dumps(asked).encode() + b"\n")
    said = json.loads(link.makefile().readline())
print(said["text"])
sys.exit(said["status"])
