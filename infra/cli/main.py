"""The `omnibus` command. Subcommands load when they are used, so that `--help` is instant."""

from __future__ import annotations

import importlib
import sys

import click

from bus.errors import OmnibusError

_COMMANDS = {
    "ask": "infra.cli.ask:ask",
    "demo": "infra.cli.demo:demo",
    "dlq": "infra.cli.dlq:dlq",
    "doctor": "infra.cli.doctor:doctor",
    "embed": "infra.cli.single:embed",
    "functions": "infra.cli.invoke:functions",
    "gateway": "infra.cli.serve:gateway",
    "invoke": "infra.cli.invoke:invoke",
    "models": "infra.cli.models:models",
    "ocr": "infra.cli.single:ocr",
    "pipelines": "infra.cli.pipelines:pipelines",
    "publish": "infra.cli.publish:publish",
    "speak": "infra.cli.single:speak",
    "trace": "infra.cli.trace:trace",
    "transcribe": "infra.cli.single:transcribe",
    "up": "infra.cli.serve:up",
    "worker": "infra.cli.serve:worker",
    "workers": "infra.cli.workers:workers",
}


class _LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module, _, name = _COMMANDS[cmd_name].partition(":")
        command: click.Command = getattr(importlib.import_module(module), name)
        return command


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="omnibus-inference", prog_name="omnibus")
def cli() -> None:
    """Multimodal inference as serverless functions on an event bus."""


def main() -> None:
    """Run the command; an error of ours is one line on stderr and exit status 1."""
    try:
        cli(prog_name="omnibus")
    except OmnibusError as error:
        click.secho(f"error [{error.code}]: {error.message}", fg="red", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
