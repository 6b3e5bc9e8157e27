"""Mistakes on the command line: exit code 1 and the whole of stderr, word for word."""
import os
import shutil
import stat
import subprocess

from common import LLM_OPT, SPEC, check, run, write_npy

with open("f.mlir", "w") as file:
    file.write(SPEC)
with open("two.mlir", "w") as file:
    file.write(SPEC + SPEC.replace("@f", "@g"))
with open("none.mlir", "w") as file:
    file.write("func.func private @h()\n")
write_npy("ok.npy", (1, 3, 2, 4), [0.5] * 24)
write_npy("flat.npy", (3, 2, 4), [0.5] * 24)
write_npy("narrow.npy", (1, 3, 2, 3), [0.5] * 18)
write_npy("wide.npy", (2, 3, 2, 4), [0.5] * 48)
write_npy("half.npy", (1, 3, 2, 4), [0.5] * 24, "<f2")
write_npy("double.npy", (1, 3, 2, 4), [0.5] * 24, "<f8")
with open("junk.npy", "w") as file:
    file.write("no array")


def inputs(**files):
    """--input options, with ok.npy where nothing else is said."""
    names = {"q": "ok.npy", "k": "ok.npy", "v": "ok.npy", **files}
    return [part for name, path in names.items() if path
            for part in ("--input", f"{name}={path}")]


def refuse(arguments, want):
    """Runs llm-opt; its stderr must be `want`, and nothing printed as a result."""
    result = run(*arguments)
    what = " ".join(arguments)
    if (result.returncode, result.stderr) != (1, want + "\n") or " passed" in result.stdout:
        failures.append(f"{what}\n  want: {want}\n  got {result.returncode}: "
                        f"{result.stdout}{result.stderr}")


failures = []
UNKNOWN = "unknown device 'tpu'; auto, cpu, cuda, cuda:NUMBER, sim and sim:ARCH can be had"
os.environ["LLMOPT_CUDA_LIBRARY"] = "/nowhere/libcuda.so.1"
ABSENT = ("no CUDA driver: /nowhere/libcuda.so.1 not found; install NVIDIA's driver, or name its "
          "library with LLMOPT_CUDA_LIBRARY; tried /nowhere/libcuda.so.1 (cannot open shared object "
          "file: No such file or directory)")
NO_ARCH = "'tpu' is no CUDA architecture; write for example sm_80, sm_90a or compute_80"
for command, rest in (("verify", ["f.mlir"]), ("run", ["f.mlir"]), ("fuzz", []),
                      ("conformance", ["folder"])):
    refuse([command, *rest, "--device", "tpu"], f"llm-opt {command}: {UNKNOWN}")
    refuse([command, *rest, "--device", "cuda"], f"llm-opt {command}: {ABSENT}")
    refuse([command, *rest, "--device", "sim:tpu"], f"llm-opt {command}: {NO_ARCH}")

for name, value, allowed in (("STRICT", "2", "0 to 1"), ("ORDERS", "0", "1 to 4294967295"),
                             ("ORDERS", "4294967297", "1 to 4294967295"),
                             ("SEED", "-1", "0 to 18446744073709551615")):
    os.environ["LLMOPT_SIM_" + name] = value
    refuse(["verify", "f.mlir", "--device", "sim"],
           f"llm-opt verify: LLMOPT_SIM_{name} is '{value}'; a number from {allowed} is allowed")
    del os.environ["LLMOPT_SIM_" + name]
for command in (["verify", "f.mlir"], ["bench", "f.mlir"], ["fuzz"], ["replay", "absent"]):
    result = run(*command, "--seed", "-1")
    check(result.returncode == 1 and "--seed" in result.stderr and not result.stdout, result)

MISSING = "llm-opt: cannot open input file 'absent.mlir': No such file or directory"
for command in ("verify", "compile", "explain", "run"):
    refuse([command, "absent.mlir", *(["--json"] if command == "run" else [])], MISSING)
refuse(["run", "none.mlir", "--json"], "llm-opt: none.mlir: no function holds an attn op")
refuse(["verify", "none.mlir"], "llm-opt: none.mlir: no function holds an attn op")
refuse(["verify", "f.mlir", "--func", "g"], "llm-opt: f.mlir: no spec function is called @g")
refuse(["tune"], "llm-opt: unknown command 'tune'; 'llm-opt --help' lists the commands")

