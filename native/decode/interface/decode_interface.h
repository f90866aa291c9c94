// The table of tensor_ops/decode.h, and where it gets its executors: each package that has one
// defines these functions, in decode/executor/.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>

#include "decode/files/exported_model.h"
#include "decode/program/activation_type.h"
#include "decode/serving/executor.h"
#include "tensor_ops/decode.h"

namespace tensor_ops {

extern const tensor_ops_decode decode_interface;

namespace decode {

struct ExecutorOptions {
  std::optional<ActivationType> activations;  // none: the executor chooses
  std::size_t num_workers;                    // 0: the executor chooses
};

// The most workers that can be asked for.
int most_workers();

// The model's tensors stay where they are for as long as the executor is open. Throws the errors of
// declaration/errors.h.
std::unique_ptr<Executor> make_executor(const ExportedModel& model, const ExecutorOptions& options);

}  // namespace decode
}  // namespace tensor_ops
