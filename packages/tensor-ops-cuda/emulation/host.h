// State that the files of the emulated runtime share.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "cuda_runtime.h"

namespace emulation {

constexpr int kMaxDevices = 8;

constexpr int kThreadsOfMultiprocessor = 2048;

constexpr std::size_t kUsualMemory = std::size_t{4} << 30;

// One lock for everything; kernels and host functions run under it.
std::recursive_mutex& lock();

// Notes an error for cudaGetLastError() and returns it.
cudaError_t fail(cudaError_t error);
// An error of work that was only enqueued: everything fails from then on, as after a kernel's.
cudaError_t sticky_error();
void set_sticky_error(cudaError_t error);

// Success, or why there is no device.
cudaError_t driver_state();
// The mistake of the last kernel that failed.
std::string& kernel_failure();
int current_device();
int multiprocessors();
// The most bytes that a block of the emulated device can have.
std::size_t max_shared_memory();
long long setting(const char* name, long long default_value);

// Done or not, of a place in a stream.
using Ticket = std::shared_ptr<bool>;

struct Task {
  std::function<void()> work;  // may be empty
  std::vector<Ticket> waits_for;
  Ticket done;
};

// The work that a captured stream was asked to do.
struct Graph {
  std::vector<std::function<void()>> work;
};

// Runs tasks of streams that can go on, chosen at random, until the ticket is done. An error if no
// stream can.
cudaError_t run_until(const Ticket& ticket);
// A ticket that is done when everything that is in the stream now is.
Ticket end_of(cudaStream_t stream);
// Null for an unknown stream.
bool is_known(cudaStream_t stream);
bool is_capturing(cudaStream_t stream);
// Marks a capture as failed where a call in the course of it is not allowed.
cudaError_t refuse_in_capture();
cudaError_t push(cudaStream_t stream, std::function<void()> work);
void finish_device(int device);
int device_of(cudaStream_t stream);

// Whether bytes are within one live allocation.
bool is_device_range(const void* data, std::size_t bytes);
bool is_pinned_range(const void* data, std::size_t bytes);
bool touches_device_memory(const void* data);

}  // namespace emulation
