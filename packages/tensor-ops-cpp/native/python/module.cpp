// The extension module tensor_ops_cpp._native: the ops and what Python needs to know of the
// launcher.
#include "binding/ops/module.h"

#include "arrays/results.h"
#include "isa/isa.h"
#include "memory/cache.h"
#include "memory/pool_limit.h"
#include "memory/result_pool.h"
#include "threads/threads.h"
#ifndef TENSOR_OPS_WITHOUT_DECODE
#include "binding/decode/executable.h"
#endif

namespace nb = nanobind;

namespace tensor_ops {
namespace {

nb::list level_names(bool only_of_cpu) {
  nb::list names;
  for (const Level& level : compiled_levels())
    if (!only_of_cpu || level.cpu_has()) names.append(level.name);
  return names;
}

// None where no level can be used.
nb::object level_in_use() {
  if (!isa_choice().reason.empty()) return nb::none();
  return nb::str(compiled_levels()[isa_choice().index].name);
}

std::vector<const char*> features() {
  if (!isa_choice().reason.empty()) return {};
  return compiled_levels()[isa_choice().index].features;
}

}  // namespace

// Without the GIL calls need nothing more than they need while they have released it: state of the
// process is atomic, behind a lock that is held across no call into Python, or made before the
// module is. An array that another thread reshapes meanwhile is its caller's mistake, as in NumPy.
NB_MODULE(_native, module) {
  module.doc() = "Native part of tensor_ops_cpp.";
  add_ops(module, TENSOR_OPS_VERSION);
#ifdef TENSOR_OPS_WITHOUT_DECODE
  module.attr("runs_programs") = false;
#else
  module.attr("runs_programs") = true;
  add_decode(module);
#endif
  prepare_results();
  module.def("configuration", [] { return configuration_of(tensor_ops_cpp_backend); });
  module.def("level", level_in_use);
  module.def("compiled_levels", [] { return level_names(false); });
  module.def("cpu_levels", [] { return level_names(true); });
  module.def("features", features);
  module.def("unavailable_reason", [] { return text_or_none(isa_choice().reason); });
  module.def("cpu_brand", [] { return text_or_none(cpu_brand()); });
  module.def("allowed_threads", allowed_threads);
  module.def("allowed_memory", allowed_memory);
  module.def("num_threads", num_threads);
  module.def("set_num_threads", set_num_threads);
  module.def("cache_size", cache_size);
  module.def("streaming_threshold", streaming_threshold);
  module.def("set_streaming_threshold", set_streaming_threshold);
  module.def("pool_info", [] { return pool_dict(pool_state()); });
  module.def("set_pool_limit", set_pool_limit);
  module.def("trim_pool", trim_pool);
  module.def("pool_setting_problem", [] { return text_or_none(first_pool_limit().problem); });
}

}  // namespace tensor_ops
