// A stand-in for NVRTC that does what environment variables say, for failures that a whole
// installation does not show: FAKE_NVRTC_RESULT (of a compile), FAKE_NVRTC_LOG.
#include <cstdlib>
#include <cstring>

namespace {

const char *variable(const char *name) {
  const char *value = std::getenv(name);
  return value ? value : "";
}

int give(const char *text, char *to) {
  std::strcpy(to, text);
  return 0;
}

const char *const kPtx = ".version 12.3\n.target sm_80\n";

} // namespace

extern "C" {
const char *nvrtcGetErrorString(int) { return "NVRTC_ERROR_FAKE"; }
int nvrtcVersion(int *major, int *minor) {
  *major = 12, *minor = 3;
  return 0;
}
int nvrtcGetNumSupportedArchs(int *count) {
  *count = 2;
  return 0;
}
int nvrtcGetSupportedArchs(int *archs) {
  archs[0] = 90, archs[1] = 80;
  return 0;
}
int nvrtcCreateProgram(void **program, const char *, const char *, int, const char *const *,
                       const char *const *) {
  *program = new int;
  return 0;
}
int nvrtcDestroyProgram(void **program) {
  delete static_cast<int *>(*program);
  return 0;
}
int nvrtcCompileProgram(void *, int, const char *const *) {
  return std::atoi(variable("FAKE_NVRTC_RESULT"));
}
int nvrtcGetProgramLogSize(void *, size_t *size) {
  *size = std::strlen(variable("FAKE_NVRTC_LOG")) + 1;
  return 0;
}
int nvrtcGetProgramLog(void *, char *log) { return give(variable("FAKE_NVRTC_LOG"), log); }
int nvrtcGetPTXSize(void *, size_t *size) {
  *size = std::strlen(kPtx) + 1;
  return 0;
}
int nvrtcGetPTX(void *, char *ptx) { return give(kPtx, ptx); }
int nvrtcGetCUBINSize(void *, size_t *size) {
  *size = 0;
  return 0;
}
int nvrtcGetCUBIN(void *, char *) { return 0; }
}
