// Arbitrary-width integers for C simulation without the vendor's tool: ap_int<N>, ap_uint<N>.
//
// Written from the documented behaviour (UG1399, "Arbitrary Precision (AP) Data Types"): results grow so that no bit is
// lost, assignment truncates, x(hi, lo) and x.range(hi, lo) are bit ranges, x[i] is one bit. Not for synthesis.
#ifndef ALLO_CSIM_AP_INT_H
#define ALLO_CSIM_AP_INT_H

#include <cstdint>
#include <type_traits>

template <int N> struct ap_int;
template <int N> struct ap_uint;
template <int N, bool S> struct ap_int_base;

namespace allo_csim {

constexpr int larger(int a, int b) { return a > b ? a : b; }
constexpr int smaller(int a, int b) { return a < b ? a : b; }

// Bits of the result: one more than the wider operand, where an unsigned operand beside a signed one counts one more.
constexpr int sum_bits(int n, bool s, int m, bool t) { return larger(n + (t && !s), m + (s && !t)) + 1; }
constexpr int logic_bits(int n, bool s, int m, bool t) { return larger(n + (t && !s), m + (s && !t)); }

template <typename T> struct native {
  static constexpr bool integral = std::is_integral<T>::value || std::is_enum<T>::value;
  static constexpr bool is_signed = std::is_signed<T>::value;
  static constexpr int bits = std::is_same<T, bool>::value ? 1 : 8 * sizeof(T);
};

// Bits of what a type holds: of our integers their width, of others their size.
template <typename T, typename = void> struct width_of { static constexpr int bits = 8 * sizeof(T); };
template <typename T> struct width_of<T, typename std::enable_if<(T::width > 0)>::type> {
  static constexpr int bits = T::width;
};

template <bool S, int N> struct choose { typedef ap_int<N> type; };
template <int N> struct choose<false, N> { typedef ap_uint<N> type; };

// What values of all widths have in common is compiled once, not for each width. A value is given by its words, how
// many there are and whether it is signed; what is written, by its words and its bits.
inline bool negative(const uint64_t *word, int words, bool s) { return s && (word[words - 1] >> 63); }
inline uint64_t fill(const uint64_t *word, int words, bool s) { return negative(word, words, s) ? ~uint64_t(0) : 0; }
// The i-th word of the value extended without end.
inline uint64_t extended(const uint64_t *word, int words, bool s, int i) {
  return i < words ? word[i] : fill(word, words, s);
}
inline void normalise(uint64_t *word, int bits, bool s) {
  const int last = (bits - 1) / 64, unused = 63 - (bits - 1) % 64;
  if (unused == 0) return;
  word[last] <<= unused;
  if (s)
    word[last] = uint64_t(int64_t(word[last]) >> unused);
  else
    word[last] >>= unused;
}
inline void assign(uint64_t *to, int bits, bool s, const uint64_t *from, int words, bool t) {
  for (int i = 0; i <= (bits - 1) / 64; i++) to[i] = extended(from, words, t, i);
  normalise(to, bits, s);
}
inline void assign_native(uint64_t *to, int bits, bool s, uint64_t value, bool is_negative) {
  to[0] = value;
  for (int i = 1; i <= (bits - 1) / 64; i++) to[i] = is_negative ? ~uint64_t(0) : 0;
  normalise(to, bits, s);
}
// -1, 0 or 1 for less, equal, greater, by value.
inline int order(const uint64_t *a, int n, bool s, const uint64_t *b, int m, bool t) {
  if (negative(a, n, s) != negative(b, m, t)) return negative(a, n, s) ? -1 : 1;
  for (int i = larger(n, m) - 1; i >= 0; i--) {
    const uint64_t x = extended(a, n, s, i), y = extended(b, m, t, i);
    if (x != y) return x < y ? -1 : 1;
  }
  return 0;
}

}  // namespace allo_csim

template <int N, bool S> struct ap_bit_ref {
  ap_int_base<N, S> &whole;
  int index;
  operator bool() const { return whole.bit(index); }
  bool to_bool() const { return whole.bit(index); }
  ap_bit_ref &operator=(bool value) {
    whole.set_bit(index, value);
    return *this;
  }
  ap_bit_ref &operator=(const ap_bit_ref &other) { return *this = bool(other); }
};

