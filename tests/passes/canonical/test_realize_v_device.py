# SPDX-License-Identifier: Apache-2.0
"""RealizeVDevice: tensors lie where types, to_vdevice and hints say, and are copied elsewhere."""

import textwrap

import pytest
from pass_check import check_pass, module

import relaxvm
from relaxvm.relax.transform import RealizeVDevice

DEVICES = (
    'I.module_global_infos({"vdevice": '
    '[I.vdevice("llvm", 0), I.vdevice("null", 0), I.vdevice("null", 1)]})\n'
)


def check(before, after, **options):
    before, after = (DEVICES + textwrap.dedent(text) for text in (before, after))
    check_pass(RealizeVDevice(**options), before, after)


def test_hint_places_what_nothing_else_is_known_of():
    check(
        """
        @R.function
        def main(x: R.Tensor((2,), "float32"), y: R.Tensor((2,), "float32")):
            a = R.add(x, y)
            b = R.hint_on_device(a, device_type=12)
            c = R.multiply(b, b)
            return c
        """,
        """
        @R.function
        def main(x: R.Tensor((2,), "float32", "null:0"), y: R.Tensor((2,), "float32", "null:0")):
            a = R.add(x, y)
            b = a
            c = R.multiply(b, b)
            return c
        """,
    )


def test_hint_is_a_copy_where_the_device_is_known():
    check(
        """
        @R.function
        def main(x: R.Tensor((2,), "float32", "llvm:0"), y: R.Tensor((2,), "float32")):
            b = R.hint_on_device(x, device_type=12, index=1)
            c = R.multiply(b, y)
            return c
        """,
        """
        @R.function
        def main(x: R.Tensor((2,), "float32", "llvm:0"), y: R.Tensor((2,), "float32", "null:1")):
            b = R.to_vdevice(x, "null:1")
            c = R.multiply(b, y)
            return c
        """,
    )


def test_value_is_copied_once_for_several_uses():
    check(
        """
        @R.function
        def main(x: R.Tensor((2,), "float32", "llvm:0")):
            a = R.call_pure_packed("f", x, ty_args=R.Tensor((2,), "float32", "null:0"))
            b = R.hint_on_device(x, device_type=12)
            c = R.add(a, b)
            d = R.hint_on_device(x, device_type=12)
            e = R.add(c, d)
            return e
        """,
        """
        @R.function
        def main(x: R.Tensor((2,), "float32", "llvm:0")):
            a = R.call_pure_packed("f", x, ty_args=R.Tensor((2,), "float32", "null:0"))
            b = R.to_vdevice(x, "null:0")
            c = R.add(a, b)
            d = b
            e = R.add(c, d)
            return e
        """,
    )


def test_result_type_of_a_call_says_where_it_runs():
    check(
        """
        @R.function
        def main(x: R.Tensor((2,), "float32", "llvm:0"), y: R.Tensor((2,), "float32", "null:0")):
            cls = Module
            z = R.call_tir(cls.f, (x, y), out_ty=R.Tensor((2,), "float32", "null:0"))
            return z

        @T.prim_func(private=True)
        def f(a: T.Buffer((2,), "float32"), b: T.Buffer((2,), "float32"), c: T.Buffer((2,), "float32")):
            for i in range(2):
                c[i] = a[i] + b[i]
        """,
        """
        @R.function
        def main(x: R.Tensor((2,), "float32", "llvm:0"), y: R.Tensor((2,), "float32", "null:0")):
            cls = Module
            copy = R.to_vdevice(x, "null:0")
            z = R.call_tir(cls.f, (copy, y), out_ty=R.Tensor((2,), "float32", "null:0"))
            return z

        @T.prim_func(private=True)
        def f(a: T.Buffer((2,), "float32"), b: T.Buffer((2,), "float32"), c: T.Buffer((2,), "float32")):
            for i in range(2):
                c[i] = a[i] + b[i]
        """,
    )


def test_fields_of_a_tuple_are_copied_one_by_one():
    check(
        """
        @R.function
        def main(x: R.Tensor((2,), "float32", "llvm:0"), y: R.Tensor((2,), "float32", "null:0")):
            cls = Module
            t = (x, y)
            z = cls.both(t)
            return z

        @R.function(private=True)
        def both(
            t: R.Tuple(R.Tensor((2,), "float32", "null:0"), R.Tensor((2,), "float32", "null:0"))
        ) -> R.Tensor((2,), "float32", "null:0"):
            z = t[0]
            return z
        """,
        """
        @R.function
        def main(x: R.Tensor((2,), "float32", "llvm:0"), y: R.Tensor((2,), "float32", "null:0")):
            cls = Module
            t = (x, y)
            field = t[0]
            copy = R.to_vdevice(field, "null:0")
            field_1 = t[1]
            z = cls.both((copy, field_1))
            return z

        @R.function(private=True)
        def both(
            t: R.Tuple(R.Tensor((2,), "float32", "null:0"), R.Tensor((2,), "float32", "null:0"))
        ) -> R.Tensor((2,), "float32", "null:0"):
            z = t[0]
            return z
        """,
    )


def test_branches_give_their_value_where_it_is_needed():
    check(
        """
        @R.function
        def main(
            c: R.Tensor((), "bool"), x: R.Tensor((2,), "float32", "llvm:0"), y: R.Tensor((2,), "float32", "null:0")
        ) -> R.Tensor((2,), "float32", "llvm:0"):
            if c:
                a = R.add(x, x)
                r = a
            else:
                b = R.add(y, y)
                r = b
            return r
        """,
        """
        @R.function
        def main(
            c: R.Tensor((), "bool"), x: R.Tensor((2,), "float32", "llvm:0"), y: R.Tensor((2,), "float32", "null:0")
        ) -> R.Tensor((2,), "float32", "llvm:0"):
            if c:
                a = R.add(x, x)
                r = a
            else:
                b = R.add(y, y)
                copy = R.to_vdevice(b, "llvm:0")
                r = copy
            return r
        """,
    )


@pytest.mark.parametrize("constants", [True, False])
def test_constants_are_copied_when_asked_for(constants):
    before = """
        @R.function
        def main(x: R.Tensor((2,), "float32", "null:0")):
            y = R.add(x, R.const([1.0, 2.0], "float32"))
            return y
        """
    after = """
        @R.function
        def main(x: R.Tensor((2,), "float32", "null:0")):
            copy = R.to_vdevice(R.const([1.0, 2.0], "float32"), "null:0")
            y = R.add(x, copy)
            return y
        """
    check(before, after if constants else before, constants=constants)


def test_device_that_is_not_listed_is_added_to_the_list():
    given = module(
        """
        @R.function
        def main(x: R.Tensor((2,), "float32")):
            a = R.hint_on_device(x, device_type=12, index=2)
            return a
        """
    )
    (device,) = RealizeVDevice()(given).global_infos["vdevice"]
    assert (device.target, device.vdevice_id, device.memory_scope) == ("null", 2, "global")


def test_module_without_devices_stays_the_same_object():
    given = module("@R.function\ndef main(x: R.Tensor((2,), 'float32')):\n    return x")
    assert RealizeVDevice()(given).same_as(given)


def test_pass_changes_nothing_the_second_time():
    given = module(
        DEVICES
        + textwrap.dedent(
            """
            @R.function
            def main(x: R.Tensor((2,), "float32", "llvm:0")):
                b = R.hint_on_device(x, device_type=12)
                c = R.multiply(b, R.const([1.0, 2.0], "float32"))
                return c
            """
        )
    )
    once = RealizeVDevice()(given)
    assert relaxvm.ir.structural_equal(RealizeVDevice()(once), once)
