# SPDX-License-Identifier: Apache-2.0
"""Models in another process: values, limits, permissions, and servers that go away."""

import os
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import relaxvm
from relaxvm.script import ir as I
from relaxvm.script import relax as R

rpc = pytest.importorskip("relaxvm.rpc")
from relaxvm.rpc import messages  # noqa: E402

TOKEN = "the token of the tests"


@I.ir_module
class Model:
    @R.function
    def main(x: R.Tensor(("n", 3), "float32"), w: R.Tensor((3,), "float32")):
        y = R.multiply(x, w)
        z = R.add(y, w)
        return (z, (y, x))

    @R.function
    def forever(i: R.Tensor((), "int64")) -> R.Tensor((), "int64"):
        cls = Model
        j = R.add(i, R.const(1, "int64"))
        r = cls.forever(j)
        return r


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    path = tmp_path_factory.mktemp("rpc") / "model.so"
    relaxvm.compile(Model).export_library(path)
    return path


@pytest.fixture(scope="module")
def server(library):
    options = rpc.ServerOptions(token=TOKEN, message_bytes=1 << 20, call_seconds=20)
    with rpc.Server({"model": relaxvm.load(library)}, options) as server:
        yield server


@pytest.fixture
def session(server):
    with rpc.connect(server.address, TOKEN, timeout=30, message_bytes=1 << 20) as session:
        yield session


def inputs(n=4):
    rng = np.random.default_rng(n)
    return rng.standard_normal((n, 3), "f4"), rng.standard_normal(3, "f4")


def test_stateful_interface_works_from_afar(session):
    vm = session.vm("model")
    for n in (1, 5):
        x, w = inputs(n)
        vm.set_input("main", w=w, x=x)
        vm.invoke_stateful("main")
        z, (y, same) = vm.get_outputs("main")
        np.testing.assert_array_equal(z.numpy(), x * w + w)
        np.testing.assert_array_equal(y.numpy(), x * w)
        np.testing.assert_array_equal(same.numpy(), x)


def test_functions_are_called_directly_and_saved(session):
    vm = session.vm("model")
    x, w = inputs()
    np.testing.assert_array_equal(vm["main"](x, w)[0].numpy(), x * w + w)
    vm.save_function("main", "saved", x, w=w)
    np.testing.assert_array_equal(vm["saved"]()[1][0].numpy(), x * w)
    result = vm.time_evaluator("main", number=2, repeat=3)(x, w)
    assert len(result.results) == 3 and result.min > 0


def test_clients_do_not_see_each_other(server):
    with rpc.connect(server.address, TOKEN) as one, rpc.connect(server.address, TOKEN) as two:
        first, second = one.vm("model"), two.vm("model")
        first.set_input("main", *inputs())
        with pytest.raises(ValueError, match="No inputs set"):
            second.invoke_stateful("main")
        first.close()
        with pytest.raises(KeyError, match="no such machine"):
            first.invoke_stateful("main")


@pytest.mark.parametrize(
    "call, kind, message",
    [
        (lambda vm: vm["nope"](), AttributeError, "no function 'nope'"),
        (lambda vm: vm["set_memory_limit"](1), AttributeError, "no function 'set_memory_limit'"),
        (lambda vm: vm["main"](np.ones(3, "f4"), np.ones(3, "f4")), ValueError, "ndim 2"),
        (lambda vm: vm.set_input("main", b=1), ValueError, "no parameter 'b'"),
        (lambda vm: vm["main"](object()), TypeError, "object cannot be sent"),
        (lambda vm: vm["main"](np.array(["a"])), TypeError, "cannot be sent"),
        (lambda vm: vm.session.vm("other"), KeyError, "no model 'other'; there are .'model'."),
        (lambda vm: vm.session.upload(__file__, "x"), PermissionError, "--allow-upload"),
        (
            lambda vm: vm["main"](np.ones((1 << 19, 3), "f4"), np.ones(3, "f4")),
            ValueError,
            "one message 1048576 at most",
        ),
    ],
)
def test_mistakes_are_errors_of_their_kind(session, call, kind, message):
    with pytest.raises(kind, match=message):
        call(session.vm("model"))


