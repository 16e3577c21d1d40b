"""``git daytona …``: its commands, and the module of each."""

from git_daytona.cli.program import program

SECTIONS = {
    "Work in sessions": {
        "start": ("work", "Start a session: a sandbox with HEAD in it"),
        "fork": ("forks", "Start another session from the state of one"),
        "setup": ("provisions", "Run the project's set-up in a session's sandbox"),
        "exec": ("execute", "Run a command in a session's sandbox"),
        "shell": ("work", "Open a shell in a session's sandbox"),
        "cp": ("work", "Copy files into a sandbox, or out of it"),
        "forward": ("ports", "Let ports of this machine lead into a sandbox"),
        "code": ("editors", "Open VS Code on a session's sandbox"),
        "sync": ("work", "Bring a session's work back to opencode/N"),
        "fetch": ("work", "Fetch a sandbox's branches into sandbox-N/*, no more"),
        "push": ("work", "Push opencode/N into its sandbox, fast-forward only"),
        "merge": ("plain_git", "Merge opencode/N into the branch you are on"),
        "apply": ("plain_git", "Put a session's changes into your files, uncommitted"),
        "checkout": ("review", "Make a worktree of opencode/N that follows it"),
        "update": ("review", "Merge new commits of yours in a session's sandbox"),
        "pr": ("review", "Push opencode/N to your origin and make a pull request"),
        "wait": ("work", "Wait until a session's work is here"),
        "stop": ("work", "Sync a session and stop its sandbox; its files stay"),
        "resume": ("work", "Start a session's sandbox again"),
        "snapshot": ("forks", "Keep a session's sandbox for new ones to be made from"),
        "delete": ("work", "Sync a session a last time and delete its sandbox"),
    },
    "Look": {
        "status": ("look", "List the sessions, and where each one's work is"),
        "log": ("plain_git", "Show the commits of a session"),
        "diff": ("plain_git", "Show what a session has changed"),
        "open": ("look", "Print and open a link to a server in a sandbox"),
        "logs": ("look", "Print the end of the log, or of a set-up"),
        "help": ("help", "Show the manual page, or what a command takes"),
    },
    "Mend": {
        "doctor": ("mend", "Check the whole chain, and say what to do"),
        "version": ("mend", "Print versions, all that a bug report needs"),
        "recover": ("mend", "Make good what an interrupted process left"),
        "adopt": ("mend", "Make a session from an existing sandbox"),
        "prune": ("mend", "Remove sandboxes, remotes and leases that nobody uses"),
    },
    "Set up": {
        "install": ("set_up", "Add the plugin to OpenCode's configuration"),
        "uninstall": ("set_up", "Take the plugin out of it again"),
        "allow": ("provisions", "Let sandboxes run what devcontainer.json wants"),
        "config": ("set_up", "Show every setting, and where it came from"),
        "ssh-config": ("editors", "Print or install entries for ~/.ssh/config"),
        "completion": ("set_up", "Print the completion script for a shell"),
        "serve": ("serve", "Serve OpenCode's plugin (it starts this itself)"),
        "ssh-proxy": ("editors", "Serve an ssh that has them (it starts this itself)"),
        "hook": ("hook", "Handle one event of another client"),
        "mcp": ("mcp", "Serve an agent's tools by the Model Context Protocol"),
    },
}


ALIASES = {"list": "status", "ls": "status", "ps": "status", "rm": "delete", "ssh": "shell"}


@program(
    "git-daytona",
    SECTIONS,
    epilog="N is a number, sandbox-N, opencode/N, a sandbox id or a session id; without it the "
    "session is meant whose branch you are on, or the only one. Also known as: status as list, ls "
    "and ps, delete as rm, shell as ssh. See git-daytona(1) for exit statuses and files.",
    aliases=ALIASES,
)
def cli() -> None:
    """Run OpenCode sessions in Daytona sandboxes and get their work back through git."""
