// hls::vector for C simulation without the vendor's tool: N elements that move as one word (UG1399, "HLS Vector Library").
#ifndef ALLO_CSIM_HLS_VECTOR_H
#define ALLO_CSIM_HLS_VECTOR_H

#include <cstddef>
#include <initializer_list>

namespace hls {

template <typename T, size_t N> class vector {
  static_assert(N >= 1, "a vector has at least one element");
  T element_[N];

public:
  typedef T value_type;
  vector() : element_() {}
  vector(const T &value) {
    for (size_t i = 0; i < N; i++) element_[i] = value;
  }
  vector(std::initializer_list<T> values) : element_() {
    size_t i = 0;
    for (const T &value : values) element_[i++] = value;
  }
  static constexpr size_t size() { return N; }
  T &operator[](size_t i) { return element_[i]; }
  const T &operator[](size_t i) const { return element_[i]; }
  T *begin() { return element_; }
  T *end() { return element_ + N; }
  const T *begin() const { return element_; }
  const T *end() const { return element_ + N; }
  bool operator==(const vector &other) const {
    for (size_t i = 0; i < N; i++)
      if (!(element_[i] == other[i])) return false;
    return true;
  }
  bool operator!=(const vector &other) const { return !(*this == other); }
  T reduce_add() const {
    T total = element_[0];
    for (size_t i = 1; i < N; i++) total = total + element_[i];
    return total;
  }
};

#define ALLO_VECTOR_OPERATOR(OP)                                                        \
  template <typename T, size_t N>                                                       \
  vector<T, N> operator OP(const vector<T, N> &a, const vector<T, N> &b) {              \
    vector<T, N> r;                                                                     \
    for (size_t i = 0; i < N; i++) r[i] = a[i] OP b[i];                                 \
    return r;                                                                           \
  }
ALLO_VECTOR_OPERATOR(+) ALLO_VECTOR_OPERATOR(-) ALLO_VECTOR_OPERATOR(*) ALLO_VECTOR_OPERATOR(/)
#undef ALLO_VECTOR_OPERATOR

}  // namespace hls

#endif
