/* Stand-ins for AMD's emulator and for what of HIP meets it; nothing is emulated. The interposer
   logs a dispatch as the plug-in `race` does, if its configuration lists that plug-in. HIP "computes"
   the canary kernel on the host, and only where the interposer is in the process. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef INTERPOSER
int stand_in_dispatch(const char *name) {
  static char config[1 << 16];
  char path[4096];
  const char *folder = getenv("ROCJITSU_INVOCATION_DIR");
  if (!folder) return 100;
  snprintf(path, sizeof path, "%s/config_path", folder);
  FILE *file = fopen(path, "r");
  if (!file || !fgets(path, sizeof path, file)) return 100;
  fclose(file);
  path[strcspn(path, "\n")] = 0;
  if (!(file = fopen(path, "r"))) return 100;
  config[fread(config, 1, sizeof config - 1, file)] = 0;
  fclose(file);
  const char *fault = getenv("STAND_IN_FAULT");
  if (fault && !strcmp(fault, "silent")) return 0;
  if (fault && !strcmp(fault, "unnamed")) name = "?";
  if (strstr(config, "\"race\""))
    fprintf(stderr, "[rocjitsu] Kernel dispatch: \"%s\" symbol=\"%s\"\n", name, name);
  if (fault && !strcmp(fault, "race"))
    fprintf(stderr, "RACE kernel=%s symbol=%s dispatch=3 type=LDS\nEND_RACE\n", name, name);
  return 0;
}
#endif

#ifdef HIPRTC
static char source[4096];
int hiprtcCreateProgram(void **p, const char *s, const char *n, int c, void *h, void *i) {
  snprintf(source, sizeof source, "%s", s);
  *p = source;
  return 0;
}
int hiprtcCompileProgram(void *p, int n, void *o) { return 0; }
int hiprtcGetCodeSize(void *p, size_t *n) { *n = sizeof source; return 0; }
int hiprtcGetCode(void *p, char *to) { memcpy(to, source, sizeof source); return 0; }
#endif

#ifdef HIP
__attribute__((weak)) int stand_in_dispatch(const char *name);
static char kernel[256];
int hipLaunched(const char *name) { return stand_in_dispatch ? stand_in_dispatch(name) : 100; }
int hipModuleLoadData(void **m, const void *code) { *m = (void *)code; return !stand_in_dispatch * 100; }
int hipModuleGetFunction(void **f, void *m, const char *name) {
  snprintf(kernel, sizeof kernel, "%s", name);
  *f = kernel;
  return strstr(m, name) ? 0 : 500;
}
int hipMalloc(void **p, size_t n) { *p = malloc(n); return 0; }
int hipDeviceSynchronize(void) { return 0; }
int hipMemcpy(void *to, const void *from, size_t n, int kind) { memcpy(to, from, n); return kind != 2; }
int hipModuleLaunchKernel(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                          unsigned bz, unsigned shared, void *stream, void **values, void **extra) {
  const char *fault = getenv("STAND_IN_FAULT");
  unsigned *out = **(unsigned ***)values;
  for (unsigned i = 0; i < gx * bx; i++) out[i] = i * 3 + 7;
  if (fault && !strcmp(fault, "wrong")) out[0] = 0;
  return hipLaunched(f);
}
#endif
