"""Tags of chat templates that Jinja does not know."""

from __future__ import annotations

from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.parser import Parser


class GenerationTag(Extension):
    """`{% generation %}…{% endgeneration %}`, which marks what an assistant said for training: its content, as it is.

    Source: `AssistantTracker` of transformers, `utils/chat_template_utils.py`.
    """

    tags = {"generation"}  # noqa: RUF012 - as the base class declares it

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """The nodes between the two tags."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)
