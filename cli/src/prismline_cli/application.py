"""The behaviour of all commands: the option `--home`, and errors of one sentence with an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption
from typer.main import get_command

from prismline_cli.output import CommandError, ExitCode, print_error, printing_as

if TYPE_CHECKING:
    from botocore.exceptions import ClientError

#: If this variable is set, a fault of the command itself is shown with its traceback.
TRACEBACK_VARIABLE = "PRISMLINE_TRACEBACK"
#: The folder of the system that runs on this machine.
HOME_VARIABLE = "PRISMLINE_HOME"
#: Codes with which AWS says that an object is not there.
_NO_OBJECT = frozenset({"NoSuchKey", "404", "NotFound"})
#: Codes with which AWS says that the environment has no Prismline.
_NO_SYSTEM = frozenset({"ResourceNotFoundException", "ParameterNotFound", "NoSuchBucket", "QueueDoesNotExist"})


class Application(TyperGroup):
    """The root of the commands. It adds `--home` to every command, and turns an exception into one sentence."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        _complete(self)

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run a command line. With `standalone_mode`, exit with the code; without, return it."""
        arguments = list(sys.argv[1:] if args is None else args)
        as_json = "--json" in arguments
        home = os.environ.get(HOME_VARIABLE)
        try:
            code = super().main(arguments, prog_name or "prismline", complete_var, False, windows_expand_args, **extra)
        except typer.TyperException as error:
            code = error.exit_code
            if as_json:
                print_error(CommandError(error.format_message(), ExitCode.USAGE), as_json=True)
            else:
                from typer import rich_utils  # noqa: PLC0415  it takes a tenth of a command's start

                rich_utils.rich_format_error(error)  # type: ignore[arg-type]  # it names a private base class
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
    """Convert an exception of a command to a sentence and an exit code."""
    from prismline_client import ApiError  # noqa: PLC0415

    match error:
        case CommandError():
            return error
        case typer.Abort():
            return CommandError("Interrupted.", ExitCode.INTERRUPTED)
        case ApiError():
            return CommandError(str(error), ExitCode.UNREACHABLE if error.unreachable else ExitCode.USAGE)
        case OSError():
            what = f"{error.filename}: " if error.filename else ""
            return CommandError(f"{what}{error.strerror or error}.")
    return _failure_of_aws(error) or CommandError(
        f"The command has a fault: {type(error).__name__}: {error}. Set {TRACEBACK_VARIABLE}=1 to see where.",
        ExitCode.FAULT,
    )


def _failure_of_aws(error: Exception) -> CommandError | None:
    """Convert an error of a command that uses AWS. None: it is something else."""
    from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415  slow imports, which most commands spare
    from urllib3.exceptions import HTTPError  # noqa: PLC0415

    from prismline_runtime import PermanentError, PrismlineError  # noqa: PLC0415

    match error:
        case PermanentError():
            return CommandError(str(error))
        case ClientError():
            return _refused(error)
        case PrismlineError() | BotoCoreError() | HTTPError():
            return CommandError(f"Cannot reach Prismline: {error}", ExitCode.UNREACHABLE)
    return None


def _refused(error: ClientError) -> CommandError:
    """Convert an error of AWS to a sentence for a user of the command."""
    from prismline_runtime import error_code  # noqa: PLC0415

    code, details = error_code(error), error.response.get("Error", {})
    if code in _NO_OBJECT:
        key = details.get("Key")
        return CommandError(f"The object {key} is not in the bucket." if key else "The object is not in the bucket.")
    if code in _NO_SYSTEM:
        return CommandError(
            f"There is no Prismline in this environment: {details.get('Message') or code}."
            " ENVIRONMENT names the environment.",
            ExitCode.UNREACHABLE,
        )
    return CommandError(
        f"AWS refused {error.operation_name}: {details.get('Message') or 'no reason given'} ({code}).",
        ExitCode.UNREACHABLE,
    )


def _complete(command: object, name: str = "") -> None:
    """Complete all commands of a group. `name`: what a user types for `command`.

    A command gets the option `--home`, unless it has one of its own. Its JSON is checked against its contract.
    """
    if isinstance(command, TyperGroup):
        for word, below in command.commands.items():
            _complete(below, f"{name} {word}".strip())
    elif isinstance(command, TyperCommand):
        if not any(parameter.name == "home" for parameter in command.params):
            command.params.append(_home_option())
        if command.callback is not None:
            command.callback = printing_as(name)(command.callback)


def _home_option() -> TyperOption:
    """The option `--home`. It sets the environment variable and is not passed to the command."""
    shape = typer.Typer(add_completion=False)

    @shape.command()
    def _shape(
        home: Annotated[
            str | None,
            typer.Option(help="Folder of the local system.", show_default=f"{HOME_VARIABLE}, else .prismline"),
        ] = None,
    ) -> None: ...

    (option,) = get_command(shape).params
    assert isinstance(option, TyperOption)
    option.expose_value, option.callback = False, _set_home
    return option


def _set_home(_context: Any, _parameter: Any, value: str | None) -> None:
    if value is not None:
        os.environ[HOME_VARIABLE] = value


def _restore_home(value: str | None) -> None:
    if value is None:
        os.environ.pop(HOME_VARIABLE, None)
    else:
        os.environ[HOME_VARIABLE] = value
