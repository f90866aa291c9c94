#include "decode/files/exported_model.h"

#include <algorithm>

#include "declaration/errors.h"
#include "decode/files/safetensors.h"
#include "decode/program/activation_type.h"
#include "decode/program/json_fields.h"

namespace tensor_ops::decode {
namespace {

constexpr const char* kExportFormat = "tensor-ops model";
constexpr std::int64_t kExportVersion = 1;
constexpr std::size_t kMostText = 16 << 20;  // bytes of a file of JSON

// Calls function() with the name of a file before the messages of what it throws.
template <class Function>
auto about_file(const std::string& path, Function function) {
  try {
    return function();
  } catch (const ValueError& error) {
    throw ValueError(path + ": " + error.what());
  }
}

// The text of a file, which lives as long as `file` does.
std::string_view text_of(const MappedFile& file) {
  if (file.size() <= kMostText) return file.text();
  throw ValueError(
      text(file.path(), ": must have at most ", kMostText, " bytes, got ", file.size()));
}

// Called before anything else is read, since another version may have other keys.
void require_version(const Json& json) {
  const Json *const format = json.member("format"), *const version = json.member("version");
  if (!format || format->string != kExportFormat)
    throw ValueError(text("must be a JSON object whose format is '", kExportFormat, "'"));
  if (!version || !version->is_integer || version->integer != kExportVersion)
    throw ValueError(text("version must be ", kExportVersion, ", got ",
                          version ? text(version->number) : "none",
                          "; export the model again with the release that is to run it"));
}

// Facts of model.json that are compared with the program and with the weights.
struct StatedFacts {
  std::size_t vocabulary_size, context_length, num_layers;
  std::string weights_sha256;
};

StatedFacts read_facts(const Json& json, ExportedModel& model) {
  require_version(json);
  const Fields fields(
      json, "the model",
      {"format", "version", "name", "weights_sha256", "logits", "tokens", "vocabulary_size",
       "context_length", "num_layers", "start_token", "end_tokens", "activations"});
  model.name = fields.string("name");
  model.logits = fields.string("logits");
  model.tokens = fields.string("tokens");
  model.start_token = static_cast<std::int32_t>(fields.size("start_token", 0));
  for (const Json& each : fields.at("end_tokens", Json::Kind::kArray).items)
    model.end_tokens.push_back(
        static_cast<std::int32_t>(Fields::as_size(each, "the model: end_tokens", 0)));
  if (fields.at("activations").kind != Json::Kind::kNull) {
    const std::vector<const char*> names(std::begin(kActivationNames), std::end(kActivationNames));
    model.activations = names[fields.choice("activations", names)];
  }
  return {fields.size("vocabulary_size"), fields.size("context_length"),
          fields.size("num_layers", 0), fields.string("weights_sha256")};
}

void require_output(const Program& program, const std::string& name, bool is_int32) {
  const Value* const output = find_output(program, name);
  if (!output || output->is_int32 != is_int32 || (is_int32 && output->columns != 1))
    throw ValueError(text("the model: '", name, "' is no output of the program with ",
                          is_int32 ? "one int32" : "float32", " in a row"));
}

void require_facts(const StatedFacts& stated, const Program& program) {
  const auto require = [](const char* what, std::size_t given, std::size_t expected) {
    if (given != expected)
      throw ValueError(
          text("the model: ", what, " is ", given, ", but that of its program is ", expected));
  };
  require("vocabulary_size", stated.vocabulary_size, vocabulary_size(program));
  require("context_length", stated.context_length, longest_sequence(program.limits));
  require("num_layers", stated.num_layers, num_layers(program));
}

std::string stored_dtype(const Tensor& tensor) {
  const std::string_view name = tensor.type->name;
  return name == "f32" ? "F32" : name == "f16" ? "F16" : name == "bf16" ? "BF16" : "U8";
}

// Types in blocks are stored as the bytes of their rows.
std::vector<std::size_t> stored_shape(const Tensor& tensor, const std::string& dtype) {
  std::vector<std::size_t> shape = tensor.shape();
  if (dtype == "U8") shape.back() = tensor.type->row_bytes(tensor.columns);
  return shape;
}

TensorBytes bytes_of(const Tensor& tensor, const Safetensors& stored) {
  const auto found = stored.tensors.find(tensor.name);
  if (found == stored.tensors.end())
    throw ValueError(text("tensor '", tensor.name, "' of the program is missing"));
  const StoredTensor& given = found->second;
  const std::string dtype = stored_dtype(tensor);
  const std::vector<std::size_t> shape = stored_shape(tensor, dtype);
  if (given.dtype != dtype || given.shape != shape)
    throw ValueError(text("tensor '", tensor.name, "' must be ", dtype, " of shape ",
                          shape_text(static_cast<int>(shape.size()), shape.data()), ", for ",
                          tensor.type->name, " in the program, got ", given.dtype, " of shape ",
                          shape_text(static_cast<int>(given.shape.size()), given.shape.data())));
  return {given.first, given.bytes, true};
}

}  // namespace

std::size_t longest_sequence(const Limits& limits) {
  return std::min(limits.max_seq_length, limits.num_pages * limits.page_size);
}

std::size_t num_layers(const Program& program) {
  return static_cast<std::size_t>(
      std::count_if(program.nodes.begin(), program.nodes.end(),
                    [](const Node& node) { return node.cache != kAbsent; }));
}

ExportedModel open_exported_model(const std::string& folder) {
  ExportedModel model{};
  const MappedFile described(folder + "/model.json"), program(folder + "/program.json");
  const StatedFacts stated = about_file(described.path(), [&] {
    return read_facts(parse_json(text_of(described), "the model"), model);
  });
  model.program = about_file(program.path(), [&] { return parse_program(text_of(program)); });
  about_file(described.path(), [&] {
    require_output(model.program, model.logits, false);
    require_output(model.program, model.tokens, true);
    require_facts(stated, model.program);
  });

  model.weights = std::make_shared<const MappedFile>(folder + "/weights.safetensors");
  about_file(model.weights->path(), [&] {
    const Safetensors stored = read_safetensors(*model.weights);
    const auto digest = stored.metadata.find("sha256");
    if (digest == stored.metadata.end() || digest->second != stated.weights_sha256)
      throw ValueError("has not the sha256 that model.json says: they are of different exports");
    for (const Tensor& tensor : model.program.tensors)
      model.tensors.push_back(bytes_of(tensor, stored));
    if (stored.tensors.size() != model.tensors.size())
      throw ValueError(text("has ", stored.tensors.size(), " tensors, and the program has ",
                            model.tensors.size()));
  });
  return model;
}

}  // namespace tensor_ops::decode
