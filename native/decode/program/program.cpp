#include "decode/program/program.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <unordered_map>
#include <utility>

#include "declaration/errors.h"
#include "decode/program/json_fields.h"
#include "decode/program/node_kind.h"
#include "decode/program/node_rules.h"
#include "decode/program/sizes.h"
#include "decode/program/step.h"

namespace tensor_ops::decode {
namespace {

// Calls function(name, value) for the members of an object.
template <class Function>
void for_members(const Json& object, Function function) {
  for (std::size_t i = 0; i < object.keys.size(); ++i) function(object.keys[i], object.items[i]);
}

// By its name; null where there is none.
template <class Named>
const Named* find_named(const std::vector<Named>& all, const std::string& name) {
  for (const Named& each : all)
    if (name == each.name) return &each;
  return nullptr;
}

template <class Named>
std::vector<const char*> names_of(const std::vector<Named>& all) {
  std::vector<const char*> names;
  for (const Named& each : all) names.push_back(each.name);
  return names;
}

template <class Named>
std::string listed(const std::vector<Named>& all) {
  return joined(all, [](const Named& each) { return each.name; });
}

using Indices = std::unordered_map<std::string, std::size_t>;

class Reader {
 public:
  Program read(const Json& json) {
    const Fields all(json, "program",
                     {"format", "version", "limits", "tensors", "caches", "values", "nodes",
                      "outputs", "draft"});
    if (all.string("format") != "tensor-ops program")
      throw ValueError("program: format must be 'tensor-ops program', got '" +
                       all.string("format") + "'");
    const Json& version = all.at("version", Json::Kind::kNumber);
    if (!version.is_integer || version.integer != 2)
      throw ValueError(text("program: version must be 2, got ", number_text(version),
                            "; write the program again with this release"));
    read_limits(all.at("limits"));
    for_members(all.at("tensors", Json::Kind::kObject),
                [this](const std::string& name, const Json& each) { read_tensor(name, each); });
    for_members(all.at("caches", Json::Kind::kObject),
                [this](const std::string& name, const Json& each) { read_cache(name, each); });
    read_values(all.at("values", Json::Kind::kObject));
    for (const Json& each : all.at("nodes", Json::Kind::kArray).items) read_node(each);
    for (std::size_t i = 0; i < program_.values.size(); ++i)
      if (!is_written_[i])
        throw ValueError(text("value '", program_.values[i].name, "' is written by no node"));
    for (const Json& each : all.at("outputs", Json::Kind::kArray).items) read_output(each);
    program_.num_step_nodes = program_.nodes.size();
    if (json.member("draft")) read_draft(all.at("draft"));
    return std::move(program_);
  }

 private:
  void read_limits(const Json& json) {
    const Fields limits(json, "limits",
                        {"max_requests", "max_tokens", "max_selected", "max_seq_length",
                         "page_size", "num_pages", "extra_states"});
    program_.limits = {limits.size("max_requests"),      limits.size("max_tokens"),
                       limits.size("max_selected"),      limits.size("max_seq_length"),
                       limits.size("page_size"),         limits.size("num_pages"),
                       limits.size_or("extra_states", 0)};
  }

  void read_tensor(const std::string& name, const Json& json) {
    const std::string where = text("tensor '", name, "'");
    const Fields fields(json, where, {"type", "shape", "source"});
    fields.at("source", Json::Kind::kObject);  // for the caller, who reads the bytes from there
    Tensor tensor{name, find_named(tensor_types(), fields.string("type")), 0, 1, 1, 0};
    if (!tensor.type)
      throw ValueError(text(where, ": type must be one of ", listed(tensor_types()), "; got '",
                            fields.string("type"), "'"));
    const std::vector<Json>& shape = fields.at("shape", Json::Kind::kArray).items;
    if (shape.empty() || shape.size() > 3)
      throw ValueError(
          text(where, ": shape must have one to three dimensions, got ", shape.size()));
    tensor.dimensions = static_cast<int>(shape.size());
    const auto size_at = [&](std::size_t d) {
      return Fields::as_size(shape[d], text(where, ": shape[", d, "]"));
    };
    if (tensor.dimensions == 3) tensor.planes = size_at(0);
    if (tensor.dimensions > 1) tensor.rows = size_at(shape.size() - 2);
    tensor.columns = Fields::as_size(shape.back(), where + ": the last dimension");
    if (tensor.columns % tensor.type->block_columns != 0)
      throw ValueError(text(where, ": ", tensor.type->name,
                            " needs columns that are a multiple of ", tensor.type->block_columns,
                            ", got ", tensor.columns));
    size_product(where, tensor.planes, tensor.rows, tensor.columns, std::size_t{8});
    tensors_[name] = program_.tensors.size();
    program_.tensors.push_back(std::move(tensor));
  }

