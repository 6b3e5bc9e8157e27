#include "tests/unit/cpu/Harness.h"

#include "runtime/bundle/WorkItem.h"
#include "runtime/device/cpu/HostSymbols.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/Parser/Parser.h"
#include "llvm/ExecutionEngine/Orc/AbsoluteSymbols.h"
#include "llvm/ExecutionEngine/Orc/LLJIT.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/TargetParser/Host.h"

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <gtest/gtest.h>

using namespace llmopt::cpu;
using namespace llmopt::cpu::test;

struct Kernel::Impl {
  std::unique_ptr<llvm::orc::LLJIT> jit;
  llmopt::bundle::CpuEntry entry = nullptr;
  void *scratch = nullptr;
};

Kernel::Kernel() : impl(std::make_unique<Impl>()) {}
Kernel::~Kernel() { std::free(impl->scratch); }

std::vector<Isa> llmopt::cpu::test::availableIsas() {
  auto host = llvm::sys::getHostCPUFeatures();
  std::vector<Isa> isas = {{"sse2", ""}};
  if (host["avx2"] && host["fma"] && host["f16c"])
    isas.push_back({"avx2", "+avx2,+fma,+f16c"});
  if (host["avx512f"] && host["avx512bw"] && host["avx512vl"] && host["avx512dq"])
    isas.push_back({"avx512", "+avx512f,+avx512bw,+avx512vl,+avx512dq,+avx2,+fma,+f16c"});
  if (host["avx512bf16"])
    isas.push_back(
        {"avx512bf16", "+avx512bf16,+avx512f,+avx512bw,+avx512vl,+avx512dq,+avx2,+fma,+f16c"});
  return isas;
}

CpuTargetOptions llmopt::cpu::test::optionsFor(const Isa &isa) {
  CpuTargetOptions options;
  options.cpu = "x86-64";
  options.features = isa.features;
  return options;
}

std::unique_ptr<Kernel> Kernel::compile(const std::string &text, const CpuTargetOptions &options,
                                        const std::string &name) {
  static mlir::MLIRContext *context = [] {
    llvm::InitializeNativeTarget();
    llvm::InitializeNativeTargetAsmPrinter();
    mlir::DialectRegistry registry;
    registerCpuDialects(registry);
    auto *made = new mlir::MLIRContext(registry, mlir::MLIRContext::Threading::DISABLED);
    made->loadAllAvailableDialects();
    return made;
  }();
  auto start = std::chrono::steady_clock::now();
  auto module = mlir::parseSourceString<mlir::ModuleOp>(text, context);
  if (!module || failed(lowerToCpu(*module, options))) {
    ADD_FAILURE() << "does not compile:\n" << text;
    return nullptr;
  }
  std::unique_ptr<Kernel> kernel(new Kernel());
  if (auto function = module->lookupSymbol<mlir::LLVM::LLVMFuncOp>(name))
    if (auto bytes = function->getAttrOfType<mlir::IntegerAttr>("tile.scratch_bytes"))
      kernel->scratchBytes = bytes.getInt();
  auto object = emitObject(*module, options);
  if (!object) {
    ADD_FAILURE() << llvm::toString(object.takeError());
    return nullptr;
  }
  kernel->objectBytes = object->size();
  auto jit = llvm::orc::LLJITBuilder().create();
  llvm::orc::SymbolMap conversions; // what no library of this process has
  for (const char *symbol : {"__truncsfhf2", "__truncsfbf2", "__extendhfsf2"})
    conversions[(*jit)->mangleAndIntern(symbol)] = {
        llvm::orc::ExecutorAddr::fromPtr(llmopt::runtime::resolveHostSymbol(symbol)),
        llvm::JITSymbolFlags::Exported};
  llvm::cantFail((*jit)->getMainJITDylib().define(llvm::orc::absoluteSymbols(conversions)));
  llvm::StringRef bytes(reinterpret_cast<const char *>(object->data()), object->size());
  llvm::cantFail((*jit)->addObjectFile(llvm::MemoryBuffer::getMemBufferCopy(bytes, "kernel")));
  auto address = (*jit)->lookup(name);
  if (!address) {
    ADD_FAILURE() << llvm::toString(address.takeError());
    return nullptr;
  }
  if (const char *path = std::getenv("LLMOPT_DUMP_OBJECT")) { // for a profiler
    std::ofstream(path, std::ios::binary).write(bytes.data(), bytes.size());
    std::printf("%s at %p\n", name.c_str(), address->toPtr<void *>());
  }
  kernel->impl->entry = address->toPtr<llmopt::bundle::CpuEntry>();
  kernel->impl->jit = std::move(*jit);
  kernel->compileMs =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  int64_t size = (kernel->scratchBytes + 4096 + 63) / 64 * 64;
  kernel->impl->scratch = std::aligned_alloc(64, size);
  std::memset(kernel->impl->scratch, 0xff, size); // NaN: what is read unset shows
  return kernel;
}

Kernel &Kernel::slot(int64_t value) {
  slots.push_back(uint64_t(value));
  return *this;
}

Kernel &Kernel::slot(float value) {
  uint64_t word = 0xdeadbeefull << 32;
  std::memcpy(&word, &value, sizeof value);
  slots.push_back(word);
  return *this;
}

int Kernel::run(uint32_t worker) {
  std::vector<uint64_t> block(sizeof(llmopt::bundle::ParamHeader) / 8 + slots.size());
  auto *header = reinterpret_cast<llmopt::bundle::ParamHeader *>(block.data());
  header->abiVersion = llmopt::bundle::kAbiVersion;
  header->slots = slots.size();
  std::copy(slots.begin(), slots.end(), block.begin() + sizeof(llmopt::bundle::ParamHeader) / 8);
  return impl->entry(block.data(), worker, impl->scratch);
}

uint16_t llmopt::cpu::test::toBf16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  if (std::isnan(value))
    return (bits >> 16) | 0x40;
  return (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
}

float llmopt::cpu::test::fromBf16(uint16_t bits) {
  uint32_t wide = uint32_t(bits) << 16;
  float value;
  std::memcpy(&value, &wide, 4);
  return value;
}

uint16_t llmopt::cpu::test::toF16(float value) {
  _Float16 half = static_cast<_Float16>(value);
  uint16_t bits;
  std::memcpy(&bits, &half, 2);
  return bits;
}

float llmopt::cpu::test::fromF16(uint16_t bits) {
  _Float16 half;
  std::memcpy(&half, &bits, 2);
  return half;
}

double llmopt::cpu::test::ulps(float got, double wanted) {
  float rounded = float(wanted);
  if (std::isnan(wanted))
    return std::isnan(got) ? 0 : INFINITY;
  if (std::isinf(rounded) || std::isinf(got))
    return got == rounded ? 0 : INFINITY;
  double step = std::nextafter(std::fabs(rounded), INFINITY) - std::fabs(double(rounded));
  return std::fabs(got - wanted) / std::max(step, 1.401298464e-45);
}
