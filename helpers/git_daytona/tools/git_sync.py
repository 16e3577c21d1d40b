"""gitSync: bring the sandbox's work back to the user's repository now."""

from git_daytona.tools.context import Context, Result, tool


@tool(
    "gitSync",
    "Brings the work of this sandbox back to the user's repository as commits on this "
    "session's branch, and says what came of it. It also happens by itself when you have "
    "finished; call it before you tell the user to look at the work, or when asked to.",
)
def git_sync(context: Context) -> Result:
    message = context.sync()
    return Result(message.partition("; ")[0], message, {"message": message})
