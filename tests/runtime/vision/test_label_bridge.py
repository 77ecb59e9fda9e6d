from __future__ import annotations

import numpy as np

from runtime.vision.label_bridge import LabelBridge, top

TOKENS = np.zeros((4, 3, 2), np.float16)
TOKENS[0, :2] = [[1, 0], [0, 1]]  # two tokens
TOKENS[1, :1] = [[4, 4]]  # one token
TOKENS[2, :3] = [[8, 0], [0, 8], [8, 8]]  # three tokens
TOKENS[3, :1] = [[100, 100]]
LENGTHS = np.array([2, 1, 3, 1], np.int8)


def test_the_likeliest_names_are_mixed_by_their_shares() -> None:
    bridge = LabelBridge(TOKENS, LENGTHS, "bridge@1")
    probabilities = np.array([0.4, 0.2, 0.2, 0.01], np.float32)  # shares of the three likeliest: 1/2, 1/4, 1/4
    expected = [
        [0.5 * 1 + 0.25 * 4 + 0.25 * 8, 0.5 * 0 + 0.25 * 4 + 0.25 * 0],
        [0.5 * 0 + 0.25 * 4 + 0.25 * 0, 0.5 * 1 + 0.25 * 4 + 0.25 * 8],
    ]
    np.testing.assert_allclose(bridge.tokens(probabilities), expected, atol=1e-6)


def test_the_likeliest_name_says_how_many_tokens() -> None:
    bridge = LabelBridge(TOKENS, LENGTHS, "bridge@1")
    for label, length in enumerate(LENGTHS):
        probabilities = np.full(4, 0.1, np.float32)
        probabilities[label] = 0.7
        assert bridge.tokens(probabilities).shape == (length, 2)
        assert bridge.tokens(probabilities).dtype == np.float32


def test_ties_go_to_the_first() -> None:
    assert top(np.array([0.1, 0.3, 0.3, 0.3], np.float32), 2).tolist() == [1, 2]