template <int N, bool S> struct ap_range_ref {
  ap_int_base<N, S> &whole;
  int high, low;
  ap_uint<N> get() const { return whole.extract(high, low); }
  operator ap_uint<N>() const { return get(); }
  // What makes `int16_t b = a(15, 0)` and `if (a(7, 4))` work, as with the vendor's types.
  operator uint64_t() const { return to_uint64(); }
  int length() const { return high - low + 1; }
  uint64_t to_uint64() const { return get().to_uint64(); }
  unsigned to_uint() const { return unsigned(to_uint64()); }
  int to_int() const { return int(to_uint64()); }
  template <typename T> ap_range_ref &operator=(const T &value) {
    whole.insert(high, low, ap_uint<N>(value));
    return *this;
  }
  ap_range_ref &operator=(const ap_range_ref &other) {
    whole.insert(high, low, ap_uint<N>(other.get()));
    return *this;
  }
};

// The value is kept sign- or zero-extended to whole 64-bit words, lowest word first.
template <int N, bool S> struct ap_int_base {
  static_assert(N >= 1 && N <= 8192, "widths are 1 to 8192 bits");
  static constexpr int width = N;
  static constexpr bool sign_flag = S;
  static constexpr int words = (N + 63) / 64;
  uint64_t word[words];  // what derives from this sets them

  bool negative() const { return allo_csim::negative(word, words, S); }
  void normalise() { allo_csim::normalise(word, N, S); }
  void assign_double(double value) {
    bool minus = value < 0;
    if (minus) value = -value;
    ap_uint<larger_width> whole;
    int exponent = 0;
    while (value >= 18446744073709551616.0 && exponent < N + 64) {
      value /= 2;
      exponent++;
    }
    whole.word[0] = uint64_t(value);
    whole.shift_left(exponent);
    if (minus) whole.negate();
    allo_csim::assign(word, N, S, whole.word, whole.words, false);
  }
  static constexpr int larger_width = N + 64;

  bool bit(int i) const { return (allo_csim::extended(word, words, S, i / 64) >> (i % 64)) & 1; }
  void set_bit(int i, bool value) {
    const uint64_t mask = uint64_t(1) << (i % 64);
    word[i / 64] = value ? word[i / 64] | mask : word[i / 64] & ~mask;
    normalise();
  }
  ap_uint<N> extract(int high, int low) const {
    ap_uint<N> result;
    for (int i = low; i <= high; i++)
      if (bit(i)) result.word[(i - low) / 64] |= uint64_t(1) << ((i - low) % 64);
    return result;
  }
  template <int M> void insert(int high, int low, const ap_uint<M> &value) {
    for (int i = low; i <= high; i++) {
      const uint64_t mask = uint64_t(1) << (i % 64);
      word[i / 64] = value.bit(i - low) ? word[i / 64] | mask : word[i / 64] & ~mask;
    }
    normalise();
  }

  void negate() {
    uint64_t carry = 1;
    for (int i = 0; i < words; i++) {
      word[i] = ~word[i] + carry;
      carry = carry && word[i] == 0;
    }
    normalise();
  }
  void shift_left(int by) {
    if (by < 0) return shift_right(-by);
    const int whole = by / 64, part = by % 64;
    for (int i = words - 1; i >= 0; i--) {
      const uint64_t here = i - whole >= 0 ? word[i - whole] : 0;
      const uint64_t below = i - whole - 1 >= 0 ? word[i - whole - 1] : 0;
      word[i] = part ? (here << part) | (below >> (64 - part)) : here;
    }
    normalise();
  }
  void shift_right(int by) {
    if (by < 0) return shift_left(-by);
    const int whole = by / 64, part = by % 64;
    const uint64_t top = allo_csim::fill(word, words, S);
    for (int i = 0; i < words; i++) {
      const uint64_t here = i + whole < words ? word[i + whole] : top;
      const uint64_t above = i + whole + 1 < words ? word[i + whole + 1] : top;
      word[i] = part ? (here >> part) | (above << (64 - part)) : here;
    }
    normalise();
  }

  // -- conversions --
  int64_t to_int64() const { return int64_t(word[0]); }
  uint64_t to_uint64() const { return word[0]; }
  int to_int() const { return int(word[0]); }
  unsigned to_uint() const { return unsigned(word[0]); }
  bool to_bool() const {
    for (int i = 0; i < words; i++)
      if (word[i]) return true;
    return false;
  }
  double to_double() const {
    typename allo_csim::choose<S, N + 1>::type magnitude = *this;
    const bool minus = negative();
    if (minus) magnitude.negate();
    double result = 0;
    for (int i = magnitude.words - 1; i >= 0; i--) result = result * 18446744073709551616.0 + double(magnitude.word[i]);
    return minus ? -result : result;
  }
  float to_float() const { return words == 1 ? (S ? float(int64_t(word[0])) : float(word[0])) : float(to_double()); }
  int length() const { return N; }

  // Shorter numbers than 65 bits turn into native ones wherever one is needed, as with the vendor's types.
  typedef typename std::conditional<S, int64_t, uint64_t>::type machine;
  operator machine() const { return machine(word[0]); }

  // -- bits --
  ap_bit_ref<N, S> operator[](int i) { return ap_bit_ref<N, S>{*this, i}; }
  bool operator[](int i) const { return bit(i); }
  bool test(int i) const { return bit(i); }
  bool get_bit(int i) const { return bit(i); }
  ap_range_ref<N, S> range(int high, int low) { return ap_range_ref<N, S>{*this, high, low}; }
  ap_uint<N> range(int high, int low) const { return extract(high, low); }
  ap_range_ref<N, S> range() { return range(N - 1, 0); }
  ap_uint<N> range() const { return extract(N - 1, 0); }
  ap_range_ref<N, S> operator()(int high, int low) { return range(high, low); }
  ap_uint<N> operator()(int high, int low) const { return extract(high, low); }
  bool and_reduce() const {
    for (int i = 0; i < N; i++)
      if (!bit(i)) return false;
    return true;
  }
  bool or_reduce() const { return to_bool(); }
  bool xor_reduce() const {
    bool result = false;
    for (int i = 0; i < N; i++) result ^= bit(i);
    return result;
  }
  void reverse() {
    for (int i = 0; i < N / 2; i++) {
      const bool low = bit(i), high = bit(N - 1 - i);
      set_bit(i, high);
      set_bit(N - 1 - i, low);
    }
  }
};

