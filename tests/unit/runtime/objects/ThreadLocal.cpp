// An object that the ELF loader must refuse.
extern "C" {
thread_local int perThread = 3;
int readPerThread() { return perThread; }
}
