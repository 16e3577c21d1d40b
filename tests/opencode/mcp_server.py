"""An MCP server over standard input and output, with one tool that says where it runs."""

import json
import os
import sys

TOOL = {"name": "ping", "description": "says where", "inputSchema": {"type": "object"}}

for line in sys.stdin:
    request = json.loads(line)
    method = request.get("method")
    if "id" not in request:
        continue
    result: dict[str, object] = {}
    if method == "initialize":
        version = request["params"]["protocolVersion"]
        result = {
            "protocolVersion": version,
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "side", "version": "1"},
        }
    elif method == "tools/list":
        result = {"tools": [TOOL]}
    elif method == "tools/call":
        result = {"content": [{"type": "text", "text": f"pong of {os.getpid()}"}]}
    print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}), flush=True)
