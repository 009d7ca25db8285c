// Fixed-point numbers for C simulation without the vendor's tool: ap_fixed<W, I, Q, O>, ap_ufixed<...>.
//
// Written from the documented behaviour (UG1399, "Arbitrary Precision Fixed-Point Data Types"): W bits in all, I of them
// before the point; sums, differences and products are exact; assignment rounds as Q says (default: towards minus
// infinity) and overflows as O says (default: wraps around).
#ifndef ALLO_CSIM_AP_FIXED_H
#define ALLO_CSIM_AP_FIXED_H

#include <cmath>

#include "ap_int.h"

enum ap_q_mode { AP_TRN, AP_TRN_ZERO, AP_RND, AP_RND_ZERO, AP_RND_INF, AP_RND_MIN_INF, AP_RND_CONV };
enum ap_o_mode { AP_WRAP, AP_SAT, AP_SAT_ZERO, AP_SAT_SYM };

template <int W, int I, bool S, ap_q_mode Q, ap_o_mode O> struct ap_fixed_base {
  static constexpr int width = W, iwidth = I, fraction = W - I;
  typedef typename allo_csim::choose<S, W>::type raw_type;
  raw_type raw;  // the value times 2^(W - I)

  ap_fixed_base() {}

  // Take `value` * 2^-places, rounding and handling overflow.
  template <int N> void assign(const ap_int<N> &value, int places) {
    constexpr int wide = N + (W > N ? W : N) + 72;
    ap_int<wide> exact = value;
    const int drop = places - fraction;
    if (drop <= 0) {
      exact.shift_left(-drop);
    } else {
      const bool half_bit = drop <= wide && exact.bit(drop - 1);
      bool rest = false;
      for (int i = 0; i < drop - 1; i++) rest |= exact.bit(i);
      const bool minus = exact.negative();
      exact.shift_right(drop);
      if (rounds_up(half_bit, rest, minus, exact.bit(0))) exact = exact + 1;
    }
    raw = exact;
    ap_int<wide> back = raw;
    if (O == AP_WRAP || back == exact) {
      if (O == AP_SAT_SYM && S && back == lowest<wide>()) raw = lowest<wide>() + 1;
      return;
    }
    const bool minus = exact.negative();
    if (O == AP_SAT_ZERO)
      raw = 0;
    else if (!minus)
      raw = highest<wide>();
    else
      raw = O == AP_SAT_SYM && S ? ap_int<wide>(lowest<wide>() + 1) : lowest<wide>();
  }
  static bool rounds_up(bool half_bit, bool rest, bool minus, bool odd) {
    switch (Q) {
    case AP_TRN: return false;
    case AP_TRN_ZERO: return minus && (half_bit || rest);
    case AP_RND: return half_bit;
    case AP_RND_ZERO: return half_bit && (rest || minus);
    case AP_RND_INF: return half_bit && (rest || !minus);
    case AP_RND_MIN_INF: return half_bit && rest;
    default: return half_bit && (rest || odd);
    }
  }
  template <int N> static ap_int<N> highest() {
    ap_int<N> one = 1;
    one.shift_left(S ? W - 1 : W);
    return one - 1;
  }
  template <int N> static ap_int<N> lowest() {
    if (!S) return 0;
    ap_int<N> one = 1;
    one.shift_left(W - 1);
    return -one;
  }
  void assign_double(double value) {
    ap_int<1100> whole;
    const double scaled = std::ldexp(value, 512 < fraction + 64 ? 512 : fraction + 64);
    whole.assign_double(scaled);
    assign(whole, 512 < fraction + 64 ? 512 : fraction + 64);
  }

  double to_double() const { return std::ldexp(raw.to_double(), -fraction); }
  float to_float() const { return float(to_double()); }
  int to_int() const { return int(std::trunc(to_double())); }
  operator double() const { return to_double(); }
  ap_range_ref<W, S> range(int high, int low) { return raw.range(high, low); }
  ap_uint<W> range(int high, int low) const { return raw.extract(high, low); }
  ap_range_ref<W, S> range() { return raw.range(); }
  ap_uint<W> range() const { return raw.extract(W - 1, 0); }
  bool operator[](int i) const { return raw.bit(i); }
  ap_bit_ref<W, S> operator[](int i) { return raw[i]; }
};

#define ALLO_FIXED_CLASS(NAME, S)                                                                           \
  template <int W, int I, ap_q_mode Q = AP_TRN, ap_o_mode O = AP_WRAP>                                      \
  struct NAME : ap_fixed_base<W, I, S, Q, O> {                                                              \
    NAME() {}                                                                                               \
    template <int V, int J, bool T, ap_q_mode P, ap_o_mode R>                                               \
    NAME(const ap_fixed_base<V, J, T, P, R> &other) {                                                       \
      this->assign(ap_int<V + 1>(other.raw), V - J);                                                        \
    }                                                                                                       \
    template <int N, bool T> NAME(const ap_int_base<N, T> &value) { this->assign(ap_int<N + 1>(value), 0); } \
    NAME(double value) { this->assign_double(value); }                                                      \
    NAME(float value) { this->assign_double(value); }                                                       \
    template <typename T, typename std::enable_if<allo_csim::native<T>::integral, int>::type = 0>           \
    NAME(T value) {                                                                                         \
      this->assign(ap_int<65>(value), 0);                                                                   \
    }                                                                                                       \
    template <typename T> NAME &operator+=(const T &other) { return *this = *this + NAME(other); }          \
    template <typename T> NAME &operator-=(const T &other) { return *this = *this - NAME(other); }          \
    template <typename T> NAME &operator*=(const T &other) { return *this = *this * NAME(other); }          \
  };
