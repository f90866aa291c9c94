#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "decode/program/node_rules.h"

namespace tensor_ops::decode {
namespace {

Json string_of(std::string text) {
  Json made{Json::Kind::kString};
  made.string = std::move(text);
  return made;
}

Json integer_of(std::int64_t number) {
  Json made{Json::Kind::kNumber};
  made.is_integer = true;
  made.integer = number;
  made.number = static_cast<double>(number);
  return made;
}

Json object_of(std::vector<std::string> keys, std::vector<Json> items) {
  Json made{Json::Kind::kObject};
  made.keys = std::move(keys);
  made.items = std::move(items);
  return made;
}

Json* member_of(Json& object, const char* key) { return const_cast<Json*>(object.member(key)); }

class Conversion {
 public:
  explicit Conversion(Json& program)
      : values_(member_of(program, "values")), nodes_(member_of(program, "nodes")) {}

  void convert() {
    if (!values_ || values_->kind != Json::Kind::kObject || !nodes_ ||
        nodes_->kind != Json::Kind::kArray)
      return;
    names_.insert({"tokens"});
    for (std::size_t i = 0; i < values_->keys.size(); ++i) {
      names_.insert(values_->keys[i]);
      place_[values_->keys[i]] = i;
    }
    for (const Json& node : nodes_->items)
      if (const Json* const name = node.member("name")) names_.insert(name->string);
    std::vector<Json> given;
    given.swap(nodes_->items);
    for (Json& node : given)
      if (!divide(node)) nodes_->items.push_back(std::move(node));
  }

 private:
  // Adds the nodes that a node is made of; false where it is one already, or has another form.
  bool divide(const Json& node) {
    const Json *const kind = node.member("kind"), *const inputs = node.member("inputs"),
                      *const weights = node.member("weights"),
                      *const outputs = node.member("outputs"),
                      *const attributes = node.member("attributes"),
                      *const name = node.member("name");
    if (node.keys.size() != 6 || !kind || !inputs || !weights || !outputs || !attributes || !name)
      return false;
    const Json *const x = inputs->member("x"), *const residual = inputs->member("residual"),
                      *const output = outputs->member("output");
    if (!x || !output || outputs->keys.size() != 1 || name->kind != Json::Kind::kString)
      return false;
    const bool has_norm = kind->string == "rms_norm_linear",
               has_gate = kind->string == "silu_mul_linear_with_residual";
    if (has_norm ? residual || !weights->member("norm") || !attributes->member("eps")
                 : !residual || !(has_gate || kind->string == "linear"))
      return false;
    if (inputs->keys.size() != (residual ? 2 : 1) || attributes->keys.size() != has_norm)
      return false;
    const Json *const of_x = value(x->string), *const of_output = value(output->string);
    if (x->kind != Json::Kind::kString || !of_x || !of_output) return false;

    Json read = *x;
    Json product_weights = *weights;
    if (has_norm) {
      const Json norm = string_of(new_value(output->string + ".norm", *of_x, 1));
      add("rms_norm", norm, object_of({"x"}, {read}),
          object_of({"weight"}, {*weights->member("norm")}), *attributes);
      product_weights = without(*weights, "norm");
      read = norm;
    } else if (has_gate) {
      const Json hidden = string_of(new_value(output->string + ".hidden", *of_x, 2));
      add("silu_mul", hidden, object_of({"x"}, {read}), object_of({}, {}), object_of({}, {}));
      read = hidden;
    }
    Json product = *output;
    if (residual)
      product = string_of(new_value(output->string + ".product", *value(output->string), 1));
    add("linear", product, object_of({"x"}, {read}), std::move(product_weights), object_of({}, {}),
        residual ? &product : name);
    if (residual)
      add("add", *output, object_of({"a", "b"}, {product, *residual}), object_of({}, {}),
          object_of({}, {}), name);
    return true;
  }

  void add(const char* kind, const Json& output, Json inputs, Json weights, Json attributes,
           const Json* name = nullptr) {
    nodes_->items.push_back(
        object_of({"kind", "name", "inputs", "weights", "outputs", "attributes"},
                  {string_of(kind), name ? *name : output, std::move(inputs), std::move(weights),
                   object_of({"output"}, {output}), std::move(attributes)}));
  }

  // The program's declaration of a value with rows and columns; null where it says less.
  const Json* value(const std::string& name) const {
    static const Json tokens = object_of({"rows", "columns", "dtype"},
                                         {string_of("tokens"), integer_of(1), string_of("int32")});
    if (name == "tokens") return &tokens;
    const auto found = place_.find(name);
    if (found == place_.end()) return nullptr;
    const Json& of = values_->items[found->second];
    const Json *const rows = of.member("rows"), *const columns = of.member("columns");
    const bool is_known = rows && columns && columns->is_integer;
    return is_known ? &of : nullptr;
  }

  // Declares a value with the rows of another one and some of its columns.
  std::string new_value(std::string name, const Json& like, std::int64_t divisor) {
    while (!names_.insert(name).second) name += '\'';
    Json made =
        object_of({"rows", "columns", "dtype"},
                  {*like.member("rows"), integer_of(like.member("columns")->integer / divisor),
                   string_of("float32")});
    place_[name] = values_->keys.size();
    values_->keys.push_back(name);
    values_->items.push_back(std::move(made));
    return name;
  }

  static Json without(const Json& object, const std::string& key) {
    Json left{Json::Kind::kObject};
    for (std::size_t i = 0; i < object.keys.size(); ++i) {
      if (object.keys[i] == key) continue;
      left.keys.push_back(object.keys[i]);
      left.items.push_back(object.items[i]);
    }
    return left;
  }

  Json *const values_, *const nodes_;
  std::unordered_set<std::string> names_;               // of values and nodes
  std::unordered_map<std::string, std::size_t> place_;  // of values
};

}  // namespace

Json version_2_of(Json program) {
  Json* const version = member_of(program, "version");
  if (!version || !version->is_integer || version->integer != 1) return program;
  *version = integer_of(2);
  Conversion(program).convert();
  return program;
}

}  // namespace tensor_ops::decode
