"""Where errors become words and exit statuses, for every executable."""

import os
import sys
from collections.abc import Sequence
from importlib import import_module

import click

from git_daytona.base import errors, log, messages, paths

WIDTH = 78
"""Of help texts, in columns, whatever the terminal's: they are files (help.py), as wide as
git's."""


def run(
    command: click.Command, program: str, arguments: Sequence[str], *, display: str | None = None
) -> int:
    """Run a click command and return its exit status: 0, the command's own (``SystemExit``), or
    that of the error (errors.table()).

    ``program`` names the executable in messages, ``display`` in usage lines (``git daytona``).
    """
    complete = f"_{program.replace('-', '_')}_COMPLETE".upper()
    if complete in os.environ:
        # makes the format known that our scripts ask for
        import_module("git_daytona.cli.completion")
    try:
        result = command.main(
            list(arguments),
            prog_name=display or program,
            standalone_mode=False,
            complete_var=complete,
            terminal_width=WIDTH,
        )
        sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except click.exceptions.Exit as done:
        return done.exit_code
    except click.exceptions.NoArgsIsHelpError as problem:
        click.echo(problem.format_message(), err=True)
        return errors.UsageError.status
    except click.UsageError as problem:
        where = problem.ctx.command_path if problem.ctx else display or program
        messages.error(
            program,
            errors.UsageError(_lower(problem.format_message()), hint=f"see '{where} --help'"),
        )
        return errors.UsageError.status
    except click.ClickException as problem:
        messages.error(program, errors.GitDaytonaError(_lower(problem.format_message())))
        return problem.exit_code
    except errors.GitDaytonaError as problem:
        log.logger.error(
            "%s: %s%s", program, problem.message, f"\n{problem.details}" if problem.details else ""
        )
        messages.error(program, problem)
        return problem.status
    except (KeyboardInterrupt, click.Abort):
        messages.note("interrupted")
        return errors.INTERRUPTED
    except BrokenPipeError:
        # The reader went away (`| head`): no complaint, and none from the interpreter's own last
        # flush either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 128 + 13
    except SystemExit as done:
        return done.code if isinstance(done.code, int) else int(done.code is not None)
    except Exception:  # noqa: BLE001 — the last resort: a traceback may hold anything, so it goes, redacted, to the log only
        log.to_file()
        log.logger.exception("%s: internal error", program)
        messages.error(
            program,
            errors.InternalError(
                "internal error",
                hint=f"please report it with the end of '{paths.log_file()}' (no secrets in it)",
            ),
        )
        return errors.InternalError.status


def _lower(message: str) -> str:
    """click's sentences in the suite's style: lower case, no full stop."""
    text = message.strip().rstrip(".")
    return text[:1].lower() + text[1:]
