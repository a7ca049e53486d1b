# SPDX-License-Identifier: Apache-2.0
"""Modules that mix functions of Python with Relax functions and tensor programs."""

from __future__ import annotations

import gc

import pytest

import relaxvm
from relaxvm import relax
from relaxvm.relax import BasePyModule
from relaxvm.script import from_source
from relaxvm.script import ir as I
from relaxvm.script import relax as R
from relaxvm.script import tirx as T

pytestmark = pytest.mark.peer


@I.ir_module
class Mixed(BasePyModule):
    """All kinds of functions, which call each other."""

    @I.pyfunc
    def halved(x):
        return x.numpy() * 0 + (x / 2).numpy()

    @I.pyfunc
    def shifted(x):
        return x + 10

    @I.pyfunc
    def pipeline(self, x):
        doubled = self.call_tir(self.twice, [x], out_ty=R.Tensor(("n",), "float32"))
        return self.main(doubled) + self.shifted(x)

    @T.prim_func
    def twice(a: T.handle, b: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n,), "float32")
        B = T.match_buffer(b, (n,), "float32")
        for i in range(n):
            with T.sblock("twice"):
                v = T.axis.spatial(n, i)
                B[v] = A[v] * T.float32(2)

    @R.function(pure=False)
    def main(x: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
        n = T.int64()
        y = R.call_py_func("shifted", (x,), out_ty=R.Tensor((n,), "float32"))
        return R.add(y, x)

    @R.function
    def pair(x: R.Tensor(("n",), "float32")):
        n = T.int64()
        y = R.call_tir(Mixed.twice, (x,), out_ty=R.Tensor((n,), "float32"))
        return (y, R.shape_of(x))


def tensor(*values, dtype="float32"):
    import torch

    return torch.tensor(values, dtype=getattr(torch, dtype))


def test_functions_of_all_kinds_call_each_other():
    module = Mixed()
    assert module.main(tensor(1, 2)).tolist() == [12, 14]
    assert module.pipeline(tensor(1, 2, 3)).tolist() == [25, 30, 35]
    doubled, shape = module.pair(tensor(1, 2))
    assert doubled.tolist() == [2, 4] and shape == (2,)


def test_tensors_are_shared_with_pytorch():
    import torch

    module = Mixed(relaxvm.cpu())
    x, y = tensor(1, 2), torch.zeros(2)
    module.twice(x, y)
    assert y.tolist() == [2, 4]
    seen = []
    module.add_python_function("shifted", lambda v: seen.append(v.data_ptr()) or v)
    module.main(x)
    assert seen == [x.data_ptr()]
    assert module.main(torch.stack([x, x], 1)[:, 0]).tolist() == [2, 4]


def test_results_of_tensor_programs_are_made():
    module = Mixed()
    x = tensor(1, 2, 3)
    assert module.call_tir("twice", x).tolist() == [2, 4, 6]
    assert module.call_tir(Mixed.get_global_var("twice"), [x], [(3,)]).tolist() == [2, 4, 6]
    assert module.call_tir(module.twice, [x], relax.TensorType((3,), "float32")).shape == (3,)
    with pytest.raises(ValueError, match="no tensor program 'thrice'; there are: twice"):
        module.call_tir("thrice", [x])


def test_result_of_a_size_that_the_arguments_determine():
    @I.ir_module
    class Joined(BasePyModule):
        @T.prim_func
        def ends(a: T.handle, b: T.handle):
            n = T.int64()
            A = T.match_buffer(a, (n,), "int32")
            B = T.match_buffer(b, (n * 2,), "int32")
            for i in range(n):
                with T.sblock("ends"):
                    v = T.axis.spatial(n, i)
                    B[v] = A[v]
                    B[n + v] = A[v] + 1

        @T.prim_func
        def count(b: T.handle):
            n = T.int64()
            B = T.match_buffer(b, (n,), "int32")
            for i in range(n):
                with T.sblock("count"):
                    v = T.axis.spatial(n, i)
                    B[v] = T.int32(7)

    module = Joined()
    assert module.call_tir("ends", [tensor(1, 5, dtype="int32")]).tolist() == [1, 5, 2, 6]
    assert module.call_tir("count", [], R.Tensor((2,), "int32")).tolist() == [7, 7]
    with pytest.raises(ValueError, match="count: result 0: .* give numbers in out_ty"):
        module.call_tir("count", [])


def test_global_functions_write_to_their_results():
    import numpy as np

    def add(a, b, out):
        out.copyfrom(np.from_dlpack(a) + np.from_dlpack(b))

    relaxvm.register_global_func("tests.base_py_module.add", add, override=True)
    module, x = Mixed(), tensor(1, 2)
    out_ty = R.Tensor(("n",), "float32")
    assert module.call_dps_packed("tests.base_py_module.add", [x, x], out_ty).tolist() == [2, 4]
    assert module.call_dps_packed("shifted", [x], out_ty).tolist() == [11, 12]
    assert module.list_functions() == {
        "python": ["halved", "shifted", "pipeline"],
        "relax": ["main", "pair"],
        "tirx": ["twice"],
        "extern": ["tests.base_py_module.add"],
    }
    with pytest.raises(ValueError, match="neither in the module nor as a global one"):
        module.call_dps_packed("tests.base_py_module.none", [x], out_ty)
    with pytest.raises(ValueError, match="do not say the size"):
        module.call_dps_packed("tests.base_py_module.add", [x, x], R.Tensor(("n", 2), "float32"))


def test_modules_keep_their_python_functions_apart():
    first, second = Mixed(), Mixed()
    second.add_python_function("shifted", lambda x: x - 1)
    assert second.main(tensor(1)).tolist() == [1] and first.main(tensor(1)).tolist() == [12]
    del second
    gc.collect()
    assert first.main(tensor(1)).tolist() == [12]
    first.add_python_function("late", lambda x: -x)
    assert first.late(tensor(1)).tolist() == [-1]
    assert first.call_py_func("late", [tensor(2)]).tolist() == [-2]


def test_function_registered_for_the_process_is_reached():
    @I.ir_module
    class Outer(BasePyModule):
        @R.function(pure=False)
        def main(x: R.Tensor((1,), "float32")) -> R.Tensor((1,), "float32"):
            y = R.call_py_func("tests.everywhere", (x,), out_ty=R.Tensor((1,), "float32"))
            return y

    register = relaxvm.get_global_func("vm.builtin.register_py_func")
    register("tests.everywhere", lambda x: x)
    module = Outer()
    assert module.main(tensor(3)).tolist() == [3]
    register("tests.everywhere", None)
    with pytest.raises(KeyError, match="no Python function is registered as 'tests.everywhere'"):
        module.main(tensor(3))


def test_error_of_a_python_function_arrives():
    module = Mixed()

    def broken(x):
        raise ZeroDivisionError("of the function")

    module.add_python_function("shifted", broken)
    with pytest.raises(Exception, match="of the function"):
        module.main(tensor(1))


def test_python_functions_take_the_place_of_relax_functions():
    module = relax.BasePyModule(Mixed.ir_module)
    module.add_python_function("pair", lambda x: x * 3)
    assert module.pair(tensor(1)).tolist() == [3]
    assert module.relax_vm["pair"](relaxvm.runtime.from_dlpack(tensor(1)))[0].numpy() == [2]


def test_script_of_a_mixed_module_is_read_again():
    text = Mixed.script()
    assert "class Module(BasePyModule):" in text and "return x + 10" in text
    assert "R.ExternFunc" not in text
    again = from_source(text)
    assert again().main(tensor(1)).tolist() == [12]
    assert "return x + 10" in again.script()
    assert Mixed().script() == text


def test_module_of_python_functions_alone():
    @I.ir_module
    class Alone(BasePyModule):
        @I.pyfunc
        def same(x):
            return x

    assert Alone().same(5) == 5
    assert from_source(Alone.script())().same(5) == 5


def test_python_function_needs_the_base_class():
    text = "@I.ir_module\nclass Plain:\n    @I.pyfunc\n    def f(x):\n        return x\n"
    with pytest.raises(relaxvm.error.DiagnosticError, match="must inherit from relax.BasePyModule"):
        from_source(text)


def test_what_a_module_lacks_is_named():
    module = Mixed()
    with pytest.raises(ValueError, match="no Python function 'none'; there are: halved, shifted"):
        module.call_py_func("none", [])
    with pytest.raises(AttributeError, match="no attribute or function 'none'"):
        _ = module.none
    with pytest.raises(TypeError, match="late is int, not a function"):
        module.add_python_function("late", 3)
    assert module.get_function("none") is None
