"""multiedit: several edits of one file, all or none. Two API calls."""

from git_daytona.tools import edit, files, matching, places
from git_daytona.tools.arguments import Arguments, Definition, schema, text
from git_daytona.tools.context import Context, Result, ToolError
from git_daytona.tools.texts import Text, decode


def run(context: Context, arguments: Arguments) -> Result:
    path = places.resolve(arguments.text("filePath", empty=False), context.worktree)
    steps = [
        (each.text("oldString"), each.text("newString"), each.flag("replaceAll"))
        for each in arguments.objects("edits")
    ]
    with files.locked(context, [path]):
        (found,) = files.fetch(context, [path])
        if found.kind == "missing" and not steps[0][0]:
            before, after = Text(""), decode(steps[0][1].encode())
            rest = list(enumerate(steps, 1))[1:]
        else:
            before = after = edit.editable(found)
            rest = list(enumerate(steps, 1))
        for number, (old, new, every) in rest:
            try:
                after = matching.replace(after, old, new, every=every)
            except ToolError as problem:
                raise ToolError(
                    f"Edit {number} of {len(steps)} failed, so none was made: {problem.message}"
                ) from None
        result = edit.change(context, path, found, before, after)
        return Result(
            result.title, result.output, {**result.metadata, "results": [{} for _ in steps]}
        )


TOOL = Definition(
    "multiedit",
    """Makes several replacements in one file, all or none.

- Each edit works as the edit tool does, on what those before it have left. If one cannot be \
made, the file stays as it is.
- Prefer this to several edit calls on the same file. Mind that an early edit may change the text \
that a later one looks for.""",
    schema(
        "filePath edits",
        filePath=text("The path of the file to modify, absolute or relative to the project"),
        edits={
            "type": "array",
            "description": "The edits, in the order in which they are made",
            "minItems": 1,
            "items": schema(
                "oldString newString", oldString=edit.OLD, newString=edit.NEW, replaceAll=edit.ALL
            ),
        },
    ),
    run,
)