#define ALLO_AP_CLASS(NAME, S)                                                                    \
  template <int N> struct NAME : ap_int_base<N, S> {                                              \
    typedef ap_int_base<N, S> base;                                                               \
    NAME() { allo_csim::assign_native(this->word, N, S, 0, false); }                              \
    NAME(const NAME &) = default;                                                                 \
    NAME &operator=(const NAME &) = default;                                                      \
    template <int M, bool T> NAME(const ap_int_base<M, T> &other) {                               \
      allo_csim::assign(this->word, N, S, other.word, other.words, T);                            \
    }                                                                                             \
    template <int M, bool T> NAME(const ap_range_ref<M, T> &other) : NAME(other.get()) {}         \
    template <int M, bool T> NAME(const ap_bit_ref<M, T> &other) : NAME(bool(other)) {}           \
    template <typename T, typename std::enable_if<allo_csim::native<T>::integral, int>::type = 0> \
    NAME(T value) {                                                                               \
      const bool is_negative = allo_csim::native<T>::is_signed && value < T(0);                   \
      allo_csim::assign_native(this->word, N, S, uint64_t(int64_t(value)), is_negative);          \
    }                                                                                             \
    NAME(unsigned long long value) { allo_csim::assign_native(this->word, N, S, value, false); }  \
    NAME(float value) { this->assign_double(value); }                                             \
    NAME(double value) { this->assign_double(value); }                                            \
    template <typename T> NAME &operator+=(const T &other) { return *this = *this + other; }      \
    template <typename T> NAME &operator-=(const T &other) { return *this = *this - other; }      \
    template <typename T> NAME &operator*=(const T &other) { return *this = *this * other; }      \
    template <typename T> NAME &operator/=(const T &other) { return *this = *this / other; }      \
    template <typename T> NAME &operator%=(const T &other) { return *this = *this % other; }      \
    template <typename T> NAME &operator&=(const T &other) { return *this = *this & other; }      \
    template <typename T> NAME &operator|=(const T &other) { return *this = *this | other; }      \
    template <typename T> NAME &operator^=(const T &other) { return *this = *this ^ other; }      \
    template <typename T> NAME &operator<<=(const T &by) { return *this = *this << by; }          \
    template <typename T> NAME &operator>>=(const T &by) { return *this = *this >> by; }          \
    NAME &operator++() { return *this += 1; }                                                     \
    NAME &operator--() { return *this -= 1; }                                                     \
    NAME operator++(int) {                                                                        \
      NAME old = *this;                                                                           \
      ++*this;                                                                                    \
      return old;                                                                                 \
    }                                                                                             \
    NAME operator--(int) {                                                                        \
      NAME old = *this;                                                                           \
      --*this;                                                                                    \
      return old;                                                                                 \
    }                                                                                             \
  };
