"""gitSync: bring the sandbox's work back to the user's repository now. diff, log: and show what
came back, for clients whose users see no branches."""

from git_daytona.tools import answers
from git_daytona.tools.context import Context, Result, Tool, texts, tool


@tool(
    "gitSync",
    "Brings the work of this sandbox back to the user's repository as commits on this "
    "session's branch, and says what came of it. It also happens by itself when you have "
    "finished; call it before you tell the user to look at the work, or when asked to.",
)
def git_sync(context: Context) -> Result:
    message = context.sync()
    return Result(message.partition("; ")[0], message, {"message": message})


def _review(command: str, description: str) -> Tool:
    only = texts("Only these paths, relative to the project. All by default")

    @tool(command, f"Brings the work back and {description}", paths=only)
    def review(context: Context, paths: list[str]) -> Result:
        message = context.sync()
        found = answers.output(context.review(command, paths)).rstrip("\n")
        shown = "\n".join(answers.head(found.split("\n")))
        if shown != found:
            shown += "\n\n(cut here; name paths to see the rest)"
        text = f"{message}\n\n{shown or 'nothing has changed'}"
        return Result(message, text, {"message": message})

    return review


diff = _review(
    "diff",
    "shows it as one patch: this session's branch in the user's repository against the commit "
    "that the session started from.",
)
log = _review(
    "log",
    "lists the commits that this session's branch in the user's repository has over the commit "
    "that the session started from.",
)
