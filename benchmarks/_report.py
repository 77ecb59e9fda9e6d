"""What every benchmark prints and writes."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """One number beside its peer's, measured in the same run."""

    name: str
    value: float
    unit: str
    peer: str | None = None
    peer_value: float | None = None
    ratio: float | None = None
    goal: str | None = None
    ok: bool | None = None


def percentile(values: Sequence[float], share: float) -> float:
    """The value that `share` of the values are not above."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def report(results: Sequence[Measurement], json_path: str | None) -> None:
    """Print a table; write JSON when a path is given."""
    print(f"{'what':<52} {'value':>10} {'unit':<6} {'peer':<22} {'value':>10} {'ratio':>7}  goal")
    for one in results:
        peer_value = "" if one.peer_value is None else f"{one.peer_value:.3f}"
        ratio = "" if one.ratio is None else f"{one.ratio:.2f}"
        verdict = "" if one.ok is None else (" (met)" if one.ok else " (NOT met)")
        print(
            f"{one.name:<52} {one.value:>10.3f} {one.unit:<6} {one.peer or '':<22} {peer_value:>10} {ratio:>7}  "
            f"{one.goal or ''}{verdict}"
        )
    if json_path is not None:
        Path(json_path).write_text(json.dumps({"results": [asdict(one) for one in results]}, indent=2) + "\n")
