// What connects the circuits of tasks: a FIFO, and the ports through which a task takes from and puts into one.
//
// Channels are handshakes: a word moves in every cycle in which both valid and ready are high. A task asks for a token by
// a request and gets it as a response; it puts one by a request and gets a response when the token is in the FIFO.
// Responses come from registers, so no path leads from a channel's ready to another's within a cycle.
//
// The FIFO follows rules T2 and T3 of docs/timing.md: a slot that is freed can be filled in the next cycle, a token that is put
// can be taken in the next cycle, at every depth, since it lies in registers.

module df_fifo #(parameter WIDTH = 32, parameter DEPTH = 2) (
  input                  clock, reset,
  input  [WIDTH-1:0]     put_data,
  input                  put_valid,
  output                 put_ready,
  output [WIDTH-1:0]     get_data,
  output                 get_valid,
  input                  get_ready,
  output [31:0]          peak
);
  wire put = put_valid && put_ready;
  wire get = get_valid && get_ready;
  localparam BITS = $clog2(DEPTH + 1);
  reg [WIDTH-1:0] words [0:DEPTH-1];
  reg [BITS-1:0] head, tail, count, most;
  wire [BITS-1:0] next = count + put - get;
  assign put_ready = count < DEPTH;
  assign get_valid = count != 0;
  assign get_data = words[head];
  assign peak = most;
  always @(posedge clock) begin
    if (reset) begin
      head <= 0; tail <= 0; count <= 0; most <= 0;
    end else begin
      if (put) begin
        words[tail] <= put_data;
        tail <= tail == DEPTH - 1 ? 0 : tail + 1;
      end
      if (get) head <= head == DEPTH - 1 ? 0 : head + 1;
      count <= next;
      if (next > most) most <= next;
    end
  end
endmodule

// Answers requests for tokens.
module df_get #(parameter WIDTH = 32) (
  input                  clock, reset,
  input                  request_valid,
  output                 request_ready,
  output reg [WIDTH-1:0] data,
  output reg             data_valid,
  input                  data_ready,
  input  [WIDTH-1:0]     get_data,
  input                  get_valid,
  output                 get_ready
);
  assign request_ready = get_valid && !data_valid;
  assign get_ready = request_valid && request_ready;
  always @(posedge clock) begin
    if (reset) data_valid <= 0;
    else if (get_ready) begin
      data <= get_data;
      data_valid <= 1;
    end else if (data_ready) data_valid <= 0;
  end
endmodule

// Puts the tokens that it is given.
module df_put #(parameter WIDTH = 32) (
  input                  clock, reset,
  input  [WIDTH-1:0]     request_data,
  input                  request_valid,
  output                 request_ready,
  output reg             done_valid,
  input                  done_ready,
  output [WIDTH-1:0]     put_data,
  output                 put_valid,
  input                  put_ready
);
  assign request_ready = put_ready && !done_valid;
  assign put_valid = request_valid && !done_valid;
  assign put_data = request_data;
  always @(posedge clock) begin
    if (reset) done_valid <= 0;
    else if (request_valid && request_ready) done_valid <= 1;
    else if (done_ready) done_valid <= 0;
  end
endmodule

// Gives one token once it may: the signal to begin, or an argument that does not change.
module df_once (input clock, reset, go, ready, output valid);
  reg given;
  assign valid = go && !given;
  always @(posedge clock) begin
    if (reset) given <= 0;
    else if (valid && ready) given <= 1;
  end
endmodule
