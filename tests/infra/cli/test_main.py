"""The command's own help."""

from __future__ import annotations

import re
import subprocess
import sys

import click
import pytest

from infra.cli.main import COMMANDS, cli

_HELP = """
import sys
from infra.cli.main import cli
try:
    cli(["--help"])
finally:
    print("loaded:", *sorted(set(sys.modules) & {"httpx", "nats", "fastapi", "numpy", "infra.cli.ask"}))
"""


def test_help_lists_every_command_and_loads_none() -> None:
    told = subprocess.run([sys.executable, "-c", _HELP], capture_output=True, text=True, check=True).stdout
    listed = re.findall(r"^  (\w+)", told.split("Commands:")[1], re.MULTILINE)
    assert set(listed) == set(COMMANDS)
    assert told.splitlines()[-1] == "loaded:"


@pytest.mark.parametrize("name", COMMANDS)
def test_the_summary_of_a_command_is_how_its_help_begins(name: str) -> None:
    assert isinstance(cli, click.Group)
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    assert (command.help or "").strip().startswith(COMMANDS[name][1])
