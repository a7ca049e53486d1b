# SPDX-License-Identifier: Apache-2.0
"""Attention of the paged cache: a prompt, one more token, and a few more, beside a peer's programs.

./dev bench kv_cache [--peer PYTHON] [--dtype float32] [--threads 1]

PYTHON is an interpreter that has apache-tvm, whose programs for a CPU have the same names; each side runs in a process
of its own.  A time is the least of one call of `attention_with_fused_qkv`: rotate, store, attend.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import json
import os
import subprocess
import sys
from typing import Any

import numpy as np
from _clock import least_seconds

QUERY_HEADS, KEY_HEADS, SIZE, PAGE = 32, 8, 128, 16
# sequences, tokens that each has, tokens that each gets
CASES = {
    "a prompt of 512": (1, 0, 512),
    "a token after 2048": (1, 2048, 1),
    "a token after 1024, 8 sequences": (8, 1024, 1),
    "8 tokens after 512, 4 sequences": (4, 512, 8),
}


def programs(package: Any, dtype: str) -> dict[str, Any]:
    """The programs of a cache, compiled."""
    kv = importlib.import_module(f"{package.__name__}.relax.frontend.nn.llm.kv_cache")
    heads = (KEY_HEADS, QUERY_HEADS, SIZE)
    made = {
        "append": kv._kv_cache_transpose_append(KEY_HEADS, SIZE, dtype),
        "prefill": kv._attention_prefill_cpu(*heads, dtype, False, {}),
        "decode": kv._attention_decode_cpu(*heads, dtype, False, {}),
        "ragged": kv._attention_prefill_ragged_cpu(*heads, SIZE, dtype, {}),
        "tree_paged": kv.tree_attn_with_paged_kv_cache_cpu(*heads, dtype, {}),
        "tree": kv.tree_attn_cpu(*heads, dtype, {}),
        "merge": kv._merge_state_inplace_cpu(dtype),
        "split": kv.llama_rope_with_position_map(1e4, 1.0, SIZE, QUERY_HEADS, KEY_HEADS, dtype, {}),
        "copy": kv._copy_single_page_cpu(KEY_HEADS, PAGE, SIZE, dtype),
        "read": kv._kv_cache_debug_get_kv(1, KEY_HEADS, SIZE, dtype),
        "compact": kv._compact_kv_copy_cpu(KEY_HEADS, SIZE, dtype),
    }
    target = package.target.Target.from_device(package.cpu())
    return {name: package.tirx.build(f, target).main for name, f in made.items()}


def measure(package: Any, dtype: str) -> dict[str, float]:
    """Case -> seconds."""
    import tvm_ffi

    def shape(*values: int) -> Any:
        return tvm_ffi.Shape(values)

    def builtin(name: str) -> Any:
        return package.get_global_func(f"vm.builtin.{name}")

    f = programs(package, dtype)
    kinds = [["tirx", f[n]] for n in ("ragged", "prefill", "decode", "prefill", "decode")]
    kinds += [["tirx", f["tree_paged"]], ["tirx", f["tree"]], [], [f["merge"]]]
    rng, result = np.random.default_rng(0), {}
    for name, (count, past, new) in CASES.items():
        cache = builtin("paged_attention_kv_cache_create")(
            shape(count, count * (past + 1024), 8192, PAGE, 0),
            shape(0, 1),
            QUERY_HEADS,
            KEY_HEADS,
            *(SIZE, SIZE, shape(0), False, 1, 1.0, 1e4, None),
            package.runtime.empty((), dtype),
            *(f["append"], None, *kinds, f["split"], f["copy"], f["read"], f["compact"]),
        )
        for sequence in range(count):
            builtin("kv_state_add_sequence")(cache, sequence)
        attend = builtin("attention_kv_cache_attention_with_fused_qkv")

        def begin(length: int, cache: Any = cache, count: int = count) -> tuple[Any, ...]:
            rows = (count * length, QUERY_HEADS + 2 * KEY_HEADS, SIZE)
            qkv = package.runtime.tensor(rng.uniform(-1, 1, rows).astype(dtype))
            out = package.runtime.empty((count * length, QUERY_HEADS, SIZE), dtype)
            lengths = shape(*[length] * count)
            builtin("kv_state_begin_forward")(cache, shape(*range(count)), lengths, None)
            return cache, 0, SIZE**-0.5, qkv, out

        if past:
            attend(*begin(past))
            builtin("kv_state_end_forward")(cache)
        args = begin(new)
        result[name] = least_seconds(functools.partial(attend, *args), 0.5, 3)
    return result


def child(python: str, package: str, dtype: str, env: dict[str, str]) -> dict[str, float]:
    command = [python, os.path.abspath(__file__), "--package", package, "--dtype", dtype]
    done = subprocess.run(command, env=env, stdout=subprocess.PIPE, timeout=600, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--threads", default="1")
    parser.add_argument("--package", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.package:
        print(json.dumps(measure(importlib.import_module(args.package), args.dtype)))
        return
    env = dict(os.environ, TVM_NUM_THREADS=args.threads, RELAXVM_NUM_THREADS=args.threads)
    ours = child(sys.executable, "relaxvm", args.dtype, env)
    env.pop("PYTHONPATH", None)
    theirs = child(args.peer, "tvm", args.dtype, env) if args.peer else {}
    print(f"{args.dtype}, {args.threads} threads; milliseconds")
    for name, (count, past, new) in CASES.items():
        pairs = count * new * (past + (new + 1) / 2)
        line = f"{name:34s} {ours[name] * 1e3:9.3f}"
        line += f"  {pairs * QUERY_HEADS * SIZE * 4 / ours[name] / 1e9:7.1f} GFLOP/s"
        if name in theirs:
            line += f"  peer {theirs[name] * 1e3:9.3f}  ratio {theirs[name] / ours[name]:5.1f}"
        print(line)


if __name__ == "__main__":
    main()
