# SPDX-License-Identifier: Apache-2.0
"""The command line: what it prints, what it writes, how it ends."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from onnx import helper, numpy_helper, parser
from typer.testing import CliRunner

from relaxvm.cli.app import app

MODEL = "g (float[n, 3] x) => (float[n, 3] y) { a = Add(x, w) y = Relu(a) }"


@pytest.fixture
def model(tmp_path):
    graph = parser.parse_graph(MODEL)
    graph.initializer.append(numpy_helper.from_array(np.float32([1, 2, 3]), "w"))
    path = tmp_path / "m.onnx"
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path.write_bytes(proto.SerializeToString())
    return path


@pytest.fixture
def relaxvm(tmp_path, monkeypatch):
    """Runs the command in this process; gives what it printed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RELAXVM_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "200")

    def run(*args, status=0):
        done = CliRunner().invoke(app, [str(a) for a in args])
        assert done.exit_code == status, done.output
        return done

    return run


@pytest.fixture
def command(tmp_path):
    """Runs the command as a process of its own."""

    def run(*args, status=0, **env):
        done = subprocess.run(
            [sys.executable, "-m", "relaxvm", *map(str, args)],
            capture_output=True,
            text=True,
            timeout=100,
            cwd=tmp_path,
            env={**os.environ, "RELAXVM_CACHE_DIR": str(tmp_path / "cache"), **env},
        )
        assert done.returncode == status, done.stdout + done.stderr
        return done

    return run


def test_is_a_command_that_prints_its_version(command):
    import relaxvm as package

    assert command("--version").stdout.strip() == f"relaxvm {package.__version__}"


def test_compiles_and_runs_the_library(relaxvm, model, tmp_path):
    report = json.loads(relaxvm("compile", model, "-o", "out.so", "--json").stdout)
    assert report["bytes"] == (tmp_path / "out.so").stat().st_size
    x = np.ones((2, 3), "f4")
    np.save(tmp_path / "x.npy", x)
    report = json.loads(relaxvm("run", "out.so", "-i", "x=x.npy", "-o", "y.npz", "--json").stdout)
    assert report["outputs"]["y"]["shape"] == [2, 3]
    np.testing.assert_allclose(np.load(tmp_path / "y.npz")["y"], x + np.float32([1, 2, 3]))


def test_runs_a_model_on_random_inputs(relaxvm, model):
    first = json.loads(relaxvm("run", model, "--shape", "x=4,3", "--json").stdout)
    again = json.loads(relaxvm("run", model, "--shape", "x=4,3", "--json").stdout)
    assert first["inputs"]["x"] == {"shape": [4, 3], "dtype": "float32"}
    assert first["outputs"] == again["outputs"]


def test_takes_inputs_from_npz(relaxvm, model, tmp_path):
    np.savez(tmp_path / "in.npz", x=np.zeros((5, 3), "f4"))
    report = json.loads(relaxvm("run", model, "--input", "in.npz", "--json").stdout)
    assert report["outputs"]["y"]["shape"] == [5, 3]


def test_prints_tables_for_people(relaxvm, model):
    text = relaxvm("run", model, "--shape", "x=4,3").stdout
    assert "inputs" in text and "float32" in text and "[4, 3]" in text and "time:" in text


def test_inspects_a_model(relaxvm, model):
    report = json.loads(relaxvm("inspect", model, "--json").stdout)
    assert report["inputs"][0]["name"] == "x" and report["inputs"][0]["shape"] == ["n", 3]
    assert report["outputs"][0]["shape"] == ["n", 3]
    assert report["kernels"] and all("T.prim_func" in k["script"] for k in report["kernels"])
    assert "main" in report["bytecode"] and "R.function" in report["script"] and report["memory"]


def test_inspect_shows_the_plan_at_a_shape(relaxvm, model):
    report = json.loads(relaxvm("inspect", model, "--shape", "x=5,3", "--json").stdout)
    (peak,) = report["memory_peaks"]
    assert peak["sizes"] == {"n": 5}
    assert 0 < peak["most_alive"] <= peak["planned_peak"]


def test_inspects_a_library(relaxvm, model):
    relaxvm("compile", model, "-o", "out.so")
    report = json.loads(relaxvm("inspect", "out.so", "--json").stdout)
    assert report["inputs"][0]["name"] == "x" and "main" in report["bytecode"]


def test_shows_the_parts_asked_for(relaxvm, model):
    text = relaxvm("inspect", model, "--kernels", "--memory", "--bytecode", "--script").stdout
    assert "T.prim_func" in text and "R.function" in text and "memory plan" in text


def test_doctor_finds_this_installation_well(relaxvm):
    report = json.loads(relaxvm("doctor", "--json").stdout)
    assert report["ok"] and {c["check"] for c in report["checks"]} >= {
        "relaxvm",
        "linker",
        "python",
    }


