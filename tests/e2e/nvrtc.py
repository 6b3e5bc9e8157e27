"""llm-opt with a substitute for NVRTC (tests/unit/nvrtc/fake), which knows sm_80 and sm_90: chips
that it does not know, and where its messages about a kernel's text lead."""
import os
import re

from common import check, run

TENSOR = "tensor<?x?x2x64xf32>"
with open("s.mlir", "w") as file:
    file.write(f"""func.func @f(%q: {TENSOR}, %k: {TENSOR}, %v: {TENSOR}) -> {TENSOR} {{
  %o = attn.attention %q, %k, %v mask(causal)
       score {{
       ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
         %c = arith.constant 17.25 : f32
         %t = arith.mulf %s, %c : f32
         attn.yield %t : f32
       }} : {TENSOR}, {TENSOR}, {TENSOR} -> {TENSOR}
  return %o : {TENSOR}
}}
""")


def compiled(target, emit="ptx", **settings):
    """`llm-opt compile`, with settings of the substitute."""
    names = {f"FAKE_NVRTC_{name.upper()}": value for name, value in settings.items()}
    os.environ.update(names)
    done = run("compile", "s.mlir", "--target", target, "--emit", emit, "-o", "out")
    for name in names:
        del os.environ[name]
    return done


# A chip that is newer, one in a gap, one of a generation without numbers.
done = compiled("cuda:sm_90")
check(done.returncode == 0 and not done.stderr, done.stderr)
MADE = "; PTX for compute_80 was made, which the driver compiles"
NUMBERS = "there are no numbers for {}; the schedule follows from those of sm_{}"
for arch, texts in (
        ("sm_89", ["NVRTC 12.3 knows no {} (it knows 80, 90)" + MADE]),
        ("sm_103", ["{} is newer than NVRTC 12.3 knows (up to sm_90)" + MADE]),
        ("sm_110", [NUMBERS.format("sm_110", 100), "{} is newer than NVRTC 12.3 knows"]),
        ("sm_130", [NUMBERS.format("sm_130", 120), "{} is newer than NVRTC 12.3 knows"]),
        ("sm_990", [NUMBERS.format("sm_990", 120), "{} is newer than NVRTC 12.3 knows"])):
    for emit, name in (("ptx", arch.replace("sm", "compute")), ("bundle", arch)):
        done = compiled(f"cuda:{arch}", emit)
        check(done.returncode == 0, f"{arch}: {done.stderr}")
        for text in texts:
            check(re.search(r"s\.mlir\"?:1:.*: warning: ", done.stderr) and
                  done.stderr.count(text.format(name)) == 1, f"{arch} {emit}: {done.stderr}")
done = compiled("cuda:sm_75")
check(done.returncode == 1 and "no numbers for target 'sm_75'" in done.stderr, done.stderr)

# A message about a line of the text is one about the line of the spec that it was made of, in the
# score region too.
with open("s.mlir") as file:
    PLACE = str(next(i for i, text in enumerate(file, 1) if "arith.mulf" in text))
done = compiled("cuda:sm_90", "cuda")
check(done.returncode == 0, done.stderr)
with open("out") as file:
    lines = file.read().splitlines()
failed = re.search(r"llm-opt compile: (\w+)\.cu does not compile",
                   compiled("cuda:sm_90", "bundle", result="6").stderr)
check(failed, "the first kernel's failure ends the compile")
kernel = failed.group(1)
start = lines.index(f"// {kernel}, for sm_90.")
line = next(i for i, text in enumerate(lines[start:], 1)
            if "17.25" in text and not text.startswith("//"))
for spelled in ("error: identifier \"x\" is undefined",
                "error: expected a \");\" in f(a): b",
                "catastrophic error: out of patience"):
    done = compiled("cuda:sm_90", "bundle", result="6",
                    log=f"{kernel}.cu({line}): {spelled}\n\n1 error detected.\n")
    check(done.returncode == 1, done)
    message = spelled.replace("catastrophic ", "")
    place = re.search(r"s\.mlir\"?:(\d+):\d+\)?: error: the CUDA text made here does not compile: "
                      "(.*)", done.stderr)
    check(place and place.group(1) == PLACE and place.group(2) == message, done.stderr)
    check(f"llm-opt compile: {kernel}.cu does not compile for sm_90: " in done.stderr, done.stderr)
print("chips that NVRTC does not know, and messages at the line of the spec")
