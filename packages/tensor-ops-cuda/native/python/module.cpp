// The extension module tensor_ops_cuda._native: the ops, DeviceArray, and what Python needs to know
// of the devices.
#include "binding/ops/module.h"

#include "binding/decode/executable.h"
#include "launch/device.h"
#include "launch/pinned_pool.h"
#include "launch/run.h"
#include "python/device_array.h"
#include "python/host_device.h"

namespace nb = nanobind;

namespace tensor_ops {
namespace {

nb::dict facts_of(const Device& device) {
  nb::dict facts;
  facts["index"] = device.facts.index;
  facts["name"] = device.name;
  facts["compute_capability"] = 10 * device.facts.major + device.facts.minor;
  facts["compute_units"] = device.facts.multiprocessors;
  facts["max_memory"] = device.memory;
  facts["max_shared_memory"] = device.shared_memory;
  facts["has_clusters"] = device.facts.has_clusters;
  facts["reason"] = text_or_none(device.reason);
  return facts;
}

nb::list list_devices() {
  nb::list list;
  for (const Device& device : devices()) list.append(facts_of(device));
  return list;
}

}  // namespace

// Without the GIL calls need nothing more than they need while they have released it: state of the
// process is atomic, behind a lock that is held across no call into Python, or made before the
// module is. An array that another thread reshapes meanwhile is its caller's mistake, as in NumPy.
NB_MODULE(_native, module) {
  module.doc() = "Native part of tensor_ops_cuda.";
  module.attr("architectures") = compiled_architectures();
  module.attr("device_variable") = kDeviceVariable;
  add_ops(module, TENSOR_OPS_VERSION);
  add_device_array(module);
  module.attr("runs_programs") = true;
  add_decode(module);
  module.def("configuration", [] { return configuration_of(tensor_ops_cuda_backend); });
  module.def("devices", list_devices);
  module.def("unavailable_reason", [] { return text_or_none(unavailable_reason()); });
  module.def("host_device", chosen_host_device);
  module.def("driver_version", driver_version);
  module.def("runtime_version", runtime_version);
  module.def("is_forked_child", is_forked_child);
  module.def("pool_info", [] { return pool_dict(pinned_pool_state()); });
  module.def("set_pool_limit", set_pinned_pool_limit);
  module.def("trim_pool", trim_pinned_pool);
  module.def("chunk_bytes", chunk_bytes);
  module.def("set_chunk_bytes", set_chunk_bytes);
}

}  // namespace tensor_ops
