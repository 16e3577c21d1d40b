"""getPreviewURL: a link to a port of the sandbox, once something listens there."""

from git_daytona.sandbox.scripts import script
from git_daytona.tools.context import Context, Result, stop_if_cancelled, tool, whole

WAIT = 10  # seconds that a server may take to come up


@tool(
    "getPreviewURL",
    "Gives a link that opens a server of this sandbox in the user's browser. Start the "
    "server first (bash with `background: true`, listening on 0.0.0.0), then give the user "
    "the link. localhost addresses of the sandbox are of no use to the user.",
    port=whole("The port that the server listens on", 1, 65535),
)
def get_preview_url(context: Context, port: int) -> Result:
    answer = context.execute(script("port"), str(port), str(WAIT), timeout=WAIT + 20.0)
    listening = answer.output.strip() == "open"
    stop_if_cancelled(context)
    url = context.preview(port)
    output = f"Preview URL of port {port}: {url}"
    if not listening:
        output += (
            f"\n\nNothing listens on port {port} yet: the link works once a server does (bash "
            "with background: true)."
        )
    metadata = {"port": port, "url": url, "listening": listening}
    return Result(f"Port {port}: {url}", output, metadata)
