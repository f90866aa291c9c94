// Signals and the threads that a library starts.
#pragma once

#if !defined(_WIN32)
#include <pthread.h>
#include <signal.h>
#endif

namespace tensor_ops {

// Blocks signals while it exists, which threads that are started meanwhile inherit: signals for the
// process then go to the threads that expect them, such as the one in which Python is interrupted.
// Faults of the thread itself stay unblocked, so that their handlers can report them.
class BlockedSignals {
#if !defined(_WIN32)
 public:
  BlockedSignals() {
    sigset_t set;
    sigfillset(&set);
    for (int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT})
      sigdelset(&set, fault);
    pthread_sigmask(SIG_BLOCK, &set, &before_);
  }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;
  ~BlockedSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_;
#endif
};

}  // namespace tensor_ops
