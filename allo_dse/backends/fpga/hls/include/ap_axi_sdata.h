// Words of AXI4-Stream with their side channels, for C simulation without the vendor's tool: ap_axis, ap_axiu, hls::axis.
//
// Written from the documented behaviour (UG1399, "AXI4-Stream Interfaces with Side-Channels"). A side channel of width 0
// does not exist in hardware; here it has one bit that nobody should read. Not for synthesis.
#ifndef ALLO_CSIM_AP_AXI_SDATA_H
#define ALLO_CSIM_AP_AXI_SDATA_H

#include <ap_int.h>

namespace hls {

// T: what a word carries. WUser, WId, WDest: widths of TUSER, TID and TDEST. TKEEP and TSTRB have a bit per byte of T.
template <typename T, int WUser = 0, int WId = 0, int WDest = 0> struct axis {
  static constexpr int bytes = (allo_csim::width_of<T>::bits + 7) / 8;
  static constexpr bool has_user = WUser > 0, has_id = WId > 0, has_dest = WDest > 0;
  T data;
  ap_uint<bytes> keep, strb;
  ap_uint<has_user ? WUser : 1> user;
  ap_uint<1> last;
  ap_uint<has_id ? WId : 1> id;
  ap_uint<has_dest ? WDest : 1> dest;

  T get_data() const { return data; }
  void set_data(const T &value) { data = value; }
  ap_uint<bytes> get_keep() const { return keep; }
  void set_keep(const ap_uint<bytes> &value) { keep = value; }
  void keep_all() { keep = ~ap_uint<bytes>(0); }
  ap_uint<bytes> get_strb() const { return strb; }
  void set_strb(const ap_uint<bytes> &value) { strb = value; }
  void strb_all() { strb = ~ap_uint<bytes>(0); }
  bool get_last() const { return last.to_bool(); }
  void set_last(bool value) { last = value; }
  ap_uint<has_user ? WUser : 1> get_user() const { return user; }
  void set_user(const ap_uint<has_user ? WUser : 1> &value) { user = value; }
  ap_uint<has_id ? WId : 1> get_id() const { return id; }
  void set_id(const ap_uint<has_id ? WId : 1> &value) { id = value; }
  ap_uint<has_dest ? WDest : 1> get_dest() const { return dest; }
  void set_dest(const ap_uint<has_dest ? WDest : 1> &value) { dest = value; }
};

}  // namespace hls

template <int WData, int WUser, int WId, int WDest> using ap_axis = hls::axis<ap_int<WData>, WUser, WId, WDest>;
template <int WData, int WUser, int WId, int WDest> using ap_axiu = hls::axis<ap_uint<WData>, WUser, WId, WDest>;

#endif
