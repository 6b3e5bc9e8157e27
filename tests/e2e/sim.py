"""llm-opt sim on CUDA C++: compiled by NVRTC, its mistakes and those of its text named by line."""
import json
import os
import re
import resource
import shutil
import sys

from common import check, read_npy, run

EXAMPLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../examples/sim/")
for name in ("rowsum.cu", "rowsum.ptx", "launch.json"):
    shutil.copy(EXAMPLE + name, name)


def sim(*arguments, **environment):
    os.environ.update(environment)
    done = run("sim", *arguments)
    for name in environment:
        del os.environ[name]
    return done


def refuse(arguments, message, **environment):
    done = sim(*arguments, **environment)
    check(done.returncode == 1 and done.stdout == "", f"{arguments}: {done}")
    check(done.stderr.startswith(f"llm-opt sim: {message}"), f"{arguments}: {done.stderr}")


def write(name, text):
    with open(name, "w") as file:
        file.write(text)


LAUNCH = ("--launch", "launch.json")
for option in (("--arch", "sm_90"), ("-D", "A=1"), ("-I", ".")):
    refuse(["rowsum.ptx", *LAUNCH, *option],
           "--arch, -D and -I are for CUDA C++ in a file of the name NAME.cu; 'rowsum.ptx' is taken "
           "for PTX")
refuse(["rowsum.cu", *LAUNCH, "--arch", "sm80"], "'sm80' is no CUDA architecture; write for example "
       "sm_80, sm_90a or compute_80")
refuse(["absent.cu", *LAUNCH], "file 'absent.cu': cannot open: No such file or directory")
refuse(["rowsum.cu", *LAUNCH], "no NVRTC: the CUDA compiler library was not found",
       LLMOPT_NVRTC="/nowhere/libnvrtc.so.13")

# A launch that is no file, or no JSON object.
refuse(["rowsum.ptx", "--launch", "."], "file '.' is not a regular file")
refuse(["rowsum.ptx", "--launch", "absent.json"],
       "file 'absent.json': cannot open: No such file or directory")
for text, message in (("", "bad.json:1:1: invalid JSON: "),
                      ('{\n "grid": [4],\n oops}', "bad.json:3:2: invalid JSON: "),
                      ("[1]", "bad.json:1:1: the value is of type array; an object is wanted")):
    write("bad.json", text)
    refuse(["rowsum.ptx", "--launch", "bad.json"], message)

# Nesting costs stack: it has a limit, in launches and in the other JSON files that are read.
for deep in (257, 300_000):
    write("deep.json", '{"params":\n' + "[" * (deep - 1) + "]" * (deep - 1) + "}")
    MESSAGE = "nested too deeply; 256 levels are allowed\n"
    refuse(["rowsum.ptx", "--launch", "deep.json"], "deep.json:2:256: invalid JSON: " + MESSAGE)
    done = run("import", "deep.json")
    check((done.returncode, done.stderr) ==
          (1, "llm-opt import: deep.json:2:256: invalid JSON: " + MESSAGE), done)
    write("deep.jsonl", '{"timestamp": ' + "[" * (deep - 1) + "]" * (deep - 1) + "}\n")
    done = run("replay", "deep.jsonl")
    check((done.returncode, done.stderr) ==
          (1, "llm-opt replay: deep.jsonl:1: column 270: invalid JSON: " +
           MESSAGE.replace("\n", "; each line is one request\n")), done)
write("flat.json", '{"kernel": "' + "[" * 300 + '\\"' + '{"}')
refuse(["rowsum.ptx", "--launch", "flat.json"], "flat.json:1:2: 'kernel' is \"[[[")

# A number that no double holds has a place, wherever JSON is read.
TOO_LARGE = "the number 1e400 is too large; up to 1.8e308 are allowed"
write("large.json", '{\n "params": [{"f32": 1e400}]}')
refuse(["rowsum.ptx", "--launch", "large.json"], f"large.json:2:21: invalid JSON: {TOO_LARGE}\n")
for command in (["import", "large.json"], ["replay", "large.jsonl", "--groups", "large.json"]):
    done = run(*command)
    check((done.returncode, done.stderr) == (1, f"llm-opt {command[0]}: large.json:2:21: invalid "
                                             f"JSON: {TOO_LARGE}\n"), done)
