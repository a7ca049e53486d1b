# SPDX-License-Identifier: Apache-2.0
"""What a model says about its inputs, outputs and origin; goes into the compile cache as JSON."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

# ONNX element type -> (name in get_inputs(), NumPy name)
ELEMENT_TYPES = {
    1: ("float", "float32"),
    2: ("uint8", "uint8"),
    3: ("int8", "int8"),
    4: ("uint16", "uint16"),
    5: ("int16", "int16"),
    6: ("int32", "int32"),
    7: ("int64", "int64"),
    8: ("string", "object"),
    9: ("bool", "bool"),
    10: ("float16", "float16"),
    11: ("double", "float64"),
    12: ("uint32", "uint32"),
    13: ("uint64", "uint64"),
    16: ("bfloat16", "bfloat16"),
    17: ("float8e4m3fn", "float8_e4m3fn"),
    18: ("float8e4m3fnuz", "float8_e4m3fnuz"),
    19: ("float8e5m2", "float8_e5m2"),
    20: ("float8e5m2fnuz", "float8_e5m2fnuz"),
    21: ("uint4", "uint4"),
    22: ("int4", "int4"),
}


def numpy_dtype(name: str) -> np.dtype:
    try:
        return np.dtype(name)
    except TypeError:
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, name))


@dataclasses.dataclass(frozen=True)
class NodeArg:
    """An input or output.  A dimension is an int, a name, or None where the model gives neither."""

    name: str
    type: str
    shape: list
    dtype: str  # NumPy's name of the element type
    keys: list | None = None  # of a list of dictionaries: the columns' names

    @property
    def is_text(self) -> bool:
        return self.type == "tensor(string)"


@dataclasses.dataclass(frozen=True)
class ModelMetadata:
    custom_metadata_map: dict[str, str]
    description: str
    domain: str
    graph_description: str
    graph_name: str
    producer_name: str
    version: int


@dataclasses.dataclass(frozen=True)
class Signature:
    inputs: list[NodeArg]
    outputs: list[NodeArg]
    initializers: list[str]  # graph inputs whose value is in the model, for good
    metadata: ModelMetadata
    texts: list[str] = dataclasses.field(default_factory=list)  # a program knows them by place
    overridable: list[NodeArg] = dataclasses.field(
        default_factory=list
    )  # a run may give another value

    @staticmethod
    def of_proto(proto: Any) -> Signature:
        from ..relax.frontend.onnx.texts import texts_of

        graph = proto.graph
        weights = {t.name for t in graph.initializer} | {
            t.values.name for t in graph.sparse_initializer
        }
        valued = [i for i in graph.input if i.name in weights]
        # Before IR version 4 all initializers had to be inputs: it says nothing about them.
        is_fixed = proto.ir_version < 4
        keys = {n.output[0]: _keys_of_map(n) for n in graph.node if n.op_type == "ZipMap"}
        return Signature(
            [_node_arg(i) for i in graph.input if i.name not in weights],
            [
                _map_arg(o.name, keys[o.name]) if o.name in keys else _node_arg(o)
                for o in graph.output
            ],
            [i.name for i in valued] if is_fixed else [],
            ModelMetadata(
                {p.key: p.value for p in proto.metadata_props},
                proto.doc_string,
                proto.domain,
                graph.doc_string,
                graph.name,
                proto.producer_name,
                proto.model_version,
            ),
            texts_of(proto),
            [] if is_fixed else [_node_arg(i) for i in valued],
        )

    def with_types(self, module: Any) -> Signature:
        """The outputs with what the imported module knows of their types beyond the model's own words."""
        found = signature_of_module(module).outputs
        for i in (module["main"].attrs or {}).get("text_outputs", []):
            found[i] = dataclasses.replace(found[i], type="tensor(string)", dtype="object")
        names = {d for a in self.inputs for d in a.shape if isinstance(d, str)}
        outputs = [_refined(o, f, names) for o, f in zip(self.outputs, found, strict=True)]
        return dataclasses.replace(self, outputs=outputs)

    @property
    def has_texts(self) -> bool:
        """Is an input or an output a tensor of texts?"""
        return any(a.is_text for a in (*self.inputs, *self.outputs))

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @staticmethod
    def from_json(data: dict[str, Any]) -> Signature:
        return Signature(
            [NodeArg(**a) for a in data["inputs"]],
            [NodeArg(**a) for a in data["outputs"]],
            list(data["initializers"]),
            ModelMetadata(**data["metadata"]),
            list(data.get("texts", [])),
            [NodeArg(**a) for a in data.get("overridable", [])],
        )