refuse(["verify", "f.mlir", "--cases", "soft"],
       "llm-opt verify: --cases is 'soft'; random and hard can be had")
refuse(["verify", "f.mlir", "--shape", "q=1"],
       "llm-opt verify: --shape names 1 query and 0 key lengths; one of each for every sequence "
       "is wanted, as in --shape q=1;1,kv=17;300")
refuse(["verify", "f.mlir", "--shape", "q=1;2,kv=5"],
       "llm-opt verify: --shape names 2 query and 1 key lengths; one of each for every sequence "
       "is wanted, as in --shape q=1;1,kv=17;300")
refuse(["verify", "f.mlir", "--shape", "q=one,kv=5"],
       "llm-opt verify: --shape q=one: no number after '='; write for example "
       "--shape q=1;1,kv=17;300,window=64")

refuse(["compile", "f.mlir", "--emit", "ptx"],
       "llm-opt compile: cannot emit 'ptx' for cpu; ir, tile, vector, llvm, asm and bundle can be "
       "had")
refuse(["compile", "f.mlir", "--target", "tpu"],
       "llm-opt compile: unknown target 'tpu'; cpu and cuda:sm_80 are of the form wanted")
refuse(["compile", "f.mlir"], "llm-opt compile: a bundle is binary; name a file with -o")
refuse(["compile", "two.mlir", "-o", "two.bundle"],
       "llm-opt compile: the file holds 2 specs; a bundle holds one; choose with --func")

refuse(["run", "two.mlir", *inputs(), "--json"],
       "llm-opt run: the file holds several specs; choose one with --func")

def run_with(want, *options, **files):
    """`llm-opt run` on f.mlir with other files or options."""
    output = () if "--output" in options else ("--output", "o=unused.npy")
    refuse(["run", "f.mlir", *inputs(**files), *options, *output], "llm-opt run: " + want)


run_with("the array 'q' is missing; the results have its shape", q=None)
# An unknown name comes first: it is the misspelt one.
run_with("there is no array 'Q'; the program takes q, k, v, o", q=None, Q="ok.npy")
run_with("array 'o' is a result; it cannot be given", o="ok.npy")
run_with("file 'junk.npy' is not a .npy file", q="junk.npy")
run_with("file 'absent.npy': cannot open: No such file or directory", q="absent.npy")
run_with("array 'q' has 3 extents and 3 strides; the program wants rank 4 with shape "
         "(?, ?, 2, 4)", q="flat.npy")
run_with("array 'q' has shape (1, 3, 2, 3); the program wants (?, ?, 2, 4)", q="narrow.npy")
run_with("array 'k' has extent 1 in dimension 0 (batch); array 'q' asks for 2", q="wide.npy")
run_with("array 'q' has element type f16; the program wants f32", q="half.npy")
run_with("double.npy: elements are f64; kernels take f32, f16, bf16, bool and integers",
         q="double.npy")
run_with("there is no array 'x'; the program takes q, k, v, o", x="ok.npy")
run_with("--input q: NAME=VALUE is wanted", "--input", "q")
run_with("--set scale=big: 'big' is no number", "--set", "scale=big")
for value in ("nan", "inf", "-inf", "1e39", "1e999"):
    run_with(f"--set scale={value}: '{value}' is not finite in float32", "--set", f"scale={value}")
    refuse(["verify", "f.mlir", "--shape", f"q=1,kv=5,scale={value}"],
           f"llm-opt verify: --shape scale={value}: a length is negative, or a number too large")
run_with("there is no scalar 'wndow'; the program takes scale, window", "--set", "wndow=3")
run_with("scalar 'window' is 2.5; the program wants an integer", "--set", "window=2.5")
run_with("scalar 'window' is 2147483648; 1 to 2147483647 are allowed", "--set", "window=2147483648")
for value in (0, -1, -2147483649):
    NO_WINDOW = (f"scalar 'window' is {value}; 1 to 2147483647 are allowed; leave the window out of "
                 "the mask for none")
    run_with(NO_WINDOW, "--set", f"window={value}")
    refuse(["verify", "f.mlir", "--shape", f"q=1,kv=5,window={value}"],
           f"llm-opt verify: f.mlir @f: case 'given shape': {NO_WINDOW}")
