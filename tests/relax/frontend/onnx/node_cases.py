# SPDX-License-Identifier: Apache-2.0
"""ONNX's own node tests: runs each, and says how many pass.

    python node_cases.py [--only PATTERN] [--write FILE] [--known]

Each case ends as `pass`, `unsupported` (refused with a clear error), `wrong`, `error` or `crash`.  `--known` writes the
list of those that do not pass, node_cases_known.txt, which test_node_cases.py compares with.  There `random` marks the
cases that expect the numbers of NumPy's generator; they may pass by chance.
"""

from __future__ import annotations

import argparse
import collections
import fnmatch
import json
import multiprocessing
import pathlib
import re
import resource
import signal
import sys
import warnings

import numpy as np

CASE_LIMIT_S = 60
MEMORY_LIMIT_BYTES = 12 << 30
# Numbers smaller than a byte travel in bytes.
CARRIERS = {
    "int4": "int8", "uint4": "uint8", "int2": "int8", "uint2": "uint8",
    "float4_e2m1fn": "float8_e4m3fn",
}  # fmt: skip


def load_cases() -> dict:
    """Name -> case; the outputs that a case expects are made when it is loaded."""
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {case.name: case for case in load_model_tests(kind="node")}


def run_case(case) -> tuple[str, str]:
    """(state, detail) of one case."""
    from relaxvm.relax.frontend.onnx import UnsupportedModel, from_onnx

    try:
        module = from_onnx(case.model)
    except UnsupportedModel as e:
        return "unsupported", str(e)
    except Exception as e:
        return "error", f"import: {type(e).__name__}: {e}"
    try:
        outputs_of = compiled(module, case.model)
        for inputs, expected in case.data_sets:
            outputs = outputs_of(inputs)
            for i, (have, want) in enumerate(zip(outputs, expected, strict=True)):
                compare(have, want, case.rtol, case.atol, i)
    except AssertionError as e:
        return "wrong", " ".join(str(e).split())
    except Exception as e:
        return "error", f"{type(e).__name__}: {e}"
    return "pass", ""


def compiled(module, model):
    """From the inputs, in order, to the outputs; texts are numbered as `InferenceSession` does it."""
    import relaxvm
    from relaxvm._session.signature import Signature
    from relaxvm._session.texts import Writing
    from relaxvm.runtime import VirtualMachine, cpu, tensor

    vm = VirtualMachine(relaxvm.compile(module), cpu())
    signature = Signature.of_proto(model).with_types(module)
    names, count = [i.name for i in signature.inputs], len(signature.outputs)

    def call(inputs):
        feed, writing = dict(zip(names, inputs)), Writing(signature)
        if writing.has_inputs:
            texts = {i.name: array_of(feed[i.name]) for i in signature.inputs if i.is_text}
            feed, writing = writing.numbered(feed | texts)
        result = vm["main"](*(argument(a) for a in feed.values()))
        single = hasattr(result, "numpy") or count == 1
        results = [plain(r) for r in ([result] if single else result)]
        return [r if isinstance(r, list) else writing.written(r, i) for i, r in enumerate(results)]

    def argument(value):
        if value is None:
            return None
        return [argument(v) for v in value] if isinstance(value, list) else tensor(array_of(value))

    def plain(value):
        return value.numpy() if hasattr(value, "numpy") else [plain(v) for v in value]

    return call


def array_of(value) -> np.ndarray:
    """Some cases hold their arrays as messages."""
    from onnx import TensorProto, numpy_helper

    array = numpy_helper.to_array(value) if isinstance(value, TensorProto) else np.asarray(value)
    carrier = CARRIERS.get(array.dtype.name)
    return array if carrier is None else array.astype(np.dtype(carrier))