def _node_arg(info: Any) -> NodeArg:
    kind = info.type.WhichOneof("value") or "tensor_type"
    if kind != "tensor_type":
        return NodeArg(info.name, kind.removesuffix("_type"), [], "object")
    tensor = info.type.tensor_type
    text, dtype = ELEMENT_TYPES.get(tensor.elem_type, ("unknown", "object"))
    return NodeArg(info.name, f"tensor({text})", [_dim(d) for d in tensor.shape.dim], dtype)


def _refined(said: NodeArg, found: NodeArg, names: set[str]) -> NodeArg:
    """What a model says of an output, and what its operators give where that is more.

    `names` are those of the inputs' dimensions: others mean nothing to a caller.
    """
    if said.type == "tensor(unknown)":
        said = dataclasses.replace(said, type=found.type, dtype=found.dtype)
    if said.keys is not None or not said.type.startswith("tensor("):
        return said
    dims = said.shape if said.shape else [None] * len(found.shape)
    if len(dims) != len(found.shape):
        return said
    known = [f if isinstance(f, int) or f in names else None for f in found.shape]
    shape = [k if isinstance(k, int) or d is None else d for d, k in zip(dims, known)]
    return dataclasses.replace(said, shape=shape)


def _keys_of_map(node: Any) -> list[int] | list[str]:
    """The keys of the dictionaries that a node of type ZipMap makes of the rows of a matrix."""
    given = {a.name: a for a in node.attribute}
    if "classlabels_strings" in given:
        return [text.decode() for text in given["classlabels_strings"].strings]
    return list(given["classlabels_int64s"].ints) if "classlabels_int64s" in given else []


def _map_arg(name: str, keys: list) -> NodeArg:
    key = "string" if keys and isinstance(keys[0], str) else "int64"
    return NodeArg(name, f"seq(map({key},tensor(float)))", [], "float32", keys)


def _dim(dim: Any) -> int | str | None:
    kind = dim.WhichOneof("value")
    if kind == "dim_param":
        return dim.dim_param or None
    return dim.dim_value if kind == "dim_value" and dim.dim_value >= 0 else None


# ---- inside an executable: a function that returns the signature as text

FUNCTION = "relaxvm_signature"


def signature_of_module(
    module: Any, input_names: list[str] | None = None, output_names: list[str] | None = None
) -> Signature:
    """What the types of `main` say, under the names of the model that it came from."""
    from ..relax import TensorType

    main = module["main"]
    params = list(main.params)
    num_input = int((main.attrs or {}).get("num_input", len(params))) if main.attrs else len(params)
    params = params[:num_input]
    input_names = input_names or [p.name_hint for p in params]
    inputs = [_type_arg(n, p.ty) for n, p in zip(input_names, params, strict=True)]
    result = main.ret_ty
    types = (
        [result] if isinstance(result, TensorType) else list(getattr(result, "fields", [result]))
    )
    names = output_names or [f"output_{i}" for i in range(len(types))]
    return Signature(
        inputs,
        [_type_arg(n, t) for n, t in zip(names, types)],
        [],
        ModelMetadata({}, "", "", "", "main", "", 0),
    )


def _type_arg(name: str, ty: Any) -> NodeArg:
    from ..relax import TensorType

    if not isinstance(ty, TensorType):
        return NodeArg(name, str(ty), [], "object")
    dtype = str(ty.dtype)
    text = next((t for t, n in ELEMENT_TYPES.values() if n == dtype), dtype)
    dims = [] if ty.shape is None else [_module_dim(d) for d in ty.shape.values]
    return NodeArg(name, f"tensor({text})", dims, dtype)


def _module_dim(dim: Any) -> int | str:
    from ..tirx import IntImm

    return int(dim.value) if isinstance(dim, IntImm) else str(dim)


def with_signature(module: Any, signature: Signature | None = None) -> Any:
    """The module with a function that tells its signature, so that a compiled file describes itself."""
    import json

    from .. import relax

    text = json.dumps((signature or signature_of_module(module)).to_json())
    teller = relax.Function(
        [], relax.SeqExpr([], relax.StringImm(text)), None, True, {"global_symbol": FUNCTION}
    )
    builder = relax.BlockBuilder(module)
    builder.add_func(teller, FUNCTION)
    return builder.get()


def read_signature(vm: Any) -> Signature | None:
    """The signature that a compiled file carries; None when it carries none."""
    import json

    try:
        teller = vm[FUNCTION]
    except (AttributeError, KeyError, ValueError):
        return None
    try:
        return Signature.from_json(json.loads(str(teller())))
    except (ValueError, KeyError, TypeError) as e:
        raise ValueError(f"the file's description of its inputs is damaged: {e}") from e