refuse(["verify", "f.mlir", "--shape", "q=1,kv=5,window=2.7"],
       "llm-opt verify: f.mlir @f: case 'given shape': number 'window' is 2.7; the spec wants an "
       "integer")
# Numbers that the spec has no value for.
CONSTANT = ("score { ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index): "
            "attn.yield %w : f32 }")
for clause, kind, name in (("args(%w : i32) mask(window<arg0>)", "i32", "arg0"),
                           ("args(%w : index) mask(sink<arg0>)", "index", "arg0"),
                           ("args(%w : i64) mask(chunked<arg0>)", "i64", "arg0"),
                           ("args(%w : f32) scale(arg0)", "f32", "arg0"),
                           ("args(%w : f32) softcap(arg0)", "f32", "arg0"),
                           ("args(%w : f32) alibi(arg0)", "f32", "arg0"),
                           (CONSTANT, "f32", "user3")):
    with open("number.mlir", "w") as file:
        file.write(SPEC.replace("mask(window<3>)", clause)
                   .replace(")\n    ->", f", %w: {kind})\n    ->"))
    refuse(["run", "number.mlir", *inputs(), "--output", "o=unused.npy"],
           f"llm-opt run: scalar '{name}' is missing; the spec has no value for it, so each call "
           "gives one")
# A pipe of our own stands for devices too: renaming a file onto one would destroy it.
if not os.path.exists("pipe"):
    os.mkfifo("pipe")
run_with("'pipe' is no regular file; name a file to write", "--output", "o=pipe")
check(stat.S_ISFIFO(os.stat("pipe").st_mode), "writing must leave a pipe alone")
# All outputs are looked at before the first is written.
for second, want in (("lse=l.npy", "--output lse=l.npy: the spec returns no LSE; give its "
                      "attention a second result, tensor<?x?x2xf32>, and return it as well"),
                     ("out=l.npy", "--output out=l.npy: the spec has no result of that name; it "
                      "has o"),
                     ("o", "--output o: NAME=VALUE is wanted"),
                     ("o=pipe", "'pipe' is no regular file; name a file to write"),
                     ("o=first.npy", "--output o=first.npy: 'o' is written to that file already")):
    run_with(want, "--output", "o=first.npy", "--output", second)
    check(not os.path.exists("first.npy"), f"--output {second}: nothing must be written")
for text in ("", "0", "-1", "two", "4x", "1025", "99999999999"):
    os.environ["LLMOPT_THREADS"] = text
    refuse(["env"], f"llm-opt env: LLMOPT_THREADS is '{text}'; 1 to 1024 are allowed; unset it for "
           "one thread a processor")
del os.environ["LLMOPT_THREADS"]

refuse(["verify", "--nope"], "llm-opt verify: SPEC is required")
refuse(["verify", "f.mlir", "--nope"],
       "llm-opt verify: The following argument was not expected: --nope")
refuse(["verify", "f.mlir", "--count", "0"],
       "llm-opt verify: --count: 0 was given; 1 or more is wanted")
os.environ["LLMOPT_NVRTC"] = "/nowhere/libnvrtc.so.13"
result = run("fuzz", "--count", "2", "--device", "sim")
if (result.returncode, result.stdout) != (1, "") or not result.stderr.startswith(
        "llm-opt fuzz: no spec ran, all 2 were refused: no NVRTC"):
    failures.append(f"fuzz without NVRTC\n  got {result.returncode}: {result.stdout}{result.stderr}")
del os.environ["LLMOPT_NVRTC"]
refuse(["fuzz", "--shapes", "-1"], "llm-opt fuzz: --shapes: -1 was given; 1 or more is wanted")

PAGED = """func.func @f(%q: tensor<?x2x4xf32>, %kv: !attn.kv_cache<2x4xf32, page = 4>,
                  %s: !attn.sequences) -> tensor<?x2x4xf32> {
  %o = attn.attention %q, %kv, %s mask(causal)
       : tensor<?x2x4xf32>, !attn.kv_cache<2x4xf32, page = 4>, !attn.sequences -> tensor<?x2x4xf32>
  return %o : tensor<?x2x4xf32>
}
"""
with open("paged.mlir", "w") as file:
    file.write(PAGED)
