# cmake -DROOT=tree "-DFOLDERS=a;b" -DOUT=header -P CompilerVersion.cmake
# Writes a header with kCompilerVersion: SHA-256 over names and contents of all files of the
# folders. Equal trees give equal versions wherever they lie, with or without git.
cmake_minimum_required(VERSION 3.25)

set(lines "")
foreach(folder ${FOLDERS})
  file(GLOB_RECURSE files LIST_DIRECTORIES false RELATIVE ${ROOT} ${ROOT}/${folder}/*)
  list(SORT files)
  foreach(file ${files})
    file(SHA256 ${ROOT}/${file} hash)
    string(APPEND lines "${file} ${hash}\n")
  endforeach()
endforeach()
string(SHA256 version "${lines}")
file(CONFIGURE OUTPUT ${OUT} CONTENT "static constexpr const char *kCompilerVersion = \"@version@\";\n" @ONLY)
