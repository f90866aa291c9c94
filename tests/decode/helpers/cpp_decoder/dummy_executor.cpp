// The smallest executor of a package: the token after one is a function of it and its position, and
// weights are not read. With native/decode/ it is a library that runs exported models.
#include <algorithm>

#include "decode/interface/decode_interface.h"

namespace tensor_ops::decode {
namespace {

class Dummy final : public Executor {
 public:
  explicit Dummy(const Program& program) : Executor(program) {
    arrays_.allocate();
    memory_ = {{"arrays", arrays_.bytes()}};
  }

  void take_step(const Step& step) override {
    for (const std::size_t output : program_.outputs) {
      const Value& value = program_.values[output];
      const bool is_selected = value.rows == Rows::kSelected;
      for (std::size_t row = 0; row < (is_selected ? step.num_selected : step.num_tokens); ++row) {
        const std::size_t token = is_selected ? static_cast<std::size_t>(step.selected[row]) : row;
        const auto next = static_cast<std::size_t>(3 * step.tokens[token] + step.positions[token]) %
                          arrays_.num_words();
        unsigned char* const to = arrays_.value(value.name) + 4 * row * value.columns;
        if (value.is_int32) {
          *reinterpret_cast<std::int32_t*>(to) = static_cast<std::int32_t>(next);
        } else {
          std::fill_n(reinterpret_cast<float*>(to), value.columns, 0.0f);
          reinterpret_cast<float*>(to)[next] = 1;
        }
      }
    }
  }

  void release() override {}
  ActivationType activations() const override { return ActivationType::kFloat32; }
  std::size_t num_workers() const override { return 1; }
};

}  // namespace

int most_workers() { return 1; }

std::unique_ptr<Executor> make_executor(const ExportedModel& model, const ExecutorOptions&) {
  return std::make_unique<Dummy>(model.program);
}

}  // namespace tensor_ops::decode

extern "C" tensor_ops_status tensor_ops_cpp_backend(std::uint32_t,
                                                    const tensor_ops_backend** backend,
                                                    tensor_ops_error*) {
  static tensor_ops_backend table{};
  table.size = sizeof table;
  table.name = "dummy";
  table.unavailable_reason = [] { return static_cast<const char*>(nullptr); };
  table.decode = &tensor_ops::decode_interface;
  *backend = &table;
  return TENSOR_OPS_OK;
}