write("large.jsonl", '{"timestamp": 0}\n'.replace("0", "1e400"))
done = run("replay", "large.jsonl")
check((done.returncode, done.stderr) ==
      (1, f"llm-opt replay: large.jsonl:1: column 15: invalid JSON: {TOO_LARGE}; each line is one "
       "request\n"), done)
write("large_client_rates.csv", "client,time_s,rate_per_s,cv,family,arg1,arg2\n")
write("large_length_pdfs.json", '{"1":\n {"0": {"input_tokens": {"5": 1e400}}}}')
done = run("replay", "large_client_rates.csv")
check((done.returncode, done.stderr) ==
      (1, f"llm-opt replay: ./large_length_pdfs.json:2:31: invalid JSON: {TOO_LARGE}\n"), done)

# Numbers that would become others, and entries of another kind, are named.
with open("launch.json") as file:
    GIVEN = json.load(file)


def refuse_launch(message, param=None, **entries):
    """The example's launch with other entries, or with another first parameter."""
    launch = GIVEN | entries
    if param is not None:
        launch["params"] = [param, *launch["params"][1:]]
    write("other.json", json.dumps(launch))
    done = sim("rowsum.ptx", "--launch", "other.json")
    place = f"llm-opt sim: other[.]json(:1:[0-9]+)?: {re.escape(message)}\n"
    check(done.returncode == 1 and done.stdout == "" and re.fullmatch(place, done.stderr),
          (place, done))


def array(**entries):
    return {"type": "f32", "shape": [4, 100]} | entries


for shared in (4294967400, 99999999999, -1, 0.5, "8", None):
    refuse_launch(f"'shared' is {json.dumps(shared)}; an integer from 0 to 4294967295 is wanted",
                  shared=shared)
for axis in ("grid", "block", "cluster"):
    for counts in ([0], [1, 0], [-1], [1.5], [4294967296], ["1"], [1, 1, 1, 1], [], 4):
        refuse_launch(f"'{axis}' is {json.dumps(counts).replace(', ', ',')}; one to three counts "
                      "from 1 to 4294967295 are wanted", **{axis: counts})
refuse_launch("'params' is 7; a list is wanted", params=7)
for kind, number, range_ in (
        ("i32", 100.7, "integers from -2147483648 to 2147483647"),
        ("i32", 4294967396, "integers from -2147483648 to 2147483647"),
        ("u32", -1, "integers from 0 to 4294967295"),
        ("i8", 128, "integers from -128 to 127"), ("u8", 256, "integers from 0 to 255"),
        ("bool", 2, "integers from 0 to 1"),
        ("i64", 2**63, "integers from -9223372036854775808 to 9223372036854775807"),
        ("f16", 65505, "numbers from -65504 to 65504"),
        ("f32", 1e39, "numbers from -3.4028234663852886e+38 to 3.4028234663852886e+38")):
    no = f"{json.dumps(number)} is no {kind}; {range_} are allowed"
    refuse_launch("'params' entry 0: " + no, {kind: number})
    refuse_launch("'params' entry 0: 'fill': " + no, array(type=kind, fill=number))
refuse_launch("'params' entry 0: 'fill': 399 is no u8; integers from 0 to 255 are allowed",
              array(type="u8", fill="index"))
for key, value, wanted in (("name", 7, "a string"), ("output", 7, "a file's name"),
                           ("npy", 7, "a file's name"), ("write", 1, "true or false"),
                           ("type", 7, "a type's name"), ("shape", 4, "a list of extents")):
    refuse_launch(f"'params' entry 0: '{key}' is {value}; {wanted} is wanted",
                  {key: value} if key == "npy" else array(**{key: value}))
