# SPDX-License-Identifier: Apache-2.0
"""Code for x86 processors with shorter registers and fewer instructions than this one's gives the same results."""

from __future__ import annotations

import pathlib
import platform

import pytest
from machine_programs import GROUPS, check_same, mnemonics, results_here

TARGETS = {
    "AVX2": "llvm -mcpu=haswell",
    "SSE4.2": "llvm -mcpu=nehalem",
}

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="names x86 CPUs")


@pytest.mark.parametrize("group", GROUPS, ids=lambda names: names[0])
@pytest.mark.parametrize("machine", TARGETS)
def test_gives_what_this_machine_gives(machine: str, group: tuple[str, ...]) -> None:
    try:
        have = results_here(group, TARGETS[machine])
    except RuntimeError as error:
        if "cannot run here" in str(error):
            pytest.skip(str(error))
        raise
    for name, one, other in zip(group, have, results_here(group), strict=True):
        check_same(name, one, other)


@pytest.mark.parametrize(
    ("cpu", "wanted"),
    [
        ("nehalem", "pmaddwd"),
        ("haswell", "vpmaddwd"),
        ("skylake-avx512", "vpmaddwd"),
        ("alderlake", "vpdpbusd"),
        ("icelake-server", "vpdpbusd"),
    ],
)
def test_bytes_are_multiplied_in_groups(cpu: str, wanted: str, tmp_path: pathlib.Path) -> None:
    found = mnemonics("product of bytes", f"llvm -mcpu={cpu}", tmp_path, "objdump")
    assert {"pmaddwd", "vpmaddwd", "vpdpbusd"} & found == {wanted}


@pytest.mark.parametrize(
    ("cpu", "wanted"),
    [
        ("nehalem", "pmaddubsw"),
        ("haswell", "vpmaddubsw"),
        ("skylake-avx512", "vpmaddubsw"),
        ("alderlake", "vpdpbusd"),
        ("icelake-server", "vpdpbusd"),
    ],
)
def test_bytes_of_few_bits_are_multiplied_in_groups(
    cpu: str, wanted: str, tmp_path: pathlib.Path
) -> None:
    """Vectors of these are wider than the registers of most machines."""
    found = mnemonics("codes by bytes", f"llvm -mcpu={cpu}", tmp_path, "objdump")
    assert {"pmaddubsw", "vpmaddubsw", "vpdpbusd"} & found == {wanted}


def test_the_environment_names_the_cpu_of_target_llvm(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RELAXVM_CPU", "nehalem")
    found = mnemonics("product of bytes", "llvm", tmp_path, "objdump")
    assert "pmaddwd" in found and not any(name.startswith("v") for name in found)
    assert "vpmaddwd" in mnemonics("product of bytes", "llvm -mcpu=haswell", tmp_path, "objdump")
    monkeypatch.setenv("RELAXVM_CPU", "vax")
    with pytest.raises(ValueError, match="unknown CPU vax"):
        mnemonics("product of bytes", "llvm", tmp_path, "objdump")
