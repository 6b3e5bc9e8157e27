// Text under construction: indented lines that remember which operation they came from.
#pragma once

#include "mlir/IR/Location.h"
#include "llvm/ADT/StringMap.h"

#include <string>
#include <vector>

namespace llmopt::cuda {

/// The lines of a kernel; `places[i]` is the operation's place that made line i.
struct Lines {
  std::vector<std::string> text;
  std::vector<mlir::Location> places;

  void append(const Lines &other);
  std::string str() const;
};

/// Distinct C++ identifiers of the scopes that are open.
class Names {
public:
  Names();
  /// `wish` made an identifier, with a number if it is taken.
  std::string fresh(llvm::StringRef wish);
  /// The same, for a variable of the outermost scope, whichever is open.
  std::string freshOutside(llvm::StringRef wish);
  /// Scopes of the text: names given within are free again behind one.
  void enter() { scopes.emplace_back(); }
  void leave();

private:
  llvm::StringMap<unsigned> used;
  /// For each open scope, what the counts were before it changed them.
  std::vector<std::vector<std::pair<std::string, unsigned>>> scopes;
  void set(llvm::StringRef name, unsigned count);
};

class Writer {
public:
  Writer(mlir::Location place, Names &names) : place(place), names(names) {}

  void line(const llvm::Twine &text);
  void comment(const llvm::Twine &text) { line("// " + text); }
  /// A comment in lines of 100 characters.
  void paragraph(llvm::StringRef text);
  /// The same on the lines to come, apart from those before it.
  void note(llvm::StringRef text);
  void open(const llvm::Twine &text) {
    line(text + " {");
    ++depth;
    names.enter();
  }
  void close(const llvm::Twine &after = "") {
    --depth;
    names.leave();
    line("}" + after);
  }
  void otherwise() {
    --depth;
    names.leave();
    open("} else");
  }
  /// `#pragma unroll` and a loop over [0, count); with count 1 only a block.
  void unrolled(llvm::StringRef index, int64_t count, int64_t step = 1);

  mlir::Location place; ///< of the lines to come
  Lines lines;
  int depth = 1;

private:
  Names &names;
};

} // namespace llmopt::cuda
