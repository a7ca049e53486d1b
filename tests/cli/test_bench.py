# SPDX-License-Identifier: Apache-2.0
"""relaxvm bench: latency, kernels beside the limits of the machine, the page and the trace."""

import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ET

import pytest
from onnx import TensorProto, helper, parser

from relaxvm.cli.benching import Kernel
from relaxvm.cli.limits import Limits, measure
from relaxvm.cli.roofline import page

MODEL = "g (float[n, 64] x, float[64, 64] w) => (float[n, 64] y) { a = MatMul(x, w) y = Relu(a) }"


@pytest.fixture
def bench(tmp_path):
    """Runs the command on a small model; gives the JSON object."""
    proto = helper.make_model(
        parser.parse_graph(MODEL), opset_imports=[helper.make_opsetid("", 17)], ir_version=8
    )
    assert proto.graph.input[0].type.tensor_type.elem_type == TensorProto.FLOAT
    (tmp_path / "m.onnx").write_bytes(proto.SerializeToString())

    def run(*args, status=0):
        done = subprocess.run(
            [sys.executable, "-m", "relaxvm", "bench", "m.onnx", "--shape", "x=32,64"]
            + ["--seconds", "0.1", "--rounds", "2", "--json", *args],
            capture_output=True,
            text=True,
            timeout=100,
            cwd=tmp_path,
            env={**os.environ, "RELAXVM_CACHE_DIR": str(tmp_path / "cache")},
        )
        assert done.returncode == status, done.stdout + done.stderr
        return json.loads(done.stdout)

    return run


@pytest.mark.peer
def test_times_the_model_beside_onnxruntime(bench):
    pytest.importorskip("onnxruntime")
    report = bench()
    assert report["seconds"] > 0 and report["peer"]["seconds"] > 0
    assert report["ratio"] == pytest.approx(report["peer"]["seconds"] / report["seconds"])
    assert report["error"] < 1e-5


def test_says_of_each_kernel_how_far_it_is_from_the_limit(bench, tmp_path):
    report = bench("--no-peer", "--html", "page.html", "--trace", "trace.json")
    assert "peer" not in report
    limits, (kernel,) = report["limits"], [k for k in report["kernels"] if "matmul" in k["name"]]
    assert limits["gflop_per_s"] > 0 and limits["gb_per_s"] > 0
    assert kernel["calls"] == 1 and kernel["of_limit"] > 0
    # 32 x 64 x 64 multiply-adds and 32 x 64 comparisons, over 32 x 64 + 64 x 64 + 32 x 64 floats
    assert kernel["flop_per_byte"] == pytest.approx((2 * 32 * 64 * 64 + 32 * 64) / 32768, rel=0.02)
    assert kernel["name"] in (tmp_path / "page.html").read_text()
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert kernel["name"] in {e["name"] for e in events}


@pytest.mark.parametrize("dtype", ["int8", "bfloat16"])
def test_measures_what_products_of_a_kernel_can_reach(dtype):
    limits = measure(1, "llvm", [dtype])
    assert set(limits.products) == {dtype} and limits.products[dtype] > 0


def test_refuses_an_unwritable_page_before_it_runs(bench):
    assert "there is no such folder" in bench("--html", "no/page.html", status=2)["error"]


def test_share_of_the_nearer_limit():
    limits = Limits(threads=1, gflop_per_s=100, gb_per_s=10)
    assert limits.share(1e-9, 50, 1) == pytest.approx(0.5)  # bound by arithmetic
    assert limits.share(1e-9, 5, 5) == pytest.approx(0.5)  # bound by memory
    assert limits.share(0, 5, 5) == 0
    of_bytes = Limits(threads=1, gflop_per_s=100, gb_per_s=10, products={"int8": 400})
    assert of_bytes.share(1e-9, 200, 1, "int8") == pytest.approx(0.5)
    assert of_bytes.share(1e-9, 50, 1) == of_bytes.share(1e-9, 50, 1, "bfloat16") == 0.5
    assert of_bytes.text() == "100 GFLOP/s of float32, 400 GFLOP/s of int8, 10.0 GB/s"


def test_the_page_is_well_formed_and_marks_kernels_that_are_far():
    kernels = [
        Kernel("fast<&>", 1, 90.0, 0.9, 95.0, 5.0, 19.0, 0.95),
        Kernel("slow", 2, 9.0, 0.09, 1.0, 1.0, 1.0, 0.1),
        Kernel("copy", 1, 1.0, 0.01, 0.0, 9.0, 0.0, 0.9),
    ]
    text = page("m.onnx", kernels, Limits(2, 100, 10, {"int8": 400.0}), 100.0)
    svg = ET.fromstring(text[text.index("<svg") : text.index("</svg>") + len("</svg>")])
    circles = svg.findall("circle")
    assert [p.get("stroke-dasharray") for p in svg.findall("path")] == [None, "6 4"]
    assert len(circles) == 2  # nothing is computed in `copy`: it has no place in the picture
    assert text.count('<tr class="far">') == 1 and "fast&lt;&amp;&gt;" in text
