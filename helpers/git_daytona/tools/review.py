"""diff, log: what came back to the user's repository. For clients whose users see no branches."""

from git_daytona.tools import answers
from git_daytona.tools.context import Context, Result, Tool, texts, tool

_PATHS = "Only these paths, relative to the project. All by default"


def _review(command: str, description: str) -> Tool:
    @tool(command, description, paths=texts(_PATHS))
    def review(context: Context, paths: list[str]) -> Result:
        message = context.sync()
        found = answers.output(context.review(command, paths)).rstrip("\n")
        shown = "\n".join(answers.head(found.split("\n")))
        if shown != found:
            shown += "\n\n(cut here; name paths to see the rest)"
        return Result(
            message, f"{message}\n\n{shown or 'nothing has changed'}", {"message": message}
        )

    return review


diff = _review(
    "diff",
    "Brings the work back and shows it as one patch: this session's branch in the user's "
    "repository against the commit that the session started from.",
)
log = _review(
    "log",
    "Brings the work back and lists the commits that this session's branch in the user's "
    "repository has over the commit that the session started from.",
)
