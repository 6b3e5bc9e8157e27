# MLIR 22. `find_package(MLIR 22)` refuses 22.1 (its version file wants an exact
# minor), so the major version is checked by hand.
find_package(MLIR REQUIRED CONFIG HINTS /usr/lib/llvm-22/lib/cmake/mlir)
if(NOT LLVM_VERSION_MAJOR EQUAL 22)
  message(FATAL_ERROR "llm-opt needs MLIR 22, found ${LLVM_PACKAGE_VERSION} in "
                      "${MLIR_DIR}; install libmlir-22-dev or set MLIR_DIR")
endif()
set(LLVM_RUNTIME_OUTPUT_INTDIR ${CMAKE_RUNTIME_OUTPUT_DIRECTORY})
set(LLVM_LIBRARY_OUTPUT_INTDIR ${CMAKE_LIBRARY_OUTPUT_DIRECTORY})
list(APPEND CMAKE_MODULE_PATH ${MLIR_CMAKE_DIR} ${LLVM_CMAKE_DIR} ${CMAKE_SOURCE_DIR}/tools/cmake)
include(TableGen)
include(AddLLVM)
include(AddMLIR)
separate_arguments(LLVM_DEFINITIONS_LIST NATIVE_COMMAND ${LLVM_DEFINITIONS})
