// Stands for XRT's native C++ API where there is no card: buffers are memory of the host, and the one kernel that it
// knows is the C++ function of tests/backends/hls/programs.py's scaled_rows(A, B, bias).
// Not `#pragma once`: copies under several names are one file to it only if they were made within a second.
#ifndef XRT_STAND_IN_H
#define XRT_STAND_IN_H
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#define XCL_BO_SYNC_BO_TO_DEVICE 0
#define XCL_BO_SYNC_BO_FROM_DEVICE 1

extern "C" void scaled_rows(const int16_t *A, int32_t *B, int32_t bias);

namespace xrt {
struct device {
  explicit device(int) {}
  int load_xclbin(const char *) { return 0; }
};
struct kernel {
  kernel(device &, int, const std::string &) {}
  int group_id(int) { return 0; }
};
struct bo {
  std::vector<char> memory;
  bo(device &, size_t bytes, int) : memory(bytes) {}
  template <typename T> T map() { return reinterpret_cast<T>(memory.data()); }
  void sync(int) {}
};
struct run {
  void *arguments[8];
  int32_t value = 0;
  explicit run(kernel &) {}
  void set_arg(int position, bo &buffer) { arguments[position] = buffer.memory.data(); }
  void set_arg(int, const void *data, size_t bytes) { memcpy(&value, data, bytes); }
  void start() {}
  void wait() { scaled_rows((const int16_t *)arguments[0], (int32_t *)arguments[1], value); }
};
}  // namespace xrt
#endif
