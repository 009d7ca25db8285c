// hls::stream_of_blocks for C simulation without the vendor's tool. Written from the documented behaviour (UG1399, "HLS
// Stream of Blocks Library"). A lock waits for a bank, and hands it over when its scope ends.
#ifndef ALLO_CSIM_HLS_STREAMOFBLOCKS_H
#define ALLO_CSIM_HLS_STREAMOFBLOCKS_H

#include "allo_csim.h"

namespace hls {

template <typename B> class write_lock;
template <typename B> class read_lock;

template <typename B, int DEPTH = 2> class stream_of_blocks {
public:
  static constexpr bool is_hls_stream = true;

  stream_of_blocks() : banks_(new bank[DEPTH]) {}
  stream_of_blocks(const stream_of_blocks &) = delete;
  stream_of_blocks &operator=(const stream_of_blocks &) = delete;
  ~stream_of_blocks() { delete[] banks_; }

private:
  friend class write_lock<B>;
  friend class read_lock<B>;
  struct bank {
    B block;
  };

  B &to_write() {
    while (written_ - read_ == DEPTH) allo_csim::wait(waiting_writer_, "a stream of blocks", "full");
    return banks_[written_ % DEPTH].block;
  }
  B &to_read() {
    while (written_ == read_) allo_csim::wait(waiting_reader_, "a stream of blocks", "empty");
    return banks_[read_ % DEPTH].block;
  }
  void wrote() { written_++, allo_csim::wake(waiting_reader_); }
  void was_read() { read_++, allo_csim::wake(waiting_writer_); }

  bank *banks_;
  long written_ = 0, read_ = 0;
  allo_csim::process *waiting_reader_ = nullptr, *waiting_writer_ = nullptr;
};

template <typename B> class write_lock {
public:
  explicit write_lock(stream_of_blocks<B> &stream) : stream_(stream), block_(stream.to_write()) {}
  write_lock(const write_lock &) = delete;
  ~write_lock() { stream_.wrote(); }
  typename std::remove_extent<B>::type &operator[](size_t i) { return block_[i]; }

private:
  stream_of_blocks<B> &stream_;
  B &block_;
};

template <typename B> class read_lock {
public:
  explicit read_lock(stream_of_blocks<B> &stream) : stream_(stream), block_(stream.to_read()) {}
  read_lock(const read_lock &) = delete;
  ~read_lock() { stream_.was_read(); }
  const typename std::remove_extent<B>::type &operator[](size_t i) const { return block_[i]; }

private:
  stream_of_blocks<B> &stream_;
  B &block_;
};

}  // namespace hls

#endif
