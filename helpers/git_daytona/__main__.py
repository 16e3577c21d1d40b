"""``python -m git_daytona PROGRAM ARGUMENTS…``: what the launchers in bin/ call."""

import sys


def main(argv: list[str]) -> int:
    """Run one of the click programs and return its exit status."""
    program, arguments = argv[0] if argv else "git-daytona", argv[1:]
    if program == "git-daytona" and arguments == ["serve"]:  # past click: OpenCode waits for its first answer
        from git_daytona.service import serve

        return serve()
    from git_daytona.cli import boundary

    if program == "daytona-pin":
        from git_daytona.cli.pin import cli
    elif program == "daytona-token":
        from git_daytona.cli.token import cli
    elif program == "daytona-local":
        from git_daytona.cli.local import cli
    else:
        from git_daytona.cli.coordinator import cli

        return boundary.run(cli, "git-daytona", arguments, display="git daytona")
    return boundary.run(cli, program, arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