refuse_launch("'params' entry 0: 'shape' is -1; an integer from 0 to 9223372036854775807 is wanted",
              array(shape=[-1]))
refuse_launch("'params' entry 1: 'name' is 'sums', as of an array before", array(name="sums"))
refuse_launch("'params' entry 0: 'box' is 4294967296; an integer from 0 to 4294967295 is wanted",
              {"tensormap": array(box=[4294967296, 1])})
# An entry that is not known may be a misspelt one that is.
refuse_launch("there is no entry 'blocks' in a launch; kernel, grid, block, cluster, shared and "
              "params are known", blocks=[1])
refuse_launch("'params' entry 0: there is no entry 'fil' in an array without a file; type, shape, "
              "fill, name, output and write are known", array(fil=1))
refuse_launch("'params' entry 0: there is no entry 'fill' in an array of a file; npy, name, output "
              "and write are known", {"npy": "x.npy", "fill": 1})
# The place is that of the entry, in whichever line it stands.
write("lines.json", """{ "grid": [4], "block": [32],
  "params": [
    { "type": "f32", "shape": [4, 100] },
    { "name": "sums",
      "type": "f32", "shape": [4], "fill": {} }, { "f32": 0.5 }, { "i32": "1" }
  ] }
""")
refuse(["rowsum.ptx", "--launch", "lines.json"], "lines.json:4:5: 'params' entry 1: 'fill' is {}; a "
       'number, "index" and "normal" are allowed\n')
write("lines.json", open("lines.json").read().replace("{} }", "0 }"))
refuse(["rowsum.ptx", "--launch", "lines.json"], "lines.json:5:65: 'params' entry 3: "
       '{"i32":"1"} is neither an array ')
# Arrays that no memory holds are refused before they are filled, and none is filled in part.
LIMIT = ("the arrays of a launch that are no files have at most 17179869184 bytes together; write "
         "this one to a file and name it with 'npy'")
for shape, elements in (([1 << 20, 1 << 20], 1 << 40), ([1 << 62], 1 << 62), ([(1 << 32) + 1],
                                                                             (1 << 32) + 1)):
    refuse_launch(f"'params' entry 0: 'shape' is {json.dumps(shape).replace(' ', '')}, {elements} "
                  f"elements of f32; {LIMIT}", array(shape=shape))
refuse_launch("'params' entry 0: shape has more elements than 64 bits count",
              array(shape=[1 << 40, 1 << 40]))
resource.setrlimit(resource.RLIMIT_AS, (8 << 30, resource.RLIM_INFINITY))
refuse_launch("'params' entry 0: 'shape' is [4294967296]: no memory for 17179869184 bytes",
              array(shape=[1 << 32]))
refuse_launch(f"'params' entry 1: 'shape' is [4294967296], 4294967296 elements of f32; {LIMIT}",
              array(), params=[None, array(shape=[1 << 32]), *GIVEN["params"][2:]])
resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
# Fills of many elements, by doubling and one by one.
for fill, want in ((0.5, 25.0), ("index", 2475.0)):
    write("other.json", json.dumps(GIVEN | {"params": [array(fill=fill), *GIVEN["params"][1:]]}))
    done = sim("rowsum.ptx", "--launch", "other.json")
    check(done.returncode == 0 and read_npy("sums.npy")[1][0] == want, (fill, done))
# An address in an empty array is that array's, not its neighbour's.
write("other.json", json.dumps(GIVEN | {"params": [array(name="none", shape=[0, 100]),
                                                   *GIVEN["params"][1:]]}))
done = sim("rowsum.ptx", "--launch", "other.json")
check(done.returncode == 1 and "0 bytes after the end of 'none' (0 bytes)" in done.stderr, done)
# 1e2 is an integer, however it is written.
write("other.json", json.dumps(GIVEN | {"shared": 8.0,
                                        "params": [*GIVEN["params"][:3], {"i32": 1e2}]}))
done = sim("rowsum.ptx", "--launch", "other.json")
check(done.returncode == 0 and read_npy("sums.npy")[1][0] == 2475, done)
os.remove("sums.npy")

HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"
for text in (HEAD, HEAD + ".visible .entry k();\n", HEAD + ".visible .func f()\n{\n\tret;\n}\n"):
    write("none.ptx", text)
    refuse(["none.ptx", *LAUNCH], "'none.ptx' has no kernel; one is an .entry with a body")
for option, value in (("--budget", "-1"), ("--budget", "0"), ("--orders", "0"),
                      ("--seed", "-1"), ("--threads", "-1")):
    done = sim("rowsum.ptx", *LAUNCH, option, value)
    check(done.returncode == 1 and done.stdout == "" and option in done.stderr and
          done.stderr.count("\n") == 1, done)

if isinstance(json.loads(run("env", "--json").stdout)["nvrtc"], str):
    print("no NVRTC on this machine")
    sys.exit(77)

# The same numbers and the same bytes as the kernel that was written as PTX.
WANT = ((4,), [2475.0, 7475.0, 12475.0, 17475.0])
counters = []
for kernel in ("rowsum.ptx", "rowsum.cu"):
    done = sim(kernel, *LAUNCH, "--json", "--orders", "3")
    check(done.returncode == 0, done.stderr)
    shape, values = read_npy("sums.npy")
    check((tuple(shape), list(values)) == WANT, (kernel, shape, values))
    counters.append(json.loads(done.stdout)["counters"])
    os.remove("sums.npy")
for name in ("global_load_bytes", "global_store_bytes"):
    check(counters[0][name] == counters[1][name] > 0, counters)

# Lines of the profile and of faults are the text's own; those of the PTX are in the saved one.
done = sim("rowsum.cu", *LAUNCH, "--arch", "sm_90", "--profile", "--save-ptx", "saved.ptx")
check(done.returncode == 0 and "\nrowsum.cu:6 " in done.stdout, done)
with open("saved.ptx") as file:
    saved = file.read().splitlines()
check(".target sm_90" in saved, saved[:20])
with open("rowsum.cu") as file:
    TEXT = file.read()
write("beyond.cu", TEXT.replace("column < columns", "column <= columns"))
done = sim("beyond.cu", *LAUNCH, "--json", "--save-ptx", "beyond.ptx")
check(done.returncode == 1, done)
fault = json.loads(done.stdout)["fault"]
check(fault["kind"] == "global-out-of-bounds" and fault["source_line"] == 6 and
      fault["ptx"] == "beyond.ptx", fault)
with open("beyond.ptx") as file:
    check(fault["instruction"] in file.read().splitlines()[fault["line"] - 1], fault)

# A text of several kernels, macros and headers.
os.makedirs("headers", exist_ok=True)
write("headers/scale.h", "#define SCALE 2\n")
write("two.cu", '#include "scale.h"\n' + TEXT.replace("scale *", "SCALE * FACTOR * scale *") +
      'extern "C" __global__ void other() {}\n')
done = sim("two.cu", *LAUNCH, "-I", "headers", "-DFACTOR=3", "-D", "UNUSED")
check(done.returncode == 0, done.stderr)
check(list(read_npy("sums.npy")[1]) == [6 * value for value in WANT[1]], read_npy("sums.npy"))
refuse(["two.cu", *LAUNCH, "-DFACTOR=3"], "two.cu includes 'scale.h', which NVRTC does not find; ")
refuse(["two.cu", *LAUNCH, "-I", "headers"],
       'two.cu does not compile for compute_80: two.cu(11): error: identifier "FACTOR" is undefined')
for text in ("", "template <typename T> __global__ void unused(T) {}\n"):
    write("none.cu", text)
    refuse(["none.cu", *LAUNCH], "'none.cu' has no kernel; one is a __global__ function; ")
done = sim("rowsum.cu", *LAUNCH, "--arch", "sm_999")
check(done.returncode == 1 and done.stderr.startswith("llm-opt sim: NVRTC ") and
      " knows no sm_999; it knows 75, 80, " in done.stderr, done)
sys.exit(0)
