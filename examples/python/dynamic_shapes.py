# SPDX-License-Identifier: Apache-2.0
"""Builds a program with a dynamic dimension, compiles it once, runs it at several sizes, saves it and loads it again.

python examples/python/dynamic_shapes.py [MODEL.so]
"""

from __future__ import annotations

import pathlib
import sys
import tempfile

import numpy as np

import relaxvm
from relaxvm import relax


def program() -> relaxvm.IRModule:
    """main(x: (n, 4)) = relu(x - 2), for every n."""
    builder = relax.BlockBuilder()
    n = relaxvm.tirx.Var("n", "int64")
    x = relax.Var("x", relax.TensorType([n, 4], "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            shifted = builder.emit(relax.op.subtract(x, relax.const(2.0, "float32")))
            y = builder.emit_output(relax.op.nn.relu(shifted))
        builder.emit_func_output(y)
    return builder.get()


def main(path: pathlib.Path) -> None:
    executable = relaxvm.compile(program(), target="llvm")
    vm = relaxvm.VirtualMachine(executable, relaxvm.cpu())
    for rows in (1, 3, 1000):
        x = np.arange(rows * 4, dtype="float32").reshape(rows, 4)
        y = vm["main"](relaxvm.runtime.tensor(x)).numpy()
        print(f"n = {rows}: sum {y.sum():.0f}, wrong {np.abs(y - np.maximum(x - 2, 0)).max():.0f}")

    executable.export_library(path)
    again = relaxvm.VirtualMachine(relaxvm.load(str(path)), relaxvm.cpu())
    print(
        "loaded again:",
        again["main"](relaxvm.runtime.tensor(np.eye(4, dtype="float32") * 5)).numpy()[0],
    )


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(pathlib.Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as folder:
            main(pathlib.Path(folder) / "model.so")