  void read_cache(const std::string& name, const Json& json) {
    const std::string where = text("cache '", name, "'");
    caches_[name] = program_.caches.size();
    Cache cache{};
    cache.name = name;
    if (json.member("rows")) {
      const Fields fields(json, where, {"rows", "columns"});
      cache.form = CacheForm::kState;
      cache.rows = fields.size("rows");
      cache.columns = fields.size("columns");
      size_product(where, program_.limits.num_states(), cache.rows, cache.columns, sizeof(float));
    } else {
      const Fields fields(json, where,
                          {"num_kv_heads", "head_size", "dtype", "paged", "value_size"});
      cache.form = CacheForm::kKeysAndValues;
      cache.num_kv_heads = fields.size("num_kv_heads");
      cache.head_size = fields.size("head_size");
      cache.value_size = fields.size_or("value_size", cache.head_size);
      cache.type = static_cast<CacheType>(fields.choice("dtype", {"float32", "float16", "int8"}));
      cache.is_paged = fields.at("paged", Json::Kind::kBool).boolean;
    }
    program_.caches.push_back(std::move(cache));
  }

  void read_values(const Json& json) {
    program_.values.push_back({"tokens", Rows::kTokens, 1, true});
    for_members(json, [this](const std::string& name, const Json& each) {
      const std::string where = text("value '", name, "'");
      const Fields fields(each, where, {"rows", "columns", "dtype"});
      Value value{name, static_cast<Rows>(fields.choice("rows", {"tokens", "selected"})),
                  fields.size("columns"), fields.choice("dtype", {"float32", "int32"}) == 1};
      size_product(where, program_.limits.rows(value.rows), value.columns, std::size_t{4});
      if (name != "tokens") return program_.values.push_back(std::move(value));
      if (value.rows != Rows::kTokens || value.columns != 1 || !value.is_int32)
        throw ValueError("value 'tokens' must be int32 with one column and a row for each token");
    });
    for (std::size_t i = 0; i < program_.values.size(); ++i) values_[program_.values[i].name] = i;
    is_written_.assign(program_.values.size(), false);
    is_written_[kTokens] = true;
  }

  void read_node(const Json& json) {
    const Fields fields(json, text("nodes[", program_.nodes.size(), "]"),
                        {"kind", "name", "inputs", "weights", "outputs", "attributes"});
    Node node;
    node.name = fields.string("name");
    node.kind = find_named(node_kinds(), fields.string("kind"));
    if (!node.kind)
      throw ValueError(text("node '", node.name, "': no such kind as '", fields.string("kind"),
                            "'; the kinds are ", listed(node_kinds())));
    const NodeKind& kind = *node.kind;
    const std::string where = node.where();
    if (!node_names_.emplace(node.name, 0).second)
      throw ValueError(text(where, ": another node has the same name"));

    const Fields inputs(fields.at("inputs"), where + ": inputs", names_of(kind.inputs));
    for (const InputSlot& slot : kind.inputs)
      node.inputs.push_back(written_value(where, slot.name, inputs.string(slot.name)));
    read_weights(node, fields.at("weights"));
    read_attributes(node, fields.at("attributes"));
    read_outputs(node, fields.at("outputs"));
    check_node(program_, node);
    program_.nodes.push_back(std::move(node));
  }

  void read_outputs(Node& node, const Json& json) {
    const std::string where = node.where();
    const Fields outputs(json, where + ": outputs", names_of(node.kind->outputs));
    for (const OutputSlot& slot : node.kind->outputs) {
      const std::string& name = outputs.string(slot.name);
      const std::size_t value = find(values_, where, slot.name, "value", name);
      if (is_written_[value])
        throw ValueError(text(where, ": its output '", name, "' is written twice"));
      is_written_[value] = true;
      node.outputs.push_back(value);
    }
  }