# What verify refuses is what the compiler refuses, word for word.
with open("merge.mlir", "w") as file:
    file.write("""func.func @f(%k: tensor<?x2x4xf32>, %v: tensor<?x2x4xf32>, %slots: tensor<?xi64>,
    %kv: !attn.kv_cache<2x4xf32, page = 4>, %p: tensor<?x?x2x4xf32>, %l: tensor<?x?x2xf32>)
    -> tensor<?x2x4xf32> {
  attn.append %k, %v, %slots, %kv
      : tensor<?x2x4xf32>, tensor<?x2x4xf32>, tensor<?xi64>, !attn.kv_cache<2x4xf32, page = 4>
  %o = attn.merge %p, %l : tensor<?x?x2x4xf32>, tensor<?x?x2xf32> -> tensor<?x2x4xf32>
  return %o : tensor<?x2x4xf32>
}
""")
ALONE = ("loc(\"merge.mlir\":6:8): 'attn.merge' op stands beside attn.append; a merge is a spec of "
         "its own")
refuse(["verify", "merge.mlir"], f"llm-opt verify: {ALONE}")
result = run("compile", "merge.mlir", "-o", "merge.bundle")
check(result.returncode == 1 and ALONE in result.stderr, f"compile merge.mlir: {result}")
write_npy("pq.npy", (1, 2, 4), [0.5] * 8)
write_npy("pool.npy", (3, 4, 2, 4), [0.5] * 96)
write_npy("cu.npy", (2,), [0, 1], "<i4")
write_npy("len.npy", (1,), [5], "<i4")
for page in (99, 2147483647, -1):
    write_npy("table.npy", (1, 2), [0, page], "<i4")
    files = {"q": "pq", "k_pool": "pool", "v_pool": "pool", "cu_seqlens_q": "cu", "kv_len": "len",
             "block_table": "table"}
    options = [part for name, path in files.items() for part in ("--input", f"{name}={path}.npy")]
    options += ["--output", "o=unused.npy"]
    refuse(["run", "paged.mlir", *options],
           f"llm-opt run: array 'block_table' gives page 1 of sequence 0 the id {page}; the pool "
           "has 3 pages, and a query may see this one")
for offsets in ([1, 2], [-1, 1]):
    write_npy("cu.npy", (2,), offsets, "<i4")
    refuse(["run", "paged.mlir", *options],
           f"llm-opt run: array 'cu_seqlens_q' begins with {offsets[0]}; offsets must ascend from 0")
write_npy("cu.npy", (2,), [0, -1], "<i4")
refuse(["run", "paged.mlir", *options],
       "llm-opt run: array 'cu_seqlens_q' has -1 after 0 at entry 1; offsets must ascend from 0")
write_npy("table.npy", (1, 2), [0, 1], "<i4")
write_npy("len.npy", (1,), [1 << 32], "<i8")
refuse(["run", "paged.mlir", *options],
       "llm-opt run: array 'kv_len' holds 4294967296 at element 0; the program takes it as i32")
with open("brain.mlir", "w") as file:
    file.write(SPEC.replace("f32", "bf16"))
refuse(["run", "brain.mlir", *inputs(), "--output", "o=unused.npy"],
       "llm-opt run: array 'q' has element type f32; the program wants bf16; save "
       "array.astype(ml_dtypes.bfloat16), or the bits as items of type '<V2'")
write_npy("bits.npy", (1, 3, 2, 4), [0x3f80] * 24, "<u2")
run_with("file 'bits.npy' has elements of type '<u2'; allowed are little-endian f2, f4, f8, i1, i4, "
         "i8, u1, u4, b1 and V2 (bf16); save bf16 bits as array.view('V2')", q="bits.npy")
refuse(["run", "f.mlir", *inputs()],
       "llm-opt run: no --output is given, so the results would be lost; name a file, as in "
       "--output o=o.npy, or ask for the times alone with --json")
result = run("run", "f.mlir", *inputs(), "--json")
check(result.returncode == 0 and "run_ms" in result.stdout, f"--json alone: {result}")

# A bundle is known by its contents, whatever it is called; other binaries are not printed either.
run("compile", "f.mlir", "-o", "f.bundle")
shutil.copy("f.bundle", "f.dat")
BUNDLE = "this is a compiled bundle"
for path in ("f.bundle", "f.dat"):
    for command in ("verify", "explain", "compile"):
        refuse([command, path], f"llm-opt: {path}: {BUNDLE}, which only 'llm-opt run' takes; give "
               "the spec that it was made of")
    refuse(["opt", path], f"llm-opt opt: {path}: {BUNDLE}; IR text is wanted")
