# SPDX-License-Identifier: Apache-2.0
"""Starts an operator, a pass or a builtin: writes the file, the line of the index and the test.  What comes out
compiles; its test fails with "fill me in" until the rules are written."""

from __future__ import annotations

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent

OPERATOR = """\
// SPDX-License-Identifier: Apache-2.0
// FILL ME IN: what {name} computes.
#include "ops/compute.h"

namespace relaxvm::ops {{
namespace {{

Type Infer{camel}(TypeCtx& ctx, const NoAttrs&) {{
  ctx.Error(ErrorKind::kNotImplementedError, "fill me in: the type of the result");
}}

Tensors Compute{camel}(const ComputeArgs& in, const NoAttrs&) {{
  auto formula = [&](const Indices& i) {{ return in[0](i); }};  // fill me in: one element
  return {{tir::Compute(in.OutShape(), formula, "{function}")}};
}}

}}  // namespace

OpDef {function}() {{
  return Define<NoAttrs>({{
      .name = "{name}",
      .doc = "FILL ME IN.",
      .args = {{{{"x", "The tensor."}}}},
      .reference = "out = x",
      .samples = {{{{{{"x: f32[4, 8]"}}}}}},
      .type = Infer{camel},
      .compute = Compute{camel},
  }});
}}

}}  // namespace relaxvm::ops
"""

PASS = """\
// SPDX-License-Identifier: Apache-2.0
// {name}: FILL ME IN: what changes, and in which stage the pass runs.
#include "passes/pass.h"

namespace relaxvm::passes {{

IRModule {name}(IRModule mod, const PassContext&) {{ return mod; }}  // fill me in

}}  // namespace relaxvm::passes
"""

PASS_TEST = """\
# SPDX-License-Identifier: Apache-2.0
\"\"\"{name}: FILL ME IN.\"\"\"

from __future__ import annotations

import relaxvm
from relaxvm.relax import transform
from relaxvm.script import ir as I
from relaxvm.script import relax as R


def test_fill_me_in() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((4,), "float32")):
            return R.add(x, x)

    @I.ir_module
    class After:
        @R.function
        def main(x: R.Tensor((4,), "float32")):
            return R.multiply(x, x)

    assert relaxvm.ir.structural_equal(transform.{name}()(Before), After), "fill me in"
"""

BUILTIN = """\
// SPDX-License-Identifier: Apache-2.0
// FILL ME IN: what vm.builtin.{snake} is for.
#include "vm/builtins/builtins.h"

namespace relaxvm::vm::builtins {{
namespace ffi = tvm::ffi;

void {name}(Args args, ffi::Any* result) {{
  *result = args.view(0);
  Fail(ErrorKind::kNotImplementedError, "fill me in: {name}");
}}

}}  // namespace relaxvm::vm::builtins
"""

BUILTIN_TEST = """\
# SPDX-License-Identifier: Apache-2.0
\"\"\"vm.builtin.{snake}: FILL ME IN.\"\"\"

import relaxvm


def test_fill_me_in() -> None:
    assert relaxvm.get_global_func("vm.builtin.{snake}")(1) == 1
"""


def camel(snake: str) -> str:
    return "".join(word.capitalize() for word in re.split(r"[_.]", snake))


def write(path: str, text: str) -> None:
    target = ROOT / path
    if target.exists():
        sys.exit(f"new: {path} exists; choose another name, or edit it")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text)
    print(f"wrote {path}")


def insert(path: str, macro: str, name: str, row: str) -> None:
    """Puts `row` where the names of `macro` rows stay sorted."""
    lines = (ROOT / path).read_text().split("\n")
    pattern = re.compile(rf"^\s*{macro}\(\s*\"?([\w.]+)")
    rows = [(number, m[1]) for number, line in enumerate(lines) if (m := pattern.match(line))]
    for number, other in rows:
        if other == name:
            sys.exit(f"new: {path}:{number + 1}: {name} exists")
    at = next((number for number, other in rows if other > name), rows[-1][0] + 1)
    lines.insert(at, row)
    (ROOT / path).write_text("\n".join(lines))
    print(f"{path}:{at + 1}: {row}")


def append(path: str, macro: str, name: str, row: str) -> None:
    """Puts `row` last: the place of a row is its number in saved files."""
    text = (ROOT / path).read_text()
    if re.search(rf"^{macro}\({name},", text, re.MULTILINE):
        sys.exit(f"new: {path}: {name} exists")
    (ROOT / path).write_text(text + row + "\n")
    print(f"{path}: {row}")


def need_folder(folder: str) -> None:
    """A new file belongs to a family that exists."""
    if not (ROOT / folder).is_dir():
        parent = (ROOT / folder).parent
        names = ", ".join(sorted(path.name for path in parent.iterdir() if path.is_dir()))
        sys.exit(f"new: there is no folder {folder}; choose one of {names}, or make it")


def new_operator(family: str, name: str) -> None:
    need_folder(f"src/ops/{family}")
    function = name.split(".")[-1]
    insert("src/ops/op_list.def", "OPS?", function, f"OP({function})")
    text = OPERATOR.format(name=name, function=function, camel=camel(function))
    write(f"src/ops/{family}/{function}.cc", text)
    print(f"next: fill it in, ./dev test tests/ops -k {function} (docs/howto/add_operator.md)")


def new_pass(group: str, snake: str) -> None:
    need_folder(f"src/passes/{group}")
    name = camel(snake)
    insert("src/passes/pass_list.def", "PASS", name, f'PASS({name}, "", "FILL ME IN.")')
    write(f"src/passes/{group}/{snake}.cc", PASS.format(name=name))
    test = f"tests/passes/{group}/test_{snake}.py"
    write(test, PASS_TEST.format(name=name))
    print(f"next: fill it in, ./dev test {test} (docs/howto/add_pass.md)")


def new_builtin(folder: str, snake: str) -> None:
    need_folder(f"src/{folder}")
    name, path = camel(snake), f"src/{folder}/{snake}.cc"
    row = f'BUILTIN({name}, "vm.builtin.{snake}", "(value: any) -> any", kReads, "FILL ME IN.")'
    append("src/bytecode/builtin_list.def", "BUILTIN", name, row)
    write(path, BUILTIN.format(name=name, snake=snake))
    test = f"tests/vm/test_{snake}.py"
    write(test, BUILTIN_TEST.format(snake=snake))
    print(f"next: fill it in, ./dev test {test}")


USAGE = "usage: new op FAMILY/NAME (nn/nn.mish, elementwise/cbrt) | pass GROUP/NAME (fuse/fold_scale) | builtin NAME"


def main(words: list[str]) -> int:
    makers = {"op": new_operator, "pass": new_pass, "builtin": new_builtin}
    if len(words) != 2 or words[0] not in makers:
        sys.exit(USAGE)
    place = f"vm/builtins/{words[1]}" if words[0] == "builtin" else words[1]
    folder, _, name = place.rpartition("/")
    if not folder:
        sys.exit(USAGE)
    if not re.fullmatch(r"[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)*", name):
        sys.exit(f"new: {name} is no name in lower_case")
    makers[words[0]](folder, name)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
