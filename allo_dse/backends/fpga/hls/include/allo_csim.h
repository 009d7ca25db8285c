// Processes of a dataflow region for C simulation: each runs as a coroutine until it waits for a stream.
//
// One thread, first come first served, so that runs are deterministic; feedback between processes works, and a deadlock
// ends the program with a message instead of hanging it. POSIX only (ucontext).
#ifndef ALLO_CSIM_H
#define ALLO_CSIM_H

#define ALLO_CSIM 1

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <sys/mman.h>
#include <type_traits>
#include <ucontext.h>

namespace allo_csim {

constexpr int DEADLOCK_EXIT_CODE = 43;
constexpr size_t STACK_BYTES = size_t(1) << 28;  // reserved only; pages are taken when they are touched

struct process {
  ucontext_t context;
  void *stack = nullptr;
  void (*entry)(void *) = nullptr;
  void *closure = nullptr;
  const char *name = "";
  const char *stream = nullptr, *reason = nullptr;
  process *next = nullptr;       // in the queue of those that can run
  process *next_alive = nullptr;  // among all
  bool finished = false;
};

struct scheduler {
  ucontext_t main;
  process *current = nullptr, *ready = nullptr, *last_ready = nullptr, *alive = nullptr;
  void *free_stacks[64];
  int free_count = 0;
};

inline scheduler &state() {
  static scheduler the;
  return the;
}

inline void make_ready(process *p) {
  scheduler &s = state();
  p->next = nullptr;
  (s.last_ready ? s.last_ready->next : s.ready) = p;
  s.last_ready = p;
}

// Give way; the process goes on when something has put it into the queue again.
inline void suspend() {
  scheduler &s = state();
  swapcontext(&s.current->context, &s.main);
}

// Wait in the one place that a stream has for its reader or writer.
inline void wait(process *&place, const char *stream, const char *reason) {
  scheduler &s = state();
  if (!s.current) {
    std::fprintf(stderr, "error: %s is %s outside of a dataflow region\n", stream, reason);
    std::exit(DEADLOCK_EXIT_CODE);
  }
  place = s.current;
  s.current->stream = stream;
  s.current->reason = reason;
  suspend();
}

inline void wake(process *&place) {
  if (!place) return;
  process *p = place;
  place = nullptr;
  p->stream = nullptr;
  make_ready(p);
}

// A process that polls lets the others run.
inline void others_first() {
  if (!state().current) return;
  make_ready(state().current);
  suspend();
}

inline void start() {
  process *p = state().current;
  p->entry(p->closure);
  p->finished = true;
  suspend();
}

inline void add_process(const char *name, void (*entry)(void *), void *closure) {
  scheduler &s = state();
  process *p = new process;
  p->name = name;
  p->entry = entry;
  p->closure = closure;
  if (s.free_count)
    p->stack = s.free_stacks[--s.free_count];
  else
    p->stack = mmap(nullptr, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p->stack == MAP_FAILED) {
    std::fprintf(stderr, "error: no address space for one more process\n");
    std::exit(1);
  }
  getcontext(&p->context);
  p->context.uc_stack.ss_sp = p->stack;
  p->context.uc_stack.ss_size = STACK_BYTES;
  p->context.uc_link = nullptr;
  makecontext(&p->context, start, 0);
  p->next_alive = s.alive;
  s.alive = p;
  make_ready(p);
}

// How an argument is kept until its process runs: streams and arrays by reference, everything else by value.
template <typename T, typename = void> struct is_stream : std::false_type {};
template <typename T> struct is_stream<T, typename std::enable_if<T::is_hls_stream>::type> : std::true_type {};
template <typename T> struct kept {
  typedef typename std::remove_const<typename std::remove_reference<T>::type>::type bare;
  typename std::conditional<is_stream<bare>::value || std::is_array<bare>::value, bare &, bare>::type value;
};

template <typename C> void run_once(void *closure) {
  C *c = static_cast<C *>(closure);
  (*c)();
  delete c;
}

template <typename F, typename... K> void spawn_kept(const char *name, F *function, K... arguments) {
  auto closure = [=]() mutable { function(arguments.value...); };
  typedef decltype(closure) made;
  add_process(name, run_once<made>, new made(closure));
}

template <typename F, typename... A> void spawn(const char *name, F *function, A &&...arguments) {
  spawn_kept(name, function, kept<A>{arguments}...);
}

inline void report_deadlock() {
  std::fprintf(stderr, "error: deadlock: all processes wait\n");
  int shown = 0;
  for (process *p = state().alive; p && shown < 20; p = p->next_alive)
    if (!p->finished) {
      std::fprintf(stderr, "  %s waits: %s is %s\n", p->name, p->stream ? p->stream : "?", p->reason ? p->reason : "?");
      shown++;
    }
  std::exit(DEADLOCK_EXIT_CODE);
}

// Run all processes to their end.
inline void join() {
  scheduler &s = state();
  while (s.ready) {
    process *p = s.ready;
    s.ready = p->next;
    if (!s.ready) s.last_ready = nullptr;
    s.current = p;
    swapcontext(&s.main, &p->context);
    s.current = nullptr;
    if (!p->finished) continue;
    if (s.free_count < 64)
      s.free_stacks[s.free_count++] = p->stack;
    else
      munmap(p->stack, STACK_BYTES);
    p->stack = nullptr;
  }
  for (process *p = s.alive; p; p = p->next_alive)
    if (!p->finished) report_deadlock();
  while (s.alive) {
    process *p = s.alive;
    s.alive = p->next_alive;
    delete p;
  }
}

}  // namespace allo_csim

#endif
