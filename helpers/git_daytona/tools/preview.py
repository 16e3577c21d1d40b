"""getPreviewURL: a link to a port of the sandbox, once something listens there."""

from git_daytona.sandbox.scripts import script
from git_daytona.tools.arguments import Arguments, Definition, schema, stop_if_cancelled, whole
from git_daytona.tools.context import Context, Result

WAIT = 10
"""Seconds that a server may take to come up."""


def run(context: Context, arguments: Arguments) -> Result:
    port = arguments.number("port", least=1, most=65535)
    opened = (
        context.execute(script("port"), str(port), str(WAIT), timeout=WAIT + 20.0).output.strip()
        == "open"
    )
    stop_if_cancelled(context)
    url = context.preview(port)
    output = f"Preview URL of port {port}: {url}"
    if not opened:
        output += (
            f"\n\nNothing listens on port {port} yet: the link works once a server does (bash "
            "with background: true)."
        )
    return Result(
        f"Preview of port {port}", output, {"port": port, "url": url, "listening": opened}
    )


TOOL = Definition(
    "getPreviewURL",
    "Gives a link that opens a server of this sandbox in the user's browser. Start the "
    "server first (bash with `background: true`, listening on 0.0.0.0), then give the user "
    "the link. localhost addresses of the sandbox are of no use to the user.",
    schema("port", port=whole("The port that the server listens on", 1, 65535)),
    run,
)
