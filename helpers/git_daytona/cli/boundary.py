"""Where a command line is run or, for a shell, completed (click's way).

``_GIT_DAYTONA_COMPLETE=lines_complete`` with COMP_WORDS (shell-quoted) and COMP_CWORD in the
environment prints a line for each candidate: type (``plain``, ``file``, ``dir``), value and help,
with tabs between. The scripts are in completions/.
"""

import os
import sys
from collections.abc import Sequence

import click
from click.shell_completion import (
    CompletionItem,
    ShellComplete,
    add_completion_class,
    split_arg_string,
)

from git_daytona.base import errors, log, messages, paths

BROKEN_PIPE = 128 + 13
"""The exit status of a program that SIGPIPE ended."""


@add_completion_class
class Lines(ShellComplete):
    """One format for every shell."""

    name = "lines"

    def get_completion_args(self) -> tuple[list[str], str]:
        words = split_arg_string(os.environ.get("COMP_WORDS", ""))
        index = int(os.environ.get("COMP_CWORD", "0"))
        return words[1:index], words[index] if index < len(words) else ""

    def format_completion(self, item: "CompletionItem[str]") -> str:
        return "\t".join((item.type, item.value, " ".join((item.help or "").split())))


def run(command: click.Command, program: str, arguments: Sequence[str]) -> int:
    """Run a command and return its own exit status, or that of the error."""
    usage, completed = program.replace("git-", "git "), f"_{program.replace('-', '_')}_COMPLETE"
    try:
        result = command.main(
            [*arguments], prog_name=usage, standalone_mode=False, complete_var=completed.upper()
        )
        if sys.stdout is not None:
            sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except click.exceptions.Exit as done:
        return done.exit_code
    except SystemExit as done:
        return done.code if isinstance(done.code, int) else int(done.code is not None)
    except click.exceptions.NoArgsIsHelpError as problem:
        problem.show()
        return errors.UsageError.status
    except (KeyboardInterrupt, click.Abort, errors.Declined) as end:
        return _left(end)
    except BrokenPipeError:
        return reader_gone()
    except Exception as problem:  # noqa: BLE001 — the last resort, see _reported()
        return report(problem, program)


def _left(end: BaseException) -> int:
    """Say that a person has ended it."""
    if isinstance(end, errors.Declined):
        messages.note(end.message)
        return errors.INTERRUPTED
    messages.note("interrupted")
    # click makes an Abort of an interruption, which may say how to go on
    for hint in (end.__cause__ or end).args:
        messages.note(f"hint: {hint}")
    return errors.INTERRUPTED


def _holds_back() -> bool:
    """Tell whether stdout still refuses what was written to it (a full disk); it is dropped then,
    so that the interpreter's last flush does not complain, too."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return True
    return False


def reader_gone() -> int:
    """Return the status for a reader that went away (`| head`): no complaint, and none from the
    interpreter's last flush. A command that writes much calls it itself: click has 1 for that."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return BROKEN_PIPE


def report(problem: Exception, program: str) -> int:
    """Tell people of an error; return its exit status."""
    reported = _reported(problem, program)
    messages.error(program, reported)
    return reported.status


def _reported(problem: Exception, program: str) -> errors.GitDaytonaError:
    """Turn an exception into an error for people; what they cannot act on goes to the log."""
    if isinstance(problem, OSError) and _holds_back():
        problem = errors.GitDaytonaError(
            f"cannot write to standard output: {problem.strerror}",
            hint="make room there; what was done is in 'git daytona status'",
        )
    if isinstance(problem, errors.GitDaytonaError):
        details = f"\n{problem.details}" if problem.details else ""
        log.logger.error("%s: %s%s", program, problem.message, details)
        return problem
    if isinstance(problem, click.ClickException):
        return _of_click(problem, program.replace("git-", "git "))
    # A traceback may hold anything, so it goes, redacted, to the log only.
    log.to_file()
    log.logger.error("%s: internal error", program, exc_info=problem)
    hint = f"please report it with the end of '{paths.log_file()}' (no secrets in it)"
    return errors.InternalError("internal error", hint=hint)


def _of_click(problem: click.ClickException, usage: str) -> errors.GitDaytonaError:
    """Put click's sentences in the suite's style: lower case, no full stop, no brackets."""
    if isinstance(problem, click.BadParameter) and isinstance(problem.param, click.Argument):
        name = problem.param.human_readable_name
        problem.param_hint = f"'{name[1:-1] if name.endswith(']') else name}'"
    text = problem.format_message().strip().rstrip(".")
    text = text[:1].lower() + text[1:]
    if not isinstance(problem, click.UsageError):
        return errors.GitDaytonaError(text)
    where = problem.ctx.command_path if problem.ctx else usage
    return errors.UsageError(text, hint=f"see '{where} -h'")
