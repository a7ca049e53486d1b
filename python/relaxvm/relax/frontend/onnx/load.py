# SPDX-License-Identifier: Apache-2.0
"""Reads ONNX models: from a file, bytes or a ModelProto; tensors inside it or in files beside it."""

from __future__ import annotations

import errno
import os
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from onnx import numpy_helper

from .errors import DamagedModel, InvalidModel
from .large_tensors import LargeTensors, ModelFile, split
from .texts import read_texts

# Element types whose elements lie in a file as they do in memory.
_PLAIN = (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16)
_PLAIN += (onnx.TensorProto.DOUBLE, onnx.TensorProto.INT8, onnx.TensorProto.UINT8)
_PLAIN += (onnx.TensorProto.INT32, onnx.TensorProto.INT64)

# Of a node that came from a local function: the opset of the function, where it is not the model's.
_OPSET = "relaxvm.opset"


class Model:
    """A parsed model and the folder that its external data may lie in."""

    def __init__(
        self,
        proto: onnx.ModelProto,
        folder: str | None,
        place: str,
        large: LargeTensors | None = None,
    ) -> None:
        self.proto = proto
        self.folder = folder
        self.place = place  # what to call the model in a message
        self.large = large  # what `proto` lacks
        self.opsets = _opsets(proto)

    def version_of(self, node: onnx.NodeProto) -> int | None:
        """The opset that a node is written for; None when the model does not import its domain."""
        for entry in node.metadata_props:
            if entry.key == _OPSET:
                return int(entry.value)
        return self.opsets.get("" if node.domain == "ai.onnx" else node.domain)

    def read_tensor(self, tensor: onnx.TensorProto) -> np.ndarray:
        """The elements; external data is found, checked and read."""
        label = f"{self.place}: tensor '{tensor.name}'"
        if any(d < 0 for d in tensor.dims):
            raise InvalidModel(f"{label}: has a negative dimension: {list(tensor.dims)}")
        data = None
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            entries = {e.key: e.value for e in tensor.external_data}
            data = _read_external(self.folder, entries, label)
        elif self.large is not None and not tensor.HasField("raw_data"):
            try:
                data = self.large.read(tensor.name)
            except (OSError, EOFError) as e:
                raise DamagedModel(f"{label}: its data cannot be read: {e}") from e
        try:
            if data is not None and tensor.data_type in _PLAIN:  # no copy: it may be gigabytes
                dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
                return np.frombuffer(data, dtype.newbyteorder("<")).reshape(tensor.dims)
            if data is not None:
                tensor = _with_data(tensor, data)
            if tensor.data_type == onnx.TensorProto.STRING:
                return read_texts(tensor)
            return numpy_helper.to_array(tensor)
        except Exception as e:  # onnx raises ValueError, TypeError, KeyError or its own errors
            raise DamagedModel(f"{label}: its data does not fit its type and shape ({e})") from e


def read_model(source: Any) -> Model:
    """`source` is a path, the bytes of a file, or a ModelProto (not changed)."""
    if isinstance(source, Model):
        return source
    if isinstance(source, onnx.ModelProto):
        return _checked(source, None, "the model")
    if isinstance(source, (bytes, bytearray, memoryview)):
        return parse(ModelFile("", bytes(source)), None, "the model")
    if isinstance(source, (str, os.PathLike)):
        path = os.fspath(source)
        _check_file(path)
        return parse(ModelFile(path), os.path.dirname(os.path.abspath(path)), f"'{path}'")
    raise TypeError(
        f"an ONNX model is a path, bytes or onnx.ModelProto, not {type(source).__name__}"
    )


def _check_file(path: str) -> None:
    if os.path.isdir(path):
        raise IsADirectoryError(errno.EISDIR, "is a folder, not an ONNX file", path)
    if os.path.exists(path) and not os.path.isfile(path):
        raise OSError(errno.EINVAL, "is not a regular file", path)


def parse(source: ModelFile, folder: str | None, place: str) -> Model:
    """The model in `source`; `folder` is where its external data may lie, `place` what to call it.

    Large tensors stay where they are until they are read. FileNotFoundError and PermissionError name the path.
    """
    data, large = split(source)
    if not data:
        raise DamagedModel(f"{place}: is empty; expected an ONNX model")
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(data)
    except (DecodeError, RuntimeError, ValueError) as e:
        raise DamagedModel(
            f"{place}: is not an ONNX model, or is damaged or truncated (protobuf: {e})"
        ) from e
    return _checked(proto, folder, place, large)


