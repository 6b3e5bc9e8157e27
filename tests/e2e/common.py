"""What the end-to-end scripts share: running llm-opt, .npy files, the test data folder."""
import os
import struct
import subprocess
import sys

LLM_OPT, FOLDER = sys.argv[1:3]
# CMake drops an empty argument: no default where the data is not beside the project.
DATA_DEFAULT = sys.argv[3] if len(sys.argv) > 3 else ""
os.chdir(FOLDER)

# A dense spec with a window, for what needs any.
SPEC = """func.func @f(%q: tensor<?x?x2x4xf32>, %k: tensor<?x?x2x4xf32>, %v: tensor<?x?x2x4xf32>)
    -> tensor<?x?x2x4xf32> {
  %o = attn.attention %q, %k, %v mask(window<3>)
       : tensor<?x?x2x4xf32>, tensor<?x?x2x4xf32>, tensor<?x?x2x4xf32> -> tensor<?x?x2x4xf32>
  return %o : tensor<?x?x2x4xf32>
}
"""


def data(*parts):
    """A path in the test data; ends the test as skipped where there is none."""
    root = os.environ.get("LLMOPT_TEST_DATA") or DATA_DEFAULT
    path = os.path.join(root, *parts)
    if not root or not os.path.exists(path):
        print(f"no test data at '{path}'")
        sys.exit(77)
    return path


def run(*arguments, text=None):
    """llm-opt with these arguments; a finished process with stdout and stderr as text."""
    return subprocess.run([LLM_OPT, *arguments], input=text, capture_output=True, text=True)


def check(condition, message):
    """Ends the test unless `condition` holds."""
    if not condition:
        sys.exit(f"FAILED: {message}")


# Format of `struct`, bytes of an element, by the type's name in a .npy header.
FORMATS = {"<f4": "f", "<f8": "d", "<i4": "i", "<i8": "q", "<f2": "e",
           "<u2": "H", "<V2": "H", "<u4": "I", "|u1": "B"}


def write_npy(path, shape, values, kind="<f4"):
    """A .npy file of version 1.0, row-major."""
    header = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {tuple(shape)}, }}"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    with open(path, "wb") as out:
        out.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode())
        out.write(struct.pack(f"<{len(values)}{FORMATS[kind]}", *values))


def read_npy(path):
    """Shape and values of a .npy file."""
    with open(path, "rb") as file:
        content = file.read()
    check(content[:6] == b"\x93NUMPY", f"{path} is no .npy file")
    wide = content[6] > 1
    size = struct.unpack_from("<I" if wide else "<H", content, 8)[0]
    start = (12 if wide else 10) + size
    header = eval(content[start - size:start].decode(), {"__builtins__": {}})
    body = content[start:]
    letter = FORMATS[header["descr"]]
    count = len(body) // struct.calcsize("<" + letter)
    return header["shape"], list(struct.unpack(f"<{count}{letter}", body))
