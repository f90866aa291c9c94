
#include <algorithm>
#include <atomic>
#include <memory>

#include "declaration/errors.h"
#include "launch/area.h"
#include "launch/cuda.h"
#include "launch/device.h"
#include "launch/memory.h"
#include "launch/pinned_pool.h"
#include "launch/pipeline.h"
#include "launch/run.h"

namespace tensor_ops {
namespace {

// Copies of this size run at the bus's full speed, while the first upload and the last download,
// which overlap with nothing, are short.
std::atomic<std::int64_t> bytes_of_chunk{16 << 20};

constexpr std::int64_t kAlignment = 256;

std::int64_t aligned(std::int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// Makes what `later` is asked to do from now on wait for what `earlier` was asked to do.
void order(const Stream& earlier, Event& event, const Stream& later) {
  if (&earlier == &later) return;
  event.record(earlier.get());
  later.wait_for(event);
}

bool is_pinned(const void* data) {
  cudaPointerAttributes attributes;
  CUDA_CHECK(cudaPointerGetAttributes(&attributes, data));
  return attributes.type == cudaMemoryTypeHost;
}

// When an operand is copied to the device or back.
enum class Schedule {
  kNever,      // it was not given
  kOnce,       // it repeats: all of it is uploaded before the first chunk
  kEachChunk,  // its part of each chunk
};

Schedule schedule_of(const Problem& problem, const Operand& operand) {
  if (!operand.data) return Schedule::kNever;
  for (int d = 0; d < problem.axes; ++d)
    if (repeats(problem, operand, d)) return Schedule::kOnce;
  return Schedule::kEachChunk;
}

void copy_async(void* to, const void* from, std::int64_t bytes, cudaMemcpyKind kind,
                const Stream& stream) {
  CUDA_CHECK(cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), kind, stream.get()));
}

// Memory on both sides for operands of one schedule.
struct Buffers {
  HostBuffer host{nullptr, nullptr};
  DeviceMemory device;

  void allocate(std::int64_t bytes, const Stream& stream) {
    host = new_host_buffer(static_cast<std::size_t>(bytes));
    device = new_device_memory(static_cast<std::size_t>(bytes), stream.get());
  }
  char* on_device(std::int64_t offset) const { return static_cast<char*>(device.get()) + offset; }
};

// A chunk in flight.
struct Slot : Buffers {
  Box box;
  Pipeline::SlotEvents* events;
  bool is_busy = false;
};

// The parts of a host call: boxes of at most `most_rows` rows that cover a problem, in order. A box
// has whole inner axes, some steps of one axis, and a single step of each axis outside of it.
class Chunks {
 public:
  Chunks(const Problem& problem, std::int64_t most_rows) : problem_(problem) {
    axis_ = std::max(0, problem.axes - 1);
    if (problem.axes == 0) return;
    while (axis_ > 0 && inner_ * problem.extent[axis_] <= most_rows)
      inner_ *= problem.extent[axis_--];
    const std::int64_t extent = problem.extent[axis_];
    step_ = std::clamp<std::int64_t>(most_rows / inner_, 1, extent);
    // Parts of nearly the same size.
    const std::int64_t parts = (extent + step_ - 1) / step_;
    step_ = (extent + parts - 1) / parts;
    count_ = (extent + step_ - 1) / step_;
    for (int d = 0; d < axis_; ++d) count_ *= problem.extent[d];
  }

  std::int64_t count() const { return count_; }
  // Rows of the largest box.
  std::int64_t most_rows() const { return step_ * inner_; }
  Box box(std::int64_t chunk) const {
    Box box = whole(problem_);
    if (problem_.axes == 0) return box;
    const std::int64_t extent = problem_.extent[axis_], parts = (extent + step_ - 1) / step_;
    box.begin[axis_] = chunk % parts * step_;
    box.extent[axis_] = std::min(step_, extent - box.begin[axis_]);
    std::int64_t rest = chunk / parts;
    for (int d = axis_ - 1; d >= 0; --d) {
      box.begin[d] = rest % problem_.extent[d];
      box.extent[d] = 1;
      rest /= problem_.extent[d];
    }
    return box;
  }

 private:
  const Problem& problem_;
  int axis_ = 0;  // the one that is cut
  std::int64_t step_ = 1, inner_ = 1, count_ = 1;
};

class Transfer {
 public:
  Transfer(const Problem& problem, const DeviceFacts& device, Pipeline& pipeline,
           std::int64_t most_rows);
  ~Transfer() { pipeline_.drain(); }
  Transfer(const Transfer&) = delete;
  Transfer& operator=(const Transfer&) = delete;

