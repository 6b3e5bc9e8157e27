# Headers of other projects are parsed once instead of in each file: MLIR's are most of
# the time of a file that uses them. Only headers of others are in here, so that each file of
# ours still says what it uses of ours; a build with LLMOPT_PCH=OFF proves the same of theirs.
#
# clang alone: it takes files with other macros than the precompiled ones were parsed with.
option(LLMOPT_PCH "Precompile the headers of MLIR, GoogleTest and the standard library" ON)
if(NOT CMAKE_CXX_COMPILER_ID MATCHES Clang)
  set(LLMOPT_PCH OFF)
endif()

set(LLMOPT_PCH_STANDARD <algorithm> <array> <cmath> <cstdint> <cstring> <functional> <limits> <map>
  <memory> <optional> <span> <string> <string_view> <unordered_map> <utility> <vector> <fmt/format.h>)
set(LLMOPT_PCH_TESTS <gtest/gtest.h> <random> <set> <fstream>)
set(LLMOPT_PCH_COMMANDS <CLI/CLI.hpp> <nlohmann/json.hpp>)
set(LLMOPT_PCH_MLIR <llvm/ADT/TypeSwitch.h> <mlir/Dialect/Arith/IR/Arith.h>
  <mlir/Dialect/Func/IR/FuncOps.h> <mlir/Dialect/LLVMIR/LLVMDialect.h> <mlir/Dialect/Math/IR/Math.h>
  <mlir/Dialect/MemRef/IR/MemRef.h> <mlir/Dialect/SCF/IR/SCF.h> <mlir/Dialect/Vector/IR/VectorOps.h>
  <mlir/IR/DialectImplementation.h> <mlir/IR/PatternMatch.h> <mlir/Parser/Parser.h>
  <mlir/Pass/Pass.h> <mlir/Transforms/DialectConversion.h>)

if(LLMOPT_PCH)
  # One set for libraries and programs: code for either may be placed anywhere.
  set(CMAKE_CXX_COMPILE_OPTIONS_PIE ${CMAKE_CXX_COMPILE_OPTIONS_PIC})
  file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/pch/empty.cpp CONTENT "")
endif()

# llmopt_precompiled(TARGET [MLIR] [TESTS] [COMMANDS]): the target uses the set of that kind.
function(llmopt_precompiled target)
  cmake_parse_arguments(ARG "MLIR;TESTS;COMMANDS" "" "" ${ARGN})
  if(NOT LLMOPT_PCH)
    return()
  endif()
  set(set llmopt-pch)
  set(headers ${LLMOPT_PCH_STANDARD})
  foreach(part TESTS COMMANDS MLIR)
    if(ARG_${part})
      string(TOLOWER ${set}-${part} set)
      list(APPEND headers ${LLMOPT_PCH_${part}})
    endif()
  endforeach()
  if(NOT TARGET ${set})
    add_library(${set} OBJECT ${CMAKE_BINARY_DIR}/pch/empty.cpp)
    # For ccache: the same headers give the same file.
    target_compile_options(${set} PRIVATE "SHELL:-Xclang -fno-pch-timestamp")
    target_link_libraries(${set} PRIVATE fmt::fmt $<$<BOOL:${ARG_TESTS}>:GTest::gtest>)
    target_precompile_headers(${set} PRIVATE ${headers})
    if(ARG_MLIR)
      llmopt_use_mlir(${set})
    endif()
  endif()
  target_precompile_headers(${target} REUSE_FROM ${set})
endfunction()
