// One backend: what its library says about it, and its ops.
// Tested by tests/cpp_api/.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "tensor_ops/abi.h"
#include "tensor_ops/backend/array.h"
#include "tensor_ops/backend/call.h"
#include "tensor_ops/backend/errors.h"
#include "tensor_ops/backend/names.h"
#include "tensor_ops/backend/ops.h"

namespace tensor_ops::backend {

// A device that a backend computes on.
struct DeviceInfo {
  Device device;
  std::string name;
  int compute_capability;  // 90 for 9.0; 0 where it has no meaning
  int compute_units;       // multiprocessors, or processors that may be used
  std::int64_t memory;     // bytes; 0 if unknown
  std::int64_t shared_memory;
};

// A backend of the registry, which owns it and never frees it. Any function may be called from any
// thread. The base class has a method for each op, such as rms_norm(x, weight, y).
class Backend : public Ops<Backend> {
 public:
  // With the table of a library; or without one where the library cannot be used, and why.
  Backend(std::string name, std::string library, const tensor_ops_backend* table,
          std::string broken = "")
      : name_(std::move(name)),
        library_(std::move(library)),
        broken_(std::move(broken)),
        table_(table) {}
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;

  const std::string& get_name() const { return name_; }
  BackendType type() const { return name_ == "cuda" ? BackendType::kCuda : BackendType::kCpp; }
  // The file that it was loaded from, empty where the program registered it.
  const std::string& library() const { return library_; }
  std::string display_name() const { return table_ == nullptr ? name_ : table_->display_name; }
  std::string version() const { return table_ == nullptr ? "" : table_->version; }
  // The options that were compiled, as words "key=value" with spaces between them.
  std::string configuration() const { return table_ == nullptr ? "" : table_->configuration; }

  bool is_available() const { return table_ != nullptr && table_->unavailable_reason() == nullptr; }
  // Why it cannot be used here, empty where it can.
  std::string unavailable_reason() const {
    if (table_ == nullptr) return broken_;
    const char* reason = table_->unavailable_reason();
    return reason == nullptr ? "" : reason;
  }

  std::vector<DeviceInfo> devices() const {
    std::vector<DeviceInfo> found;
    const std::int32_t count = table_ == nullptr ? 0 : table_->device_count();
    for (std::int32_t i = 0; i < count; ++i) {
      tensor_ops_device device{};
      device.size = sizeof device;
      tensor_ops_error error{};
      throw_unless_ok(table_->device(i, &device, &error), error);
      found.push_back({{device.kind, device.index},
                       device.name,
                       device.compute_capability,
                       device.compute_units,
                       device.memory,
                       device.shared_memory});
    }
    return found;
  }

  // Threads that a call may use, and a new limit from 1; of no meaning on a GPU.
  int num_threads() const { return table().num_threads(); }
  void set_num_threads(int count) const {
    tensor_ops_error error{};
    throw_unless_ok(table().set_num_threads(count, &error), error);
  }

  // The ops as its library declares them, sorted by name.
  std::vector<const tensor_ops_op*> ops() const {
    if (table_ == nullptr) return {};
    return {table_->ops, table_->ops + table_->op_count};
  }
  bool has_op(const std::string& name) const { return find(name.c_str()) != nullptr; }
  bool has_op(const char* name) const { return has_op(detail::not_null(name, "an op's name")); }

  // Runs an op. Arrays stand in the order of the declaration, or with their names; an optional one
  // may be left out, and so may settings, which then have their default values:
  //     call("rms_norm", {x, weight}, {y});
  //     call("gelu", {{"x", x}}, {{"y", y}}, {{"approximate", "none"}});
  void call(const std::string& name, const std::vector<Input>& inputs,
            const std::vector<Output>& outputs, const std::vector<Setting>& settings = {},
            CallOptions options = {}) const {
    const tensor_ops_op& op = found(name.c_str());
    const auto sources = detail::in_order(op, "input", inputs, detail::input_names(op));
    const auto results = detail::in_order(
        op, "output", outputs,
        std::vector<std::string>(op.output_names, op.output_names + op.output_count));
    const auto [scalars, choice] = detail::sorted_settings(op, settings);
    std::vector<tensor_ops_array> in, out;
    for (const ConstArray& each : sources) in.push_back(each.abi());
    for (const Array& each : results) out.push_back(each.abi());
    run(op, in.data(), in.size(), out.data(), out.size(), scalars.data(), scalars.size(), choice,
        options);
  }
  void call(const char* name, const std::vector<Input>& inputs, const std::vector<Output>& outputs,
            const std::vector<Setting>& settings = {}, CallOptions options = {}) const {
    call(detail::not_null(name, "an op's name"), inputs, outputs, settings, options);
  }

  // The library's own table, null where the library cannot be used.
  const tensor_ops_backend* abi() const { return table_; }

 private:
  friend class Ops<Backend>;

  // The methods of Ops call this.
  void run_op(const char* name, std::initializer_list<tensor_ops_array> inputs,
              std::initializer_list<tensor_ops_array> outputs,
              std::initializer_list<double> scalars, int choice, CallOptions options) const {
    run(found(name), inputs.begin(), inputs.size(), outputs.begin(), outputs.size(),
        scalars.begin(), scalars.size(), choice, options);
  }

  void run(const tensor_ops_op& op, const tensor_ops_array* inputs, std::size_t input_count,
           const tensor_ops_array* outputs, std::size_t output_count, const double* scalars,
           std::size_t scalar_count, int choice, CallOptions options) const {
    const tensor_ops_call call{sizeof(tensor_ops_call),
                               inputs,
                               outputs,
                               scalars,
                               static_cast<std::int32_t>(input_count),
                               static_cast<std::int32_t>(output_count),
                               static_cast<std::int32_t>(scalar_count),
                               choice,
                               options.num_threads,
                               options.stream};
    tensor_ops_error error{};
    throw_unless_ok(table_->call(&op, &call, &error), error);
  }

  const tensor_ops_backend& table() const {
    if (table_ != nullptr) return *table_;
    throw UnavailableError("backend '" + name_ + "' is unavailable: " + broken_);
  }

  const tensor_ops_op* find(const char* name) const {
    if (table_ == nullptr) return nullptr;
    const auto* const* end = table_->ops + table_->op_count;
    const auto* const* place =
        std::lower_bound(table_->ops, end, name, [](const tensor_ops_op* op, const char* wanted) {
          return std::strcmp(op->name, wanted) < 0;
        });
    return place != end && std::strcmp((*place)->name, name) == 0 ? *place : nullptr;
  }

  const tensor_ops_op& found(const char* name) const {
    const tensor_ops_backend& backend = table();
    if (const tensor_ops_op* op = find(name)) return *op;
    std::vector<std::string> names;
    for (const tensor_ops_op* op : ops()) names.emplace_back(op->name);
    throw TypeError("backend '" + name_ + "' " + backend.version + " has no op " +
                    detail::in_quotes(name) + "; " + detail::did_you_mean(name, names) +
                    "It has: " + detail::joined(names, ", "));
  }

  const std::string name_, library_, broken_;
  const tensor_ops_backend* const table_;
};

}  // namespace tensor_ops::backend
