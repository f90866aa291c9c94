// The exported function of libtensor_ops_cpp, and what this backend puts into its table.
#include <cstring>

#include "abi/backend_table.h"
#include "isa/isa.h"
#include "launch/ready_call.h"
#include "threads/threads.h"
#ifndef TENSOR_OPS_WITHOUT_DECODE
#include "decode/interface/decode_interface.h"
#endif

namespace tensor_ops {
namespace {

#ifdef TENSOR_OPS_WITHOUT_DECODE
constexpr const tensor_ops_decode* kDecode = nullptr;
constexpr char kDecodeSetting[] = "off";
#else
constexpr const tensor_ops_decode* kDecode = &decode_interface;
constexpr char kDecodeSetting[] = "on";
#endif

std::string configuration() {
  std::string levels;
  for (const Level& level : compiled_levels())
    levels += (levels.empty() ? "" : ",") + std::string(level.name);
  return "levels=" + levels + " decode=" + kDecodeSetting;
}

const char* unavailable_reason() {
  const std::string& reason = isa_choice().reason;
  return reason.empty() ? nullptr : reason.c_str();
}

int device_count() { return unavailable_reason() ? 0 : 1; }

void describe_device(int, tensor_ops_device& device) {
  device.kind = TENSOR_OPS_CPU;
  const std::string brand = cpu_brand();
  std::strncpy(device.name, brand.empty() ? "CPU" : brand.c_str(), sizeof device.name - 1);
  device.compute_units = static_cast<std::int32_t>(allowed_threads());
  device.memory = static_cast<std::int64_t>(allowed_memory());
}

void require_host(const Op& op, const char* name, const CallerArray& array) {
  if (array.device_kind() == TENSOR_OPS_CPU && array.device_index() == 0) return;
  throw ValueError(text(op.name, ": ", name, " must be in host memory (device_kind ",
                        TENSOR_OPS_CPU, ", device_index 0), where tensor_ops_cpp computes, got ",
                        array.device_kind(), ", ", array.device_index()));
}

void check_devices(const Op& op, const InterfaceCall& call) {
  for (int k = 0; k < call.arrays; ++k)
    if (call.array[k].is_given()) require_host(op, call.name[k], call.array[k]);
  for (std::size_t i = 0; i < op.outputs.size(); ++i)
    require_host(op, output_name(op, i), call.out[i]);
}

void require_and_set_num_threads(int count) {
  if (count < 1) throw ValueError(text("set_num_threads: count must be at least 1, got ", count));
  set_num_threads(count);
}

void run(const OpCall& call, const InterfaceCall& given) {
  if (call.array[0]->size() == 0) return write_empty_sums(call);
  if (const char* reason = unavailable_reason()) throw_unavailable(*call.op, reason);
  ReadyCall(call, given.num_threads).run();
}

}  // namespace
}  // namespace tensor_ops

extern "C" tensor_ops_status tensor_ops_cpp_backend(std::uint32_t abi_version,
                                                    const tensor_ops_backend** backend,
                                                    tensor_ops_error* error) {
  using namespace tensor_ops;
  static const BackendParts parts{"cpp",
                                  "C++ (SIMD, threads)",
                                  TENSOR_OPS_VERSION,
                                  configuration,
                                  unavailable_reason,
                                  device_count,
                                  describe_device,
                                  check_devices,
                                  run,
                                  num_threads,
                                  require_and_set_num_threads,
                                  kDecode};
  return get_backend(parts, abi_version, backend, error);
}
