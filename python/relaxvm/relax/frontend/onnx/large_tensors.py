# SPDX-License-Identifier: Apache-2.0
"""Leaves the large tensors of an ONNX file where they lie until somebody reads them: protobuf would copy each twice.

Knows of protobuf's wire format (https://protobuf.dev/programming-guides/encoding/) what it takes to find the
initializers of the main graph. A file that is unusual or damaged is left to protobuf as it is.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

_GRAPH, _INITIALIZER, _NAME, _RAW_DATA = 7, 5, 8, 9  # fields of ModelProto, GraphProto, TensorProto
_VARINT, _EIGHT_BYTES, _BYTES, _FOUR_BYTES = 0, 1, 2, 5  # wire types
_LARGE = 64 << 10


class ModelFile(NamedTuple):
    """A file by its path, or its bytes."""

    path: str
    data: bytes | None = None

    def open(self) -> BinaryIO:
        return open(self.path, "rb") if self.data is None else io.BytesIO(self.data)


class LargeTensors:
    """Where the raw data of some initializers lies."""

    def __init__(self, source: ModelFile, places: dict[str, range]) -> None:
        self._source = source
        self._places = places

    def read(self, name: str) -> bytes | None:
        """The raw data of an initializer; None when it is in the message. Raises EOFError when the file was cut."""
        place = self._places.get(name)
        if place is None:
            return None
        with self._source.open() as file:
            file.seek(place.start)
            data = file.read(len(place))
        if len(data) < len(place):
            raise EOFError("the file has become shorter")
        return data


def split(source: ModelFile) -> tuple[bytes, LargeTensors]:
    """The message without the raw data of large initializers, and these."""
    with source.open() as file:
        size = file.seek(0, io.SEEK_END)
        splitter = _Splitter(file)
        try:
            message = splitter.model(size)
        except _Unusual:
            file.seek(0)
            return file.read(), LargeTensors(source, {})
    return message, LargeTensors(source, splitter.places)


class _Unusual(Exception):
    pass


class _Field(NamedTuple):
    number: int
    whole: range  # of the file
    content: range


_Pieces = list[bytes | range]  # a range is one of the file


class _Splitter:
    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.places: dict[str, range] = {}

    def model(self, size: int) -> bytes:
        pieces: _Pieces = []
        num_graphs = 0
        for field in self._fields(range(size)):
            if field.number == _GRAPH:
                num_graphs += 1
                self._add(pieces, _GRAPH, self._graph(field.content))
            else:
                pieces.append(field.whole)
        if num_graphs != 1:  # protobuf would merge them
            raise _Unusual
        return self._join(pieces)

    def _graph(self, content: range) -> _Pieces:
        pieces: _Pieces = []
        for field in self._fields(content):
            if field.number == _INITIALIZER and len(field.content) >= _LARGE:
                self._add(pieces, _INITIALIZER, self._tensor(field.content))
            elif (
                pieces and isinstance(last := pieces[-1], range) and last.stop == field.whole.start
            ):
                pieces[-1] = range(last.start, field.whole.stop)
            else:
                pieces.append(field.whole)
        return pieces

    def _tensor(self, content: range) -> _Pieces:
        pieces: _Pieces = []
        name, place = "", None
        for field in self._fields(content):
            if field.number == _RAW_DATA and len(field.content) >= _LARGE and place is None:
                place = field.content
                continue
            if field.number == _RAW_DATA:
                raise _Unusual
            if field.number == _NAME:
                name = self._read(field.content).decode("utf-8", "replace")
            pieces.append(field.whole)
        if place is not None:
            if not name or name in self.places:
                raise _Unusual
            self.places[name] = place
        return pieces

    def _fields(self, within: range) -> Iterator[_Field]:
        at = within.start
        while at < within.stop:
            self._file.seek(at)
            key = self._varint()
            wire = key & 7
            if wire == _VARINT:
                self._varint()
                length = 0
            elif wire == _BYTES:
                length = self._varint()
            elif wire in (_EIGHT_BYTES, _FOUR_BYTES):
                length = 8 if wire == _EIGHT_BYTES else 4
            else:
                raise _Unusual
            start = self._file.tell()
            if length > within.stop - start:
                raise _Unusual
            content = range(start, start + length)
            yield _Field(key >> 3 if wire == _BYTES else 0, range(at, content.stop), content)
            at = content.stop

    def _varint(self) -> int:
        value = 0
        for shift in range(0, 70, 7):
            byte = self._file.read(1)
            if not byte:
                raise _Unusual
            value |= (byte[0] & 127) << shift
            if byte[0] < 128:
                return value
        raise _Unusual

    def _read(self, place: range) -> bytes:
        self._file.seek(place.start)
        return self._file.read(len(place))

    def _add(self, pieces: _Pieces, number: int, content: _Pieces) -> None:
        pieces.append(_encoded(number << 3 | _BYTES) + _encoded(sum(map(len, content))))
        pieces += content

    def _join(self, pieces: _Pieces) -> bytes:
        return b"".join(self._read(p) if isinstance(p, range) else p for p in pieces)


def _encoded(value: int) -> bytes:
    """A varint."""
    out = bytearray()
    while value >= 128:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)