ALLO_AP_CLASS(ap_int, true)
ALLO_AP_CLASS(ap_uint, false)
#undef ALLO_AP_CLASS

namespace allo_csim {

template <int N, bool S, int M, bool T> struct results {
  typedef typename choose<S || T, sum_bits(N, S, M, T)>::type sum;
  typedef typename choose<true, sum_bits(N, S, M, T)>::type difference;
  typedef typename choose<S || T, N + M>::type product;
  typedef typename choose<S || T, N + T>::type quotient;
  typedef typename choose<S, smaller(N, M + (S && !T))>::type remainder;
  typedef typename choose<S || T, logic_bits(N, S, M, T)>::type logic;
};

// Magnitudes by long division, bit by bit.
template <int N> void divide(const ap_uint<N> &a, const ap_uint<N> &b, ap_uint<N> &quotient, ap_uint<N> &remainder) {
  quotient = remainder = ap_uint<N>();
  if (!b.to_bool()) return;
  for (int i = N - 1; i >= 0; i--) {
    const bool carried = remainder.bit(N - 1);
    remainder.shift_left(1);
    if (a.bit(i)) remainder.word[0] |= 1;
    bool fits = carried;
    if (!fits) {
      fits = true;
      for (int w = remainder.words - 1; w >= 0; w--)
        if (remainder.word[w] != b.word[w]) {
          fits = remainder.word[w] > b.word[w];
          break;
        }
    }
    if (!fits) continue;
    uint64_t borrow = 0;
    for (int w = 0; w < remainder.words; w++) {
      const uint64_t before = remainder.word[w], minus = b.word[w] + borrow;
      borrow = (minus < borrow) || before < minus;
      remainder.word[w] = before - minus;
    }
    remainder.normalise();
    quotient.word[i / 64] |= uint64_t(1) << (i % 64);
  }
}

template <int N, bool S, int M, bool T>
void divide_signed(const ap_int_base<N, S> &a, const ap_int_base<M, T> &b, ap_int<larger(N, M) + 2> &quotient,
                   ap_int<larger(N, M) + 2> &remainder) {
  constexpr int W = larger(N, M) + 2;
  ap_int<W> x = a, y = b;
  const bool minus_x = x.negative(), minus_y = y.negative();
  if (minus_x) x.negate();
  if (minus_y) y.negate();
  ap_uint<W> q, r;
  divide<W>(ap_uint<W>(x), ap_uint<W>(y), q, r);
  quotient = q;
  remainder = r;
  if (minus_x != minus_y) quotient.negate();
  if (minus_x) remainder.negate();
}

}  // namespace allo_csim

