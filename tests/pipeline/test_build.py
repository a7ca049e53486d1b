# SPDX-License-Identifier: Apache-2.0
"""relax.build, pipelines by name, and what compile refuses."""

from __future__ import annotations

import re

import numpy as np
import pytest

import relaxvm
from relaxvm import relax
from relaxvm._compile import compile_last
from relaxvm.script import ir as I
from relaxvm.script import relax as R


@I.ir_module
class Twice:
    @R.function
    def main(x: R.Tensor(("n",), "float32"), w: R.Tensor((3,), "float32")):
        y = R.add(x, x)
        z = R.multiply(w, w)
        return (y, z)


X = np.arange(4, dtype="float32")
W = np.arange(3, dtype="float32")


def outputs(executable: relax.VMExecutable, *inputs: np.ndarray) -> list[np.ndarray]:
    vm = relax.VirtualMachine(executable, relaxvm.cpu())
    return [t.numpy() for t in vm["main"](*map(relaxvm.runtime.tensor, inputs))]


def test_build_takes_the_arguments_that_users_know() -> None:
    y, z = outputs(relax.build(Twice, target="llvm", exec_mode="bytecode"), X, W)
    np.testing.assert_array_equal(y, X * 2)
    np.testing.assert_array_equal(z, W * W)


def test_who_compiles_a_module_as_its_last_user_keeps_nothing_of_it() -> None:
    bound = relax.transform.BindParams("main", {"w": W})(Twice)
    executable = compile_last(bound, "llvm")
    assert not bound.functions
    y, z = outputs(executable, X)
    np.testing.assert_array_equal(y, X * 2)
    np.testing.assert_array_equal(z, W * W)


def test_compile_leaves_a_given_module_as_it_is() -> None:
    text = Twice.script()
    relaxvm.compile(Twice)
    assert Twice.script() == text


def test_scheduled_programs_do_not_depend_on_the_number_of_threads() -> None:
    one, *others = (
        relaxvm.compile(Twice, num_threads=n, stop_after="ScheduleTensorPrograms").script()
        for n in (1, 2, 5)
    )
    assert "T.vectorized" in one
    assert all(other == one for other in others)


def test_params_become_constants_of_main() -> None:
    y, z = outputs(relax.build(Twice, params={"w": W}), X)
    np.testing.assert_array_equal(z, W * W)


@pytest.mark.parametrize("name", ["zero", "default", "default_build"])
def test_module_after_a_named_pipeline_compiles(name: str) -> None:
    lowered = relax.get_pipeline(name)(Twice)
    assert "R.add" not in lowered.script()
    y, _ = outputs(relax.build(lowered, relax_pipeline=None), X, W)
    np.testing.assert_array_equal(y, X * 2)


def test_registered_pipeline_is_used_by_name() -> None:
    seen: list[str] = []

    if "test_build_spy" not in relaxvm.relax.pipeline.PIPELINE_MAP:

        @relax.register_pipeline("test_build_spy")
        def spy(log: list[str] | None = None):
            def run(mod):
                (seen if log is None else log).append("run")
                return relax.get_pipeline("zero")(mod)

            return run

    y, _ = outputs(relax.build(Twice, relax_pipeline="test_build_spy"), X, W)
    assert seen == ["run"]
    np.testing.assert_array_equal(y, X * 2)


def test_name_of_a_pipeline_is_taken_once() -> None:
    with pytest.raises(ValueError, match="there is a pipeline 'zero' already"):
        relax.register_pipeline("zero")


def test_unknown_pipeline_lists_what_there_is() -> None:
    with pytest.raises(
        ValueError, match="no pipeline 'fast'; there are default, default_build, .*zero"
    ):
        relax.build(Twice, relax_pipeline="fast")


def test_unknown_mode_says_what_there_is() -> None:
    with pytest.raises(ValueError, match='exec_mode="fast" is unknown'):
        relax.build(Twice, exec_mode="fast")


def test_unknown_target_says_what_there_is() -> None:
    with pytest.raises(ValueError, match="target 'cuda'.*llvm"):
        relaxvm.compile(Twice, target="cuda")


def test_equal_constants_are_stored_once() -> None:
    ones = np.ones((64, 64), "float32")

    @I.ir_module
    class Mod:
        @R.function
        def main(x: R.Tensor((64, 64), "float32")):
            a = R.matmul(x, R.const(ones))
            b = R.matmul(a, R.const(ones.copy()))
            return b

    assert relaxvm.compile(Mod).as_text().count("c[") > 0
    assert len(relaxvm.compile(Mod).to_bytes()) < 2 * ones.nbytes


def test_bindings_become_calls_and_branches_become_jumps() -> None:
    @I.ir_module
    class Choice:
        @R.function
        def main(c: R.Tensor((), "bool"), x: R.Tensor((3,), "float32")):
            if c:
                r = R.add(x, x)
            else:
                r = x
            return r

    text = relaxvm.compile(Choice).as_text()
    body = re.search(r"^@main:\n((?:  .*\n)+)", text, re.MULTILINE)[1].splitlines()
    ops = [line.split()[0] for line in body]
    (branch,), (jump,) = ([i for i, op in enumerate(ops) if op == name] for name in ("If", "goto"))
    assert ops[-1] == "ret" and set(ops) - {"If", "goto", "ret"} == {"call"}
    # A false condition leads behind the jump that ends the other branch; both write one register.
    assert branch + int(body[branch].split(",")[1]) == jump + 1
    assert jump + int(body[jump].split()[1]) == len(ops) - 1
    result = body[-1].split()[1]
    assert [line.rsplit(None, 1)[1] for line in (body[jump - 1], body[-2])] == [result, result]
    # Parameters are the first registers; the tensor program is called by its name.
    assert any(re.match(r"\s+call\s+add\s+in: %1, %1, %\d+\s", line) for line in body)
    assert "@add packed_func;" in text


def test_a_chain_of_many_bindings_compiles() -> None:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType([relaxvm.tirx.Var("n", "int64"), 4], "float32"))
    w = relax.Var("w", relax.TensorType([4, 4], "float32"))
    with builder.function("main", [x, w]):
        y = x
        for _ in range(3000):
            y = builder.emit(relax.op.matmul(y, w))
        builder.emit_func_output(y)
    vm = relax.VirtualMachine(relaxvm.compile(builder.get()), relaxvm.cpu())
    eye = np.eye(4, dtype="float32")
    np.testing.assert_array_equal(vm["main"](*map(relaxvm.runtime.tensor, (eye, eye))).numpy(), eye)
