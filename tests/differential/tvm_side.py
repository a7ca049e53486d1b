# SPDX-License-Identifier: Apache-2.0
"""Runs under an interpreter that has apache-tvm: prints what TVM knows and how it reads our files.

`names` prints its global functions; `text FOLDER` writes `*.txt`, TVM's listing, for each `*.bin`, an executable's
bytes; `parallel FILE` exports a program whose kernels run loops in parallel and take scratch memory; `compiled FILE`
the same as native code of TVM's.
"""

import pathlib
import sys

import tvm
import tvm_ffi
from tvm import relax  # also registers relax.run.*
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T


@I.ir_module
class Parallel:
    @T.prim_func
    def kernel(a: T.handle, b: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n, 64), "float32")
        B = T.match_buffer(b, (n, 64), "float32")
        for i in T.parallel(n):
            for j in range(64):
                B[i, j] = A[i, j] * 2.0 + 1.0

    @R.function
    def main(x: R.Tensor(("n", 64), "float32")) -> R.Tensor(("n", "n"), "float32"):
        n = T.int64()
        y = R.call_tir(Parallel.kernel, (x,), out_ty=R.Tensor((n, 64), "float32"))
        return R.nn.softmax(R.matmul(y, R.permute_dims(y, [1, 0])))


def main(action: str, *rest: str) -> None:
    if action == "names":
        print("\n".join(tvm_ffi.registry.list_global_func_names()))
    elif action == "text":
        load = tvm_ffi.get_global_func("ffi.Module.load_from_bytes.relax.VMExecutable")
        for path in pathlib.Path(rest[0]).glob("*.bin"):
            module = load(path.read_bytes())
            path.with_suffix(".txt").write_text(module["as_text"]())
    elif action == "compiled":
        relax.build(Parallel, "llvm", exec_mode="compiled").export_library(rest[0])
    else:
        tvm.compile(Parallel, "llvm").export_library(rest[0])


if __name__ == "__main__":
    main(*sys.argv[1:])
