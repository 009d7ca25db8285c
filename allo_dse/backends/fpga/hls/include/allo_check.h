// Whether a tensor is what it should be, element by element as they lie in files: lowest byte first, bits above an
// element's width zero. Part of every project; for the test bench and the host program, not for synthesis.
#ifndef ALLO_CHECK_H
#define ALLO_CHECK_H

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace allo_check {

// A tensor of the kernel's, as its file has it. `kind`: 'i' signed, 'u' unsigned, 'f' floating point, 'b' bfloat16.
// Floating-point elements may differ: the tools may add in another order. Each by its limit, or without limits by
// `tolerance` times the root mean square of the golden ones; the root mean square of all differences by `tolerance_rms`
// times that.
struct tensor {
  const char *name;
  char kind;
  int bits, bytes;
  long count;
  double tolerance, tolerance_rms;
  const long *shape;
  int dims;
};

inline double half_value(unsigned h) {
  const int exponent = (h >> 10) & 31, fraction = h & 1023;
  const double sign = h & 0x8000 ? -1 : 1;
  if (exponent == 31) return fraction ? NAN : sign * INFINITY;
  return sign * (exponent ? std::ldexp(1024 + fraction, exponent - 25) : std::ldexp(fraction, -24));
}

inline double number(const tensor &t, const unsigned char *at) {
  uint64_t word = 0;
  for (int i = 0; i < t.bytes && i < 8; i++) word |= uint64_t(at[i]) << (8 * i);
  if (t.kind == 'f' && t.bytes == 2) return half_value(unsigned(word));
  if (t.kind == 'f' && t.bytes == 8) {
    double value;
    memcpy(&value, &word, sizeof value);
    return value;
  }
  if (t.kind == 'f' || t.kind == 'b') {
    const uint32_t low = uint32_t(t.kind == 'b' ? word << 16 : word);
    float value;
    memcpy(&value, &low, sizeof value);
    return value;
  }
  const int unused = t.bits < 64 ? 64 - t.bits : 0;
  return t.kind == 'i' ? double(int64_t(word << unused) >> unused) : double(word);
}

inline bool agree(const tensor &t, const unsigned char *a, const unsigned char *b, double allowed) {
  if (memcmp(a, b, t.bytes) == 0) return true;
  if (t.kind != 'f' && t.kind != 'b') return false;
  const double x = number(t, a), y = number(t, b);
  return x == y || std::fabs(x - y) <= allowed || (x != x && y != y);
}

inline void print_element(FILE *to, const tensor &t, const unsigned char *at) {
  if (t.bytes <= 8) {
    fprintf(to, "%.9g", number(t, at));
    return;
  }
  fprintf(to, "0x");
  for (int i = t.bytes - 1; i >= 0; i--) fprintf(to, "%02x", at[i]);
}

inline void print_index(FILE *to, const tensor &t, long element) {
  long rest = t.count;
  fprintf(to, "%s[", t.name);
  for (int axis = 0; axis < t.dims; axis++) {
    rest /= t.shape[axis];
    fprintf(to, axis ? ", %ld" : "%ld", element / rest % t.shape[axis]);
  }
  fprintf(to, "]");
}

// The largest allowed difference of each element, of which DIRECTORY/limits has a file; null without one.
inline float *read_limits(const char *directory, const tensor &t) {
  char path[4096];
  snprintf(path, sizeof path, "%s/limits/%s.bin", directory, t.name);
  FILE *file = fopen(path, "rb");
  if (!file) return nullptr;
  float *limits = new float[t.count];
  if (fread(limits, sizeof *limits, t.count, file) != (size_t)t.count) {
    fprintf(stderr, "%s is shorter than %ld numbers\n", path, t.count);
    exit(2);
  }
  fclose(file);
  return limits;
}

// How many elements differ, all if it is their root mean square; the first one is printed.
inline long differences(const tensor &t, const unsigned char *found, const unsigned char *golden, const float *limits) {
  double golden_squares = 0, error_squares = 0, largest_error = 0;
  long finite = 0, largest_at = 0;
  for (long i = 0; t.tolerance > 0 && i < t.count; i++) {
    const double wanted = number(t, golden + i * t.bytes), error = std::fabs(number(t, found + i * t.bytes) - wanted);
    if (!(std::fabs(wanted) <= 1.7e308) || !(error <= 1.7e308)) continue;
    golden_squares += wanted * wanted;
    error_squares += error * error;
    if (error > largest_error) largest_error = error, largest_at = i;
    finite++;
  }
  const double scale = finite ? std::sqrt(golden_squares / finite) : 0, off = finite ? std::sqrt(error_squares / finite) : 0;
  const auto allowed = [&](long i) { return limits ? limits[i] : t.tolerance * scale; };
  if (scale > 0) {
    printf("%s: largest difference %.3g at element %ld, tolerance %.3g; root mean square %.3g, tolerance %.3g\n", t.name,
           largest_error, largest_at, allowed(largest_at), off, t.tolerance_rms * scale);
  }
  long wrong = 0;
  for (long i = 0; i < t.count; i++) {
    if (agree(t, found + i * t.bytes, golden + i * t.bytes, allowed(i))) continue;
    if (wrong++) continue;
    fprintf(stderr, "first difference: ");
    print_index(stderr, t, i);
    fprintf(stderr, " is ");
    print_element(stderr, t, found + i * t.bytes);
    fprintf(stderr, ", should be ");
    print_element(stderr, t, golden + i * t.bytes);
    fprintf(stderr, "\n");
  }
  if (wrong) fprintf(stderr, "%s: %ld of %ld elements differ\n", t.name, wrong, t.count);
  if (!wrong && off > t.tolerance_rms * scale) {
    fprintf(stderr, "%s: the root mean square of differences is %.3g\n", t.name, off);
    wrong = t.count;
  }
  return wrong;
}

}  // namespace allo_check

#endif
