// What generated kernels use beside the vendor's headers. Part of every project; for synthesis and for C simulation.
#ifndef ALLO_HLS_H
#define ALLO_HLS_H

#include <ap_axi_sdata.h>
#include <ap_fixed.h>
#include <ap_int.h>
#include <hls_half.h>
#include <hls_math.h>
#include <hls_stream.h>
#if __has_include(<hls_streamofblocks.h>)
#include <hls_streamofblocks.h>
#endif
#include <hls_vector.h>
#include <stdint.h>

#include <type_traits>

// A process of the dataflow region. For the vendor's compiler a plain call; in our C simulation a coroutine, so that
// processes can wait for each other in circles.
#ifdef ALLO_CSIM
#define ALLO_PROCESS(function, ...) allo_csim::spawn(#function, function, ##__VA_ARGS__)
#define ALLO_END_OF_DATAFLOW() allo_csim::join()
#define ALLO_MEMORY static  // too large for the stack
#else
#define ALLO_MEMORY
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
  constexpr bfloat16(uint16_t bits, int) : bits(bits) {}
  bfloat16(float value) {
    const uint32_t word = bit_cast<uint32_t>(value);
    const bool nan = (word & 0x7fffffff) > 0x7f800000;
    bits = nan ? uint16_t((word >> 16) | 64) : uint16_t((word + 0x7fff + ((word >> 16) & 1)) >> 16);
  }
  operator float() const { return bit_cast<float>(uint32_t(bits) << 16); }
};

// Words of AXI streams: the bits of elements, the first one lowest.
inline uint16_t bits_of(bfloat16 value) { return value.bits; }
inline uint32_t bits_of(float value) { return bit_cast<uint32_t>(value); }
inline uint64_t bits_of(double value) { return bit_cast<uint64_t>(value); }
template <typename T> typename std::enable_if<std::is_integral<T>::value, uint64_t>::type bits_of(T value) {
  return typename std::make_unsigned<T>::type(value);
}
inline void of_bits(uint64_t bits, bfloat16 &value) { value.bits = uint16_t(bits); }
inline void of_bits(uint64_t bits, float &value) { value = bit_cast<float>(uint32_t(bits)); }
inline void of_bits(uint64_t bits, double &value) { value = bit_cast<double>(bits); }
template <typename T> typename std::enable_if<std::is_integral<T>::value>::type of_bits(uint64_t bits, T &value) {
  value = T(bits);
}

template <int BITS>
void send_bits(hls::stream<ap_axiu<BITS, 0, 0, 0>> &to, const ap_uint<BITS> &bits, bool last = false) {
#pragma HLS inline
  ap_axiu<BITS, 0, 0, 0> beat;
  beat.data = bits;
  beat.keep = -1;
  beat.strb = -1;
  beat.last = last;
  to.write(beat);
}
template <int BITS, typename T>
void send(hls::stream<ap_axiu<BITS, 0, 0, 0>> &to, const T &word, bool last = false) {
#pragma HLS inline
  send_bits(to, ap_uint<BITS>(bits_of(word)), last);
}
template <int BITS, typename T, size_t N>
void send(hls::stream<ap_axiu<BITS, 0, 0, 0>> &to, const hls::vector<T, N> &word) {
#pragma HLS inline
  ap_uint<BITS> bits = 0;
  for (size_t lane = 0; lane < N; lane++) {
#pragma HLS unroll
    bits.range((lane + 1) * BITS / N - 1, lane * BITS / N) = bits_of(word[lane]);
  }
  send_bits(to, bits);
}
template <int BITS, typename T> void receive(hls::stream<ap_axiu<BITS, 0, 0, 0>> &from, T &word) {
#pragma HLS inline
  of_bits(from.read().data.to_uint64(), word);
}
template <int BITS, typename T, size_t N>
void receive(hls::stream<ap_axiu<BITS, 0, 0, 0>> &from, hls::vector<T, N> &word) {
#pragma HLS inline
  const ap_uint<BITS> bits = from.read().data;
  for (size_t lane = 0; lane < N; lane++) {
#pragma HLS unroll
    of_bits(ap_uint<BITS / N>(bits.range((lane + 1) * BITS / N - 1, lane * BITS / N)).to_uint(), word[lane]);
  }
}

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

// An integer of more than 64 bits as the nearest float or double. It is rounded once: below its 64 highest bits only
// matters whether any is set, so the lowest of these stands for all of them.
template <typename Float, int N> Float rounded(const ap_uint<N> &value) {
  ap_uint<N> high = value;
  bool below = false;
  int shift = 0;
  for (int bit = 64; bit < N; bit++) {
    if ((high >> 64) != 0) {
      below = below || high[0];
      high = high >> 1;
      shift++;
    }
  }
  return hls::ldexp(Float(high.to_uint64() | below), shift);
}
template <typename Float, int N> Float rounded(const ap_int<N> &value) {
  const bool minus = value < 0;
  const Float magnitude = rounded<Float>(minus ? ap_uint<N>(-value) : ap_uint<N>(value));
  return minus ? -magnitude : magnitude;
}

// The smaller and larger of two numbers; of floating-point numbers, NaN if either is.
template <typename T> T minimum(T a, T b) { return (a != a || a < b) ? a : b; }
template <typename T> T maximum(T a, T b) { return (a != a || a > b) ? a : b; }

}  // namespace allo

#endif
