// The types: the paged cache and the lengths of a batch.
#include "dialect/attn/AttnDialect.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace llmopt::attn;

#define GET_TYPEDEF_CLASSES
#include "dialect/attn/AttnTypes.cpp.inc"

void AttnDialect::registerTypes() {
  addTypes<
#define GET_TYPEDEF_LIST
#include "dialect/attn/AttnTypes.cpp.inc"
      >();
}

//===----------------------------------------------------------------------===//
// KvCacheType
//===----------------------------------------------------------------------===//

/// `= N` of option `name`, given once.
static ParseResult parseSize(AsmParser &parser, StringRef name, std::optional<int64_t> &size) {
  SMLoc loc = parser.getCurrentLocation();
  int64_t value;
  if (parser.parseEqual() || parser.parseInteger(value))
    return failure();
  if (size)
    return parser.emitError(loc) << "'" << name << "' is given twice";
  size = value;
  return success();
}

static ParseResult parseFlag(AsmParser &parser, SMLoc loc, StringRef name, bool &flag) {
  if (flag)
    return parser.emitError(loc) << "'" << name << "' is given twice";
  flag = true;
  return success();
}

Type KvCacheType::parse(AsmParser &parser) {
  SMLoc start = parser.getCurrentLocation();
  SmallVector<int64_t, 2> dims;
  Type elementType;
  if (parser.parseLess())
    return {};
  SMLoc dimsLoc = parser.getCurrentLocation();
  if (parser.parseDimensionList(dims, /*allowDynamic=*/false,
                                /*withTrailingX=*/true) ||
      parser.parseType(elementType))
    return {};
  if (dims.size() != 2) {
    parser.emitError(dimsLoc) << "a kv_cache has 2 dimensions (KV heads x head dimension), got "
                              << dims.size();
    return {};
  }

  std::optional<int64_t> vDim, page;
  bool headMajor = false, interleaved = false, indptr = false;
  while (succeeded(parser.parseOptionalComma())) {
    SMLoc loc = parser.getCurrentLocation();
    StringRef option;
    if (parser.parseKeyword(&option))
      return {};
    ParseResult parsed =
        llvm::StringSwitch<llvm::function_ref<ParseResult()>>(option)
            .Case("v_dim", [&] { return parseSize(parser, "v_dim", vDim); })
            .Case("page", [&] { return parseSize(parser, "page", page); })
            .Case("head_major", [&] { return parseFlag(parser, loc, option, headMajor); })
            .Case("interleaved", [&] { return parseFlag(parser, loc, option, interleaved); })
            .Case("indptr", [&] { return parseFlag(parser, loc, option, indptr); })
            .Default([&] {
              return parser.emitError(loc)
                     << "unknown kv_cache option '" << option
                     << "'; known are v_dim, page, head_major, interleaved, indptr";
            })();
    if (parsed)
      return {};
  }
  if (parser.parseGreater())
    return {};
  if (!page) {
    parser.emitError(start) << "a kv_cache needs 'page = N', the slots a page";
    return {};
  }
  return parser.getChecked<KvCacheType>(start, parser.getContext(), dims[0], dims[1], elementType,
                                        vDim.value_or(dims[1]), *page, headMajor, interleaved,
                                        indptr);
}

void KvCacheType::print(AsmPrinter &printer) const {
  printer << '<' << getKvHeads() << 'x' << getHeadDim() << 'x' << getElementType();
  if (getVDim() != getHeadDim())
    printer << ", v_dim = " << getVDim();
  printer << ", page = " << getPageSize();
  if (getHeadMajor())
    printer << ", head_major";
  if (getInterleaved())
    printer << ", interleaved";
  if (getIndptr())
    printer << ", indptr";
  printer << '>';
}

LogicalResult KvCacheType::verify(function_ref<InFlightDiagnostic()> emitError, int64_t kvHeads,
                                  int64_t headDim, Type elementType, int64_t vDim, int64_t pageSize,
                                  bool headMajor, bool interleaved, bool indptr) {
  if (kvHeads < 1)
    return emitError() << "a kv_cache has 1 KV head or more, got " << kvHeads;
  if (headDim < 1 || headDim > kMaxHeadDim)
    return emitError() << "the head dimension of a kv_cache is 1 to " << kMaxHeadDim << ", got "
                       << headDim;
  if (vDim < 1 || vDim > kMaxHeadDim)
    return emitError() << "v_dim of a kv_cache is 1 to " << kMaxHeadDim << ", got " << vDim;
  if (!isDataType(elementType))
    return emitError() << "the elements of a kv_cache are f32, f16 or bf16, got " << elementType;
  if (pageSize < 1 || pageSize > kMaxLength)
    return emitError() << "page of a kv_cache is 1 to " << kMaxLength << ", got " << pageSize;
  if (interleaved && vDim != headDim)
    return emitError() << "an interleaved kv_cache holds K and V of one head dimension, "
                          "got "
                       << headDim << " and v_dim " << vDim;
  return success();
}
