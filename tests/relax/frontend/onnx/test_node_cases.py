# SPDX-License-Identifier: Apache-2.0
"""ONNX's node tests: those that passed once go on passing, and node_cases_known.txt says which do not."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import node_cases

PARTS = 16


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("part", range(PARTS))
def test_only_the_known_cases_do_not_pass(part: int) -> None:
    names = sorted(node_cases.load_cases())[part::PARTS]
    results = node_cases.run_all(names)
    assert len(results) == len(names)
    failing = {name for name, (state, _) in results.items() if state != "pass"}
    states = node_cases.known()
    known = set(states) & set(names)
    failing |= {name for name in known if states[name] == "random"}
    worse = {name: results[name] for name in failing - known}
    assert not worse, worse
    assert failing == known, f"these pass now; take them off the list: {sorted(known - failing)}"
