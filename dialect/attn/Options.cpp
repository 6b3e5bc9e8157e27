// Split and schedule: what a spec may say about how its keys and tiles are divided.
#include "dialect/attn/Asm.h"
#include "dialect/attn/AttnDialect.h"

using namespace mlir;
using namespace llmopt::attn;

/// `= N`, 1 or more, for `name`; `value` is 0 as long as it was not given.
static ParseResult parsePositive(AsmParser &parser, StringRef name, int64_t &value) {
  int64_t given;
  if (parser.parseEqual())
    return failure();
  SMLoc loc = parser.getCurrentLocation();
  if (parser.parseInteger(given))
    return failure();
  if (value)
    return parser.emitError(loc) << "'" << name << "' is given twice";
  if (given < 1 || given > kMaxLength)
    return parser.emitError(loc) << name << " is 1 to " << kMaxLength << ", got " << given;
  value = given;
  return success();
}

//===----------------------------------------------------------------------===//
// SplitAttr
//===----------------------------------------------------------------------===//

SplitAttr llmopt::attn::parseSplitBody(AsmParser &parser) {
  SMLoc loc = parser.getCurrentLocation();
  int64_t count = 0, length = 0;
  StringRef keyword;
  if (parser.parseKeyword(&keyword))
    return {};
  if (keyword == "none") {
    count = 1;
  } else if (keyword == "count") {
    if (parsePositive(parser, "split count", count))
      return {};
  } else if (keyword == "length") {
    if (parsePositive(parser, "split length", length))
      return {};
  } else {
    parser.emitError(loc) << "expected none, count = N or length = N, got '" << keyword << "'";
    return {};
  }
  return parser.getChecked<SplitAttr>(loc, parser.getContext(), count, length);
}

void llmopt::attn::printSplitBody(AsmPrinter &printer, SplitAttr split) {
  if (split.getLength())
    printer << "length = " << split.getLength();
  else if (split.getCount() == 1)
    printer << "none";
  else
    printer << "count = " << split.getCount();
}

Attribute SplitAttr::parse(AsmParser &parser, Type) {
  if (parser.parseLess())
    return {};
  SplitAttr split = parseSplitBody(parser);
  if (!split || parser.parseGreater())
    return {};
  return split;
}

void SplitAttr::print(AsmPrinter &printer) const {
  printer << '<';
  printSplitBody(printer, *this);
  printer << '>';
}

LogicalResult SplitAttr::verify(function_ref<InFlightDiagnostic()> emitError, int64_t count,
                                int64_t length) {
  if ((count > 0) == (length > 0) || count < 0 || length < 0)
    return emitError() << "a split has either a count or a length of 1 or more, got count " << count
                       << " and length " << length;
  return success();
}

//===----------------------------------------------------------------------===//
// ScheduleAttr
//===----------------------------------------------------------------------===//

ScheduleAttr llmopt::attn::parseScheduleBody(AsmParser &parser) {
  SMLoc start = parser.getCurrentLocation();
  int64_t rows = 0, keys = 0;
  bool batchInvariant = false;
  auto parseWish = [&]() -> ParseResult {
    SMLoc loc = parser.getCurrentLocation();
    StringRef keyword;
    if (parser.parseKeyword(&keyword))
      return failure();
    if (keyword == "rows")
      return parsePositive(parser, "schedule rows", rows);
    if (keyword == "keys")
      return parsePositive(parser, "schedule keys", keys);
    if (keyword != "batch_invariant")
      return parser.emitError(loc)
             << "expected rows = N, keys = N or batch_invariant, got '" << keyword << "'";
    if (batchInvariant)
      return parser.emitError(loc) << "'batch_invariant' is given twice";
    batchInvariant = true;
    return success();
  };
  if (parser.parseCommaSeparatedList(parseWish))
    return {};
  return parser.getChecked<ScheduleAttr>(start, parser.getContext(), rows, keys, batchInvariant);
}

void llmopt::attn::printScheduleBody(AsmPrinter &printer, ScheduleAttr schedule) {
  StringRef separator = "";
  auto next = [&]() -> AsmPrinter & {
    printer << separator;
    separator = ", ";
    return printer;
  };
  if (schedule.getRows())
    next() << "rows = " << schedule.getRows();
  if (schedule.getKeys())
    next() << "keys = " << schedule.getKeys();
  if (schedule.getBatchInvariant())
    next() << "batch_invariant";
}

Attribute ScheduleAttr::parse(AsmParser &parser, Type) {
  if (parser.parseLess())
    return {};
  ScheduleAttr schedule = parseScheduleBody(parser);
  if (!schedule || parser.parseGreater())
    return {};
  return schedule;
}

void ScheduleAttr::print(AsmPrinter &printer) const {
  printer << '<';
  printScheduleBody(printer, *this);
  printer << '>';
}

LogicalResult ScheduleAttr::verify(function_ref<InFlightDiagnostic()> emitError, int64_t rows,
                                   int64_t keys, bool batchInvariant) {
  if (rows < 0 || keys < 0)
    return emitError() << "rows and keys of a schedule are 1 or more (0: not given), got " << rows
                       << " and " << keys;
  if (!rows && !keys && !batchInvariant)
    return emitError() << "a schedule says something: rows, keys or batch_invariant";
  return success();
}
