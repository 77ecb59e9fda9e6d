"""What the forms of the chat model lose against float32: perplexity of a text, and how often the likeliest token stays.

    python benchmarks/quality.py [--quick] [--json FILE]

The text is the project's own documentation. The tokens are those of float32's greedy answers to a list of questions,
each form being asked for the next one behind float32's own beginning.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np
from _report import ROOT, Measurement, report

from bus.contracts import ModelManifest
from runtime.generation.decoder import Decoder
from runtime.generation.tokenizer import ChatTokenizer
from runtime.repository import Catalog, Repository

BASE = "smollm2-135m-instruct"
PAGES = ("architecture.md", "functions.md", "models.md", "events.md")
QUESTIONS = (
    "What is the capital of Japan?", "Name three colours.", "Who wrote Hamlet?", "What is 2 + 2?",
    "Why is the sky blue?", "Write a haiku about snow.", "How do I boil an egg?", "What is the largest planet?",
    "Translate 'good morning' to Spanish.", "What is photosynthesis?", "Tell me a joke.", "What is gravity?",
    "Give me a recipe for pancakes.", "List the days of the week.", "What does a cat eat?", "What is a computer?",
    "What is the opposite of hot?", "Who was Albert Einstein?", "How many legs does a spider have?", "Say hello.",
)  # fmt: skip
GOAL = 0.05


def forms(work: Path) -> dict[str, tuple[Path, ModelManifest]]:
    """Folder and manifest of the model in every form, by its name."""
    known = Repository()
    entry = known.catalog.get(BASE)
    made = {}
    for name in ("float32", "q8", "q4"):
        variant = entry.model_copy(update={"parameters": {"quantisation": name}, "quantisation": name})
        repository = Repository(work / name, downloads=known.downloads, catalog=Catalog((variant,)))
        (manifest,) = repository.pull(BASE)
        made[name] = (repository.folder(manifest), manifest)
    return made


class Form:
    """A decoder that is asked for the logits of whole texts."""

    def __init__(self, folder: Path, manifest: ModelManifest) -> None:
        self._decoder = Decoder(folder, manifest, slots=1, context=1024)
        self.end_tokens = self._decoder.end_tokens
        self._no_media = np.zeros((0, self._decoder.hidden), np.float32)

    def logits(self, tokens: np.ndarray) -> np.ndarray:
        """After each token, float64 `(token, vocabulary)`."""
        return self._decoder.verify(0, tokens, 0).astype(np.float64)

    def answer(self, prompt: np.ndarray, most: int) -> np.ndarray:
        """The prompt and its greedy answer, int32 `(token,)`."""
        logits = self._decoder.prefill(0, self._decoder.embed(prompt, self._no_media), 0)
        ids = prompt.tolist()
        while len(ids) < len(prompt) + most:
            ids.append(int(logits.argmax()))
            if ids[-1] in self.end_tokens:
                break
            logits = self._decoder.decode(np.array(ids[-1:], np.int32), np.array([len(ids) - 1]))[0]
        return np.array(ids, np.int32)


def perplexity(form: Form, texts: list[np.ndarray]) -> float:
    """Of every token but the first of each text."""
    losses = []
    for tokens in texts:
        scores = form.logits(tokens)[:-1]
        scores -= scores.max(axis=1, keepdims=True)
        chosen = scores[np.arange(len(scores)), tokens[1:]]
        losses.append(np.log(np.exp(scores).sum(axis=1)) - chosen)
    return float(np.exp(np.concatenate(losses).mean()))


def likeliest(form: Form, answers: list[tuple[int, np.ndarray]]) -> np.ndarray:
    """The likeliest token at each place of the answers, int `(token,)`."""
    return np.concatenate([form.logits(ids)[start - 1 : -1].argmax(axis=1) for start, ids in answers])


def measure(quick: bool) -> list[Measurement]:
    with tempfile.TemporaryDirectory() as work:
        made = forms(Path(work))
        tokenizer = ChatTokenizer(made["float32"][0])
        pages = [tokenizer.encode((ROOT / "docs" / page).read_text()) for page in PAGES[: 1 if quick else None]]
        texts = [
            tokens[start : start + 256] for tokens in pages for start in range(0, min(1024, len(tokens)) - 256, 256)
        ]
        exact = Form(*made["float32"])
        chats = [tokenizer.chat([{"role": "user", "content": one}]) for one in QUESTIONS[: 4 if quick else None]]
        prompts = [tokenizer.encode(text, markup=True) for text in chats]
        answers = [(len(prompt), exact.answer(prompt, 24)) for prompt in prompts]
        right, base = likeliest(exact, answers), perplexity(exact, texts)
        results = []
        for name in ("q8", "q4"):
            form = Form(*made[name])
            value = perplexity(form, texts)
            loss = value / base - 1
            results.append(
                Measurement(
                    name=f"perplexity, {name}", value=value, unit="", peer="float32", peer_value=base,
                    ratio=value / base, goal=f"<= {1 + GOAL}", ok=loss <= GOAL,
                )
            )  # fmt: skip
            same = float((likeliest(form, answers) == right).mean())
            what = f"same likeliest token as float32, of {len(right)}, {name}"
            results.append(Measurement(name=what, value=100 * same, unit="%"))
            size = (made[name][0] / "model.data").stat().st_size / 1e6
            whole = (made["float32"][0] / "model.data").stat().st_size / 1e6
            results.append(
                Measurement(
                    name=f"weights, {name}", value=size, unit="MB", peer="float32", peer_value=whole, ratio=size / whole
                )
            )
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="within 45 seconds, less exact")
    parser.add_argument("--peers", action="store_true", help="has none: float32 is the baseline")
    parser.add_argument("--json", help="write the results there")
    arguments = parser.parse_args()
    report(measure(arguments.quick), arguments.json)


if __name__ == "__main__":
    main()
