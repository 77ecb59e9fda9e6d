"""The `omnibus` command. Subcommands load when they are used, so that `--help` is instant."""

from __future__ import annotations

import importlib
import sys

import click

from bus.errors import OmnibusError

COMMANDS = {
    "ask": ("infra.cli.ask:ask", "Ask about text, pictures, recordings and films"),
    "demo": ("infra.cli.demo:demo", "Ask a spoken question about a photo and get a streamed and a spoken answer"),
    "dlq": ("infra.cli.dlq:dlq", "List, show and replay dead letters"),
    "doctor": ("infra.cli.doctor:doctor", "Check this installation"),
    "embed": ("infra.cli.single:embed", "Print one vector for each of TEXTS"),
    "explain": ("infra.cli.explain:explain", "Tell what the answer to REQUEST needed"),
    "functions": ("infra.cli.invoke:functions", "List the functions"),
    "gateway": ("infra.cli.gateway:gateway", "Serve HTTP from the bus of the settings"),
    "invoke": ("infra.cli.invoke:invoke", "Run FUNCTION once, without a bus"),
    "models": ("infra.cli.models:models", "Pull, build, publish, list, check and remove models"),
    "ocr": ("infra.cli.single:ocr", "Print the text on the picture FILE"),
    "pipelines": ("infra.cli.pipelines:pipelines", "List, show and draw pipelines"),
    "pool": ("infra.cli.pool:pool", "Serve functions with as many workers as are needed"),
    "publish": ("infra.cli.publish:publish", "Publish a request"),
    "simulate": ("infra.cli.simulate:simulate", "Compare policies of the warm pool on simulated arrivals"),
    "speak": ("infra.cli.single:speak", "Speak TEXT into a file"),
    "trace": ("infra.cli.trace:trace", "Show the stages of a request of the last 24 hours"),
    "transcribe": ("infra.cli.single:transcribe", "Print what is said in FILE"),
    "up": ("infra.cli.serve:up", "Serve everything on this machine until Ctrl-C"),
    "worker": ("infra.cli.serve:worker", "Serve functions from the bus of the settings"),
    "workers": ("infra.cli.workers:workers", "List every worker that is alive"),
}
"""Where each command is, and what its help begins with."""


class _LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(importlib.import_module(module), name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):  # click itself would load every command for its summary
            formatter.write_dl([(name, f"{COMMANDS[name][1]}.") for name in self.list_commands(ctx)])


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
