/* A stand-in for an emulator's interposer: paths of AMD's kernel driver are answered from a folder,
   and the first call of NVIDIA's driver by a function of this file. It is no device. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char *redirected(const char *path, char *space) {
  static const char *const ours[] = {"/dev/kfd", "/sys/class/kfd", "/sys/module/amdgpu", 0};
  const char *root = getenv("STAND_IN_ROOT");
  if (!root || !path) return path;
  int whole = !strcmp(path, "/dev");
  for (int i = 0; ours[i]; i++) whole |= !strncmp(path, ours[i], strlen(ours[i]));
  if (!whole) return path;
  snprintf(space, 4096, "%s%s", root, path);
  return space;
}

#define NEXT(name) __typeof__(&name) next = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

#ifdef ANSWERS_FILES
typedef int (*open_type)(const char *, int, ...);
static int opened(const char *name, const char *path, int flags, int mode) {
  char space[4096];
  open_type next = (open_type)dlsym(RTLD_NEXT, name);
  return next(redirected(path, space), flags, mode);
}
int open(const char *path, int flags, ...) {
  va_list l; va_start(l, flags); int mode = va_arg(l, int); va_end(l);
  return opened("open", path, flags, mode);
}
int open64(const char *path, int flags, ...) {
  va_list l; va_start(l, flags); int mode = va_arg(l, int); va_end(l);
  return opened("open64", path, flags, mode);
}
DIR *opendir(const char *path) {
  char space[4096];
  NEXT(opendir);
  return next(redirected(path, space));
}
int stat(const char *path, struct stat *to) {
  char space[4096];
  NEXT(stat);
  return next(redirected(path, space), to);
}
int stat64(const char *path, struct stat64 *to) {
  char space[4096];
  NEXT(stat64);
  return next(redirected(path, space), to);
}
int access(const char *path, int mode) {
  char space[4096];
  NEXT(access);
  return next(redirected(path, space), mode);
}
#endif

#ifdef ANSWERS_THE_DRIVER
int cuInit(unsigned flags) { return (int)flags; }
#endif
