# SPDX-License-Identifier: Apache-2.0
"""A model that runs in another process: `relaxvm serve` there, `relaxvm.rpc.connect` here.  Needs relaxvm[rpc]."""

import os
import pathlib
import secrets
import subprocess
import sys
import tempfile

import numpy as np

import relaxvm
import relaxvm.rpc
from relaxvm.script import ir as I
from relaxvm.script import relax as R


@I.ir_module
class Double:
    @R.function
    def main(x: R.Tensor(("n",), "float32")):
        y = R.add(x, x)
        return y


def client(address: str, token: str) -> None:
    with relaxvm.rpc.connect(address, token, timeout=30) as session:
        print(session.models())
        vm = session.vm("double")
        vm.set_input("main", np.arange(3, dtype="float32"))
        vm.invoke_stateful("main")
        print(vm.get_outputs("main").numpy())
        print(vm["main"](np.ones(2, "float32")).numpy())
        print(f"{vm.time_evaluator('main', number=100)(np.ones(2, 'float32')).median:.2g} s a call")


def main() -> None:
    token = secrets.token_hex(16)
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "double.so"
        relaxvm.compile(Double).export_library(path)
        command = [sys.executable, "-m", "relaxvm", "serve", path, "--port", "0"]
        environment = {**os.environ, "RELAXVM_TOKEN": token}
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env=environment
        ) as server:
            assert server.stdout is not None
            line = server.stdout.readline()  # "serving double on 127.0.0.1:40123"
            try:
                client(line.split()[-1], token)
            finally:
                server.terminate()


if __name__ == "__main__":
    main()
