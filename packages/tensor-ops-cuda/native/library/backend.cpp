// The exported function of libtensor_ops_cuda, and what this backend puts into its table.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <set>
#include <string>

#include "abi/backend_table.h"
#include "decode/interface/decode_interface.h"
#include "launch/alignment.h"
#include "launch/device.h"
#include "launch/run.h"

namespace tensor_ops {
namespace {

std::string configuration() {
  std::string architectures = compiled_architectures();
  std::replace(architectures.begin(), architectures.end(), ' ', ',');
#ifdef TENSOR_OPS_CUDA_EMULATION
  return "architectures=" + architectures + " emulation=on";
#else
  return "architectures=" + architectures;
#endif
}

// Python's module asks the interpreter instead where its threads may change the environment at the
// same time. A program that does so itself has to see to it, as for every use of getenv().
int chosen_host_device() { return host_device(std::getenv(kDeviceVariable)); }

// Why host arrays cannot be computed; empty where they can. Makes no context.
std::string host_reason() {
  try {
    return devices()[static_cast<std::size_t>(chosen_host_device())].full_reason();
  } catch (const Error& error) {
    return error.what();
  }
}

// The reason may change: by the environment, by a new driver, and by a fork. What callers were
// given stays where it is.
const char* reason_for_callers() {
  static std::mutex mutex;
  static auto* given = new std::set<std::string>;
  try {
    const std::string reason = host_reason();
    if (reason.empty()) return nullptr;
    const std::lock_guard lock(mutex);
    return given->insert(reason).first->c_str();
  } catch (const std::exception&) {
    return "there is not enough memory to say why";
  }
}

int device_count() { return host_reason().empty() ? static_cast<int>(devices().size()) : 0; }

void describe_device(int index, tensor_ops_device& to) {
  const Device& device = devices()[static_cast<std::size_t>(index)];
  to.kind = TENSOR_OPS_CUDA;
  to.index = index;
  std::strncpy(to.name, device.name.c_str(), sizeof to.name - 1);
  to.compute_capability = 10 * device.facts.major + device.facts.minor;
  to.compute_units = device.facts.multiprocessors;
  to.memory = static_cast<std::int64_t>(device.memory);
  to.shared_memory = static_cast<std::int64_t>(device.shared_memory);
}

bool is_on_host(const CallerArray& array) { return array.device_kind() == TENSOR_OPS_CPU; }

std::string place_text(const CallerArray& array) {
  return is_on_host(array) ? "in host memory" : text("on cuda:", array.device_index());
}

struct NamedArray {
  const char* name;
  const CallerArray& array;
};

void require_known_device(const Op& op, const NamedArray& each) {
  const int kind = each.array.device_kind(), index = each.array.device_index();
  if (kind == TENSOR_OPS_CUDA || (kind == TENSOR_OPS_CPU && index == 0)) return;
  throw ValueError(text(op.name, ": ", each.name, " must be in host memory (device_kind ",
                        TENSOR_OPS_CPU, ", device_index 0) or on a CUDA device (device_kind ",
                        TENSOR_OPS_CUDA, "), got ", kind, ", ", index));
}

void require_same_device(const Op& op, const NamedArray& each, const NamedArray& first) {
  const std::string found = text(op.name, ": ", each.name, " is ", place_text(each.array), " and ",
                                 first.name, " is ", place_text(first.array));
  if (is_on_host(each.array) != is_on_host(first.array))
    throw TypeError(text(found, "; all arrays of a call must be in host memory, or on one device"));
  if (each.array.device_index() != first.array.device_index())
    throw ValueError(text(found, "; all arrays of a call must be on one device"));
}

// A pointer to other memory than the caller says would end the process, or the device's context.
void require_residence(const Op& op, const NamedArray& each) {
  const CallerArray& array = each.array;
  if (array.size() == 0) return;
  const Residence found = residence_of(array.data);
  const bool is_right =
      found.memory == Memory::kManaged ||
      (is_on_host(array) ? found.memory == Memory::kHost
                         : found.memory == Memory::kDevice && found.device == array.device_index());
  if (is_right) return;
  const std::string place =
      found.memory == Memory::kHost ? "in no device's memory" : text("on cuda:", found.device);
  throw ValueError(text(op.name, ": ", each.name, " is said to be ", place_text(array),
                        ", and its data is ", place,
                        "; give the device_kind and the device_index of its memory"));
}

void require_device_memory(const Op& op, const NamedArray& each) {
  require_residence(op, each);
  if (!is_on_host(each.array)) require_alignment(op.name, each.name, each.array);
}

// Calls check(array) for each that was given.
template <class Check>
void for_each_array(const Op& op, const InterfaceCall& call, Check check) {
  for (int k = 0; k < call.arrays; ++k)
    if (call.array[k].is_given()) check(NamedArray{call.name[k], call.array[k]});
  for (std::size_t i = 0; i < op.outputs.size(); ++i)
    check(NamedArray{output_name(op, i), call.out[i]});
}

const DeviceFacts& device_of(const InterfaceCall& call) {
  const CallerArray& x = call.array[0];
  return usable_device(is_on_host(x) ? chosen_host_device() : x.device_index());
}

// Does what asks the driver.
template <class Work>
void with_driver(const Op& op, Work work) {
  try {
    work();
  } catch (const UnavailableError& error) {
    throw UnavailableError(text(op.name, ": tensor_ops_cuda is unavailable: ", error.what()));
  }
}

void check_devices(const Op& op, const InterfaceCall& call) {
  const NamedArray first{call.name[0], call.array[0]};
  for_each_array(op, call, [&](const NamedArray& each) { require_known_device(op, each); });
  for_each_array(op, call, [&](const NamedArray& each) { require_same_device(op, each, first); });
  with_driver(op, [&] {
    // Asking about addresses makes a context on the current device.
    const CurrentDevice current(device_of(call).index);
    for_each_array(op, call, [&](const NamedArray& each) { require_device_memory(op, each); });
  });
}

void run(const OpCall& call, const InterfaceCall& given) {
  if (call.array[0]->size() == 0) return;
  with_driver(*call.op, [&] {
    const Problem problem = make_problem(call);
    const DeviceFacts& device = device_of(given);
    if (is_on_host(given.array[0])) return run_from_host(problem, device);
    const CurrentDevice current(device.index);
    run_on_device(problem, device, static_cast<cudaStream_t>(given.stream));
  });
}

// The threads that copy are as many as pay, whatever a caller says: none of them computes.
int num_threads() { return 1; }

void require_num_threads(int count) {
  if (count < 1) throw ValueError(text("set_num_threads: count must be at least 1, got ", count));
}

}  // namespace
}  // namespace tensor_ops

extern "C" tensor_ops_status tensor_ops_cuda_backend(std::uint32_t abi_version,
                                                     const tensor_ops_backend** backend,
                                                     tensor_ops_error* error) {
  using namespace tensor_ops;
  static const BackendParts parts{"cuda",
                                  "CUDA",
                                  TENSOR_OPS_VERSION,
                                  configuration,
                                  reason_for_callers,
                                  device_count,
                                  describe_device,
                                  check_devices,
                                  run,
                                  num_threads,
                                  require_num_threads,
                                  &decode_interface};
  return get_backend(parts, abi_version, backend, error);
}