# ---- mistakes: one message, status 2, nothing half-written


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["compile", "nowhere.onnx"], "'nowhere.onnx': there is no such file"),
        (["compile", "."], "is a folder; give the file of a model"),
        (["compile", "{m}", "-o", "no/such/folder/x.so"], "there is no such folder"),
        (["compile", "{m}", "-o", "."], "is a folder; give the name of a file"),
        (["compile", "{m}", "--target", "vax"], "unknown target 'vax'"),
        (["compile", "{m}", "--shape", "z=1"], "has no input 'z'"),
        (["compile", "{m}", "--shape", "x"], "write the name of an input and its dimensions"),
        (["run", "{m}"], "choose its sizes with --shape x="),
        (["run", "{m}", "--shape", "z=1,3"], "there is no input called 'z'"),
        (["run", "{m}", "--shape", "x=1,4"], "dimension 1 is 4, not 3"),
        (["run", "{m}", "--shape", "x=3"], "must have 2 dimensions"),
        (["run", "{m}", "--shape", "x=99999999,999999"], "more elements than memory can hold"),
        (["run", "{m}", "-i", "x=nothing.npy"], "there is no such file"),
        (["run", "{m}", "-i", "x={m}"], "--input x="),
        (["run", "{m}", "-i", "wrong.npy"], "write which input it is"),
        (["run", "{m}", "-i", "x=wrong.npy"], "must have element type float32, got float64"),
        (["run", "{m}", "--shape", "x=1,3", "-o", "no/y.npz"], "there is no such folder"),
        (["run", "{bad}", "--shape", "x=1,3"], "damaged or truncated"),
        (["inspect", "{bad}"], "damaged or truncated"),
        (["inspect", "{m}", "--shape", "z=1,3"], "there is no input called 'z'"),
        (["inspect", "{m}", "--shape", "x=1,4"], "the dimension 3 cannot be 4"),
        (["inspect", "{m}", "--shape", "x=1"], "give a number for each"),
    ],
)
def test_a_mistake_is_one_message(relaxvm, model, tmp_path, args, message):
    np.save(tmp_path / "wrong.npy", np.ones((1, 3)))
    (tmp_path / "bad.onnx").write_bytes(model.read_bytes()[:-10])
    before = set(tmp_path.iterdir())
    names = {"m": model, "bad": tmp_path / "bad.onnx"}
    done = relaxvm(*(a.format(**names) for a in args), status=2)
    assert message in done.stderr
    assert done.stderr.startswith("relaxvm: error: ") and done.stderr.count("\n") == 1
    assert "Traceback" not in done.stderr
    assert {p for p in tmp_path.iterdir() if p.name != "cache"} == before - {tmp_path / "cache"}


def test_a_mistake_is_json_when_asked(relaxvm):
    done = relaxvm("compile", "nowhere.onnx", "--json", status=2)
    assert json.loads(done.stdout)["error"] == "'nowhere.onnx': there is no such file"


@pytest.mark.parametrize(
    "args", [["frobnicate"], ["compile"], ["run", "m", "--repeat", "0"], ["--nothing"]]
)
def test_unknown_words_are_mistakes_too(relaxvm, args):
    assert "Traceback" not in relaxvm(*args, status=2).stderr


@pytest.mark.parametrize("kept", [0, 10, 100, 5000, -100])
def test_a_damaged_library_is_one_message(relaxvm, model, tmp_path, kept):
    relaxvm("compile", model, "-o", "out.so")
    data = (tmp_path / "out.so").read_bytes()
    (tmp_path / "cut.so").write_bytes(data[:kept])
    done = relaxvm("run", "cut.so", "--shape", "x=1,3", status=2)
    assert "cut.so" in done.stderr and "Traceback" not in done.stderr


def test_a_foreign_library_is_one_message(relaxvm):
    done = relaxvm("run", os.path.realpath(sys.executable), "--shape", "x=1,3", status=2)
    assert done.stderr.startswith("relaxvm: error: ") and "Traceback" not in done.stderr


def test_no_linker_is_one_message(relaxvm, model, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    done = relaxvm("compile", model, "-o", "out.so", status=2)
    assert "linker" in done.stderr and not (tmp_path / "out.so").exists()


def test_unwritable_folder_is_one_message(relaxvm, model, tmp_path):
    if os.getuid() == 0:
        done = relaxvm("compile", model, "-o", "/proc/out.so", status=2)
    else:
        (tmp_path / "locked").mkdir(mode=0o500)
        done = relaxvm("compile", model, "-o", "locked/out.so", status=2)
    assert "Traceback" not in done.stderr


def test_a_process_ends_with_status_2(command):
    done = command("compile", "nowhere.onnx", status=2)
    assert done.stderr == "relaxvm: error: 'nowhere.onnx': there is no such file\n"


def test_profiles_kernels_and_writes_a_trace(relaxvm, model, tmp_path):
    printed = relaxvm("run", model, "--shape", "x=4,3", "--profile", "--trace", "t.json").stdout
    assert "GFLOP/s" in printed and "fused_add" in printed and "ui.perfetto.dev" in printed
    trace = json.loads((tmp_path / "t.json").read_text())
    assert any("fused_add" in event["name"] for event in trace["traceEvents"])
    report = json.loads(relaxvm("run", model, "--shape", "x=4,3", "--profile", "--json").stdout)
    (row,) = (r for r in report["profile"]["functions"] if "fused_add" in r["name"])
    assert (row["kind"], row["calls"], row["flop"]) == ("kernel", 1, 2 * 4 * 3)
    relaxvm("run", model, "--shape", "x=4,3", "--trace", "no/such/folder/t.json", status=2)


@pytest.mark.parametrize(
    "options, message",
    [
        (["--host", "0.0.0.0"], "give it a token"),
        (["--token-file", "empty"], "it must hold the token"),
        (["--key", "k.pem"], "belong together"),
        (["m.onnx"], "two models are called 'm'"),
    ],
)
def test_serve_refuses_what_is_unsafe_or_unclear(
    relaxvm, model, tmp_path, monkeypatch, options, message
):
    pytest.importorskip("grpc")
    monkeypatch.setenv("RELAXVM_TOKEN", "")
    (tmp_path / "empty").write_text("\n")
    assert message in relaxvm("serve", model, *options, status=2).output
