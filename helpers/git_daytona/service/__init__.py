"""For programs that run agents: OpenCode's plugin over JSON-RPC, and `git daytona hook`."""
