# SPDX-License-Identifier: Apache-2.0
"""Five programs that relaxvm and TVM both compile and run: only the name of the package differs.

As a program, `interchange_programs.py compile|run PACKAGE FOLDER`: compiles each program to `<name>.so` in FOLDER or
loads it from there, runs it, and writes its results to `<name>.<PACKAGE>.npz`.
"""

import importlib
import pathlib
import sys

import numpy as np

PACKAGE = sys.argv[2] if __name__ == "__main__" else "relaxvm"


script = importlib.import_module(f"{PACKAGE}.script")
I, R, T = script.ir, script.relax, script.tirx


@I.ir_module
class Static:
    @R.function
    def main(
        x: R.Tensor((5, 16), "float32"),
        w: R.Tensor((16, 33), "float32"),
        b: R.Tensor((33,), "float32"),
    ) -> R.Tensor((5, 33), "float32"):
        with R.dataflow():
            y = R.nn.relu(R.add(R.matmul(x, w), b))
            z = R.nn.softmax(y, axis=-1)
            R.output(z)
        return z


@I.ir_module
class Dynamic:
    @R.function
    def main(x: R.Tensor(("n", "m"), "float32"), y: R.Tensor(("k", "m"), "float32")) -> R.Tensor(
        dtype="float32", ndim=1
    ):
        n, m, k = T.int64(), T.int64(), T.int64()
        with R.dataflow():
            both = R.concat((x, y), axis=0)
            scaled = R.multiply(both, R.sum(both, axis=1, keepdims=True))
            flat = R.reshape(scaled, (m * (n + k),))
            R.output(flat)
        return flat


@I.ir_module
class Control:
    @R.function
    def main(i: R.Tensor((), "int64"), x: R.Tensor(("n",), "float32")) -> R.Tensor(
        ("n",), "float32"
    ):
        n = T.int64()
        more = R.less(i, R.const(7, "int64"))
        if more:
            r = Control.main(R.add(i, R.const(1, "int64")), R.add(R.multiply(x, x), x))
        else:
            r = R.negative(x)
        return r


@I.ir_module
class Closures:
    @R.function(private=True)
    def scale(x: R.Tensor(("n",), "float32"), by: R.Tensor((), "float32")) -> R.Tensor(
        ("n",), "float32"
    ):
        n = T.int64()
        return R.multiply(x, by)

    @R.function(private=True)
    def twice(f: R.Object, x: R.Tensor(("n",), "float32")) -> R.Object:
        n = T.int64()
        once = R.invoke_pure_closure(f, (x,), ty_args=R.Tensor(ndim=1, dtype="float32"))
        return R.invoke_pure_closure(f, (once,), ty_args=R.Tensor(ndim=1, dtype="float32"))

    @R.function
    def main(x: R.Tensor(("n",), "float32"), by: R.Tensor((), "float32")) -> R.Object:
        n = T.int64()
        f = R.make_closure(Closures.scale, (by,))
        return Closures.twice(f, x)


@I.ir_module
class Constants:
    @R.function
    def main(x: R.Tensor((2, 3), "float32")) -> R.Object:
        with R.dataflow():
            y = R.add(x, R.const([[1.5, -2.25, 0.0], [3e38, 1e-40, -0.0]], "float32"))
            i = R.add(R.const([1, -128, 127], "int8"), R.const([1, 1, 1], "int8"))
            h = R.const([0.1, 65504.0], "float16")
            t = (
                y,
                i,
                h,
                R.const(True, "bool"),
                R.shape([2, 0, 9]),
                R.prim_value(-5),
                R.str("\u20ac uro"),
            )
            R.output(t)
        return t


PROGRAMS = {
    "static": Static,
    "dynamic": Dynamic,
    "control": Control,
    "closures": Closures,
    "constants": Constants,
}


def inputs(name: str) -> list[np.ndarray]:
    rng = np.random.default_rng(1)

    def floats(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype("float32")

    return {
        "static": [floats(5, 16), floats(16, 33), floats(33)],
        "dynamic": [floats(3, 7), floats(4, 7)],
        "control": [np.int64(4), floats(6)],
        "closures": [floats(9), np.float32(1.25)],
        "constants": [floats(2, 3)],
    }[name]


def flat(value) -> list[np.ndarray]:
    """All leaves of a result as arrays."""
    if hasattr(value, "numpy"):
        return [value.numpy()]
    if isinstance(value, str):
        return [np.frombuffer(str(value).encode(), "uint8")]
    if isinstance(value, (int, float)):
        return [np.array(value)]
    if type(value).__name__ in ("Shape", "ShapeTuple"):
        return [np.array(list(value), "int64")]
    return [leaf for item in value for leaf in flat(item)]


def main(action: str, folder: pathlib.Path) -> None:
    rx = importlib.import_module(PACKAGE)
    importlib.import_module(f"{PACKAGE}.relax")
    for name, module in PROGRAMS.items():
        path = str(folder / f"{name}.so")
        if action == "compile":
            options = {"interchange": "tvm"} if PACKAGE == "relaxvm" else {}
            rx.compile(module, "llvm").export_library(path, **options)
        vm = rx.relax.VirtualMachine(rx.runtime.load_module(path), rx.cpu())
        result = vm["main"](*(rx.runtime.tensor(value) for value in inputs(name)))
        np.savez(folder / f"{name}.{PACKAGE}.npz", *flat(result))


if __name__ == "__main__":
    main(sys.argv[1], pathlib.Path(sys.argv[3]))
