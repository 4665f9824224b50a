"""What all commands have in common: `--home`, and that whatever goes wrong is a sentence and an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from botocore.exceptions import BotoCoreError, ClientError
from typer import rich_utils
from typer._click.core import Command, Context, Parameter
from typer._click.exceptions import ClickException
from typer.core import TyperGroup
from typer.main import get_command
from urllib3.exceptions import HTTPError

from prismline_cli.output import CommandError, ExitCode, print_error
from prismline_runtime import PermanentError, PrismlineError, error_code

#: Set to anything, faults of the command itself are shown with their traceback.
TRACEBACK_VARIABLE = "PRISMLINE_TRACEBACK"
#: The folder of the system that runs on this machine.
HOME_VARIABLE = "PRISMLINE_HOME"
#: Codes with which AWS says that an object is not there.
_NO_OBJECT = frozenset({"NoSuchKey", "404", "NotFound"})
#: Codes with which AWS says that the environment has no Prismline.
_NO_SYSTEM = frozenset({"ResourceNotFoundException", "ParameterNotFound", "NoSuchBucket", "QueueDoesNotExist"})


class Application(TyperGroup):
    """The root of the commands. All of them take `--home`; what they raise ends them with a sentence."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for command in self.commands.values():
            _add_home(command)

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run a command line. Ends the process with the exit code in `standalone_mode`, else returns it."""
        arguments = list(sys.argv[1:] if args is None else args)
        as_json = "--json" in arguments
        home = os.environ.get(HOME_VARIABLE)
        try:
            code = super().main(arguments, prog_name or "prismline", complete_var, False, windows_expand_args, **extra)
        except ClickException as error:
            code = error.exit_code
            if as_json:
                print_error(CommandError(error.format_message(), ExitCode.USAGE), as_json=True)
            else:
                rich_utils.rich_format_error(error)
        except Exception as error:
            if TRACEBACK_VARIABLE in os.environ:
                raise
            failure = failure_of(error)
            print_error(failure, as_json=as_json)
            code = failure.code
        finally:
            _restore_home(home)
        if standalone_mode:
            sys.exit(code or 0)
        return code


def failure_of(error: Exception) -> CommandError:
    """The sentence and the exit code for whatever a command raised."""
    match error:
        case CommandError():
            return error
        case typer.Abort():
            return CommandError("Interrupted.", ExitCode.INTERRUPTED)
        case PermanentError():
            return CommandError(str(error))
        case ClientError():
            return _refused(error)
        case PrismlineError() | BotoCoreError() | HTTPError():
            return CommandError(f"Cannot reach Prismline: {error}", ExitCode.UNREACHABLE)
        case OSError():
            what = f"{error.filename}: " if error.filename else ""
            return CommandError(f"{what}{error.strerror or error}.")
    return CommandError(
        f"The command has a fault: {type(error).__name__}: {error}. Set {TRACEBACK_VARIABLE}=1 to see where.",
        ExitCode.FAULT,
    )


def _refused(error: ClientError) -> CommandError:
    """What AWS says, in the words of somebody who asked for a run."""
    code, said = error_code(error), error.response.get("Error", {})
    if code in _NO_OBJECT:
        key = said.get("Key")
        return CommandError(f"The object {key} is not in the bucket." if key else "The object is not in the bucket.")
    if code in _NO_SYSTEM:
        return CommandError(
            f"There is no Prismline in this environment: {said.get('Message') or code}."
            " ENVIRONMENT names the environment.",
            ExitCode.UNREACHABLE,
        )
    return CommandError(
        f"AWS refused {error.operation_name}: {said.get('Message') or 'no reason given'} ({code}).",
        ExitCode.UNREACHABLE,
    )


def _add_home(command: Command) -> None:
    """Give a command, or all commands of a group, the option `--home`, unless it has one of its own."""
    if isinstance(command, TyperGroup):
        for below in command.commands.values():
            _add_home(below)
    elif not any(parameter.name == "home" for parameter in command.params):
        command.params.append(_home_option())


def _home_option() -> Parameter:
    """The option, as typer makes it, which sets the environment variable and is no argument of the command."""
    shape = typer.Typer(add_completion=False)

    @shape.command()
    def _shape(
        home: Annotated[
            str | None,
            typer.Option(help="Folder of the system that runs here.", show_default=f"{HOME_VARIABLE}, else .prismline"),
        ] = None,
    ) -> None: ...

    option = get_command(shape).params[0]
    option.expose_value, option.callback = False, _set_home
    return option


def _set_home(_context: Context, _parameter: Parameter, value: str | None) -> None:
    if value is not None:
        os.environ[HOME_VARIABLE] = value


def _restore_home(value: str | None) -> None:
    if value is None:
        os.environ.pop(HOME_VARIABLE, None)
    else:
        os.environ[HOME_VARIABLE] = value
