"""All tools, in the order in which the model is shown them."""

from git_daytona.tools import apply_patch, bash, edit, git_sync, glob, grep, preview, read, write
from git_daytona.tools.context import Tool

TOOLS: tuple[Tool, ...] = (
    bash.TOOL,
    read.TOOL,
    write.TOOL,
    edit.EDIT,
    edit.MULTIEDIT,
    apply_patch.TOOL,
    glob.GLOB,
    grep.TOOL,
    glob.LIST,
    glob.LS,
    preview.TOOL,
    git_sync.TOOL,
)
