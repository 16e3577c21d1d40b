"""diff, log: what came back to the user's repository. For clients whose users see no branches."""

from git_daytona.tools import answers
from git_daytona.tools.context import Context, Result, texts, tool

_PATHS = texts("Only these paths, relative to the project. All by default")


@tool(
    "diff",
    "Brings the work back and shows it as one patch: this session's branch in the user's "
    "repository against the commit that the session started from.",
    paths=_PATHS,
)
def diff(context: Context, paths: list[str]) -> Result:
    return _review(context, "diff", paths)


@tool(
    "log",
    "Brings the work back and lists the commits that this session's branch in the user's "
    "repository has over the commit that the session started from.",
    paths=_PATHS,
)
def log(context: Context, paths: list[str]) -> Result:
    return _review(context, "log", paths)


def _review(context: Context, command: str, paths: list[str]) -> Result:
    message = context.sync()
    found = answers.output(context.review(command, paths)).rstrip("\n")
    shown = "\n".join(answers.head(found.split("\n")))
    if shown != found:
        shown += "\n\n(cut here; name paths to see the rest)"
    return Result(message, f"{message}\n\n{shown or 'nothing has changed'}", {"message": message})
