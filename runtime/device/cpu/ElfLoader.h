// Makes an x86-64 relocatable object executable in this process, without a
// linker: what a bundle's CPU image needs to run where no compiler is
// installed.
//
//   StatusOr<LoadedObject> object = LoadedObject::load(image.bytes);
//   if (!object) return object.status();
//   StatusOr<void *> entry = object->function("attend");
//
// One mapping holds code and call thunks (read, execute), constants and the
// global offset table (read), data (read, write); no page is ever writable and
// executable at once. Supported is what LLVM emits for kernels in the small
// code model, static or position independent. Thread-local variables,
// constructors, indirect functions and common symbols are refused with a
// sentence. Unwind tables are left out: nothing may throw through a kernel.
#pragma once

#include "runtime/base/Status.h"
#include "runtime/device/cpu/HostSymbols.h"

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>

namespace llmopt::runtime {

class LoadedObject {
public:
  /// `resolve` is asked for each external symbol that is referred to, and
  /// answers with functions; a symbol that it does not know is an error, also a
  /// weak one. The bytes are not needed afterwards.
  static StatusOr<LoadedObject> load(std::span<const uint8_t> bytes,
                                     const SymbolResolver &resolve = resolveHostSymbol);

  LoadedObject(LoadedObject &&other) noexcept;
  LoadedObject &operator=(LoadedObject &&other) noexcept;
  LoadedObject(const LoadedObject &) = delete;
  LoadedObject &operator=(const LoadedObject &) = delete;
  ~LoadedObject();

  /// Address of a global function or variable of the object, or NotFound.
  StatusOr<void *> function(std::string_view name) const;
  StatusOr<void *> variable(std::string_view name) const;

private:
  struct Export {
    void *address;
    bool isCode;
  };

  LoadedObject() = default;
  StatusOr<void *> find(std::string_view name, bool isCode) const;
  void release();

  void *base = nullptr;
  size_t size = 0;
  std::map<std::string, Export, std::less<>> exports;

  friend class ObjectLinker;
};

} // namespace llmopt::runtime
