// Pieces of text about tiles in shared memory.
#pragma once

#include "dialect/tile/TileDialect.h"

#include "mlir/Dialect/MemRef/IR/MemRef.h"

#include <initializer_list>
#include <string>

namespace llmopt::cuda {

inline std::string tileType(tile::SharedAttr layout) {
  return "shared_tile<" + std::to_string(layout.getPitch()) + ", " +
         std::to_string(layout.getSpan()) + ">";
}

inline tile::SharedAttr layoutOfBuffer(mlir::Value buffer) {
  return mlir::cast<tile::SharedAttr>(
      mlir::cast<mlir::MemRefType>(buffer.getType()).getMemorySpace());
}

inline std::string arguments(std::initializer_list<std::string> list) {
  std::string text;
  for (const std::string &item : list)
    text += (text.empty() ? "" : ", ") + item;
  return text;
}

} // namespace llmopt::cuda
