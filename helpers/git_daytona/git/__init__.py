"""The user's repository: its refs, branches and worktrees, and the environment of our git."""