def _checked(
    proto: onnx.ModelProto, folder: str | None, place: str, large: LargeTensors | None = None
) -> Model:
    # Nearly any bytes parse as some protobuf message: these fields are in every real model.
    if not proto.HasField("graph") or not proto.ir_version or not proto.graph.output:
        raise DamagedModel(
            f"{place}: is not an ONNX model, or is damaged or truncated"
            " (it has no graph with outputs, or no IR version)"
        )
    if proto.functions:
        proto = _expand_functions(proto, place)
    return Model(proto, folder, place, large)


def _opsets(proto: onnx.ModelProto) -> dict[str, int]:
    opsets = {}
    for entry in proto.opset_import:
        domain = "" if entry.domain == "ai.onnx" else entry.domain
        opsets[domain] = max(entry.version, opsets.get(domain, 0))
    opsets.setdefault("", 1 if not opsets else onnx.defs.onnx_opset_version())
    return opsets


def _expand_functions(proto: onnx.ModelProto, place: str) -> onnx.ModelProto:
    from onnx import inliner

    try:
        return inliner.inline_local_functions(_with_own_opsets(proto))
    except Exception as e:
        raise InvalidModel(f"{place}: its local functions cannot be expanded: {e}") from e


def _with_own_opsets(source: onnx.ModelProto) -> onnx.ModelProto:
    """A copy whose functions import what the model does; nodes of other opsets say theirs."""
    proto = onnx.ModelProto()
    proto.CopyFrom(source)
    opsets = _opsets(proto)
    for function in proto.functions:
        others = {}
        for entry in function.opset_import:
            domain = "" if entry.domain == "ai.onnx" else entry.domain
            if domain not in opsets:
                opsets[domain] = entry.version
                proto.opset_import.append(onnx.helper.make_opsetid(domain, entry.version))
            elif entry.version != opsets[domain]:
                others[domain] = entry.version
                entry.version = opsets[domain]
        if others:
            _mark(function.node, others)
    return proto


def _mark(nodes: Any, versions: dict[str, int]) -> None:
    for node in nodes:
        domain = "" if node.domain == "ai.onnx" else node.domain
        kept = [e for e in node.metadata_props if e.key != _OPSET]
        del node.metadata_props[:]
        node.metadata_props.extend(kept)
        if domain in versions:
            entry = node.metadata_props.add()
            entry.key, entry.value = _OPSET, str(versions[domain])
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                _mark(graph.node, versions)


def expand_operators(model: Model, operators: set[tuple[str, str]]) -> Model:
    """The model with operators that ONNX defines by others replaced by their definitions."""
    from onnx import inliner

    defined = sorted(
        (domain, name)
        for domain, name in operators
        if is_defined_by_others(domain, name, model.opsets[domain])
    )
    if not defined:
        return model
    try:
        proto = inliner.inline_selected_functions(
            _with_default_attributes(model, defined),
            defined,
            exclude=False,
            inline_schema_functions=True,
        )
    except RuntimeError:  # not every definition can be expanded, as with absent optional inputs
        return model
    return Model(proto, model.folder, model.place, model.large)


def _with_default_attributes(model: Model, operators: list[tuple[str, str]]) -> onnx.ModelProto:
    """A copy whose nodes of these operators say all attributes; definitions refer to them."""
    proto = onnx.ModelProto()
    proto.CopyFrom(model.proto)
    for node in proto.graph.node:
        key = ("" if node.domain == "ai.onnx" else node.domain, node.op_type)
        if key not in operators:
            continue
        given = {a.name for a in node.attribute}
        try:
            schema = onnx.defs.get_schema(node.op_type, model.version_of(node), key[0])
        except onnx.defs.SchemaError:  # of a function that is older than the operator
            continue
        for name, attribute in schema.attributes.items():
            if name not in given and attribute.default_value.type:
                node.attribute.append(attribute.default_value)
    return proto


def is_defined_by_others(domain: str, name: str, version: int) -> bool:
    try:
        schema = onnx.defs.get_schema(name, version, domain)
    except onnx.defs.SchemaError:
        return False
    return schema.has_function or schema.has_context_dependent_function


