# SPDX-License-Identifier: Apache-2.0
"""A small language model that serves several sequences from one paged attention cache.

Its weights are random, so what it says has no meaning; that every way to the same tokens says the same is checked."""

import numpy as np
import tvm_ffi

import relaxvm
from relaxvm.relax.frontend.nn.llm.kv_cache import RopeMode, create_paged_kv_cache
from relaxvm.script import ir as I
from relaxvm.script import relax as R
from relaxvm.script import tirx as T

TOKENS, WIDTH, HEADS, KEY_HEADS, SIZE = 50, 64, 4, 2, 16
ALL_HEADS = HEADS + 2 * KEY_HEADS
ATTEND = "vm.builtin.attention_kv_cache_attention_with_fused_qkv"


@I.ir_module
class Model:
    @R.function
    def main(
        tokens: R.Tensor(("n",), "int32"),
        cache: R.Object,
        embedding: R.Tensor((TOKENS, WIDTH), "float32"),
        qkv0: R.Tensor((WIDTH, ALL_HEADS * SIZE), "float32"),
        out0: R.Tensor((HEADS * SIZE, WIDTH), "float32"),
        qkv1: R.Tensor((WIDTH, ALL_HEADS * SIZE), "float32"),
        out1: R.Tensor((HEADS * SIZE, WIDTH), "float32"),
        head: R.Tensor((WIDTH, TOKENS), "float32"),
    ) -> R.Tensor(("n", TOKENS), "float32"):
        n = T.int64()
        scale = R.prim_value(T.float64(SIZE**-0.5))
        x0 = R.take(embedding, tokens, axis=0)
        p0 = R.reshape(R.matmul(x0, qkv0), (n, ALL_HEADS, SIZE))
        a0 = R.call_dps_packed(
            ATTEND,
            (cache, R.prim_value(0), scale, p0),
            out_ty=R.Tensor((n, HEADS, SIZE), "float32"),
        )
        x1 = R.add(x0, R.matmul(R.reshape(a0, (n, HEADS * SIZE)), out0))
        p1 = R.reshape(R.matmul(x1, qkv1), (n, ALL_HEADS, SIZE))
        a1 = R.call_dps_packed(
            ATTEND,
            (cache, R.prim_value(1), scale, p1),
            out_ty=R.Tensor((n, HEADS, SIZE), "float32"),
        )
        x2 = R.add(x1, R.matmul(R.reshape(a1, (n, HEADS * SIZE)), out1))
        logits = R.matmul(x2, head)
        return logits


class Server:
    """The model, its cache, and one call for new tokens of some sequences."""

    def __init__(self, exec_mode="bytecode"):
        rng = np.random.default_rng(0)
        layer = [(WIDTH, ALL_HEADS * SIZE), (HEADS * SIZE, WIDTH)]
        shapes = [(TOKENS, WIDTH), *layer, *layer, (WIDTH, TOKENS)]
        self.weights = [rng.normal(0, s[0] ** -0.5, s).astype("float32") for s in shapes]
        self.weights[0] *= 7
        executable = relaxvm.compile(Model, exec_mode=exec_mode)
        self.vm = relaxvm.VirtualMachine(executable, relaxvm.cpu())
        self.cache = create_paged_kv_cache(
            num_layers=2,
            num_qo_heads=HEADS,
            num_kv_heads=KEY_HEADS,
            head_dim=SIZE,
            max_batch_size=8,
            max_total_seq_len=1024,
            prefill_chunk_size=256,
            rope_mode=RopeMode.NORMAL,
        )

    def state(self, name, *args):
        return relaxvm.get_global_func(f"vm.builtin.kv_state_{name}")(self.cache, *args)

    def step(self, new_tokens):
        """{sequence: its new tokens} -> {sequence: its next token}, all in one call of the model."""
        lengths = [len(tokens) for tokens in new_tokens.values()]
        self.state("begin_forward", tvm_ffi.Shape(list(new_tokens)), tvm_ffi.Shape(lengths))
        tokens = np.concatenate([np.array(t, "int32") for t in new_tokens.values()])
        logits = self.vm["main"](tokens, self.cache, *self.weights).numpy()
        self.state("end_forward")
        last = logits[np.cumsum(lengths) - 1]
        return dict(zip(new_tokens, last.argmax(axis=1).tolist()))

    def generate(self, prompts, count):
        """Greedy: `count` tokens after each prompt, all sequences at once."""
        texts = {sequence: list(prompt) for sequence, prompt in prompts.items()}
        new = prompts
        for _ in range(count):
            chosen = self.step(new)
            new = {sequence: [token] for sequence, token in chosen.items()}
            for sequence, token in chosen.items():
                texts[sequence].append(token)
        return texts


def main(exec_mode="bytecode"):
    server = Server(exec_mode)
    for sequence in (0, 1):
        server.state("add_sequence", sequence)
    texts = server.generate({0: [3, 14, 15], 1: [9, 26, 5, 35, 8]}, 6)
    print("two at once:", texts)

    # A prompt that was seen already is not computed again: the fork shares its pages.
    server.state("fork_sequence", 1, 2, 5)
    again = server.generate({2: texts[1][5:7]}, 4)[2]
    print("forked     :", texts[1][:5] + again)

    # Taken back and generated again.
    server.state("popn", 0, 4)
    print("taken back :", texts[0][:5] + server.generate({0: [texts[0][4]]}, 4)[0][1:])

    # The whole text as a prompt of a new sequence says the same next token.
    server.state("add_sequence", 3)
    print("as a prompt:", server.step({3: texts[0][:-1]})[3] == texts[0][-1])


if __name__ == "__main__":
    main()
