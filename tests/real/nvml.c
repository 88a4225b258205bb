/* libnvidia-ml.so.1 of a GB10 without a GPU: compiled into the machines of tests/real, read there by the probe's own NVML
   binding. As on a GB10, memory figures are not supported. Figures stand in /run/gb10, one a line: "sm 96",
   "power_mw 15000", "clock_mhz 2405", "temperature 52", "process PID BYTES NAME", or "fail CODE", an NVML error that
   every question then ends with. Without that file it idles. A process that has ended holds nothing. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

typedef struct { unsigned pid; unsigned long long used_bytes; unsigned gpu_instance, compute_instance; } Process;
enum { NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, MOST = 64 };
static struct { unsigned sm, power_mw, clock_mhz, temperature, count; int fail; Process list[MOST]; char names[MOST][64]; } now;

static int look(void) {
  memset(&now, 0, sizeof now);
  now.power_mw = 4200, now.clock_mhz = 208, now.temperature = 41;
  FILE *file = fopen("/run/gb10", "r");
  if (!file) return 0;
  for (char line[256]; fgets(line, sizeof line, file);) {
    Process one = {0, 0, ~0u, ~0u};
    char name[64] = "";
    if (now.count < MOST && sscanf(line, "process %u %llu %63s", &one.pid, &one.used_bytes, name) >= 2) {
      char folder[32];
      snprintf(folder, sizeof folder, "/proc/%u", one.pid);
      if (access(folder, F_OK)) continue;
      strcpy(now.names[now.count], name);
      now.list[now.count++] = one;
    }
    sscanf(line, "sm %u", &now.sm), sscanf(line, "power_mw %u", &now.power_mw), sscanf(line, "fail %d", &now.fail);
    sscanf(line, "clock_mhz %u", &now.clock_mhz), sscanf(line, "temperature %u", &now.temperature);
  }
  fclose(file);
  return now.fail;
}

static int text(char *to, unsigned size, const char *said) { snprintf(to, size, "%s", said); return look(); }
#define FIGURE(name, from, ...) int name(__VA_ARGS__ unsigned *value) { int failed = look(); *value = from; return failed; }

int nvmlInitWithFlags(unsigned flags) { return 0; }
int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }
const char *nvmlErrorString(int code) { return code ? "error" : "success"; }
int nvmlSystemGetDriverVersion(char *to, unsigned size) { return text(to, size, "580.95.05"); }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 1; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) { *device = &now; return 0; }
int nvmlDeviceGetName(void *device, char *to, unsigned size) { return text(to, size, "NVIDIA GB10"); }
int nvmlDeviceGetUUID(void *device, char *to, unsigned size) { return text(to, size, "GPU-00000000-0000-0000-0000-000000000000"); }
FIGURE(nvmlDeviceGetMaxClockInfo, 3003, void *device, int kind,)
FIGURE(nvmlDeviceGetClockInfo, now.clock_mhz, void *device, int kind,)
FIGURE(nvmlDeviceGetPowerUsage, now.power_mw, void *device,)
FIGURE(nvmlDeviceGetTemperature, now.temperature, void *device, int sensor,)
FIGURE(nvmlDeviceGetPerformanceState, now.sm ? 0 : 8, void *device,)
int nvmlDeviceGetCurrentClocksEventReasons(void *device, unsigned long long *mask) { *mask = 1; return look(); }
int nvmlDeviceGetUtilizationRates(void *device, unsigned *rates) { int failed = look(); rates[0] = now.sm, rates[1] = 0; return failed; }
int nvmlDeviceGetMemoryInfo(void *device, void *memory) { return NOT_SUPPORTED; }
int nvmlDeviceGetGraphicsRunningProcesses_v3(void *device, unsigned *count, Process *list) { *count = 0; return look(); }
int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, Process *list) {
  int failed = look(), is_small = *count < now.count;
  *count = now.count;
  if (failed || is_small) return failed ? failed : INSUFFICIENT_SIZE;
  if (list) memcpy(list, now.list, now.count * sizeof *list);
  return 0;
}
int nvmlSystemGetProcessName(unsigned pid, char *to, unsigned size) {
  int failed = look();
  for (unsigned at = 0; at < now.count; at++)
    if (now.list[at].pid == pid) { snprintf(to, size, "%s", now.names[at]); return failed; }
  return NOT_FOUND;
}