result = run("run", "f.dat", *inputs(), "--output", "o=o.npy")
check(result.returncode == 0, f"run f.dat: {result.stderr}")
with open("nul.mlir", "w") as file:
    file.write(SPEC + "\0")
refuse(["verify", "nul.mlir"], "llm-opt: nul.mlir: this is a binary file; a spec is attn IR text")

# A soft cap of 0 is off.
with open("cap.mlir", "w") as file:
    file.write(SPEC.replace("mask(window<3>)", "softcap(5.0)"))
refuse(["run", "cap.mlir", *inputs(), "--set", "softcap=-1", "--output", "o=unused.npy"],
       "llm-opt run: scalar 'softcap' is -1; 0 and more are allowed; 0 turns it off")
result = run("verify", "cap.mlir", "--shape", "q=4,kv=9,softcap=0")
check(result.returncode == 0, f"softcap=0: {result.stdout}{result.stderr}")


def parse(old, new, *wants):
    """`verify` on f.mlir with `old` replaced: stderr must hold each of `wants`, and no whole op."""
    with open("wrong.mlir", "w") as file:
        file.write(SPEC.replace(old, new))
    result = run("verify", "wrong.mlir")
    if (result.returncode != 1 or "see current operation" in result.stderr
            or not all(want in result.stderr for want in wants)):
        failures.append(f"{new}\n  want: {wants}\n  got {result.returncode}: {result.stderr}")


parse("window<3>", "windw<3>", "unknown mask 'windw'; known are causal, window, sink, dilated,")
for joined in ("window<3> && causal", "window<3> || causal"):
    parse("window<3>", joined, "error: ", "note: masks are joined by 'and', 'or' and 'not'")
for word in ("fp16", "float16", "half"):
    parse("xf32>", f"x{word}>", "error: ", "note: 16-bit floats are written f16")
parse("xf32>", "xbfloat16>", "error: ", "note: it is written bf16")
parse("mask(window<3>)", "scale(1/sqrt(96))", "expected ')' after the number; scale takes one")
parse("%k: tensor<?x?x2x4xf32>", "%k: tensor<?x?x2x5xf32>", "error: ")
parse("window<3>", "window<0>", "window is 1 to 2147483647, got 0")

refuse(["run", "absent.bundle", "--json"],
       "llm-opt run: file 'absent.bundle': cannot open: No such file or directory")
refuse(["conformance", "absent"],
       "llm-opt conformance: file 'absent/model.onnx': cannot open: No such file or directory")
refuse(["import", "absent.json"], "llm-opt import: file 'absent.json': cannot open: No such file or directory")
for lengths in ("q=-1,kv=5", "q=1,kv=-5", "q=1,kv=99999999999999999999"):
    setting = lengths.split(",")[lengths.startswith("q=1")]
    refuse(["verify", "f.mlir", "--shape", lengths],
           f"llm-opt verify: --shape {setting}: a length is negative, or a number too large")
refuse(["verify", "f.mlir", "--shape", "q=1,kv=5x"],
       "llm-opt verify: --shape kv=5x: no number after '='; write for example "
       "--shape q=1;1,kv=17;300,window=64")

# Numbers beyond what is wanted, or beyond 64 bits, are not taken for the greatest that there is.
BEYOND = "9223372036854775808"
for command, option, most in (
        (["verify", "f.mlir"], "--count", 1000000), (["fuzz"], "--shapes", 1000000),
        (["fuzz"], "--count", 1 << 40), (["fuzz"], "--first", 1 << 40),
        (["fuzz"], "--print", 1 << 40), (["explain", "f.mlir"], "--keys", 2147483647),
        (["explain", "f.mlir"], "--queries", 2147483647),
        (["explain", "f.mlir"], "--sequences", (1 << 63) - 1),
        (["bench", "f.mlir", "--shape", "q=1,kv=1"], "--repeats", 1000000)):
    least = int(option not in ("--first", "--print"))
    for value in (BEYOND, "9" * 40, str(most + 1)):
        refuse([*command, option, value], f"llm-opt {command[0]}: {option}: {value} was given; "
               f"{least} to {most} are wanted")
