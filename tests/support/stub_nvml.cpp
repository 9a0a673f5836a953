// An NVML that knows one GPU, "0000:3b:00.0", whose SM clock is 1755 MHz: power and heat hold it there.
#include <cstring>

extern "C" {
int nvmlInit_v2() { return 0; }
int nvmlDeviceGetHandleByPciBusId_v2(const char* bus_id, void** device) {
  static int gpu = 0;
  if (std::strcmp(bus_id, "0000:3b:00.0") != 0) return 6;  // not found
  *device = &gpu;
  return 0;
}
int nvmlDeviceGetClockInfo(void* device, int type, unsigned* mhz) {
  if (!device || type != 1) return 2;  // invalid argument; 1 is the SM's
  *mhz = 1755;
  return 0;
}
int nvmlDeviceGetUUID(void*, char* uuid, unsigned length) {
  std::strncpy(uuid, "GPU-0123", length);
  return 0;
}
int nvmlDeviceGetCurrentClocksThrottleReasons(void*, unsigned long long* reasons) {
  *reasons = 0x4 | 0x20;
  return 0;
}
}
