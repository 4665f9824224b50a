"""The application with all commands, for programs that call it in their own process."""

from __future__ import annotations

from prismline_cli.command_line import application

app = application()