def test_answer_that_is_too_large_is_an_error(session):
    vm = session.vm("model")
    vm.set_input("main", *inputs(30000))
    vm.invoke_stateful("main")
    with pytest.raises(ValueError, match="the server sends 1048576 at most"):
        vm.get_outputs("main")


def test_server_refuses_messages_beyond_its_limit(server):
    with rpc.connect(server.address, TOKEN) as session:
        with pytest.raises(ValueError, match="too large"):
            session.vm("model")["main"](np.ones((1 << 18, 3), "f4"), np.ones(3, "f4"))


@pytest.mark.parametrize("token", ["", "wrong", "th\u00e9 token"])
def test_wrong_token_is_refused(server, token):
    with pytest.raises(PermissionError, match="the token is wrong"):
        rpc.connect(server.address, token)


def test_call_ends_at_the_time_limit(server):
    with rpc.connect(server.address, TOKEN, timeout=1) as session:
        vm = session.vm("model")
        start = time.monotonic()
        with pytest.raises(TimeoutError):
            vm["forever"](np.array(0))
        assert time.monotonic() - start < 15
    with rpc.connect(server.address, TOKEN) as session:  # the server lives, its threads are free
        for _ in range(16):
            session.vm("model")["main"](*inputs())


def test_measurement_ends_at_the_time_limit(server):
    with rpc.connect(server.address, TOKEN) as session:
        measure = session.vm("model").time_evaluator("main", number=1 << 40)
        session.timeout = 1  # of the measurement alone: a busy machine may take longer to connect
        with pytest.raises(TimeoutError):
            measure(*inputs())


def test_server_for_other_machines_needs_a_token():
    with pytest.raises(ValueError, match="give it a token"):
        rpc.Server({}, rpc.ServerOptions(host="0.0.0.0"))


def test_no_server_is_a_connection_error():
    with pytest.raises(ConnectionError, match="is gone or was never there"):
        rpc.connect("127.0.0.1:1", timeout=10)


def test_machines_are_bounded_and_idle_ones_go(library):
    options = rpc.ServerOptions(max_machines=2, idle_seconds=0.2)
    with rpc.Server({"model": relaxvm.load(library)}, options) as server:
        with rpc.connect(server.address) as session:
            session.vm("model"), session.vm("model")
            with pytest.raises(RuntimeError, match="its limit"):
                session.vm("model")
            deadline = time.monotonic() + 20
            while time.monotonic() < deadline:
                time.sleep(0.05)
                try:
                    assert session.vm("model")["main"](*inputs())
                    break
                except RuntimeError:
                    continue
            else:
                pytest.fail("idle machines stayed")


def test_upload_runs_where_it_is_allowed(library):
    options = rpc.ServerOptions(allow_upload=True, upload_bytes=library.stat().st_size)
    with rpc.Server({}, options) as server, rpc.connect(server.address) as session:
        assert session.upload(library, "mine") == "mine"
        assert session.models()["mine"] == ["forever", "main"]
        x, w = inputs()
        np.testing.assert_array_equal(session.vm("mine")["main"](x, w)[1][0].numpy(), x * w)
        with pytest.raises(ValueError, match="must be an identifier"):
            session.upload(library, "../mine")
        damaged = library.with_name("damaged.so")
        damaged.write_bytes(library.read_bytes()[:-100])
        with pytest.raises(ValueError):
            session.upload(damaged, "damaged")


def test_upload_that_is_too_large_is_refused(library):
    options = rpc.ServerOptions(allow_upload=True, upload_bytes=1000)
    with rpc.Server({}, options) as server, rpc.connect(server.address) as session:
        with pytest.raises(ValueError, match="1000 bytes at most"):
            session.upload(library, "mine")
        assert session.models() == {}


# ---- messages


