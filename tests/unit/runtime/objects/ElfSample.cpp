// Compiled to an object, once position independent and once static, and loaded
// by the ELF loader's tests. One function for each thing that a relocation is
// needed for.

extern "C" {

float tanhf(float);
void *memcpy(void *, const void *, unsigned long);

extern const float kWeights[8];
const float kWeights[8] = {1, 2, 3, 4, 5, 6, 7, 8};
int counter = 40; // .data
long zeroed[64];  // .bss

/// Constants in a table, in a loop that gets vectorised.
float weightedSum(const float *values) {
  float sum = 0;
  for (int i = 0; i < 8; ++i)
    sum += kWeights[i] * values[i];
  return sum;
}

/// Constants from .rodata.cst.
double scaled(double x) { return x * 2.718281828459045 + 0.577215664901532; }

float callTanh(float x) { return tanhf(x) * 2.0f; }

int bumpCounter() { return ++counter; }

long bumpZeroed(int i) { return zeroed[i & 63] += i; }

static int triple(int x) { return 3 * x; }
static int negate(int x) { return -x; }
/// Addresses in data: R_X86_64_64.
int (*const volatile table[2])(int) = {triple, negate};

int callThroughTable(int which, int x) { return table[which & 1](x); }

const char *greeting(int which) { return which ? "hello" : "world"; }

/// Dense cases: a jump table.
int jumpTable(int x) {
  switch (x) {
  case 0:
    return counter * 3;
  case 1:
    return triple(counter) - 7;
  case 2:
    return 1 - counter;
  case 3:
    return counter ^ 0x55;
  case 4:
    return counter << 3;
  case 5:
    return counter / 7;
  default:
    return -1;
  }
}

/// A copy that stays a call.
void copyBytes(void *to, const void *from, unsigned long size) { memcpy(to, from, size); }

/// The address of an external function, not a call.
float (*tanhPointer())(float) { return tanhf; }
}
