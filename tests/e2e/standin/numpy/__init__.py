"""As much of NumPy as the scripts in README.md use, for machines without it."""
import random as _random
import struct as _struct

float32, int32 = ("<f4", "f"), ("<i4", "i")


class _Array:
    def __init__(self, shape, values, dtype):
        self.shape, self.values, self.dtype = tuple(shape), values, dtype


def array(values, dtype):
    shape, flat = [], values
    while isinstance(flat, list):
        shape.append(len(flat))
        flat = flat[0]
    flat = values
    for _ in shape[1:]:
        flat = [x for part in flat for x in part]
    return _Array(shape, flat, dtype)


class random:
    @staticmethod
    def default_rng(seed):
        return _Generator(seed)


class _Generator:
    def __init__(self, seed):
        self.draw = _random.Random(seed)

    def standard_normal(self, size, dtype):
        count = 1
        for extent in size:
            count *= extent
        return _Array(size, [self.draw.gauss(0, 1) for _ in range(count)], dtype)


def save(path, data):
    descr, letter = data.dtype
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {data.shape}, }}"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    with open(path, "wb") as out:
        out.write(b"\x93NUMPY\x01\x00" + _struct.pack("<H", len(header)) + header.encode())
        out.write(_struct.pack(f"<{len(data.values)}{letter}", *data.values))
