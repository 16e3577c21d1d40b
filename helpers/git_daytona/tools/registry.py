"""All tools, in the order in which the model is shown them."""

from dataclasses import replace

from git_daytona.tools import apply_patch, bash, edit, git_sync, glob, grep, preview, read, write
from git_daytona.tools.context import Tool

TOOLS: tuple[Tool, ...] = (
    *(bash.bash, read.read, write.write, edit.edit, edit.multiedit, apply_patch.apply_patch),
    *(glob.glob, grep.grep, glob.list_files, replace(glob.list_files, name="ls")),
    *(preview.get_preview_url, git_sync.git_sync),
)