@pytest.mark.parametrize(
    "dtype", "bool int8 uint64 float16 float32 float64 bfloat16 float8_e4m3fn".split()
)
@pytest.mark.parametrize("shape", [(), (0, 3), (2, 3)])
def test_tensors_keep_dtype_shape_and_bits(dtype, shape):
    value = relaxvm.runtime.empty(shape, dtype)
    bits = np.random.default_rng(1).integers(0, 2, value.numpy().nbytes).astype("u1")
    value[:] = np.frombuffer(bits.tobytes(), value.numpy().dtype).reshape(shape)
    (back,) = messages.decode(messages.encode([value]))
    assert (str(back.dtype), back.shape) == (dtype, shape)
    assert back.numpy().tobytes() == value.numpy().tobytes()


def test_other_values_come_back_as_they_are():
    values = [None, True, -5, 2.5, "text", [], [[1], {"tensor": 1}]]
    assert messages.decode(messages.encode(values)) == values
    assert tuple(messages.decode(messages.encode(relaxvm.runtime.Shape([2, 3])))) == (2, 3)


def test_damaged_messages_are_value_errors_and_nothing_else():
    good = bytearray(messages.encode({"args": [np.ones((2, 3), "f4"), (1, "a", None)]}))
    rng = np.random.default_rng(0)
    for _ in range(3000):
        data = bytearray(good)
        for _ in range(rng.integers(1, 4)):
            data[rng.integers(len(data))] = rng.integers(256)
        if rng.integers(2):
            del data[rng.integers(len(data)) :]
        try:
            messages.decode(bytes(data))
        except ValueError:
            pass


# ---- a server of its own process


@pytest.fixture
def process(library, tmp_path):
    (tmp_path / "token").write_text(TOKEN + "\n")
    started = []

    def start(*options):
        child = subprocess.Popen(
            [sys.executable, "-m", "relaxvm", "serve", library, "--port", "0", *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
            env={**os.environ, "RELAXVM_TOKEN": ""},
        )
        started.append(child)
        line = child.stdout.readline()  # the child's own time limit is pytest's
        assert line.startswith("serving model on "), line + child.stderr.read()
        return child, line.split()[-1]

    yield start
    for child in started:
        child.kill()
        child.communicate(timeout=20)


def test_served_process_answers_and_stops_when_asked(process):
    child, address = process("--token-file", "token")
    with rpc.connect(address, TOKEN) as session:
        x, w = inputs()
        np.testing.assert_array_equal(session.vm("model")["main"](x, w)[1][1].numpy(), x)
    child.send_signal(signal.SIGTERM)
    assert child.wait(timeout=20) == 0


def test_encrypted_server_is_reached_with_its_certificate(process, tmp_path):
    openssl = shutil.which("openssl") or pytest.skip("there is no openssl")
    command = f"{openssl} req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=localhost"
    files = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", "key.pem", "-out", "cert.pem"]
    subprocess.run(
        [*command.split(), *files], cwd=tmp_path, check=True, capture_output=True, timeout=60
    )
    _, address = process("--certificate", "cert.pem", "--key", "key.pem", "--token-file", "token")
    credentials = messages.grpc.ssl_channel_credentials((tmp_path / "cert.pem").read_bytes())
    with rpc.connect(address, TOKEN, credentials=credentials) as session:
        x, w = inputs()
        np.testing.assert_array_equal(session.vm("model")["main"](x, w)[1][1].numpy(), x)
    with pytest.raises(ConnectionError):
        rpc.connect(address, TOKEN, timeout=10)


def test_killed_server_is_a_clear_error(process):
    child, address = process()
    with rpc.connect(address, timeout=20) as session:
        vm = session.vm("model")
        vm.set_input("main", *inputs())
        child.kill()
        child.wait(timeout=20)
        with pytest.raises(ConnectionError, match=f"the server at {address} is gone"):
            vm.invoke_stateful("main")


def test_server_killed_during_a_call_is_a_clear_error(process):
    child, address = process()
    with rpc.connect(address, timeout=30) as session:
        vm = session.vm("model")
        killer = subprocess.Popen(
            [sys.executable, "-c", f"import os, time; time.sleep(1); os.kill({child.pid}, 9)"]
        )
        with pytest.raises(ConnectionError, match="is gone"):
            vm["forever"](np.array(0))
        killer.wait(timeout=20)