  void read_weights(Node& node, const Json& json) {
    const std::string where = node.where();
    const Fields weights(json, where + ": weights", names_of(node.kind->weights));
    for (const WeightSlot& slot : node.kind->weights) {
      std::vector<std::size_t> indices;
      const bool is_named = slot.need == Need::kRequired || json.member(slot.name) != nullptr;
      if (is_named)
        for (const Json& each : weights.at(slot.name, Json::Kind::kArray).items)
          indices.push_back(
              find(tensors_, where, slot.name, "tensor",
                   Fields::require(each, Json::Kind::kString, where + ": " + slot.name).string));
      if (indices.empty() && is_named)
        throw ValueError(text(where, ": ", slot.name, " must name at least one tensor"));
      node.weights.push_back(std::move(indices));
    }
  }

  void read_attributes(Node& node, const Json& json) {
    const NodeKind& kind = *node.kind;
    const std::string where = node.where();
    std::vector<const char*> known = names_of(kind.attributes);
    if (kind.has_cache()) known.push_back("cache");
    Fields::require(json, Json::Kind::kObject, where + ": attributes");
    const Fields fields(json, where, known);
    for (const AttributeSlot& slot : kind.attributes) {
      if (slot.type == AttributeType::kChoice) {
        node.attributes.push_back(
            static_cast<std::int64_t>(fields.choice(slot.name, slot.choices)));
        continue;
      }
      const Json& given = fields.at(slot.name, Json::Kind::kNumber);
      const bool is_integer = slot.type == AttributeType::kInteger;
      if (is_integer && (!given.is_integer || given.integer > kMostSize))
        throw ValueError(text(where, ": ", slot.name, " must be an integer up to ", kMostSize,
                              ", got ", number_text(given)));
      if (given.number < slot.least)
        throw ValueError(text(where, ": ", slot.name, " must be at least ", slot.least, ", got ",
                              number_text(given)));
      std::int64_t bits = given.integer;
      if (!is_integer) std::memcpy(&bits, &given.number, sizeof(bits));
      node.attributes.push_back(bits);
    }
    if (!kind.has_cache()) return;
    node.cache = find(caches_, where, "cache", "cache", fields.string("cache"));
    const auto other = std::find_if(program_.nodes.begin(), program_.nodes.end(),
                                    [&](const Node& each) { return each.cache == node.cache; });
    if (kind.writes_cache() && other != program_.nodes.end())
      throw ValueError(text(where, ": ", other->where(), " has the same cache"));
    if (!kind.writes_cache() && other == program_.nodes.end())
      throw ValueError(text(where, ": no node before writes the cache '",
                            program_.caches[node.cache].name, "'"));
  }

  void read_output(const Json& json) {
    const std::string& name = Fields::require(json, Json::Kind::kString, "outputs").string;
    const std::size_t value = find(values_, "outputs", "outputs", "value", name);
    const auto& before = program_.outputs;
    if (value == kTokens) throw ValueError("outputs: 'tokens' is an input");
    for_step_arrays(program_.limits, [&](const char* array, auto...) {
      if (name == array)
        throw ValueError(text("outputs: '", name, "' is the name of an array of every step"));
    });
    if (std::find(before.begin(), before.end(), value) != before.end())
      throw ValueError(text("outputs: '", name, "' is named twice"));
    program_.outputs.push_back(value);
  }

  // Of what a draft step reads and writes only the first node matters here: the rest is for
  // callers.
  void read_draft(const Json& json) {
    const Fields draft(json, "draft", {"first_node", "hidden", "next_hidden", "tokens"});
    const std::string& first = draft.string("first_node");
    std::size_t n = 0;
    while (n < program_.nodes.size() && program_.nodes[n].name != first) ++n;
    if (n == program_.nodes.size())
      throw ValueError(text("draft: first_node is '", first, "', which is no node"));
    program_.num_step_nodes = n;
    const std::string& hidden = draft.string("hidden");
    const Value& rows = output_of_step("hidden", hidden, true);
    if (rows.rows != Rows::kTokens)
      throw ValueError(text("draft: hidden '", hidden, "' must have a row for each token"));
    require_form(draft, "next_hidden", rows.columns, rows.is_int32);
    require_form(draft, "tokens", 1, true);
    for (std::size_t d = n; d < program_.nodes.size(); ++d)
      for (std::size_t input : program_.nodes[d].inputs)
        if (is_of_step(input) && input != kTokens && program_.values[input].name != hidden)
          throw ValueError(
              text("draft: ", program_.nodes[d].where(), " reads '", program_.values[input].name,
                   "'; of the values of a step it may read only hidden, which is '", hidden, "'"));
  }

