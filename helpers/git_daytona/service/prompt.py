"""What OpenCode's system prompt gets besides."""

from git_daytona.git.refs import PROJECT


def system(worktree: str, tools: tuple[str, ...]) -> str:
    """The addition to the system prompt."""
    return f"""## Daytona sandbox

This session runs in a Daytona sandbox of its own, a Linux machine apart from the user's. The project lies there in {PROJECT}, a git
repository whose branch `opencode` began at the user's HEAD; what was not committed on the user's machine is not in it.

- These tools act in the sandbox and nowhere else: {", ".join(f"`{name}`" for name in tools)}.
- Paths: relative ones are relative to {PROJECT}. Paths under {worktree} mean the same place in {PROJECT}. All other absolute paths
  are the sandbox's own. You cannot reach the user's machine.
- Servers: start them with `bash` and `background: true`, listening on 0.0.0.0 or localhost, and give the user the link that
  `getPreviewURL` makes. A localhost URL does not work for the user.
- Your work comes back by itself after each turn, as commits on a local branch, `opencode/N` as a rule. Call `gitSync` when you hand work
  over, or when the user is about to look at it: it names the branch. Commits that you make yourself are kept as they are. Do not push, and add no remotes.
"""
