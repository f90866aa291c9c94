#include "arrays/array_reader.h"

#include <algorithm>
#include <deque>
#include <mutex>

#include "arrays/device_array.h"
#include "arrays/readers.h"
#include "declaration/errors.h"
#include "launch/alignment.h"
#include "launch/streams.h"

namespace tensor_ops {
namespace {

// A lease of a producer, which a call may still need that had been enqueued before `done`.
struct Kept {
  Event done;
  Lease lease;
};

struct KeptLeases {
  std::mutex mutex;
  std::deque<Kept> queue;
};

KeptLeases& kept() {
  static auto* leases = new KeptLeases;
  return *leases;
}

struct Taken {
  std::vector<Kept> kept;
  bool are_done = true;
};

// Takes the leases in front that are done, and of too many the oldest.
Taken take() {
  constexpr std::size_t kMostKept = 64;
  Taken taken;
  const std::lock_guard lock(kept().mutex);
  auto& queue = kept().queue;
  while (!queue.empty()) {
    const bool is_done = queue.front().done.is_done();
    if (!is_done && queue.size() <= kMostKept) break;
    taken.kept.push_back(std::move(queue.front()));
    taken.are_done = taken.are_done && is_done;
    queue.pop_front();
  }
  return taken;
}

// Python is not held up: a stream may have to call it before it goes on.
void wait_for(const Taken& taken) {
  if (taken.are_done) return;
  const ReleasedGil released;
  for (const Kept& each : taken.kept) each.done.synchronize();
}

// Gives a lease back some time after the stream has done what it was asked to do until now: no
// earlier than a later call. Called with the GIL, as producers may want it.
void keep_lease(Lease lease, cudaStream_t stream) {
  Kept added{Event(), std::move(lease)};
  added.done.record(stream);
  {
    const std::lock_guard lock(kept().mutex);
    kept().queue.push_back(std::move(added));
  }
  // A capture may neither ask nor wait. What is done is given back without the lock.
  if (!is_capturing(stream)) wait_for(take());
}

// Seen without a Python call.
dlpack::Device read_exchange_tensor(const char* op, const char* name,
                                    const dlpack::ExchangeAPI& api, Array& array) {
  dlpack::DLTensor borrowed;
  const dlpack::DLTensor* tensor = &borrowed;
  if (api.tensor_from_object) {
    if (api.tensor_from_object(array.object, &borrowed) != 0) throw PythonError();
  } else {
    dlpack::ManagedTensorVersioned* managed = nullptr;
    if (api.managed_from_object(array.object, &managed) != 0) throw PythonError();
    array.lease = Lease(managed, dlpack::GiveBack());
    // The work is on the producer's own stream, so that the lease can be given back at once.
    array.has_stream = true;
    tensor = &managed->tensor;
  }
  read_tensor(op, name, *tensor, array);
  return tensor->device;
}

}  // namespace

void ArrayReader::read(const char* name, PyObject* object, Array& array) {
  array.object = object;
  if (PyArray_CheckExact(object)) {
    array.source = Source::kNumPy;
    take_device_of(name, object, kHost);
    return read_numpy(op_, name, array);
  }
  const TypeFacts facts = facts_of(object);
  array.source = facts.source;
  array.api = facts.api;
  if (!facts.is_array) refuse_no_array(op_, name, array);
  const bool has_grad = facts.may_require_grad && refuse_grad(op_, name, array, facts.package);
  switch (facts.source) {
    case Source::kNumPy:
      take_device_of(name, object, kHost);
      return read_numpy(op_, name, array);
    case Source::kOwn:
      read_own(name, array);
      break;
    case Source::kExchange:
      read_exchange(name, facts, array);
      break;
    case Source::kProtocol:
      read_protocol(name, facts, has_grad, array);
      break;
    case Source::kInterface:
      read_interface(name, array);
      break;
  }
  require_alignment(op_, name, array);
}

void ArrayReader::take_device(int device) {
  is_known_ = true;
  device_ = device;
  if (device == kHost) return;
  usable_device(device);
  current_.emplace(device);
}

void ArrayReader::take_device_of(const char* name, PyObject* object, int device) {
  if (!is_known_) {
    first_ = name;
    first_type_ = Py_TYPE(object);
    return take_device(device);
  }
  if (device == device_) return;
  if (device == kHost || is_host())
    throw TypeError(text(op_, ": ", name, " is a ", type_name(object), " ", device_text(device),
                         " and ", first_, " is a ", type_name(first_type_), " ",
                         device_text(device_),
                         "; all arrays of a call must be NumPy's, or on one device"));
  throw ValueError(text(op_, ": ", name, " is ", device_text(device), " and ", first_, " is ",
                        device_text(device_), "; all arrays of a call must be on one device"));
}

void ArrayReader::choose_stream(cudaStream_t stream, Owned owner) {
  has_stream_ = true;
  stream_ = stream;
  stream_owner_ = std::move(owner);
}

// An array is ready on a stream: that one is the call's, or the call's waits for it.
void ArrayReader::wait_for(cudaStream_t stream) {
  if (!has_stream_) return choose_stream(stream);
  if (stream == stream_) return;
  order_after(stream_, stream);
  if (std::find(others_.begin(), others_.end(), stream) == others_.end()) others_.push_back(stream);
}

void ArrayReader::read_own(const char* name, Array& array) {
  const DeviceArray& own = device_array_of(array.object);
  take_device_of(name, array.object, own.device);
  if (has_stream_)
    wait_for(own.stream);
  else
    choose_stream(own.stream, Owned(Py_XNewRef(stream_owner_of(own))));
  read_device_array(own, array);
}

void ArrayReader::read_exchange(const char* name, const TypeFacts& facts, Array& array) {
  const dlpack::Device device = read_exchange_tensor(op_, name, *facts.api, array);
  if (device.type != dlpack::kCUDA && device.type != dlpack::kCUDAManaged)
    refuse_host_array(name, array);
  array.device = device.id;
  take_device_of(name, array.object, device.id);
  if (has_stream_ && api_ == facts.api) return;
  void* stream = nullptr;
  if (facts.api->current_stream(dlpack::kCUDA, device.id, &stream) != 0) throw PythonError();
  if (!has_stream_) api_ = facts.api;
  wait_for(static_cast<cudaStream_t>(stream));
}

void ArrayReader::read_protocol(const char* name, const TypeFacts& facts, bool has_grad,
                                Array& array) {
  // PyTorch exports no tensor that requires grad, even where none is recorded.
  const Owned exported = has_grad ? Owned(PyObject_CallMethod(array.object, "detach", nullptr))
                                  : Owned::borrow(array.object);
  if (!exported) throw PythonError();
  const dlpack::Device device = protocol_device(op_, name, exported.get());
  if (device.type != dlpack::kCUDA && device.type != dlpack::kCUDAManaged)
    refuse_host_array(name, array);
  array.device = device.id;
  take_device_of(name, array.object, device.id);
  LibraryStream library = current_stream_of(facts.package, device.id);
  if (library.is_known && !has_stream_)
    choose_stream(library.stream, std::move(library.owner));
  else if (library.is_known)
    wait_for(library.stream);
  else if (!has_stream_)
    choose_stream(own_stream(device.id));
  array.has_stream = library.is_known;
  array.lease = read_capsule(op_, name, exported.get(), stream_, array);
}

void ArrayReader::read_interface(const char* name, Array& array) {
  read_cuda_interface(op_, name, array);
  take_device_of(name, array.object, array.device);
  if (array.has_stream)
    wait_for(array.stream);
  else if (!has_stream_)
    choose_stream(cudaStreamLegacy);
}

void ArrayReader::refuse_host_array(const char* name, const Array& array) const {
  const std::string found =
      text(op_, ": ", name, " is a ", type_name(array.object), " in host memory");
  if (is_known_)
    throw TypeError(text(found, " and ", first_, " is a ", type_name(first_type_), " ",
                         device_text(device_),
                         "; all arrays of a call must be NumPy's, or on one device"));
  throw TypeError(text(found, "; move it to a CUDA device, or call tensor_ops.", op_,
                       ", which takes host arrays of every library"));
}

void ArrayReader::release(Array* const* arrays, int count) {
  for (cudaStream_t other : others_) order_after(other, stream_);
  for (int k = 0; k < count; ++k)
    if (arrays[k]->lease && !arrays[k]->has_stream)
      keep_lease(std::move(arrays[k]->lease), stream_);
}

}  // namespace tensor_ops
