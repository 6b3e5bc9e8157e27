# Build rules shared by all folders.

set(LLMOPT_WARNINGS -Wall -Wextra -Werror -Wno-unused-parameter)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # g++ 12 reports false positives of these inside the standard library.
  list(APPEND LLMOPT_WARNINGS -Wno-maybe-uninitialized -Wno-restrict
              -Wno-dangling-pointer -Wno-array-bounds -Wno-stringop-overflow
              -Wno-uninitialized)
  # GoogleTest's macros hold an if with an else; clang's pragmas are clang's.
  list(APPEND LLMOPT_WARNINGS -Wno-dangling-else -Wno-unknown-pragmas)
endif()

include(Precompile)

# llmopt_library(NAME [MLIR] [DEPENDS target...] [LINK library...] [EXCLUDE regex])
# A static library of all .cpp files of the current folder (subfolders have a
# CMakeLists.txt of their own). MLIR adds MLIR's headers, definitions and libraries.
function(llmopt_library name)
  cmake_parse_arguments(ARG "MLIR;RECURSE" "EXCLUDE" "DEPENDS;LINK" ${ARGN})
  if(ARG_RECURSE)
    file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cpp)
  else()
    file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cpp)
  endif()
  if(ARG_EXCLUDE)
    list(FILTER sources EXCLUDE REGEX "${ARG_EXCLUDE}")
  endif()
  add_library(${name} STATIC ${sources})
  target_compile_options(${name} PRIVATE ${LLMOPT_WARNINGS})
  target_link_libraries(${name} PUBLIC ${ARG_LINK})
  if(ARG_MLIR)
    llmopt_use_mlir(${name})
    llmopt_precompiled(${name} MLIR)
  else()
    llmopt_precompiled(${name})
  endif()
  if(ARG_DEPENDS)
    add_dependencies(${name} ${ARG_DEPENDS})
  endif()
endfunction()

function(llmopt_use_mlir target)
  target_include_directories(${target} SYSTEM PUBLIC ${LLVM_INCLUDE_DIRS} ${MLIR_INCLUDE_DIRS})
  target_compile_definitions(${target} PUBLIC ${LLVM_DEFINITIONS_LIST})
endfunction()

# llmopt_executable(NAME [MLIR] SOURCES file... [LINK library...])
function(llmopt_executable name)
  cmake_parse_arguments(ARG "MLIR" "" "SOURCES;LINK" ${ARGN})
  set(kind "")
  if(ARG_LINK MATCHES "GTest::")
    list(APPEND kind TESTS)
  endif()
  if(ARG_MLIR)
    list(APPEND kind MLIR)
    if(ARG_LINK MATCHES "CLI11::")
      list(APPEND kind COMMANDS)
    endif()
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_compile_options(${name} PRIVATE ${LLMOPT_WARNINGS})
  target_link_libraries(${name} PRIVATE ${ARG_LINK})
  if(ARG_SOURCES MATCHES "\\.cpp")
    llmopt_precompiled(${name} ${kind})
  endif()
  if(ARG_MLIR)
    llmopt_use_mlir(${name})
    llmopt_link_mlir(${name})
  endif()
endfunction()

# Link MLIR and LLVM into an executable: both shared libraries, or, with
# LLMOPT_STATIC, the static archives.
function(llmopt_link_mlir target)
  if(NOT LLMOPT_STATIC)
    target_link_libraries(${target} PRIVATE MLIR LLVM)
    return()
  endif()
  # Debian's exported static MLIR targets name the shared LLVM (and a few the shared
  # MLIR): take both out of every interface, else two copies of MLIR meet.
  get_property(all GLOBAL PROPERTY MLIR_ALL_LIBS)
  set(archives "")
  foreach(library ${all})
    if(NOT TARGET ${library})
      continue()
    endif()
    get_target_property(type ${library} TYPE)
    if(type STREQUAL "STATIC_LIBRARY")
      list(APPEND archives ${library})
    endif()
    get_target_property(interface ${library} INTERFACE_LINK_LIBRARIES)
    if(interface)
      list(FILTER interface EXCLUDE REGEX "^(LLVM|MLIR)$|LINK_ONLY:(LLVM|MLIR)>|Shared$|runner_utils|_runtime$|_stubs$|float16_utils|apfloat_wrappers")
      set_property(TARGET ${library} PROPERTY INTERFACE_LINK_LIBRARIES "${interface}")
    endif()
  endforeach()
  # AMDGPU, NVPTX and SPIRV: what registering all dialects (llm-opt opt) refers to.
  llvm_map_components_to_libnames(components Core Support BitReader BitWriter AsmParser
    Remarks FrontendOpenMP TransformUtils ipo Passes OrcJIT JITLink
    X86CodeGen X86AsmParser X86Desc X86Info AMDGPUCodeGen AMDGPUAsmParser AMDGPUDesc AMDGPUInfo
    NVPTXCodeGen NVPTXDesc NVPTXInfo SPIRVCodeGen SPIRVDesc SPIRVInfo)
  target_link_libraries(${target} PRIVATE ${archives} ${components})
  target_link_options(${target} PRIVATE -Wl,--gc-sections -fuse-ld=lld -s)
endfunction()

# llmopt_tablegen(TARGET td-file [-gen... output]...): run mlir-tblgen, one output each.
macro(llmopt_tablegen target td)
  set(LLVM_TARGET_DEFINITIONS ${td})
  set(arguments ${ARGN})
  while(arguments)
    list(POP_FRONT arguments output)
    list(POP_FRONT arguments generator)
    separate_arguments(generator)
    mlir_tablegen(${output} ${generator} -I${CMAKE_SOURCE_DIR} -I${MLIR_INCLUDE_DIRS})
  endwhile()
  add_public_tablegen_target(${target})
endmacro()