def _with_data(tensor: onnx.TensorProto, data: bytes) -> onnx.TensorProto:
    copy = onnx.TensorProto(name=tensor.name, data_type=tensor.data_type, raw_data=data)
    copy.dims.extend(tensor.dims)
    return copy


def _read_external(folder: str | None, entries: dict[str, str], label: str) -> bytes:
    location = entries.get("location", "")
    if folder is None:
        raise InvalidModel(
            f"{label}: its data is in the file '{location}'; give the path of the model, not its bytes"
        )
    path = _inside(folder, location, label)
    offset, length = _number(entries, "offset", label), _number(entries, "length", label)
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            offset = offset or 0
            length = size - offset if length is None else length
            if offset > size or length > size - offset:
                raise DamagedModel(
                    f"{label}: needs bytes {offset} to {offset + length} of '{location}',"
                    f" which has {size}"
                )
            file.seek(offset)
            return file.read(length)
    except OSError as e:
        raise DamagedModel(f"{label}: its data file '{location}' cannot be read: {e}") from e


def _inside(folder: str, location: str, label: str) -> str:
    """The file that `location` names: inside the model's folder, also after following links."""
    advice = "external data must lie in the model's folder"
    parts = location.replace("\\", "/").split("/")
    if not location or "\0" in location:
        raise InvalidModel(f"{label}: names no file for its data")
    if os.path.isabs(location) or parts[0] == "" or ":" in parts[0] or ".." in parts:
        raise InvalidModel(f"{label}: its data is at '{location}'; {advice}")
    root = os.path.realpath(folder)
    path = os.path.realpath(os.path.join(root, location))
    if os.path.commonpath([root, path]) != root:
        raise InvalidModel(f"{label}: '{location}' is a link out of the model's folder; {advice}")
    if not os.path.isfile(path):  # neither missing, nor a folder, nor a device that never ends
        raise DamagedModel(f"{label}: its data file '{location}' does not exist")
    return path


def external_locations(proto: onnx.ModelProto) -> set[str]:
    """Names of the files that hold tensors of this model."""
    names: set[str] = set()
    graphs = [proto.graph]
    while graphs:
        graph = graphs.pop()
        tensors = list(graph.initializer)
        for sparse in graph.sparse_initializer:
            tensors += [sparse.values, sparse.indices]
        for node in graph.node:
            for attribute in node.attribute:
                tensors += [attribute.t, *attribute.tensors]
                graphs += [attribute.g, *attribute.graphs]
        for tensor in tensors:
            if tensor.data_location == onnx.TensorProto.EXTERNAL:
                names |= {e.value for e in tensor.external_data if e.key == "location"}
    return names


def set_dimensions_apart(graph: Any) -> None:
    """Gives each dimension of the inputs a name of its own: names mean nothing in some files."""
    seen: set[str] = set()
    for info in graph.input:
        for dim in info.type.tensor_type.shape.dim:
            name = dim.dim_param
            while dim.dim_param in seen:
                dim.dim_param = f"{name}_{len(seen)}"
            seen.add(dim.dim_param)


def drop_values(graph: onnx.GraphProto, names: set[str]) -> None:
    """Makes plain inputs of the inputs `names` that have a value; one without a shape gets its rank."""
    ranks = {t.name: len(t.dims) for t in graph.initializer}
    ranks |= {s.values.name: len(s.dims) for s in graph.sparse_initializer}
    for info in graph.input:
        shape = info.type.tensor_type.shape
        if info.name in names and not info.type.tensor_type.HasField("shape"):
            shape.SetInParent()
            for _ in range(ranks[info.name]):
                shape.dim.add()
    tensors = [t for t in graph.initializer if t.name not in names]
    sparse = [s for s in graph.sparse_initializer if s.values.name not in names]
    del graph.initializer[:], graph.sparse_initializer[:]
    graph.initializer.extend(tensors)
    graph.sparse_initializer.extend(sparse)


def _number(entries: dict[str, str], key: str, label: str) -> int | None:
    text = entries.get(key)
    if text is None or text == "":
        return None
    if not text.isdecimal() or len(text) > 18:
        raise DamagedModel(f"{label}: the {key} of its data is '{text}', not a number of bytes")
    return int(text)