#define ALLO_AP_A(i) allo_csim::extended(a.word, a.words, S, i)
#define ALLO_AP_B(i) allo_csim::extended(b.word, b.words, T, i)
#define ALLO_AP_BINARY(OP, RESULT, ...)                                                                           \
  template <int N, bool S, int M, bool T>                                                                         \
  typename allo_csim::results<N, S, M, T>::RESULT operator OP(const ap_int_base<N, S> &a,                         \
                                                              const ap_int_base<M, T> &b) {                       \
    typename allo_csim::results<N, S, M, T>::RESULT r;                                                            \
    __VA_ARGS__ return r;                                                                                         \
  }
ALLO_AP_BINARY(+, sum, {
  uint64_t carry = 0;
  for (int i = 0; i < r.words; i++) {
    const uint64_t x = ALLO_AP_A(i), y = ALLO_AP_B(i), s = x + y;
    r.word[i] = s + carry;
    carry = (s < x) || (r.word[i] < s);
  }
  r.normalise();
})
ALLO_AP_BINARY(-, difference, {
  uint64_t borrow = 0;
  for (int i = 0; i < r.words; i++) {
    const uint64_t x = ALLO_AP_A(i), y = ALLO_AP_B(i), d = x - y;
    r.word[i] = d - borrow;
    borrow = (x < y) || (d < borrow);
  }
  r.normalise();
})
ALLO_AP_BINARY(*, product, {
  for (int i = 0; i < r.words; i++) r.word[i] = 0;
  for (int i = 0; i < r.words; i++) {
    unsigned __int128 carry = 0;
    for (int j = 0; i + j < r.words; j++) {
      carry += (unsigned __int128)ALLO_AP_A(i) * ALLO_AP_B(j) + r.word[i + j];
      r.word[i + j] = uint64_t(carry);
      carry >>= 64;
    }
  }
  r.normalise();
})
ALLO_AP_BINARY(/, quotient, {
  ap_int<allo_csim::larger(N, M) + 2> q;
  ap_int<allo_csim::larger(N, M) + 2> rest;
  allo_csim::divide_signed(a, b, q, rest);
  r = q;
})
ALLO_AP_BINARY(%, remainder, {
  ap_int<allo_csim::larger(N, M) + 2> q;
  ap_int<allo_csim::larger(N, M) + 2> rest;
  allo_csim::divide_signed(a, b, q, rest);
  r = rest;
})
ALLO_AP_BINARY(&, logic, {
  for (int i = 0; i < r.words; i++) r.word[i] = ALLO_AP_A(i) & ALLO_AP_B(i);
  r.normalise();
})
ALLO_AP_BINARY(|, logic, {
  for (int i = 0; i < r.words; i++) r.word[i] = ALLO_AP_A(i) | ALLO_AP_B(i);
  r.normalise();
})
ALLO_AP_BINARY(^, logic, {
  for (int i = 0; i < r.words; i++) r.word[i] = ALLO_AP_A(i) ^ ALLO_AP_B(i);
  r.normalise();
})
#undef ALLO_AP_A
#undef ALLO_AP_B
#undef ALLO_AP_BINARY

template <int N, bool S> typename allo_csim::choose<S, N>::type operator<<(const ap_int_base<N, S> &a, int by) {
  typename allo_csim::choose<S, N>::type r = a;
  r.shift_left(by);
  return r;
}
template <int N, bool S> typename allo_csim::choose<S, N>::type operator>>(const ap_int_base<N, S> &a, int by) {
  typename allo_csim::choose<S, N>::type r = a;
  r.shift_right(by);
  return r;
}
template <int N, bool S, int M, bool T>
typename allo_csim::choose<S, N>::type operator<<(const ap_int_base<N, S> &a, const ap_int_base<M, T> &by) {
  return a << by.to_int();
}
template <int N, bool S, int M, bool T>
typename allo_csim::choose<S, N>::type operator>>(const ap_int_base<N, S> &a, const ap_int_base<M, T> &by) {
  return a >> by.to_int();
}
template <int N, bool S> ap_int<N + 1> operator-(const ap_int_base<N, S> &a) {
  ap_int<N + 1> r = a;
  r.negate();
  return r;
}
template <int N, bool S> typename allo_csim::choose<S, N>::type operator+(const ap_int_base<N, S> &a) { return a; }
// The complement has the width and the sign of its operand, unlike the other operators of one operand.
template <int N, bool S> typename allo_csim::choose<S, N>::type operator~(const ap_int_base<N, S> &a) {
  typename allo_csim::choose<S, N>::type r = a;
  for (int i = 0; i < r.words; i++) r.word[i] = ~r.word[i];
  r.normalise();
  return r;
}
template <int N, bool S> bool operator!(const ap_int_base<N, S> &a) { return !a.to_bool(); }

