# SPDX-License-Identifier: Apache-2.0
"""Checks who includes and imports whom: layers.txt for src/, the layer rule of the Python package, and the few headers
and names that belong to one folder.  Prints file:line for each finding; exit status 1 when there is one."""

from __future__ import annotations

import ast
import pathlib
import re
import sys
from collections.abc import Iterator

ROOT = pathlib.Path(__file__).resolve().parent.parent
SUFFIXES = (".cc", ".h", ".def", ".inc")
INCLUDE = re.compile(r"\s*#\s*include\s+[<\"]([\w./+-]+)[>\"]")

# What may stand only in certain folders of src/ (a folder covers its sub-folders).
CONFINED = [
    (re.compile(r"#\s*include\s+[<\"]llvm(-c)?/"), ("codegen/llvm", "codegen/ptx"), "LLVM headers"),
    (
        re.compile(r"#\s*include\s+[<\"](cuda|nvrtc|cublas|cudnn)[\w/]*\.h"),
        ("runtime/device/cuda",),
        "CUDA headers",
    ),
    (
        re.compile(
            r"\bGlobalDef\b|\bFunction::(GetGlobal|GetGlobalRequired|SetGlobal|RemoveGlobal)\b"
        ),
        ("embed", "api"),
        "tvm-ffi's registry of global functions",
    ),
]
# Heavy to compile: a header that includes one makes every file that includes it slow.
HEAVY = re.compile(r"#\s*include\s+[<\"](tvm/ffi/reflection/registry\.h|tvm/ffi/extra/)")
# tvm-ffi's modules are declared in one of them.
HEAVY_ALLOWED = (
    "src/pipeline/build.h",
    "src/pipeline/export.h",
    "src/pipeline/kernel_module.h",
    "src/runtime/kernel_library.h",
    "src/vm/executable_module.h",
    "src/vm/virtual_machine.h",
)

# Parts of python/relaxvm, and what each may import of the others when it is loaded.  An import inside a function is not
# counted (a method that prints needs the printer), except that of a front end.  What is not listed here is free.
FRONTEND = "relax.frontend"
FRONTEND_USERS = ("_compile", "_session", "cli", "inference", "testing", FRONTEND)
PYTHON_RULES = {
    "ir": (),
    "relax.op": ("ir",),
    "script": ("relax.op", "ir"),
    FRONTEND: ("relax.op", "script", "ir"),
}
PYTHON_PARTS = (*FRONTEND_USERS, "relax.op", "script", "ir")
FRONT_END_PACKAGES = {
    "onnx": ("relax.frontend.onnx",),
    "torch": (
        "relax.base_py_module",
        "relax.frontend.nn.torch",
        "relax.frontend.torch",
        "relax.torch_operators",
    ),
}


def read_rules(path: pathlib.Path) -> dict[str, set[str]]:
    rules: dict[str, set[str]] = {}
    for line in path.read_text().splitlines():
        line = line.split("#")[0].strip()
        if not line:
            continue
        folder, allowed = (part.strip() for part in line.split(":"))
        for name in allowed.split():
            if name not in rules:
                sys.exit(f"{path.name}: {folder} names {name} before it is listed (cycle or typo)")
        rules[folder] = set(allowed.split())
    return rules


def deepest(rules: dict[str, set[str]], parts: tuple[str, ...]) -> str | None:
    """("codegen", "ptx", "mma.cc") -> "codegen/ptx" if that is listed, else "codegen"."""
    names = ["/".join(parts[:n]) for n in range(len(parts) - 1, 0, -1)]
    return next((name for name in names if name in rules), None)


def within(folder: str, homes: tuple[str, ...]) -> bool:
    return any(folder == home or folder.startswith(home + "/") for home in homes)


def check_native(root: pathlib.Path, rules: dict[str, set[str]]) -> Iterator[str]:
    source = root / "src"
    for path in sorted(p for p in source.rglob("*") if p.suffix in SUFFIXES):
        where = path.relative_to(root)
        parts = path.relative_to(source).parts
        home = deepest(rules, parts)
        if home is None:
            yield f"{where}: its folder is not in layers.txt"
            continue
        folder = "/".join(parts[:-1])
        for number, line in enumerate(path.read_text().splitlines(), 1):
            code = line.split("//")[0]
            for pattern, homes, what in CONFINED:
                if pattern.search(code) and not within(folder, homes):
                    yield f"{where}:{number}: {what} belong to {' and '.join(homes)}"
            if path.suffix == ".h" and HEAVY.search(code) and where.as_posix() not in HEAVY_ALLOWED:
                yield f"{where}:{number}: heavy header; include it in the .cc file"
            match = INCLUDE.match(code)
            target = match and deepest(rules, tuple(match[1].split("/")))
            if target and target != home and target not in rules[home]:
                yield f"{where}:{number}: {home}/ may not include {target}/"
            if match and match[1].startswith(("tests/", "src/", "../")):
                yield f"{where}:{number}: write includes from src/, and none of tests/"


def imported(path: pathlib.Path, module: str) -> Iterator[tuple[int, str, bool]]:
    """(line, absolute module name, inside a function?) of every import in a file."""
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    tree = ast.parse(path.read_text(), str(path))
    functions = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    inner = {id(node) for function in functions for node in ast.walk(function)}
    for node in ast.walk(tree):
        deferred = id(node) in inner
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name, deferred
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = package.split(".")
                base = ".".join([*parts[: len(parts) - node.level + 1], *filter(None, [base])])
            for alias in node.names:
                yield node.lineno, f"{base}.{alias.name}", deferred


def part_of(module: str) -> str | None:
    return next((p for p in PYTHON_PARTS if module == p or module.startswith(p + ".")), None)


def check_python(root: pathlib.Path) -> Iterator[str]:
    package = root / "python" / "relaxvm"
    for path in sorted(package.rglob("*.py")):
        where = path.relative_to(root)
        inner = path.relative_to(package).with_suffix("").parts
        own = ".".join(inner[:-1] if inner[-1] == "__init__" else inner)
        module = ".".join(inner)
        home = part_of(own)
        for line, name, deferred in imported(path, ".".join(filter(None, ["relaxvm", own]))):
            top = name.split(".")[0]
            owners = FRONT_END_PACKAGES.get(top, ())
            if (
                owners
                and not any((module + ".").startswith(owner + ".") for owner in owners)
                and home not in ("cli", "testing")
            ):
                verb = "imports" if len(owners) == 1 else "import"
                yield f"{where}:{line}: only {' and '.join(owners)} {verb} {top}"
            if top != "relaxvm":
                continue
            target = part_of(name.partition(".")[2])
            if target is None or target == home:
                continue
            if target == FRONTEND and home not in FRONTEND_USERS:
                yield f"{where}:{line}: only {', '.join(FRONTEND_USERS[:-1])} import a front end"
            elif home in PYTHON_RULES and not deferred and target not in PYTHON_RULES[home]:
                yield f"{where}:{line}: {home} may not import {target}"


def main() -> int:
    rules = read_rules(ROOT / "layers.txt")
    findings = [*check_native(ROOT, rules), *check_python(ROOT)]
    print("\n".join(findings) or f"layers: ok, {len(rules)} folders")
    return int(bool(findings))


if __name__ == "__main__":
    sys.exit(main())
