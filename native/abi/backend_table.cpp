#include "abi/backend_table.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "launch/op.h"

namespace tensor_ops {
namespace {

static_assert(TENSOR_OPS_ROWS == static_cast<int>(ParameterKind::kRows) &&
              TENSOR_OPS_ROW == static_cast<int>(ParameterKind::kRow) &&
              TENSOR_OPS_OPTIONAL_ROW == static_cast<int>(ParameterKind::kOptionalRow) &&
              TENSOR_OPS_HALF_ROWS == static_cast<int>(ParameterKind::kHalfRows) &&
              TENSOR_OPS_SCALAR == static_cast<int>(ParameterKind::kScalar) &&
              TENSOR_OPS_CHOICE == static_cast<int>(ParameterKind::kChoice) &&
              TENSOR_OPS_FLAG == static_cast<int>(ParameterKind::kFlag));

constexpr bool is_number(int number, DType dtype) { return number == static_cast<int>(dtype); }
static_assert(is_number(TENSOR_OPS_FLOAT32, kFloat32) && is_number(TENSOR_OPS_FLOAT16, kFloat16) &&
              is_number(TENSOR_OPS_BFLOAT16, kBFloat16) && is_number(TENSOR_OPS_FLOAT64, kFloat64));

// The functions that begin with entry_ are those of the table.

// An op as callers see it, and what its pointers point to.
struct InterfaceOp {
  tensor_ops_op facts;
  const Op* op;
  std::vector<tensor_ops_parameter> parameters;
  std::vector<const char*> output_names;
};

// Never freed: callers keep pointers into it for as long as the library is loaded.
struct Table {
  BackendParts parts;
  std::string configuration;
  std::vector<InterfaceOp> ops;
  std::vector<const tensor_ops_op*> op_pointers;
  tensor_ops_backend backend;
};

Table* the_table = nullptr;

void fill(InterfaceOp& to, const Op& op) {
  to.op = &op;
  for (const Parameter& each : op.parameters) {
    tensor_ops_parameter parameter{each.name,
                                   each.description,
                                   static_cast<int>(each.kind),
                                   each.default_value,
                                   {each.choices[0], each.choices[1]}};
    to.parameters.push_back(parameter);
    to.facts.input_count += each.is_array();
    to.facts.scalar_count += each.kind == ParameterKind::kScalar;
  }
  for (const Output& each : op.outputs) to.output_names.push_back(each.name);
  to.facts.name = op.name;
  to.facts.summary = op.summary;
  to.facts.formula = op.formula;
  to.facts.parameters = to.parameters.data();
  to.facts.parameter_count = static_cast<int>(to.parameters.size());
  to.facts.output_names = to.output_names.data();
  to.facts.output_count = static_cast<int>(to.output_names.size());
}

const Op& require_op(const tensor_ops_op* facts) {
  for (const InterfaceOp& each : the_table->ops)
    if (&each.facts == facts) return *each.op;
  throw ValueError(text("call: op must be one of the ops of this backend (", the_table->parts.name,
                        "), got ", facts ? "another pointer" : "a null pointer"));
}

void require_count(const Op& op, const char* what, int given, int expected, const void* pointer) {
  if (given != expected)
    throw TypeError(text(op.name, ": takes ", expected, " ", what, ", got ", given));
  if (expected > 0 && !pointer) throw ValueError(text(op.name, ": ", what, " is a null pointer"));
}

double require_scalar(const Op& op, const Parameter& parameter, double value) {
  if (!std::isfinite(value) || (parameter.non_negative && value < 0))
    throw ValueError(text(op.name, ": ", parameter.name, " must be finite",
                          parameter.non_negative ? " and not negative" : "", ", got ", value));
  return value;
}

void add_numbers(const Op& op, const tensor_ops_call& given, InterfaceCall& call) {
  int scalars = 0;
  bool has_variants = false;
  for (const Parameter& parameter : op.parameters) {
    has_variants = has_variants || parameter.selects_variant();
    if (parameter.kind != ParameterKind::kScalar) continue;
    call.scalar[scalars] = parameter.default_value;
    if (scalars < given.scalar_count && given.scalars)
      call.scalar[scalars] = require_scalar(op, parameter, given.scalars[scalars]);
    ++scalars;
  }
  if (given.scalar_count < 0 || given.scalar_count > scalars)
    throw TypeError(
        text(op.name, ": takes at most ", scalars, " scalars, got ", given.scalar_count));
  if (given.scalar_count > 0 && !given.scalars)
    throw ValueError(text(op.name, ": scalars is a null pointer"));
  if (given.choice < 0 || given.choice > (has_variants ? 1 : 0))
    throw ValueError(text(op.name, ": choice must be ",
                          has_variants ? "0 or 1" : "0, for the op has none", ", got ",
                          given.choice));
  if (given.num_threads < 0)
    throw ValueError(text(op.name, ": num_threads must be at least 0, got ", given.num_threads));
  call.variant = static_cast<std::size_t>(given.choice);
  call.num_threads = given.num_threads;
  call.stream = given.stream;
}

void add_inputs(const Op& op, const tensor_ops_call& given, InterfaceCall& call) {
  for (const Parameter& parameter : op.parameters) {
    if (!parameter.is_array()) continue;
    const tensor_ops_array& array = given.inputs[call.arrays];
    const int k = call.arrays++;
    call.kind[k] = parameter.kind;
    call.name[k] = parameter.name;
    if (array.dtype == TENSOR_OPS_NO_ARRAY) {
      if (parameter.is_required())
        throw TypeError(text(op.name, ": ", parameter.name,
                             " is required, and its dtype is TENSOR_OPS_NO_ARRAY"));
      continue;
    }
    call.array[k].read(op.name, parameter.name, array);
    check_input(op, parameter, call);
  }
}

void add_outputs(const Op& op, const tensor_ops_call& given, InterfaceCall& call) {
  for (std::size_t i = 0; i < op.outputs.size(); ++i) {
    call.out[i].is_output = true;
    call.out[i].read(op.name, output_name(op, i), given.outputs[i]);
    check_output(op, i, call);
  }
  check_overlap(op, call);
}

tensor_ops_status entry_call(const tensor_ops_op* facts, const tensor_ops_call* given,
                             tensor_ops_error* error) {
  return guarded(error, [&] {
    const Op& op = require_op(facts);
    if (!given) throw ValueError(text(op.name, ": call is a null pointer"));
    require_size("tensor_ops_call", given->size, sizeof *given);
    require_count(op, "inputs", given->input_count, facts->input_count, given->inputs);
    require_count(op, "outputs", given->output_count, facts->output_count, given->outputs);
    InterfaceCall call;
    add_numbers(op, *given, call);
    add_inputs(op, *given, call);
    add_outputs(op, *given, call);
    the_table->parts.check_devices(op, call);
    the_table->parts.run(call.to_op_call(op), call);
  });
}

tensor_ops_status entry_device(int index, tensor_ops_device* device, tensor_ops_error* error) {
  return guarded(error, [&] {
    if (!device) throw ValueError("device: device is a null pointer");
    require_size("tensor_ops_device", device->size, sizeof *device);
    const int count = the_table->parts.device_count();
    if (index < 0 || index >= count)
      throw ValueError(text("device: there are ", count,
                            " devices, so that the index must be below ", count, ", got ", index));
    *device = {};
    device->size = sizeof *device;
    the_table->parts.device(index, *device);
  });
}

tensor_ops_status entry_set_num_threads(int count, tensor_ops_error* error) {
  return guarded(error, [&] { the_table->parts.set_num_threads(count); });
}

int entry_device_count() noexcept {
  try {
    return the_table->parts.device_count();
  } catch (...) {
    return 0;
  }
}

int entry_num_threads() noexcept { return the_table->parts.num_threads(); }

Table* new_table(const BackendParts& parts) {
  auto* table = new Table{parts, parts.configuration(), {}, {}, {}};
  for (const Op* op : registered_ops())
    if (op->name[0] != '_') table->ops.push_back({{}, op, {}, {}});
  for (InterfaceOp& each : table->ops) {
    fill(each, *each.op);
    table->op_pointers.push_back(&each.facts);
  }
  tensor_ops_backend& backend = table->backend;
  backend.size = sizeof backend;
  backend.abi_version = TENSOR_OPS_ABI_VERSION;
  backend.name = parts.name;
  backend.display_name = parts.display_name;
  backend.version = parts.version;
  backend.configuration = table->configuration.c_str();
  backend.unavailable_reason = parts.unavailable_reason;
  backend.device_count = entry_device_count;
  backend.device = entry_device;
  backend.ops = table->op_pointers.data();
  backend.op_count = static_cast<int>(table->op_pointers.size());
  backend.call = entry_call;
  backend.num_threads = entry_num_threads;
  backend.set_num_threads = entry_set_num_threads;
  backend.decode = parts.decode;
  return table;
}

constexpr std::int64_t kMostBytes = std::numeric_limits<std::ptrdiff_t>::max();

// The distance from an array's first to its last element along one axis; false where no address
// can be as far.
bool reach(std::int64_t extent, std::int64_t stride, std::int64_t* bytes) {
  return !__builtin_mul_overflow(extent - 1, stride, bytes) && *bytes != -kMostBytes - 1;
}

}  // namespace

void CallerArray::read(const char* op, const char* name, const tensor_ops_array& given) {
  if (given.dims < 0 || given.dims > kMaxDims)
    throw ValueError(
        text(op, ": ", name, ".dims must be from 0 to ", kMaxDims, ", got ", given.dims));
  if (given.dims > 0 && !given.shape)
    throw ValueError(text(op, ": ", name, ".shape is a null pointer, and dims is ", given.dims,
                          "; point it to as many lengths"));
  const bool is_known = given.dtype >= 0 && given.dtype < kDTypes;
  dtype = is_known ? static_cast<DType>(given.dtype) : kDTypes;
  const auto item = static_cast<std::int64_t>(is_known ? kItemSizes[dtype] : 1);
  if (std::any_of(given.shape, given.shape + given.dims, [](auto extent) { return extent < 0; }))
    throw ValueError(text(op, ": ", name, ".shape must have no negative length, got ",
                          shape_text(given.dims, given.shape)));
  set_axes(given.dims, given.shape, given.strides, given.strides ? 1 : item);
  bool fits = fits_into_memory(given.dims, given.shape, item);
  const bool is_empty = fits && size() == 0;
  std::int64_t lowest = 0, highest = 0, span = 0;
  for (int d = 0; d < dims && fits; ++d) {
    std::int64_t distance = 0;
    fits = shape[d] < 2 || (reach(shape[d], strides[d], &distance) &&
                            !__builtin_add_overflow(distance < 0 ? lowest : highest, distance,
                                                    distance < 0 ? &lowest : &highest));
  }
  fits = fits && !__builtin_sub_overflow(highest, lowest, &span) && span <= kMostBytes - item;
  if (!fits && !is_empty)
    throw ValueError(text(op, ": ", name, " has shape ", shape_text(given.dims, given.shape),
                          ", more than fits into memory"));
  if (!given.data && !is_empty) throw ValueError(text(op, ": ", name, ".data is a null pointer"));
  data = static_cast<char*>(given.data);
  given_ = &given;
}

std::string dtype_text(const CallerArray& array) {
  if (array.dtype != kDTypes) return kDTypeNames[array.dtype];
  return text("number ", array.dtype_number());
}

tensor_ops_status get_backend(const BackendParts& parts, std::uint32_t abi_version,
                              const tensor_ops_backend** backend, tensor_ops_error* error) {
  return guarded(error, [&] {
    if (!backend) throw ValueError("backend is a null pointer");
    *backend = nullptr;
    if (abi_version != TENSOR_OPS_ABI_VERSION)
      throw ValueError(text("the caller asks for version ", abi_version,
                            " of the interface, and this library (tensor_ops_", parts.name, " ",
                            parts.version, ") has version ", TENSOR_OPS_ABI_VERSION,
                            "; install releases of both that belong together"));
    static Table* const table = the_table = new_table(parts);
    *backend = &table->backend;
  });
}

}  // namespace tensor_ops