  // Sets `has_begun` before a result may be written.
  void run(bool& has_begun);

 private:
  void allocate();
  void upload_repeating();
  void upload(Slot& slot);
  void compute(Slot& slot);
  void download(Slot& slot);
  void finish(Slot& slot);
  Problem device_problem(const Slot& slot) const;

  // Calls function(k, area of the operand in the slot's chunk, where in host memory the driver
  // copies it): in the caller's memory if that is pinned and contiguous, else in the slot's.
  template <class Function>
  void for_each_in_chunk(const Slot& slot, bool is_output, Function function) const {
    for (int k = 0; k < problem_.operands; ++k) {
      const Operand& operand = problem_.operand[k];
      if (schedule_[k] != Schedule::kEachChunk || operand.is_output != is_output) continue;
      const StridedArea area = area_of(problem_, operand, slot.box);
      const bool is_direct = is_pinned_[k] && area.is_contiguous();
      function(k, area, is_direct ? area.data : slot.host.get() + offset_[k]);
    }
  }

  const Problem& problem_;
  const DeviceFacts& device_;
  Pipeline& pipeline_;
  Chunks chunks_;
  // All three are one stream if there is a single chunk, and so nothing to overlap.
  const Stream &compute_, &upload_, &download_;

  Schedule schedule_[kMaxArrays];
  bool is_pinned_[kMaxArrays];
  std::int64_t offset_[kMaxArrays];  // within a slot's buffers, or those of repeating operands
  std::int64_t slot_bytes_ = 0, repeating_bytes_ = 0;
  Buffers repeating_;
  Slot slots_[kSlots];
};

Transfer::Transfer(const Problem& problem, const DeviceFacts& device, Pipeline& pipeline,
                   std::int64_t most_rows)
    : problem_(problem),
      device_(device),
      pipeline_(pipeline),
      chunks_(problem, most_rows),
      compute_(pipeline.compute),
      upload_(chunks_.count() == 1 ? pipeline.compute : pipeline.upload),
      download_(chunks_.count() == 1 ? pipeline.compute : pipeline.download) {
  for (int k = 0; k < problem.operands; ++k) {
    const Operand& operand = problem.operand[k];
    schedule_[k] = schedule_of(problem, operand);
    is_pinned_[k] = schedule_[k] == Schedule::kEachChunk && is_pinned(operand.data);
    std::int64_t& total = schedule_[k] == Schedule::kOnce ? repeating_bytes_ : slot_bytes_;
    offset_[k] = total;
    if (schedule_[k] == Schedule::kOnce)
      total += aligned(area_of(problem, operand, whole(problem)).bytes());
    if (schedule_[k] == Schedule::kEachChunk)
      total += aligned(chunks_.most_rows() * operand.length * operand.item_size());
  }
}

// All memory is allocated before any result is written.
void Transfer::allocate() {
  if (repeating_bytes_ > 0) repeating_.allocate(repeating_bytes_, compute_);
  for (int s = 0; s < std::min<std::int64_t>(kSlots, chunks_.count()); ++s) {
    slots_[s].allocate(slot_bytes_, compute_);
    slots_[s].events = &pipeline_.events[s];
  }
  order(compute_, pipeline_.allocated, upload_);
}

void Transfer::upload_repeating() {
  if (repeating_bytes_ == 0) return;
  for (int k = 0; k < problem_.operands; ++k)
    if (schedule_[k] == Schedule::kOnce)
      pack(area_of(problem_, problem_.operand[k], whole(problem_)),
           repeating_.host.get() + offset_[k]);
  copy_async(repeating_.device.get(), repeating_.host.get(), repeating_bytes_,
             cudaMemcpyHostToDevice, upload_);
}

void Transfer::upload(Slot& slot) {
  slot.is_busy = true;
  for_each_in_chunk(slot, false, [&](int k, const StridedArea& area, char* from) {
    if (from != area.data) pack(area, from);
    copy_async(slot.on_device(offset_[k]), from, area.bytes(), cudaMemcpyHostToDevice, upload_);
  });
  order(upload_, slot.events->uploaded, compute_);
}

// The slot's chunk, whose arrays are packed in device memory.
Problem Transfer::device_problem(const Slot& slot) const {
  Problem part = problem_;
  std::copy_n(slot.box.extent, problem_.axes, part.extent);
  for (int k = 0; k < part.operands; ++k) {
    if (schedule_[k] == Schedule::kNever) continue;
    const bool is_once = schedule_[k] == Schedule::kOnce;
    Operand& operand = part.operand[k];
    operand.data = (is_once ? repeating_ : slot).on_device(offset_[k]);
    operand.element_stride = operand.item_size();
    std::int64_t step = operand.length * operand.item_size();
    for (int d = part.axes - 1; d >= 0; --d) {
      if (repeats(problem_, problem_.operand[k], d)) continue;
      operand.stride[d] = step;
      if (is_once) operand.data += slot.box.begin[d] * step;
      step *= is_once ? problem_.extent[d] : part.extent[d];
    }
  }
  return part;
}

void Transfer::compute(Slot& slot) {
  run_on_device(device_problem(slot), device_, compute_.get());
  order(compute_, slot.events->computed, download_);
}

void Transfer::download(Slot& slot) {
  for_each_in_chunk(slot, true, [&](int k, const StridedArea& area, char* to) {
    copy_async(to, slot.on_device(offset_[k]), area.bytes(), cudaMemcpyDeviceToHost, download_);
  });
  slot.events->downloaded.record(download_.get());
}

void Transfer::finish(Slot& slot) {
  if (!slot.is_busy) return;
  slot.events->downloaded.synchronize();
  slot.is_busy = false;
  for_each_in_chunk(slot, true, [](int, const StridedArea& area, const char* from) {
    if (from != area.data) unpack(from, area);
  });
}

void Transfer::run(bool& has_begun) {
  allocate();
  upload_repeating();
  for (std::int64_t chunk = 0; chunk < chunks_.count() + kSlots; ++chunk) {
    Slot& slot = slots_[chunk % kSlots];
    finish(slot);
    if (chunk >= chunks_.count()) continue;
    slot.box = chunks_.box(chunk);
    upload(slot);
    compute(slot);
    has_begun = true;
    download(slot);
  }
}

// The problem of the call; an elementwise one as rows of one element, which can be cut anywhere.
Problem cut_anywhere(const Problem& given) {
  Problem problem = given;
  collapse(problem);
  if (problem.op->walk != Walk::kElements || problem.axes == kMaxDims) return problem;
  problem.extent[problem.axes] = problem.n;
  problem.n = 1;
  for (int k = 0; k < problem.operands; ++k) {
    Operand& operand = problem.operand[k];
    operand.stride[problem.axes] = operand.element_stride;
    operand.length = 1;
  }
  ++problem.axes;
  return problem;
}

std::int64_t rows_of_chunk(const Problem& problem, std::int64_t bytes) {
  std::int64_t row = 0;
  for (int k = 0; k < problem.operands; ++k)
    if (schedule_of(problem, problem.operand[k]) == Schedule::kEachChunk)
      row += problem.operand[k].length * problem.operand[k].item_size();
  return std::max<std::int64_t>(1, bytes / std::max<std::int64_t>(row, 1));
}

[[noreturn]] void throw_no_memory(const Problem& problem, const DeviceFacts& device) {
  std::size_t free = 0, total = 0;
  if (cudaMemGetInfo(&free, &total) != cudaSuccess) cudaGetLastError();
  const bool by_rows = problem.op->walk == Walk::kRowwise;
  throw MemoryError(text(problem.op->name, ": cuda:", device.index, " has no memory for ",
                         by_rows ? text("a row of ", problem.n, " elements") : "a few elements",
                         ": ", free >> 20, " of ", total >> 20,
                         " MiB are free; free arrays or end processes that hold its memory, or "
                         "choose another device with ",
                         kDeviceVariable));
}

}  // namespace

std::int64_t chunk_bytes() { return bytes_of_chunk; }
void set_chunk_bytes(std::int64_t bytes) { bytes_of_chunk = bytes; }

void run_from_host(const Problem& given, const DeviceFacts& device) {
  const CurrentDevice current(device.index);
  const BorrowedPipeline pipeline = borrow_pipeline(device.index);
  const Problem problem = cut_anywhere(given);
  std::int64_t rows = std::min(rows_of_chunk(problem, chunk_bytes()), problem.rows());
  for (;; rows = std::max<std::int64_t>(1, rows / 4)) {
    bool has_begun = false;
    try {
      return Transfer(problem, device, *pipeline, rows).run(has_begun);
    } catch (const CudaMemoryError&) {
      if (has_begun) throw;
      if (rows == 1) throw_no_memory(problem, device);
    }
  }
}

}  // namespace tensor_ops