#define ALLO_AP_COMPARE(OP)                                                                            \
  template <int N, bool S, int M, bool T>                                                              \
  bool operator OP(const ap_int_base<N, S> &a, const ap_int_base<M, T> &b) {                           \
    return allo_csim::order(a.word, a.words, S, b.word, b.words, T) OP 0;                              \
  }
ALLO_AP_COMPARE(==) ALLO_AP_COMPARE(!=) ALLO_AP_COMPARE(<) ALLO_AP_COMPARE(<=) ALLO_AP_COMPARE(>) ALLO_AP_COMPARE(>=)
#undef ALLO_AP_COMPARE

// A native integer, a bit or a range beside one of ours takes part as the ap type of its width.
namespace allo_csim {
template <typename T, bool = native<T>::integral> struct lifted {};
template <typename T> struct lifted<T, true> { typedef typename choose<native<T>::is_signed, native<T>::bits>::type type; };
template <int N, bool S> struct lifted<ap_range_ref<N, S>, false> { typedef ap_uint<N> type; };
template <int N, bool S> struct lifted<ap_bit_ref<N, S>, false> { typedef ap_uint<1> type; };
}  // namespace allo_csim

#define ALLO_AP_MIXED(OP)                                                                              \
  template <int N, bool S, typename T, typename L = typename allo_csim::lifted<T>::type>               \
  auto operator OP(const ap_int_base<N, S> &a, const T &b)->decltype(a OP L()) {                       \
    return a OP L(b);                                                                                  \
  }                                                                                                    \
  template <int N, bool S, typename T, typename L = typename allo_csim::lifted<T>::type>               \
  auto operator OP(const T &a, const ap_int_base<N, S> &b)->decltype(L() OP b) {                       \
    return L(a) OP b;                                                                                  \
  }
ALLO_AP_MIXED(+) ALLO_AP_MIXED(-) ALLO_AP_MIXED(*) ALLO_AP_MIXED(/) ALLO_AP_MIXED(%) ALLO_AP_MIXED(&)
ALLO_AP_MIXED(|) ALLO_AP_MIXED(^) ALLO_AP_MIXED(==) ALLO_AP_MIXED(!=) ALLO_AP_MIXED(<) ALLO_AP_MIXED(<=)
ALLO_AP_MIXED(>) ALLO_AP_MIXED(>=)
#undef ALLO_AP_MIXED
#define ALLO_AP_RANGE(OP)                                                                              \
  template <int N, bool S, typename T>                                                                 \
  auto operator OP(const ap_range_ref<N, S> &a, const T &b)->decltype(ap_uint<N>() OP b) {             \
    return a.get() OP b;                                                                               \
  }
ALLO_AP_RANGE(+) ALLO_AP_RANGE(-) ALLO_AP_RANGE(*) ALLO_AP_RANGE(&) ALLO_AP_RANGE(|) ALLO_AP_RANGE(^)
ALLO_AP_RANGE(==) ALLO_AP_RANGE(!=) ALLO_AP_RANGE(<) ALLO_AP_RANGE(<=) ALLO_AP_RANGE(>) ALLO_AP_RANGE(>=)
#undef ALLO_AP_RANGE

// (a, b) as the vendor's concatenation is not offered; use concat(a, b), whose first argument is the upper part.
template <int N, bool S, int M, bool T>
ap_uint<N + M> concat(const ap_int_base<N, S> &a, const ap_int_base<M, T> &b) {
  ap_uint<N + M> r = a;
  r.shift_left(M);
  r.insert(M - 1, 0, ap_uint<M>(b));
  return r;
}

#endif
