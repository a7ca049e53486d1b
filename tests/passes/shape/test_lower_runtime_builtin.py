# SPDX-License-Identifier: Apache-2.0
"""LowerRuntimeBuiltin: operators of the VM become calls of its builtins."""

from __future__ import annotations

from relaxvm.relax import transform
from relaxvm.script import ir as I
from relaxvm.script import relax as R


def test_each_operator_becomes_its_builtin() -> None:
    @I.ir_module
    class Mod:
        @R.function(pure=False)
        def main(x: R.Tensor((4,), "float32"), i: R.Tensor((2,), "int64")):
            a = R.reshape(x, R.shape([2, 2]))
            b = R.shape_of(x)
            c = R.tensor_to_shape(i)
            d = R.shape_to_tensor(b)
            e = R.memory.view(x, R.shape([2]), R.dtype("float32"), R.prim_value(8))
            s = R.memory.alloc_storage(
                R.shape([16]), R.prim_value(0), R.str("global"), R.dtype("uint8")
            )
            t = R.memory.alloc_tensor(s, R.prim_value(0), R.shape([4]), R.dtype("float32"))
            _ = R.memory.kill_tensor(t)
            return (a, c, d, e)

    text = transform.LowerRuntimeBuiltin()(Mod).script()
    for builtin in (
        "vm.builtin.reshape",
        "vm.builtin.shape_of",
        "vm.builtin.tensor_to_shape",
        "relax.run.shape_to_tensor",
        "runtime.TVMTensorCreateView",
    ):
        assert f'R.call_packed("{builtin}"' in text
    assert (
        'R.vm.alloc_storage(R.shape([16]), R.prim_value(0), R.dtype("uint8"), R.str("global"))'
        in text
    )
    assert "R.vm.kill_object(t)" in text


def test_python_function_gets_one_array_of_name_and_arguments() -> None:
    @I.ir_module
    class Mod:
        @R.function(pure=False)
        def main(x: R.Tensor((4,), "float32")) -> R.Any:
            y = R.call_py_func("twice", (x,), out_ty=R.Any)
            return y

    text = transform.LowerRuntimeBuiltin()(Mod).script()
    assert 'R.call_packed("vm.builtin.call_py_func", (R.str("twice"), (x,))' in text
