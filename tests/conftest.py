"""Property tests: the same examples in every run, so that a red build is red for everybody; explore with

HYPOTHESIS_PROFILE=explore python -m pytest
"""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.register_profile("explore", max_examples=1000, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))
