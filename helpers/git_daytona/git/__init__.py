"""The user's repository: its refs, branches, worktrees, and the environment that our git runs
in."""