def compare(have, want, rtol, atol, i) -> None:
    if isinstance(want, list):
        assert isinstance(have, list) and len(have) == len(want), f"output {i} has other items"
        for a, b in zip(have, want):
            compare(a, b, rtol, atol, i)
        return
    want = array_of(want)
    if want.dtype.kind in "OU":
        want = want.astype(object)
    assert have.shape == want.shape, f"output {i} has shape {have.shape}, not {want.shape}"
    assert have.dtype == want.dtype, f"output {i} has type {have.dtype}, not {want.dtype}"
    if want.dtype.kind == "O":
        np.testing.assert_array_equal(have, want)
        return
    if want.dtype.kind not in "biu":
        have, want = have.astype(np.float64), want.astype(np.float64)
    np.testing.assert_allclose(have, want, rtol=rtol, atol=atol)


def _work(names, queue) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT_BYTES, MEMORY_LIMIT_BYTES))
    cases = load_cases()
    for name in names:
        queue.put((name, "start", ""))
        signal.alarm(CASE_LIMIT_S)
        queue.put((name, *run_case(cases[name])))
    queue.put(None)


def run_all(names: list[str]) -> dict[str, tuple[str, str]]:
    """Runs the cases in a process of their own, a new one after each crash."""
    results: dict[str, tuple[str, str]] = {}
    context = multiprocessing.get_context("spawn")
    while names:
        queue = context.Queue()
        worker = context.Process(target=_work, args=(names, queue))
        worker.start()
        current = None
        while True:
            try:
                entry = queue.get(timeout=2)
            except Exception:
                if worker.is_alive():
                    continue
                crashed = current or names[0]
                results[crashed] = ("crash", f"exit code {worker.exitcode}")
                print(f"{'crash':12s} {crashed}: exit code {worker.exitcode}", flush=True)
                break
            if entry is None:
                break
            name, state, detail = entry
            current = name
            if state != "start":
                results[name] = (state, detail)
                if state not in ("pass", "unsupported"):
                    print(f"{state:12s} {name}: {detail[:300]}", flush=True)
        worker.join()
        names = [n for n in names if n not in results]
    return results


KNOWN = pathlib.Path(__file__).with_name("node_cases_known.txt")


def known() -> dict[str, str]:
    """Cases that do not pass, and how they end."""
    lines = [line.split("#")[0].split() for line in KNOWN.read_text().splitlines()]
    return {name: state for state, name in filter(None, lines)}


def write_known(results: dict[str, tuple[str, str]]) -> None:
    chance = {name for name, state in known().items() if state == "random"}
    rows = {name: state for name, (state, _) in results.items() if state != "pass"}
    rows |= {name: "random" for name in chance & set(results)}
    ordered = sorted(rows.items(), key=lambda row: row[::-1])
    head = [
        "# Node tests of ONNX that do not pass, and how they end; written by node_cases.py --known.",
        f"# {len(results) - len(rows)} of {len(results)} pass.",
    ]
    KNOWN.write_text("\n".join([*head, *(f"{state} {name}" for name, state in ordered)]) + "\n")


def reason(state: str, detail: str) -> str:
    """What a case lacks, short enough to be counted."""
    operator = re.search(r"[\w.:]+ \(opset \d+\)", detail)
    if state == "unsupported" and operator:
        return f"{state}: {operator[0]}"
    detail = re.sub(r"node '[^']*'|node that makes '[^']*'", "node", detail)
    return f"{state}: {re.sub(r'[0-9]+', 'N', detail)[:90]}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="*")
    parser.add_argument("--write")
    parser.add_argument("--known", action="store_true")
    args = parser.parse_args()
    names = [n for n in load_cases() if fnmatch.fnmatch(n, args.only)]
    results = run_all(names)
    open_cases = [pair for pair in results.values() if pair[0] != "pass"]
    for text, count in collections.Counter(reason(*pair) for pair in open_cases).most_common():
        print(f"{count:5d} {text}")
    print(dict(collections.Counter(state for state, _ in results.values())))
    if args.known:
        write_known(results)
    if args.write:
        with open(args.write, "w") as file:
            json.dump(results, file, indent=1)
    sys.exit(0)


if __name__ == "__main__":
    main()