for value in ("1.5", "1e3", "x", "0x10"):
    refuse(["fuzz", "--count", value], f"llm-opt fuzz: --count: {value} was given; a whole number of "
           "1 or more is wanted")
refuse(["sim", "k.ptx", "--launch", "l.json", "--orders", "4294967296"], "llm-opt sim: Could not "
       "convert: --orders = 4294967296; a number that fits is wanted")

# Lengths are looked at before arrays are made of them.
refuse(["verify", "f.mlir", "--shape", "q=1,kv=2147483648"], "llm-opt verify: --shape "
       "q=1,kv=2147483648: a sequence of 1 queries and 2147483648 keys; 0 to 2147483647 are allowed")
refuse(["verify", "f.mlir", "--shape", "q=1048576x1,kv=1048576x2147483647"], "llm-opt verify: "
       "--shape q=1048576x1,kv=1048576x2147483647: Q, K, V and O of 1048576 queries and "
       "2251799812636672 keys have 3.6e+16 elements; up to 1.1e+12 are allowed; make the sequences "
       "shorter")
with open("batch.mlir", "w") as file:
    file.write(SPEC.replace("tensor<?x?", "tensor<1099511627776x?"))
refuse(["verify", "batch.mlir"], "llm-opt verify: batch.mlir @f: case 'random shape 0': the spec has "
       "1099511627776 sequences; up to 1048576 can be made")

# Nesting costs the parser's stack.
for depth in (257, 100_000):
    for part, columns in (("scf.if %c {", 11), ("[", 1), ("tuple<", 6)):
        with open("deep.mlir", "w") as file:
            file.write('// ((( "\nfunc.func @f() {' + part * depth)
        column = 16 + 255 * columns + columns
        DEEP = f"deep.mlir:2:{column}: nested too deeply; 256 levels are allowed"
        for command in (["verify"], ["compile"], ["explain"], ["bench", "--shape", "q=1,kv=1"],
                        ["run", "--json"]):
            refuse([command[0], "deep.mlir", *command[1:]], "llm-opt: " + DEEP)
        refuse(["opt", "deep.mlir"], "llm-opt opt: " + DEEP)

# Results that cannot be written: the exit code says so, and nothing is left half done.
if os.path.exists("/dev/full"):
    for command in (["env"], ["--version"], ["import", "fine.json"], ["fuzz", "--print", "1"],
                    ["compile", "f.mlir", "--emit", "asm"], ["replay", "trace.csv"],
                    ["verify", "f.mlir", "--shape", "q=1,kv=1"]):
        with open("fine.json", "w") as file:
            file.write('{"num_hidden_layers": 2, "num_attention_heads": 8, "head_dim": 64}')
        with open("trace.csv", "w") as file:
            file.write("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46,12,3\n")
        with open("/dev/full", "w") as full:
            done = subprocess.run([LLM_OPT, *command], stdout=full, stderr=subprocess.PIPE, text=True)
        if done.returncode != 1 or "standard output cannot be written; is its disk full?" not in done.stderr:
            failures.append(f"{command} to a full disk\n  got {done.returncode}: {done.stderr}")
for emit in ("bundle", "asm"):
    refuse(["compile", "f.mlir", "--emit", emit, "-o", "absent/f"], "llm-opt compile: file 'absent/f': "
           "cannot create a temporary file beside: No such file or directory")
    refuse(["compile", "f.mlir", "--emit", emit, "-o", "pipe"],
           "llm-opt compile: 'pipe' is no regular file; name a file to write")

# Names of files are bytes; JSON is UTF-8.
shutil.copy("f.mlir", os.fsdecode(b"latin-\xe9.mlir"))
result = run("verify", os.fsdecode(b"latin-\xe9.mlir"), "--shape", "q=1,kv=1", "--json")
check(result.returncode == 0 and "latin-\ufffd.mlir" in result.stdout, result)
refuse(["verify", "f.mlir", "--device", "sim:sm_9999"], "llm-opt verify: there is no architecture "
       "'sm_9999'; sm_50, 52, 53, 60, 61, 62, 70, 72, 75, 80, 86, 87, 88, 89, 90, 100, 101, 103, 110, "
       "120, 121 are known, from sm_90 on also with an 'a' and from sm_100 on with an 'f'")

check(not failures, f"{len(failures)} messages:\n" + "\n".join(failures))
