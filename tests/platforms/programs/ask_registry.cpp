// Asks the registry what the lines of standard input say, and prints a line for each: the driver of
// test_registry_elsewhere.py. The words of a command line would not be UTF-8 on Windows.
#include <tensor_ops/backend/backends.h>

#include <iostream>
#include <string>

using namespace tensor_ops::backend;

namespace {

BackendRegistry& registry() { return BackendRegistry::get_instance(); }

std::string described(const Backend* backend) {
  if (backend == nullptr) return "null";
  return backend->get_name() + (backend->is_available() ? " available" : " unavailable");
}

std::string available() {
  std::string names;
  for (const BackendType type : registry().get_available_backends())
    names += std::string(names.empty() ? "" : " ") + name_of(type);
  return names.empty() ? "none" : names;
}

std::string done(const std::string& command, const std::string& value) {
  if (command == "get") return described(registry().get_backend(value));
  if (command == "reason") return registry().unavailable_reason(value);
  if (command == "library") return registry().get_backend(value)->library();
  if (command == "available") return available();
  if (command == "default") return described(get_default_backend());
  if (command == "configuration") return registry().get_backend(value)->configuration();
  if (command == "search") return registry().search_python_environment(value), "searched";
  if (command == "silu") {
    float x[] = {-1, 0, 1};
    registry().get_backend(value)->silu({x, {3}}, {x, {3}});
    return std::to_string(x[2]);
  }
  return "unknown command " + command;
}

const char* type_of(const Error& error) {
  if (dynamic_cast<const ConfigError*>(&error) != nullptr) return "ConfigError";
  if (dynamic_cast<const ValueError*>(&error) != nullptr) return "ValueError";
  if (dynamic_cast<const UnavailableError*>(&error) != nullptr) return "UnavailableError";
  return "Error";
}

}  // namespace

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    const std::size_t blank = line.find(' ');
    try {
      std::cout << done(line.substr(0, blank),
                        blank == std::string::npos ? "" : line.substr(blank + 1));
    } catch (const Error& error) {
      std::cout << type_of(error) << ": " << error.what();
    }
    std::cout << std::endl;
  }
}
