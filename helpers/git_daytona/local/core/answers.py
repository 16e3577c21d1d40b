"""JSON as Daytona's servers write it: without blanks between its parts, which clients that look for
``"state":"started"`` rely on."""

import json
from functools import partial

from aiohttp import web

compact = partial(json.dumps, separators=(",", ":"))

json_response = partial(web.json_response, dumps=compact)
