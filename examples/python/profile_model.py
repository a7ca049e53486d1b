# SPDX-License-Identifier: Apache-2.0
"""Where the time of a model goes: a table per kernel, a trace for Perfetto, and a callback around every call.

python profile_model.py [trace.json]
"""

import collections
import sys

import numpy as np

import relaxvm
from relaxvm.runtime import VMInstrumentReturnKind
from relaxvm.script import ir as I
from relaxvm.script import relax as R


@I.ir_module
class Mlp:
    @R.function
    def main(
        x: R.Tensor(("n", 256), "float32"),
        w1: R.Tensor((256, 512), "float32"),
        w2: R.Tensor((512, 10), "float32"),
    ):
        with R.dataflow():
            hidden = R.nn.relu(R.matmul(x, w1))
            scores = R.nn.softmax(R.matmul(hidden, w2))
            R.output(scores)
        return scores


def main(trace: str) -> None:
    rng = np.random.default_rng(0)
    arguments = [rng.standard_normal(s, dtype="f4") for s in ((32, 256), (256, 512), (512, 10))]

    vm = relaxvm.VirtualMachine(relaxvm.compile(Mlp), relaxvm.cpu())
    profile = vm.profile("main", *arguments)
    print(profile)  # a table; profile.to_dict() and profile.json() are the same as data
    slowest = next(row for row in profile.rows() if row.kind == "kernel")
    print(f"{slowest.name}: {slowest.flop:.0f} operations, {slowest.num_bytes:.0f} bytes")
    profile.save_trace(trace)

    counts: collections.Counter = collections.Counter()

    def instrument(function, name, before_run, result, *args):
        if before_run:
            counts[name] += 1
        return VMInstrumentReturnKind.NO_OP

    vm.set_instrument(instrument)
    vm.call("main", *arguments)
    vm.set_instrument(None)
    print(f"{counts.total()} calls, {counts['vm.builtin.alloc_storage']} of them reserve memory")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "trace.json")