ALLO_FIXED_CLASS(ap_fixed, true)
ALLO_FIXED_CLASS(ap_ufixed, false)
#undef ALLO_FIXED_CLASS

namespace allo_csim {
template <int W, int I, bool S, int V, int J, bool T> struct fixed_results {
  static constexpr int fraction = larger(W - I, V - J);
  static constexpr int whole = larger(I + (T && !S), J + (S && !T)) + 1;
  static constexpr int wide = whole + fraction + 2;
  typedef ap_fixed<whole + fraction, whole> difference;
  typedef typename std::conditional<S || T, ap_fixed<whole + fraction, whole>, ap_ufixed<whole + fraction, whole>>::type sum;
  typedef typename std::conditional<S || T, ap_fixed<W + V, I + J>, ap_ufixed<W + V, I + J>>::type product;
  static constexpr int quotient_bits = W + (V - J > 0 ? V - J : 0) + (J > 0 ? J : 0) + T;
  typedef typename std::conditional<S || T, ap_fixed<quotient_bits, I + (V - J) + T>,
                                    ap_ufixed<quotient_bits, I + (V - J) + T>>::type quotient;
};
// A raw value with its point moved to `places` fraction bits.
template <int N, int W, int I, bool S, ap_q_mode Q, ap_o_mode O>
ap_int<N> aligned(const ap_fixed_base<W, I, S, Q, O> &a, int places) {
  ap_int<N> r = a.raw;
  r.shift_left(places - (W - I));
  return r;
}
}  // namespace allo_csim

#define ALLO_FIXED_TEMPLATE \
  template <int W, int I, bool S, ap_q_mode Q, ap_o_mode O, int V, int J, bool T, ap_q_mode P, ap_o_mode R>
#define ALLO_FIXED_OPERANDS const ap_fixed_base<W, I, S, Q, O> &a, const ap_fixed_base<V, J, T, P, R> &b
ALLO_FIXED_TEMPLATE
typename allo_csim::fixed_results<W, I, S, V, J, T>::sum operator+(ALLO_FIXED_OPERANDS) {
  typedef allo_csim::fixed_results<W, I, S, V, J, T> types;
  typename types::sum r;
  r.raw = allo_csim::aligned<types::wide>(a, types::fraction) + allo_csim::aligned<types::wide>(b, types::fraction);
  return r;
}
ALLO_FIXED_TEMPLATE
typename allo_csim::fixed_results<W, I, S, V, J, T>::difference operator-(ALLO_FIXED_OPERANDS) {
  typedef allo_csim::fixed_results<W, I, S, V, J, T> types;
  typename types::difference r;
  r.raw = allo_csim::aligned<types::wide>(a, types::fraction) - allo_csim::aligned<types::wide>(b, types::fraction);
  return r;
}
ALLO_FIXED_TEMPLATE
typename allo_csim::fixed_results<W, I, S, V, J, T>::product operator*(ALLO_FIXED_OPERANDS) {
  typename allo_csim::fixed_results<W, I, S, V, J, T>::product r;
  r.raw = a.raw * b.raw;
  return r;
}
ALLO_FIXED_TEMPLATE
typename allo_csim::fixed_results<W, I, S, V, J, T>::quotient operator/(ALLO_FIXED_OPERANDS) {
  typename allo_csim::fixed_results<W, I, S, V, J, T>::quotient r;
  ap_int<W + V + r.width + 4> dividend = a.raw;
  dividend.shift_left(r.fraction + (V - J) - (W - I));
  r.raw = dividend / b.raw;
  return r;
}
#define ALLO_FIXED_COMPARE(OP)                                                                             \
  ALLO_FIXED_TEMPLATE bool operator OP(ALLO_FIXED_OPERANDS) {                                              \
    typedef allo_csim::fixed_results<W, I, S, V, J, T> types;                                              \
    return allo_csim::aligned<types::wide>(a, types::fraction) OP allo_csim::aligned<types::wide>(b, types::fraction); \
  }
ALLO_FIXED_COMPARE(==) ALLO_FIXED_COMPARE(!=) ALLO_FIXED_COMPARE(<) ALLO_FIXED_COMPARE(<=) ALLO_FIXED_COMPARE(>)
ALLO_FIXED_COMPARE(>=)
#undef ALLO_FIXED_COMPARE
#undef ALLO_FIXED_TEMPLATE
#undef ALLO_FIXED_OPERANDS
template <int W, int I, bool S, ap_q_mode Q, ap_o_mode O>
ap_fixed<W + 1, I + 1> operator-(const ap_fixed_base<W, I, S, Q, O> &a) {
  ap_fixed<W + 1, I + 1> r;
  r.raw = -a.raw;
  return r;
}

#endif
