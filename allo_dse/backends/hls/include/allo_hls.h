// What generated kernels use beside the vendor's headers. Part of every project; for synthesis and for C simulation.
#ifndef ALLO_HLS_H
#define ALLO_HLS_H

#include <ap_fixed.h>
#include <ap_int.h>
#include <hls_half.h>
#include <hls_math.h>
#include <hls_stream.h>
#include <hls_vector.h>
#include <stdint.h>

// A process of the dataflow region. For the vendor's compiler a plain call; in our C simulation a coroutine, so that
// processes can wait for each other in circles.
#ifdef ALLO_CSIM
#define ALLO_PROCESS(function, ...) allo_csim::spawn(#function, function, ##__VA_ARGS__)
#define ALLO_END_OF_DATAFLOW() allo_csim::join()
#else
#define ALLO_PROCESS(function, ...) function(__VA_ARGS__)
#define ALLO_END_OF_DATAFLOW()
#endif

namespace allo {

// The bits of one value as another type of the same size.
template <typename To, typename From> To bit_cast(const From &value) {
  static_assert(sizeof(To) == sizeof(From), "types of different size");
  union {
    From from;
    To to;
  } both;
  both.from = value;
  return both.to;
}

// Brain floating point: the upper half of a float. Every operation is done in float and rounded to nearest even.
struct bfloat16 {
  uint16_t bits;

  bfloat16() = default;
  bfloat16(float value) {
    const uint32_t word = bit_cast<uint32_t>(value);
    const bool nan = (word & 0x7fffffff) > 0x7f800000;
    bits = nan ? uint16_t((word >> 16) | 64) : uint16_t((word + 0x7fff + ((word >> 16) & 1)) >> 16);
  }
  operator float() const { return bit_cast<float>(uint32_t(bits) << 16); }
};

// What `a` is divided by: `b`, or in C simulation 1 where processors trap. Hardware gives some value and goes on.
template <typename T> T divisor(T a, T b) {
#ifdef ALLO_CSIM
  const T minus_a = T(0 - a);
  if (b == T(0) || (T(-1) < T(0) && b == T(-1) && a == minus_a)) return T(1);
#endif
  return b;
}

// Quotients of signed numbers that round down and up.
template <typename T> T floor_div(T a, T by) {
  const T b = divisor<T>(a, by), quotient = a / b;
  return (a % b != 0 && ((a < 0) != (b < 0))) ? T(quotient - 1) : quotient;
}
template <typename T> T ceil_div(T a, T by) {
  const T b = divisor<T>(a, by), quotient = a / b;
  return (a % b != 0 && ((a < 0) == (b < 0))) ? T(quotient + 1) : quotient;
}

// The smaller and larger of two numbers; of floating-point numbers, NaN if either is.
template <typename T> T minimum(T a, T b) { return (a != a || a < b) ? a : b; }
template <typename T> T maximum(T a, T b) { return (a != a || a > b) ? a : b; }

}  // namespace allo

#endif
