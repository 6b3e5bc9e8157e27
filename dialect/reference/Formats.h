// Number formats as the oracle needs them: decode, encode and round to nearest even,
// all by way of double, in which every value of every format is exact.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

namespace mlir {
class Type;
}

namespace llmopt::reference {

enum class ElementType : uint8_t { F32, F16, BF16, I8, I32, I64, Bool };

size_t sizeOf(ElementType type);
const char *nameOf(ElementType type); ///< "f32", "bool", ...
/// The format of a scalar MLIR type; i1 is Bool, index is I64; none for others.
std::optional<ElementType> elementTypeOf(mlir::Type type);
bool isFloat(ElementType type);

double load(const void *data, ElementType type, int64_t index);
/// Rounds to nearest even (floats) or truncates (integers).
void store(void *data, ElementType type, int64_t index, double value);

/// Nearest value of a float format, ties to even; overflow gives an infinity.
double roundTo(ElementType type, double value);
/// Distance of neighbours of a float format at `magnitude`; the smallest one at 0.
double ulp(ElementType type, double magnitude);
/// Largest relative error of one rounding: half an ulp of 1.
double unitRoundoff(ElementType type);

} // namespace llmopt::reference