  // Whether a node before the draft writes a value.
  bool is_of_step(std::size_t value) const {
    for (std::size_t n = program_.num_step_nodes; n < program_.nodes.size(); ++n) {
      const auto& outputs = program_.nodes[n].outputs;
      if (std::find(outputs.begin(), outputs.end(), value) != outputs.end()) return false;
    }
    return true;
  }

  const Value& output_of_step(const char* what, const std::string& name, bool is_wanted) const {
    for (std::size_t output : program_.outputs)
      if (program_.values[output].name == name && is_of_step(output) == is_wanted)
        return program_.values[output];
    throw ValueError(text("draft: ", what, " is '", name, "', which is no output of a ",
                          is_wanted ? "step" : "draft step"));
  }

  void require_form(const Fields& draft, const char* what, std::size_t columns,
                    bool is_int32) const {
    const Value& value = output_of_step(what, draft.string(what), false);
    if (value.rows != Rows::kSelected || value.columns != columns || value.is_int32 != is_int32)
      throw ValueError(text("draft: ", what, " '", value.name, "' must have ", columns,
                            " columns of ", is_int32 ? "int32" : "float32",
                            " for selected tokens"));
  }

  static std::size_t find(const Indices& indices, const std::string& where, const char* slot,
                          const char* what, const std::string& name) {
    const auto found = indices.find(name);
    if (found == indices.end())
      throw ValueError(
          text(where, ": ", slot, " names the ", what, " '", name, "', which is missing"));
    return found->second;
  }
  std::size_t written_value(const std::string& where, const char* slot, const std::string& name) {
    const std::size_t value = find(values_, where, slot, "value", name);
    if (!is_written_[value])
      throw ValueError(text(where, ": ", slot, " is '", name, "', which no node before writes"));
    return value;
  }

  Program program_{};
  Indices tensors_, caches_, values_, node_names_;
  std::vector<bool> is_written_;
};

}  // namespace

std::string Node::where() const { return text("node '", name, "' (", kind->name, ")"); }

std::size_t Node::window() const {
  const std::string name = kind->cache.window;
  if (name.empty()) return 0;
  return static_cast<std::size_t>(attributes[slot_index(kind->attributes, name)]);
}

void require_tensors(const Program& program, const std::vector<TensorBytes>& tensors,
                     const std::vector<bool>& wanted) {
  for (const Node& node : program.nodes)
    for (const auto& slot : node.weights)
      for (std::size_t index : slot) {
        if (!wanted[index]) continue;
        const Tensor& tensor = program.tensors[index];
        if (!tensors[index].first)
          throw ValueError(text(node.where(), ": tensor '", tensor.name, "' is not given"));
        if (tensors[index].bytes != tensor.bytes())
          throw ValueError(text("tensor '", tensor.name, "' must have ", tensor.bytes(), " bytes (",
                                tensor.type->name, ", ", tensor.rows, " x ", tensor.columns,
                                "), got ", tensors[index].bytes));
      }
}

const Value* find_output(const Program& program, const std::string& name) {
  for (std::size_t index : program.outputs)
    if (program.values[index].name == name) return &program.values[index];
  return nullptr;
}

std::size_t vocabulary_size(const Program& program) {
  auto smallest = static_cast<std::size_t>(kMostSize);
  for (const Node& node : program.nodes)
    for (std::size_t i = 0; i < node.inputs.size(); ++i)
      if (node.inputs[i] == kTokens) smallest = std::min(smallest, node.below[i]);
  return smallest;
}

Program parse_program(std::string_view json) {
  return Reader().read(version_2_of(parse_json(json, "program")));
}

}  // namespace tensor_ops::decode
