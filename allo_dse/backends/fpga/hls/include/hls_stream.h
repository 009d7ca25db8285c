// hls::stream for C simulation without the vendor's tool. Written from the documented behaviour (UG1399, "HLS Stream
// Library"). Reads of an empty stream and writes to a full one wait: other processes run meanwhile (allo_csim.h).
#ifndef ALLO_CSIM_HLS_STREAM_H
#define ALLO_CSIM_HLS_STREAM_H

#include "allo_csim.h"

namespace hls {

template <typename T, int DEPTH = 0> class stream;

// A stream of any depth; DEPTH 0 means that it never fills.
template <typename T> class stream<T, 0> {
public:
  typedef T value_type;
  static constexpr bool is_hls_stream = true;

  stream() {}
  explicit stream(const char *name) : name_(name) {}
  stream(const stream &) = delete;
  stream &operator=(const stream &) = delete;
  ~stream() { delete[] ring_; }

  void read(T &value) { value = read(); }
  T read() {
    while (count_ == 0) allo_csim::wait(waiting_reader_, name(), "empty");
    return take();
  }
  void write(const T &value) {
    while (is_full()) allo_csim::wait(waiting_writer_, name(), "full");
    add(value);
  }
  bool read_nb(T &value) {
    if (count_ == 0) return allo_csim::others_first(), false;
    value = take();
    return true;
  }
  bool write_nb(const T &value) {
    if (is_full()) return allo_csim::others_first(), false;
    add(value);
    return true;
  }
  bool empty() {
    if (count_ == 0) allo_csim::others_first();
    return count_ == 0;
  }
  bool full() {
    if (is_full()) allo_csim::others_first();
    return is_full();
  }
  unsigned size() const { return unsigned(count_); }
  unsigned capacity() const { return unsigned(depth_); }
  void operator>>(T &value) { read(value); }
  void operator<<(const T &value) { write(value); }

protected:
  explicit stream(long depth, const char *name) : name_(name), depth_(depth) {}

private:
  bool is_full() const { return depth_ && count_ >= depth_; }
  const char *name() const { return name_ ? name_ : "a stream"; }
  T take() {
    T value = ring_[first_];
    first_ = (first_ + 1) % size_;
    count_--;
    allo_csim::wake(waiting_writer_);
    return value;
  }
  void add(const T &value) {
    if (count_ == size_) grow();
    ring_[(first_ + count_) % size_] = value;
    count_++;
    allo_csim::wake(waiting_reader_);
  }
  void grow() {
    const long larger = size_ ? 2 * size_ : 4;
    T *ring = new T[larger];
    for (long i = 0; i < count_; i++) ring[i] = ring_[(first_ + i) % size_];
    delete[] ring_;
    ring_ = ring;
    size_ = larger;
    first_ = 0;
  }

  const char *name_ = nullptr;
  long depth_ = 0, size_ = 0, first_ = 0, count_ = 0;
  T *ring_ = nullptr;
  allo_csim::process *waiting_reader_ = nullptr, *waiting_writer_ = nullptr;
};

template <typename T, int DEPTH> class stream : public stream<T, 0> {
public:
  stream() : stream<T, 0>(DEPTH, nullptr) {}
  explicit stream(const char *name) : stream<T, 0>(DEPTH, name) {}
};

}  // namespace hls

#endif
