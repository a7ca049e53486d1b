# SPDX-License-Identifier: Apache-2.0
"""`python -m relaxvm.config`: where a C++ build finds headers, libraries and the CMake package."""

from __future__ import annotations

import argparse
import pathlib

from relaxvm._ffi import library_path


def libdir() -> pathlib.Path:
    """The folder of librelaxvm_runtime.so."""
    return library_path("relaxvm_runtime").parent


def cmakedir() -> pathlib.Path:
    """What `relaxvm_ROOT` is set to for find_package(relaxvm)."""
    return libdir() / "cmake" / "relaxvm"


def includedir() -> pathlib.Path:
    """The folder of relaxvm/runtime.h: of the installed package, or of a source checkout."""
    package = pathlib.Path(__file__).resolve().parent
    folders = [package / "include", package.parents[1] / "include"]
    for folder in folders:
        if (folder / "relaxvm" / "runtime.h").is_file():
            return folder
    raise FileNotFoundError(f"relaxvm/runtime.h is not in {folders[0]} or {folders[1]}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m relaxvm.config", description=__doc__)
    group = parser.add_mutually_exclusive_group(required=True)
    for option in (cmakedir, includedir, libdir):
        group.add_argument(
            f"--{option.__name__}", action="store_const", dest="option", const=option
        )
    print(parser.parse_args().option())


if __name__ == "__main__":
    main()
