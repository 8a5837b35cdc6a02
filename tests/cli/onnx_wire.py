# SPDX-License-Identifier: Apache-2.0
"""Changes ONNX files for tests by their bytes alone: a message is a list of [field, wire type, value]."""
import struct

GRAPH, OPSET = 7, 8           # of ModelProto
INITIALIZER = 5               # of GraphProto
NAME, RAW_DATA, EXTERNAL_DATA, DATA_LOCATION = 8, 9, 13, 14   # of TensorProto
EXTERNAL = 1


def _varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        value, shift, at = value | (byte & 127) << shift, shift + 7, at + 1
        if byte < 128:
            return value, at


def _varint_bytes(value):
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def parse(data):
    fields, at = [], 0
    while at < len(data):
        key, at = _varint(data, at)
        field, wire = key >> 3, key & 7
        if wire == 0:
            value, at = _varint(data, at)
        else:
            length, at = _varint(data, at) if wire == 2 else ({1: 8, 5: 4}[wire], at)
            value, at = data[at:at + length], at + length
        fields.append([field, wire, value])
    return fields


def serialize(fields):
    out = bytearray()
    for field, wire, value in fields:
        out += _varint_bytes(field << 3 | wire)
        if wire == 0:
            out += _varint_bytes(value)
        else:
            out += (_varint_bytes(len(value)) if wire == 2 else b'') + value
    return bytes(out)


def _tensors(model, change):
    """The model with each initializer's fields changed by a function."""
    fields = parse(model)
    for entry in fields:
        if entry[0] != GRAPH:
            continue
        graph = parse(entry[2])
        for item in graph:
            if item[0] == INITIALIZER:
                item[2] = serialize(change(parse(item[2])))
        entry[2] = serialize(graph)
    return serialize(fields)


def with_external_data(model, location):
    """(model, data): all raw_data moved out."""
    data = bytearray()

    def entry(key, value):
        return [EXTERNAL_DATA, 2, serialize([[1, 2, key.encode()], [2, 2, value.encode()]])]

    def change(tensor):
        raw = next((f[2] for f in tensor if f[0] == RAW_DATA), None)
        if raw is None:
            return tensor
        kept = [f for f in tensor if f[0] != RAW_DATA]
        kept += [entry('location', location), entry('offset', str(len(data))), entry('length', str(len(raw))), [DATA_LOCATION, 0, EXTERNAL]]
        data.extend(raw)
        return kept
    return _tensors(model, change), bytes(data)


def with_infinite_weights(model):
    """The last element of each weight is infinite."""
    def change(tensor):
        name = next(f[2] for f in tensor if f[0] == NAME)
        for f in tensor:
            if f[0] == RAW_DATA and name.endswith(b'weight'):
                f[2] = f[2][:-4] + struct.pack('<f', float('inf'))
        return tensor
    return _tensors(model, change)


def with_newer_opset(model):
    fields = parse(model)
    for entry in fields:
        if entry[0] == OPSET:
            entry[2] = serialize([[f, w, 99 if f == 2 else v] for f, w, v in parse(entry[2])])
    return serialize(fields)
