"""docs/guide/checkpoints.md: every snippet runs as it stands there, alone and over two ranks."""

import os
import re

import pytest

from ranks_of import SOURCE, needs_torch

with open(os.path.join(SOURCE, "docs", "guide", "checkpoints.md"), encoding="utf-8") as file:
    SNIPPETS = re.findall(r"^```python\n(.*?)^```", file.read(), re.M | re.S)


@needs_torch
@pytest.mark.parametrize("world", [1, 2])
@pytest.mark.parametrize("number", range(len(SNIPPETS)))
def test_snippet_runs_and_runs_again(ranks, number, world):
    if world > 1 and "directory=" in SNIPPETS[number]:
        pytest.skip("it looks at a checkpoint that all ranks have written")
    ranks.run(world, SNIPPETS[number])
    ranks.run(world, SNIPPETS[number])
