#include "launch/staging.h"

#include <algorithm>
#include <atomic>
#include <memory>

#include "declaration/errors.h"
#include "launch/chunks.h"
#include "launch/cuda.h"
#include "launch/device.h"
#include "launch/memory.h"
#include "launch/pinned_pool.h"
#include "launch/pipeline.h"
#include "launch/run.h"

namespace tensor_ops {
namespace {

// Copies of this size run at the bus's full speed, and the first upload and the last download,
// which nothing overlaps, are short.
std::atomic<std::int64_t> bytes_of_chunk{16 << 20};

constexpr std::int64_t kAlignment = 256;

std::int64_t aligned(std::int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// Pinned where it can be had: else copies take the driver's own way, which is slower.
class HostBuffer {
 public:
  explicit HostBuffer(std::int64_t bytes) : pinned_(static_cast<std::size_t>(bytes)) {
    if (!pinned_.data()) pageable_.reset(new char[static_cast<std::size_t>(bytes)]);
  }
  char* data() const { return pinned_.data() ? pinned_.data() : pageable_.get(); }

 private:
  PinnedMemory pinned_;
  std::unique_ptr<char[]> pageable_;
};

bool is_pinned(const void* data) {
  cudaPointerAttributes attributes;
  CUDA_CHECK(cudaPointerGetAttributes(&attributes, data));
  return attributes.type == cudaMemoryTypeHost;
}

// How an operand travels.
enum class Way {
  kAbsent,
  kOnce,    // it repeats: all of it goes up before the first chunk
  kChunks,  // with each chunk
};

// What of a chunk in flight is to be done when it has come down.
struct Slot {
  std::unique_ptr<HostBuffer> host;
  DeviceMemory device;
  Box box;
  bool is_busy = false;
};

class Transfer {
 public:
  Transfer(const Problem& problem, const DeviceFacts& device, Pipeline& pipeline,
           std::int64_t most_rows);
  ~Transfer() { pipeline_.drain(); }
  Transfer(const Transfer&) = delete;
  Transfer& operator=(const Transfer&) = delete;

  void run();
  // Whether a result may have been written.
  bool has_begun() const { return has_begun_; }

 private:
  void allocate();
  void upload_repeating();
  void upload(Slot& slot, const Box& box);
  void compute(Slot& slot);
  void download(Slot& slot);
  void finish(Slot& slot);
  Problem device_problem(const Slot& slot) const;
  bool travels_directly(int k, const HostArea& area) const {
    return is_pinned_[k] && area.is_contiguous();
  }
  int number(const Slot& slot) const { return static_cast<int>(&slot - slots_); }
  Pipeline::Marks& marks(const Slot& slot) const { return pipeline_.marks[number(slot)]; }

  const Problem& problem_;
  const DeviceFacts& device_;
  Pipeline& pipeline_;
  Chunks chunks_;
  // One stream for all where there is nothing to overlap.
  cudaStream_t up_, down_;
  bool is_single_;

  Way way_[kMaxArrays];
  bool is_pinned_[kMaxArrays];
  std::int64_t offset_[kMaxArrays];  // within a slot's memory, or that of what goes up once
  std::int64_t slot_bytes_ = 0, once_bytes_ = 0;
  std::unique_ptr<HostBuffer> once_host_;
  DeviceMemory once_device_;
  Slot slots_[kSlots];
  bool has_begun_ = false;
};

Way way_of(const Problem& problem, const Operand& operand) {
  if (!operand.data) return Way::kAbsent;
  for (int d = 0; d < problem.axes; ++d)
    if (repeats(problem, operand, d)) return Way::kOnce;
  return Way::kChunks;
}

Transfer::Transfer(const Problem& problem, const DeviceFacts& device, Pipeline& pipeline,
                   std::int64_t most_rows)
    : problem_(problem),
      device_(device),
      pipeline_(pipeline),
      chunks_(problem, most_rows),
      up_(pipeline.upload.get()),
      down_(pipeline.download.get()),
      is_single_(chunks_.count() == 1) {
  if (is_single_) up_ = down_ = pipeline.compute.get();
  for (int k = 0; k < problem.operands; ++k) {
    const Operand& operand = problem.operand[k];
    way_[k] = way_of(problem, operand);
    is_pinned_[k] = way_[k] == Way::kChunks && is_pinned(operand.data);
    std::int64_t& total = way_[k] == Way::kOnce ? once_bytes_ : slot_bytes_;
    offset_[k] = total;
    if (way_[k] == Way::kOnce) total += aligned(area_of(problem, operand, whole(problem)).bytes());
    if (way_[k] == Way::kChunks)
      total += aligned(chunks_.most_rows() * operand.length * operand.item_size());
  }
}

// All of it before anything is written.
void Transfer::allocate() {
  cudaStream_t stream = pipeline_.compute.get();
  if (once_bytes_ > 0) {
    once_host_ = std::make_unique<HostBuffer>(once_bytes_);
    once_device_ = DeviceMemory(static_cast<std::size_t>(once_bytes_), stream);
  }
  const auto slots = std::min<std::int64_t>(kSlots, chunks_.count());
  for (std::int64_t s = 0; s < slots; ++s) {
    slots_[s].host = std::make_unique<HostBuffer>(slot_bytes_);
    slots_[s].device = DeviceMemory(static_cast<std::size_t>(slot_bytes_), stream);
  }
  if (is_single_) return;
  pipeline_.prepared.record(stream);
  pipeline_.upload.wait_for(pipeline_.prepared);
}

void Transfer::upload_repeating() {
  if (once_bytes_ == 0) return;
  for (int k = 0; k < problem_.operands; ++k)
    if (way_[k] == Way::kOnce)
      pack(area_of(problem_, problem_.operand[k], whole(problem_)),
           once_host_->data() + offset_[k]);
  CUDA_CHECK(cudaMemcpyAsync(once_device_.data(), once_host_->data(),
                             static_cast<std::size_t>(once_bytes_), cudaMemcpyHostToDevice, up_));
}

void Transfer::upload(Slot& slot, const Box& box) {
  slot.box = box;
  slot.is_busy = true;
  for (int k = 0; k < problem_.operands; ++k) {
    const Operand& operand = problem_.operand[k];
    if (way_[k] != Way::kChunks || operand.is_output) continue;
    const HostArea area = area_of(problem_, operand, box);
    const char* from = area.data;
    if (!travels_directly(k, area)) {
      char* packed = slot.host->data() + offset_[k];
      pack(area, packed);
      from = packed;
    }
    CUDA_CHECK(cudaMemcpyAsync(static_cast<char*>(slot.device.data()) + offset_[k], from,
                               static_cast<std::size_t>(area.bytes()), cudaMemcpyHostToDevice,
                               up_));
  }
  if (is_single_) return;
  marks(slot).uploaded.record(up_);
  pipeline_.compute.wait_for(marks(slot).uploaded);
}

// The slot's chunk, whose arrays lie packed in device memory.
Problem Transfer::device_problem(const Slot& slot) const {
  Problem part = problem_;
  std::copy_n(slot.box.extent, problem_.axes, part.extent);
  for (int k = 0; k < part.operands; ++k) {
    if (way_[k] == Way::kAbsent) continue;
    const bool is_once = way_[k] == Way::kOnce;
    Operand& operand = part.operand[k];
    const Operand& host = problem_.operand[k];
    operand.data = static_cast<char*>((is_once ? once_device_ : slot.device).data()) + offset_[k];
    operand.element_stride = operand.item_size();
    std::int64_t step = operand.length * operand.item_size();
    for (int d = part.axes - 1; d >= 0; --d) {
      if (repeats(problem_, host, d)) continue;
      operand.stride[d] = step;
      if (is_once) operand.data += slot.box.begin[d] * step;
      step *= is_once ? problem_.extent[d] : part.extent[d];
    }
  }
  return part;
}

void Transfer::compute(Slot& slot) {
  run_on_device(device_problem(slot), device_, pipeline_.compute.get());
  if (is_single_) return;
  marks(slot).computed.record(pipeline_.compute.get());
  pipeline_.download.wait_for(marks(slot).computed);
}

void Transfer::download(Slot& slot) {
  has_begun_ = true;
  for (int k = 0; k < problem_.operands; ++k) {
    if (!problem_.operand[k].is_output) continue;
    const HostArea area = area_of(problem_, problem_.operand[k], slot.box);
    char* to = travels_directly(k, area) ? area.data : slot.host->data() + offset_[k];
    CUDA_CHECK(cudaMemcpyAsync(to, static_cast<char*>(slot.device.data()) + offset_[k],
                               static_cast<std::size_t>(area.bytes()), cudaMemcpyDeviceToHost,
                               down_));
  }
  marks(slot).downloaded.record(down_);
}

void Transfer::finish(Slot& slot) {
  if (!slot.is_busy) return;
  marks(slot).downloaded.synchronize();
  slot.is_busy = false;
  for (int k = 0; k < problem_.operands; ++k) {
    if (!problem_.operand[k].is_output) continue;
    const HostArea area = area_of(problem_, problem_.operand[k], slot.box);
    if (!travels_directly(k, area)) unpack(slot.host->data() + offset_[k], area);
  }
}

void Transfer::run() {
  allocate();
  upload_repeating();
  for (std::int64_t chunk = 0; chunk < chunks_.count(); ++chunk) {
    Slot& slot = slots_[chunk % kSlots];
    finish(slot);
    upload(slot, chunks_.box(chunk));
    compute(slot);
    download(slot);
  }
  for (std::int64_t after = chunks_.count(); after < chunks_.count() + kSlots; ++after)
    finish(slots_[after % kSlots]);
}

// Elementwise calls can be cut anywhere.
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
    if (way_of(problem, problem.operand[k]) == Way::kChunks)
      row += problem.operand[k].length * problem.operand[k].item_size();
  return std::max<std::int64_t>(1, bytes / std::max<std::int64_t>(row, 1));
}

[[noreturn]] void throw_no_memory(const Problem& problem, const DeviceFacts& device) {
  std::size_t free = 0, total = 0;
  if (cudaMemGetInfo(&free, &total) != cudaSuccess) cudaGetLastError();
  const bool by_rows = problem.op->walk == Walk::kRows;
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
  const BorrowedPipeline pipeline(device.index);
  const Problem problem = cut_anywhere(given);
  std::int64_t rows = std::min(rows_of_chunk(problem, chunk_bytes()), problem.rows());
  for (;; rows = std::max<std::int64_t>(1, rows / 4)) {
    bool has_begun = true;
    try {
      Transfer transfer(problem, device, *pipeline, rows);
      try {
        return transfer.run();
      } catch (...) {
        has_begun = transfer.has_begun();
        throw;
      }
    } catch (const CudaMemoryError&) {
      if (has_begun) throw;
      if (rows == 1) throw_no_memory(problem, device);
    }
  }
}

}  // namespace tensor_ops
