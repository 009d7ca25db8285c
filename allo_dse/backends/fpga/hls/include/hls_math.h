// hls:: mathematical functions for C simulation without the vendor's tool: those of the C++ library.
#ifndef ALLO_CSIM_HLS_MATH_H
#define ALLO_CSIM_HLS_MATH_H

#include <cmath>

#include "hls_half.h"

namespace hls {

#define ALLO_MATH_UNARY(NAME)                               \
  inline float NAME(float x) { return std::NAME(x); }       \
  inline double NAME(double x) { return std::NAME(x); }     \
  inline half NAME(half x) { return half(std::NAME(float(x))); }
ALLO_MATH_UNARY(exp) ALLO_MATH_UNARY(exp2) ALLO_MATH_UNARY(expm1) ALLO_MATH_UNARY(log) ALLO_MATH_UNARY(log2)
ALLO_MATH_UNARY(log10) ALLO_MATH_UNARY(log1p) ALLO_MATH_UNARY(sqrt) ALLO_MATH_UNARY(cbrt) ALLO_MATH_UNARY(sin)
ALLO_MATH_UNARY(cos) ALLO_MATH_UNARY(tan) ALLO_MATH_UNARY(asin) ALLO_MATH_UNARY(acos) ALLO_MATH_UNARY(atan)
ALLO_MATH_UNARY(sinh) ALLO_MATH_UNARY(cosh) ALLO_MATH_UNARY(tanh) ALLO_MATH_UNARY(erf) ALLO_MATH_UNARY(fabs)
ALLO_MATH_UNARY(floor) ALLO_MATH_UNARY(ceil) ALLO_MATH_UNARY(round) ALLO_MATH_UNARY(rint) ALLO_MATH_UNARY(trunc)
#undef ALLO_MATH_UNARY

#define ALLO_MATH_BINARY(NAME)                                                     \
  inline float NAME(float x, float y) { return std::NAME(x, y); }                  \
  inline double NAME(double x, double y) { return std::NAME(x, y); }               \
  inline half NAME(half x, half y) { return half(std::NAME(float(x), float(y))); }
ALLO_MATH_BINARY(pow) ALLO_MATH_BINARY(atan2) ALLO_MATH_BINARY(fmod) ALLO_MATH_BINARY(fmax) ALLO_MATH_BINARY(fmin)
ALLO_MATH_BINARY(copysign)
#undef ALLO_MATH_BINARY

inline float ldexp(float x, int n) { return std::ldexp(x, n); }
inline double ldexp(double x, int n) { return std::ldexp(x, n); }
inline float rsqrt(float x) { return 1 / std::sqrt(x); }
inline double rsqrt(double x) { return 1 / std::sqrt(x); }
inline half rsqrt(half x) { return half(1 / std::sqrt(float(x))); }
inline float fma(float x, float y, float z) { return std::fma(x, y, z); }
inline double fma(double x, double y, double z) { return std::fma(x, y, z); }
inline half fma(half x, half y, half z) { return half(double(float(x)) * double(float(y)) + double(float(z))); }

}  // namespace hls

#endif
