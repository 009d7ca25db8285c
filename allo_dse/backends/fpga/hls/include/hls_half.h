// half (IEEE binary16) for C simulation without the vendor's tool: computed in float, every result rounded to nearest
// even, as the hardware operators do (UG1399, "Half-Precision Floating-Point Data Types").
#ifndef ALLO_CSIM_HLS_HALF_H
#define ALLO_CSIM_HLS_HALF_H

#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

struct half {
  uint16_t bits;

  half() = default;
  template <typename T, typename std::enable_if<std::is_arithmetic<T>::value, int>::type = 0>
  half(T value) : bits(rounded(double(value))) {}
  operator float() const { return widened(bits); }

  template <typename T> half &operator+=(T other) { return *this = half(float(*this) + float(other)); }
  template <typename T> half &operator-=(T other) { return *this = half(float(*this) - float(other)); }
  template <typename T> half &operator*=(T other) { return *this = half(float(*this) * float(other)); }
  template <typename T> half &operator/=(T other) { return *this = half(float(*this) / float(other)); }

  static uint16_t rounded(double value) {
    const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
    if (value != value) return uint16_t(sign | 0x7e00);
    double magnitude = std::fabs(value);
    if (magnitude >= 65520.0) return uint16_t(sign | 0x7c00);
    int exponent;
    std::frexp(magnitude, &exponent);  // magnitude = m * 2^exponent, 0.5 <= m < 1
    if (magnitude == 0) return sign;
    const int step = exponent - 11 < -24 ? -24 : exponent - 11;  // the value of the last place is 2^step
    const double places = std::nearbyint(std::ldexp(magnitude, -step));
    if (step == -24) return uint16_t(sign | uint16_t(places));
    return uint16_t(sign | (uint16_t(step + 24) * 1024 + uint16_t(places)));
  }
  static float widened(uint16_t bits) {
    const int exponent = (bits >> 10) & 31, fraction = bits & 1023;
    float value;
    if (exponent == 31)
      value = fraction ? NAN : INFINITY;
    else if (exponent == 0)
      value = std::ldexp(float(fraction), -24);
    else
      value = std::ldexp(float(1024 + fraction), exponent - 25);
    return bits & 0x8000 ? -value : value;
  }
};

#define ALLO_HALF_OPERATOR(OP) \
  inline half operator OP(half a, half b) { return half(float(a) OP float(b)); }
ALLO_HALF_OPERATOR(+) ALLO_HALF_OPERATOR(-) ALLO_HALF_OPERATOR(*) ALLO_HALF_OPERATOR(/)
#undef ALLO_HALF_OPERATOR
inline half operator-(half a) {
  a.bits ^= 0x8000;
  return a;
}

#endif
